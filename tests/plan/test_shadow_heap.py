"""The shadow heap: real addresses, real books, no memory. Read in new processes, for a used heap has holes to fill."""

from __future__ import annotations

import json
import subprocess
import sys
from textwrap import dedent
from typing import Any

import pytest

from rlmem.plan import shadow_heap
from rlmem.plan.shadow_heap import Block, ShadowHeap

MIB = 2**20
BOOKKEEPING = 2 * MIB
"""What Python's own objects add to the same heap, or find free in it, while it is read."""

pytestmark = pytest.mark.skipif(not ShadowHeap().is_real, reason="needs a glibc with mallinfo2")

PRELUDE = """
import json, os
from rlmem.observe import rss_bytes
from rlmem.plan.shadow_heap import ShadowHeap, read_books, trim
MIB = 2**20
trim()
heap = ShadowHeap()
"""


def in_new_process(code: str) -> Any:
    """Return the ``result`` of a piece of code that has a ``heap`` of its own."""
    program = f"{PRELUDE}{dedent(code)}\nprint(json.dumps(result))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("size", [32 * MIB + 1, 2**40])
def test_large_blocks_are_only_counted(size: int) -> None:
    heap = ShadowHeap()
    start = heap.level()
    block = heap.allocate(size)
    assert block == Block(size, None)
    assert heap.level() - start == pytest.approx(size, abs=BOOKKEEPING)
    heap.free(block)
    assert heap.level() == pytest.approx(start, abs=BOOKKEEPING)


@pytest.mark.parametrize("size", [1, 100, 4096, MIB, 32 * MIB])
def test_other_blocks_are_the_allocators_own_and_aligned(size: int) -> None:
    heap = ShadowHeap()
    block = heap.allocate(size)
    assert block.address
    assert block.address % 64 == 0
    heap.free(block)


@pytest.mark.parametrize("size", [MIB // 4, MIB, 24 * MIB])
def test_a_gibibyte_of_blocks_takes_no_memory(size: int) -> None:
    result = in_new_process(f"""
        before, size = rss_bytes(os.getpid()), {size}
        blocks = [heap.allocate(size) for _ in range(2**30 // size)]
        result = {{
            "alive": sum(block.bytes for block in blocks),
            "level": heap.level(),
            "grown": rss_bytes(os.getpid()) - before,
        }}
    """)
    assert result["grown"] < 20 * MIB
    assert result["level"] >= result["alive"] - MIB, "a little was free in the heap from the start"
    assert result["level"] < 1.05 * result["alive"] + BOOKKEEPING


def test_the_level_follows_what_is_alive_and_comes_back() -> None:
    result = in_new_process("""
        alive, levels = [0], []
        blocks = []
        for size in (MIB, 20 * MIB, 40 * MIB, 300_000, 8 * MIB) * 5:
            blocks.append(heap.allocate(size))
            alive.append(alive[-1] + size)
            levels.append(heap.level())
        for block in blocks:
            heap.free(block)
        trim()
        result = {"alive": alive[1:], "levels": levels, "end": heap.level()}
    """)
    assert all(level >= size - MIB for size, level in zip(result["alive"], result["levels"], strict=True))
    assert abs(result["end"]) < BOOKKEEPING


def test_a_freed_hole_is_kept_and_used_again() -> None:
    """What a freed block leaves between two others stays in the heap: that is what a plan has to know."""
    result = in_new_process("""
        blocks = [heap.allocate(60_000) for _ in range(400)]
        levels = [heap.level()]
        for block in blocks[::2]:
            heap.free(block)
        levels.append(heap.level())
        again = [heap.allocate(60_000) for _ in range(200)]
        result = [*levels, heap.level()]
    """)
    full, with_holes, filled = result
    assert full == pytest.approx(400 * 60_000, abs=BOOKKEEPING)
    assert with_holes == pytest.approx(full, abs=MIB)
    assert filled == pytest.approx(full, abs=MIB)


def test_the_books_tell_what_is_in_use_from_what_is_kept() -> None:
    result = in_new_process("""
        blocks = [heap.allocate(60_000) for _ in range(400)]
        full = read_books()
        for block in blocks[:-1]:
            heap.free(block)
        after = read_books()
        result = [full.bytes, full.in_use_bytes, after.bytes, after.in_use_bytes]
    """)
    full, full_in_use, kept, in_use = result
    assert full >= full_in_use > 400 * 60_000
    assert kept == pytest.approx(full, abs=BOOKKEEPING), "the last block holds the heap up"
    assert full_in_use - in_use == pytest.approx(399 * 60_000, abs=BOOKKEEPING)


def test_without_a_glibc_sizes_are_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shadow_heap, "_glibc", lambda: None)
    heap = ShadowHeap()
    blocks = [heap.allocate(size) for size in (10, 20, 30)]
    assert not heap.is_real
    assert heap.level() == 60
    heap.free(blocks[1])
    assert heap.level() == 40
    assert shadow_heap.read_books().in_use_bytes == 0

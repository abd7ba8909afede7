"""Readings of real processes: what they are made to take is what is read."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent

import pytest

from rlmem.observe import TreeSampler, high_water_bytes, process_tree, pss_bytes, reset_high_water, rss_bytes

MIB = 2**20

Child = subprocess.Popen[str]


@contextmanager
def running(code: str, *arguments: str) -> Iterator[Child]:
    """Run code that says each step on a line of its own and goes on when it is told to."""
    command = [sys.executable, "-c", dedent(code), *arguments]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield child
    finally:
        child.stdin.close()
        child.stdout.close()
        child.terminate()
        child.wait(10)


def told(child: Child) -> str:
    return child.stdout.readline().strip()


def go_on(child: Child) -> str:
    child.stdin.write("\n")
    child.stdin.flush()
    return told(child)


TAKES = """
    import mmap
    print("started", flush=True); input()
    memory = mmap.mmap(-1, 64 * 2**20)
    print("mapped", flush=True); input()
    for page in range(0, len(memory), 4096):
        memory[page] = 1
    print("touched", flush=True); input()
    memory.close()
    print("freed", flush=True); input()
"""


@pytest.mark.parametrize("read", [rss_bytes, pss_bytes], ids=["rss", "pss"])
def test_memory_counts_once_it_is_touched(read: Callable[[int], int]) -> None:
    with running(TAKES) as child:
        assert told(child) == "started"
        start = read(child.pid)
        assert start > MIB
        assert go_on(child) == "mapped"
        assert read(child.pid) - start < 2 * MIB
        assert go_on(child) == "touched"
        assert read(child.pid) - start == pytest.approx(64 * MIB, abs=2 * MIB)
        assert go_on(child) == "freed"
        assert read(child.pid) - start < 2 * MIB


def test_the_high_water_mark_stays() -> None:
    with running(TAKES) as child:
        told(child)
        start = rss_bytes(child.pid)
        for _ in range(3):
            go_on(child)
        assert high_water_bytes(child.pid) - start == pytest.approx(64 * MIB, abs=2 * MIB)
        assert rss_bytes(child.pid) - start < 2 * MIB


def test_shared_pages_are_divided() -> None:
    """A fork that touches nothing has the resident set of its parent and half of its share."""
    code = """
        import mmap, os
        memory = mmap.mmap(-1, 64 * 2**20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory.write(bytes(len(memory)))
        child = os.fork()
        if child:
            print(child, flush=True)
        input() if child else os.read(0, 1)
    """
    with running(code) as parent:
        fork = int(told(parent))
        assert rss_bytes(parent.pid) > 64 * MIB
        total = pss_bytes(parent.pid) + pss_bytes(fork)
        assert pss_bytes(parent.pid) < 0.7 * rss_bytes(parent.pid)
        assert 64 * MIB < total < rss_bytes(parent.pid) + 4 * MIB


def test_this_process_can_begin_its_mark_anew() -> None:
    block = bytearray(64 * MIB)
    high = high_water_bytes(os.getpid())
    del block
    try:
        reset_high_water()
    except PermissionError:
        pytest.skip("clear_refs may not be written here")
    assert high_water_bytes(os.getpid()) < high - 32 * MIB


NESTED = """
    import subprocess, sys
    depth = int(sys.argv[1])
    if depth:
        child = subprocess.Popen([sys.executable, "-c", sys.argv[2], str(depth - 1), sys.argv[2]],
                                 stdout=subprocess.PIPE, text=True)
        print(child.pid, child.stdout.readline().strip(), flush=True)
    else:
        print("end", flush=True)
    sys.stdin.read()
"""


def test_a_tree_has_the_children_of_children() -> None:
    with running(NESTED, "3", dedent(NESTED)) as child:
        words = told(child).split()
        descendants = [int(word) for word in words[:-1]]
        assert words[-1] == "end"
        assert len(descendants) == 3
        assert process_tree(child.pid) == (child.pid, *descendants)
        assert set(process_tree(os.getpid())) >= {os.getpid(), child.pid, *descendants}


def test_children_of_threads_are_found() -> None:
    code = """
        import subprocess, sys, threading
        def work():
            child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"])
            print(child.pid, flush=True)
            child.wait()
        threading.Thread(target=work).start()
    """
    with running(code) as child:
        assert int(told(child)) in process_tree(child.pid)


def test_a_dead_process_takes_nothing() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait(30)
    assert rss_bytes(child.pid) == pss_bytes(child.pid) == high_water_bytes(child.pid) == 0
    assert process_tree(child.pid) == (child.pid,)


def test_a_zombie_takes_nothing() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert rss_bytes(child.pid) == pss_bytes(child.pid) == 0
    child.wait()


SPIKE = """
    import mmap, sys, time
    sys.stdin.readline()
    memory = mmap.mmap(-1, 100 * 2**20)
    for page in range(0, len(memory), 4096):
        memory[page] = 1
    time.sleep(0.3)
    memory.close()
    print("done", flush=True)
    sys.stdin.readline()
"""
PARENT = """
    import subprocess, sys
    child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], text=True,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    print("ready", flush=True); input()
    child.stdin.write("\\n"); child.stdin.flush()
    print(child.stdout.readline().strip(), flush=True); input()
"""


def test_a_short_spike_of_a_childs_child_is_seen() -> None:
    """Fifty readings a second, where the cores are free; other work on them must not fail the test: twenty."""
    with running(PARENT, dedent(SPIKE)) as child:
        told(child)
        time.sleep(0.3)
        quiet = sum(pss_bytes(pid) for pid in process_tree(child.pid))
        with TreeSampler(child.pid) as sampler:
            assert go_on(child) == "done"
            time.sleep(0.2)
        after = sum(pss_bytes(pid) for pid in process_tree(child.pid))
    peak = sampler.peak()
    assert peak.pss_bytes - quiet == pytest.approx(100 * MIB, abs=5 * MIB)
    assert after - quiet < 5 * MIB, "the spike was over"
    assert peak.processes == 2
    assert peak.rate_hz > (50 if os.getloadavg()[0] < 0.7 * (os.cpu_count() or 1) else 20)


def test_a_sampler_outlives_what_it_watches_and_ticks() -> None:
    ticks: list[int] = []
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.2)"])
    with TreeSampler(child.pid, interval_s=0.002, tick=lambda: ticks.append(1)) as sampler:
        child.wait(30)
        time.sleep(0.1)
    peak = sampler.peak()
    assert peak.pss_bytes > MIB
    assert ticks
    assert len(ticks) <= peak.samples // 20


def test_a_process_that_ends_while_it_is_looked_at_has_no_children(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(self: Path, pattern: str) -> list[Path]:
        raise FileNotFoundError(self / pattern)

    monkeypatch.setattr(Path, "glob", gone)
    assert process_tree(os.getpid()) == (os.getpid(),)

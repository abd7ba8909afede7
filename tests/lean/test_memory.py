"""What a column says that it holds, against what the process really takes."""

from __future__ import annotations

import json
import subprocess
import sys
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

from rlmem.lean import Column

MIB = 2**20

PRELUDE = """
    import gc, json, sys
    import numpy as np, psutil
    from rlmem.lean import Column

    process = psutil.Process()
    rng = np.random.default_rng(0)

    def rss():
        gc.collect()
        return process.memory_info().rss

    def warm_up(**how):  # what is imported and compiled on first use is not the column's
        column = Column(rows=80, n_envs=1, shape=(64,), dtype=np.float32, **how)
        for row in range(80):
            column.put(row, rng.random((1, 64), np.float32))
        column.get(np.arange(8), np.zeros(8, np.int64))

    def say(**numbers):
        print(json.dumps(numbers))
"""


def measured(code: str) -> dict[str, Any]:
    """Run a program in a process of its own and return the numbers that it says."""
    program = dedent(PRELUDE) + dedent(code)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


ATARI_LIKE = """
    N = 4
    background = rng.integers(0, 256, (84, 84), np.uint8)
    def frames():
        x = rng.integers(0, 70, (N, 6, 2))
        while True:
            out = np.repeat(background[None], N, 0)
            x = (x + rng.integers(-2, 3, x.shape)) % 70
            for env in range(N):
                for left, top in x[env]:
                    out[env, top:top + 10, left:left + 8] = 40 * env + 50
            yield out
    show = frames()
    stack = np.stack([next(show)] * 4, axis=1)
    warm_up()
    before = rss()
    column = Column(rows=8000, n_envs=N, shape=(4, 84, 84), dtype=np.uint8)
    for row in range(8000):
        column.put(row, stack)
        stack[:, :-1] = stack[:, 1:].copy()
        stack[:, -1] = next(show)
    say(grown=rss() - before, nbytes=column.nbytes)
"""

RANDOM_FLOATS = """
    warm_up()
    block = rng.standard_normal((1, 2, 2000))
    before = rss()
    column = Column(rows=2000, n_envs=2, shape=(2000,), dtype=np.float64)
    for row in range(2000):
        rng.standard_normal(out=block)
        column.put(row, block[0])
    say(grown=rss() - before, nbytes=column.nbytes)
"""

SHARED_WINDOWS = """
    table = rng.standard_normal((40_000, 128))
    warm_up()
    before = rss()
    column = Column(rows=45_000, n_envs=1, shape=(32, 128), dtype=np.float64)
    for row in range(45_000):
        column.put(row, table[None, row % 39_000:row % 39_000 + 32])
    say(grown=rss() - before, nbytes=column.nbytes)
"""


@pytest.mark.parametrize(
    "code", [ATARI_LIKE, RANDOM_FLOATS, SHARED_WINDOWS], ids=["atari-like", "random floats", "shared windows"]
)
def test_a_column_takes_what_it_says(code: str) -> None:
    numbers = measured(code)
    assert numbers["nbytes"] > 8 * MIB
    assert abs(numbers["grown"] - numbers["nbytes"]) <= 0.15 * numbers["grown"] + MIB, numbers


@pytest.mark.parametrize("compact", [False, True], ids=["as encoded", "compact"])
def test_a_ring_that_goes_round_takes_no_more(compact: bool) -> None:
    """200 MB of observations go through a ring of 20 MB."""
    numbers = measured(f"""
        warm_up(compact={compact})
        block = np.empty((1, 5000), np.float32)
        before, most = rss(), 0
        column = Column(rows=1000, n_envs=1, shape=(5000,), dtype=np.float32, compact={compact})
        for step in range(10_000):
            rng.random(out=block, dtype=np.float32)
            column.put(step % 1000, block)
            if step % 250 == 0:
                most = max(most, rss() - before)
        say(most=most, nbytes=column.nbytes)
    """)
    ring_bytes = 20_000_000
    assert numbers["nbytes"] < 1.2 * ring_bytes, numbers
    assert numbers["most"] < 1.5 * ring_bytes + 4 * MIB, numbers


@pytest.mark.parametrize("how", ["clear()", "forget(3900)"])
def test_what_is_given_back_is_free_or_used_again(how: str) -> None:
    numbers = measured(f"""
        warm_up()
        block = np.empty((1, 5000), np.float32)
        before = rss()
        column = Column(rows=4000, n_envs=1, shape=(5000,), dtype=np.float32)
        def fill(rows):
            for row in range(rows):
                rng.random(out=block, dtype=np.float32)
                column.put(row, block)
        fill(4000)
        full = rss() - before
        column.{how}
        nbytes, left = column.nbytes, rss() - before
        fill(3900)
        say(full=full, left=left, again=rss() - before, nbytes=nbytes)
    """)
    assert numbers["nbytes"] < 8 * MIB, numbers
    assert numbers["again"] < 1.1 * numbers["full"] + 4 * MIB, numbers


@pytest.mark.parametrize("n_envs", [1, 8])
@pytest.mark.parametrize(("elements", "rows"), [(1024, 3000), (5000, 1000), (20_000, 300)])
@pytest.mark.parametrize("compact", [False, True], ids=["as encoded", "compact"])
def test_what_cannot_be_made_smaller_costs_little_more(n_envs: int, elements: int, rows: int, compact: bool) -> None:
    rows, rng = rows // n_envs, np.random.default_rng(0)
    column = Column(rows=rows, n_envs=n_envs, shape=(elements // 8, 8), dtype=np.uint32, compact=compact)
    for row in range(rows):
        column.put(row, np.frombuffer(rng.bytes(4 * n_envs * elements), np.uint32).reshape(n_envs, -1, 8))
    raw_bytes = rows * n_envs * elements * 4
    assert column.nbytes <= 1.03 * raw_bytes + 256 * 1024, f"{column.nbytes / raw_bytes:.3f} of {raw_bytes / MIB} MiB"

"""One thread writes while others read: what they read is right."""

from __future__ import annotations

import copy
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from rlmem.lean import Column

Array = NDArray[Any]

N_ENVS = 2
AWAY = 60
"""Rows nearer than this to the writer may be written over while they are read."""

both_ways = pytest.mark.parametrize("compact", [False, True], ids=["as encoded", "compact"])


@pytest.fixture(autouse=True)
def _switch_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def observation(step: Array, env: Array) -> Array:
    """Return the stacks of four frames that environments show at some steps: all of it follows from the numbers."""
    frame = (np.asarray(step)[..., None] + np.arange(4)) * 7 + np.asarray(env)[..., None] * 1000
    pixels = np.arange(120).reshape(10, 12) // 40
    return (frame[..., None, None] + pixels).astype(np.int32)


class Writer:
    """Writes rows one after the other; ``written`` says how many."""

    def __init__(self, column: Column) -> None:
        self.column, self.written = column, 0

    def step(self) -> None:
        envs, step = np.arange(N_ENVS), self.written
        following = observation(np.full(N_ENVS, step + 1), envs) if self.column.follows else None
        self.column.put(step % self.column.rows, observation(np.full(N_ENVS, step), envs), following)
        self.written = step + 1


def check_some(writer: Writer, rng: np.random.Generator) -> int:
    """Read a minibatch, well away from the writer; return how many reads could be checked."""
    column, until = writer.column, writer.written
    oldest = max(until - column.rows + AWAY, 0)
    if until <= oldest:
        return 0
    steps, envs = rng.integers(oldest, until, 16), rng.integers(0, N_ENVS, 16)
    rows = steps % column.rows
    seen, followed = column.get_both(rows, envs) if column.follows else (column.get(rows, envs), None)
    if writer.written - until >= AWAY - 1:
        return 0  # the writer caught up
    assert np.array_equal(seen, observation(steps, envs))
    assert followed is None or np.array_equal(followed, observation(steps + 1, envs))
    return 1


def together(write: Callable[[], None], *reads: Callable[[], None]) -> None:
    """Run a writer and its readers until the writer is done, and raise what any of them raised."""
    done, faults = threading.Event(), []

    def guarded(work: Callable[[], None], *, once: bool) -> None:
        try:
            while True:
                work()
                if once or done.is_set():
                    return
        except BaseException as fault:
            faults.append(fault)
        finally:
            if once:
                done.set()

    threads = [threading.Thread(target=guarded, args=(write,), kwargs={"once": True})]
    threads += [threading.Thread(target=guarded, args=(read,), kwargs={"once": False}) for read in reads]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    if faults:
        raise faults[0]


def column(rows: int, *, compact: bool, follows: bool = True) -> Column:
    return Column(rows=rows, n_envs=N_ENVS, shape=(4, 10, 12), dtype=np.int32, follows=follows, compact=compact)


@both_ways
@pytest.mark.parametrize("follows", [True, False], ids=["with next", "without next"])
def test_readers_beside_a_writer(compact: bool, follows: bool) -> None:
    writer = Writer(column(400, compact=compact, follows=follows))
    checked = [0, 0]
    until = time.monotonic() + 2

    def write() -> None:
        while time.monotonic() < until:
            writer.step()

    def reader(number: int) -> Callable[[], None]:
        rng = np.random.default_rng(number)

        def read() -> None:
            checked[number] += check_some(writer, rng)

        return read

    together(write, reader(0), reader(1))
    assert writer.written > 400
    assert min(checked) > 20


@both_ways
def test_readers_beside_a_column_that_is_just_finding_its_layout(compact: bool) -> None:
    until = time.monotonic() + 1.5
    now = [Writer(column(400, compact=compact))]

    def write() -> None:
        while time.monotonic() < until:
            now[0] = Writer(column(400, compact=compact))
            for _ in range(60):
                now[0].step()

    rngs = [np.random.default_rng(number) for number in range(2)]
    together(write, *[lambda rng=rng: check_some(now[0], rng) and None for rng in rngs])


def test_a_copy_taken_beside_a_writer_is_whole() -> None:
    writer = Writer(column(400, compact=False))
    until = time.monotonic() + 2

    def write() -> None:
        while time.monotonic() < until:
            writer.step()

    def read() -> None:
        before = writer.written
        taken = copy.deepcopy(writer.column)
        after = writer.written
        steps = np.arange(max(after - 400 + 2, 0), before)
        if len(steps):
            envs = np.arange(len(steps)) % N_ENVS
            assert np.array_equal(taken.get(steps % 400, envs), observation(steps, envs))

    together(write, read)

"""Saves and collects without end, to be killed at any instant. Snapshot n holds what follows from n alone."""

from __future__ import annotations

import os
import signal
import sys
import time

import numpy as np

from rlmem.lean import Column
from rlmem.store import ArrayPart, ColumnPart, Json, Saver, Store, Tensors

ROWS = 512


def observation(step: int) -> np.ndarray:
    now = np.arange(32 * 32, dtype=np.uint32).reshape(1, 32, 32) // 50 + step // 7
    now[0, step % 32] += step
    return now.astype(np.uint8)


def ring_at(step: int) -> np.ndarray:
    """Return what the ring holds after so many steps."""
    ring = np.zeros((ROWS, 64))
    for now in range(max(step - ROWS, 0), step):
        ring[now % ROWS] = now
    return ring


def main(url: str, options: dict[str, str] | None) -> None:
    store = Store.open(url, create=True, options=options)
    begun = store.load() if store.snapshots() else None
    step = begun.step if begun else 0
    column = begun.column("observations") if begun else Column(rows=ROWS, n_envs=1, shape=(32, 32), dtype=np.uint8)
    ring, weights = ring_at(step), np.full(20_000, float(step))
    saver = Saver(store, keep=2, grace_s=0.05)
    while True:
        for _ in range(40):
            column.put(step % ROWS, observation(step))
            ring[step % ROWS] = step
            step += 1
        weights[:] = step
        saver.save(
            {
                "observations": ColumnPart(column=column),
                "ring": ArrayPart(array=ring, mutable=True),
                "policy": Tensors(tensors={"w": weights, "b": weights[:5]}),
                "step": Json(value=step),
            },
            step=step,
        )
        saver.wait()
        print(step, flush=True)  # noqa: T201 - committed, as the one who kills it is told


def kill_children(url: str, options: dict[str, str] | None) -> None:
    """For each number of seconds on the input: let a child save for so long, kill it, and say what it had committed.

    Children are forked from here, where everything is imported already.
    """
    for line in sys.stdin:
        said, writes = os.pipe()
        child = os.fork()
        if not child:
            os.dup2(writes, 1)
            main(url, options)
        os.close(writes)
        with os.fdopen(said) as lines:
            time.sleep(float(line))
            os.kill(child, signal.SIGKILL)
            committed = [0, *map(int, lines.read().split("\n")[:-1])]
        os.waitpid(child, 0)
        print(max(committed), flush=True)  # noqa: T201


if __name__ == "__main__":
    settings = dict(item.split("=", 1) for item in sys.argv[3:]) or None
    {"save": main, "kill": kill_children}[sys.argv[1]](sys.argv[2], settings)

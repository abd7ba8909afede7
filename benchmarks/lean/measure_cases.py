"""Lean columns on the observations of the examples, and on noise: bytes, and the time to write and to read them.

Each case runs its environment for real, in a process of its own, puts every observation into a column, and compares
some of them, by digest, with what is read back. What plain arrays would take is computed, not allocated.

Bias: actions are random. What a trained policy sees may be less or more alike.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from rlmem.lean import Column

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "lean"
CHECKED = 24
Batch = tuple[np.ndarray, np.ndarray | None]


def open_pit() -> tuple[dict[str, Any], Iterator[Batch]]:
    """The whole rollout of the mine: 2048 steps of 4 environments."""
    environment = example("open_pit")
    mines = [environment.OpenPit() for _ in range(4)]
    rngs = [np.random.default_rng(number) for number in range(4)]

    def batches() -> Iterator[Batch]:
        batch = np.stack([mine.reset()[0] for mine in mines])
        for _ in range(2048):
            yield batch, None
            for index, (mine, rng) in enumerate(zip(mines, rngs, strict=True)):
                seen, _, ended, cut, _ = mine.step(rng.choice(np.flatnonzero(mine.action_masks())))
                batch[index] = mine.reset()[0] if ended or cut else seen

    return {"rows": 2048, "n_envs": 4, "follows": False}, batches()


def evolution() -> tuple[dict[str, Any], Iterator[Batch]]:
    """The replay buffer of the market: 50,000 transitions."""
    environment = example("evolution")
    market = environment.MarketEnv(environment.make_table(), views=True)

    def batches() -> Iterator[Batch]:
        seen, _ = market.reset(seed=0)
        market.action_space.seed(0)
        for _ in range(50_000):
            following, _, ended, cut, _ = market.step(market.action_space.sample())
            yield seen[None], following[None]
            seen = market.reset()[0] if ended or cut else following

    return {"rows": 50_000, "n_envs": 1, "follows": True}, batches()


def drone_swarm() -> tuple[dict[str, Any], Iterator[Batch]]:
    """A rollout of the swarm: 100 steps of 1,000 drones, their IMU windows."""
    environment = example("drone_swarm")
    swarm = environment.DroneSwarm(1_000, seed=0)
    rng = np.random.default_rng(0)

    def batches() -> Iterator[Batch]:
        seen = swarm.reset()
        for _ in range(100):
            yield seen["imu"], None
            seen = swarm.step(rng.normal(0, 0.1, (1_000, 4)).astype(np.float32))[0]

    return {"rows": 100, "n_envs": 1_000, "follows": False}, batches()


def game_boy() -> tuple[dict[str, Any], Iterator[Batch]]:
    """A rollout of the fight: 2048 steps of 2 emulators, four screens stacked."""
    from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack, VecTransposeImage

    environment = example("game_boy")
    fights = VecTransposeImage(VecFrameStack(DummyVecEnv([environment.GameBoyFight] * 2), 4))
    rng = np.random.default_rng(0)

    def batches() -> Iterator[Batch]:
        seen = fights.reset()
        for _ in range(2048):
            yield seen, None
            seen = fights.step(rng.integers(0, fights.action_space.n, 2))[0]

    return {"rows": 2048, "n_envs": 2, "follows": False}, batches()


def noise(*, follows: bool) -> tuple[dict[str, Any], Iterator[Batch]]:
    """Random floats, of which nothing can be saved."""
    rng = np.random.default_rng(0)

    def batches() -> Iterator[Batch]:
        seen = rng.standard_normal((2, 64, 64, 3), np.float32)
        for _ in range(3_000):
            following = rng.standard_normal((2, 64, 64, 3), np.float32)
            yield seen, following if follows else None
            seen = following

    return {"rows": 3_000, "n_envs": 2, "follows": follows}, batches()


CASES: dict[str, Callable[[], tuple[dict[str, Any], Iterator[Batch]]]] = {
    "open_pit": open_pit,
    "drone_swarm": drone_swarm,
    "game_boy": game_boy,
    "noise_rollout": lambda: noise(follows=False),
    "noise_replay": lambda: noise(follows=True),
    "evolution": evolution,
}


def example(name: str) -> Any:
    """Import the environment of an example, as its program does."""
    folder = ROOT / "examples" / name
    sys.path.insert(0, str(folder))
    os.chdir(folder)
    import environment

    return environment


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=list(CASES), metavar="CASE", help=f"of {', '.join(CASES)}")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.one)))
        return
    arguments.results.mkdir(parents=True, exist_ok=True)
    for name in arguments.cases:
        result = _in_child(name)
        (arguments.results / f"case-{name}.json").write_text(json.dumps(result, indent=1) + "\n")
        print(
            f"{name:14} {result['raw_bytes'] / 1e9:9.2f} GB raw, {result['lean_bytes'] / 1e6:8.1f} MB lean: "
            f"{result['times_smaller']:8.1f}×; put {result['put_us_per_observation']:6.0f} µs an observation; "
            f"{result['structure']}",
            flush=True,
        )


def _in_child(name: str) -> dict[str, Any]:
    done = subprocess.run([sys.executable, __file__, "--one", name], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def measure(name: str) -> dict[str, Any]:
    settings, batches = CASES[name]()
    column, seconds, digests = None, [], {}
    checked = set(np.random.default_rng(1).choice(settings["rows"], CHECKED, replace=False).tolist())
    for row, (seen, following) in enumerate(batches):
        if column is None:
            column = Column(shape=seen.shape[1:], dtype=seen.dtype, **settings)
        started = time.perf_counter()
        column.put(row, seen, following)
        seconds.append(time.perf_counter() - started)
        if row in checked:
            digests[row] = [_digest(seen[0]), None if following is None else _digest(following[0])]
    assert column is not None
    _compare(column, digests)
    return {
        "case": name,
        "says": (CASES[name].__doc__ or "").strip()
        if name in ("open_pit", "drone_swarm", "game_boy", "evolution")
        else noise.__doc__,
        "shape": list(column.shape),
        "dtype": str(column.dtype),
        **settings,
        "raw_bytes": column.raw_bytes,
        "lean_bytes": column.nbytes,
        "times_smaller": column.raw_bytes / column.nbytes,
        "put_us_per_observation": median(seconds) / column.n_envs * 1e6,
        "slowest_put_ms": max(seconds) * 1e3,
        "structure": column.describe(),
        "checked_rows": len(digests),
        "process_peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        **_reading(column, settings["rows"]),
        "platform": platform.platform(),
    }


def _digest(array: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(array)).hexdigest()


def _compare(column: Column, digests: dict[int, list[str | None]]) -> None:
    for row, (seen, following) in digests.items():
        rows, envs = np.array([row]), np.array([0])
        assert _digest(column.get(rows, envs)[0]) == seen, f"row {row} is not what was put"
        if following is not None:
            assert _digest(column.get_next(rows, envs)[0]) == following, f"the next of row {row} is not what was put"


def _reading(column: Column, rows: int) -> dict[str, float]:
    """Time a minibatch, beside copying as many bytes out of a plain array."""
    one = int(np.prod(column.shape)) * column.dtype.itemsize
    items = max(1, min(64, 2**28 // one))
    plain = np.zeros((min(rows * column.n_envs, max(items, 2**28 // one)), *column.shape), column.dtype)
    plain += 1
    rng, lean_s, plain_s = np.random.default_rng(2), [], []
    for _ in range(9):
        numbers, envs = rng.integers(0, rows, items), rng.integers(0, column.n_envs, items)
        started = time.perf_counter()
        column.get(numbers, envs)
        lean_s.append(time.perf_counter() - started)
        numbers = rng.integers(0, len(plain), items)
        started = time.perf_counter()
        plain[numbers]
        plain_s.append(time.perf_counter() - started)
    return {"items_read": items, "read_ms": median(lean_s) * 1e3, "plain_read_ms": median(plain_s) * 1e3}


if __name__ == "__main__":
    main()

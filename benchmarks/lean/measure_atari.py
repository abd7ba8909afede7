"""Bytes, and time to add and to sample, of every replay buffer on the same real Atari transitions.

Bias: one process, one thread (two that wait for each other on a busy machine time the machine, not the buffer),
nothing trained. Every contender gets the same arrays in the same step, in an order that is drawn anew each time,
and the samples likewise, so that noise and cold caches fall on all alike.
"""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from random import Random
from statistics import mean, median
from time import perf_counter
from typing import Any

import torch
from games import GAMES, POLICIES, Step, make_env, play
from rivals import BASELINE, RIVALS, Contender, Rival

RESULTS = Path(__file__).parents[1] / "results" / "lean"
PACKAGES = (
    "rlmem",
    "stable-baselines3",
    "sb3-extra-buffers",
    "zstd",
    "torchrl",
    "tensordict",
    "cpprb",
    "ale-py",
    "numpy",
    "torch",
)
BATCHES = (32, 256)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("games", nargs="*", default=GAMES, metavar="GAME", help=f"of {', '.join(GAMES)}")
    parser.add_argument("--policy", choices=POLICIES, default="random")
    parser.add_argument("--transitions", type=int, default=10_000)
    parser.add_argument("--samples", type=int, default=50, help="batches timed for each size")
    parser.add_argument("--only", nargs="+", metavar="WORD", help="only contenders whose name has one of these words")
    parser.add_argument("--channels-last", action="store_true", help="stack frames last, which SB3 itself never stores")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.results.mkdir(parents=True, exist_ok=True)
    for game in arguments.games:
        result = _measure(game, arguments)
        name = f"{game.lower()}-{arguments.policy}-{arguments.transitions}.json"
        (arguments.results / name).write_text(json.dumps(result, indent=1) + "\n")
        print(_table(result), flush=True)


def _measure(game: str, arguments: argparse.Namespace) -> dict[str, Any]:
    rivals, absent = _available(arguments.only)
    env = make_env(game, channels_first=not arguments.channels_last)
    spaces = env.observation_space, env.action_space
    env.close()
    buffers = {rival.name: rival.build(arguments.transitions, *spaces) for rival in rivals}
    steps = play(
        game, arguments.policy, arguments.transitions, arguments.seed, channels_first=not arguments.channels_last
    )
    add_s = fill(buffers, steps)
    sample_s = {batch: time_samples(buffers, batch, arguments.samples) for batch in BATCHES}
    stored = {name: buffer.resident_bytes() for name, buffer in buffers.items()}
    return {
        "game": game,
        "policy": arguments.policy,
        "transitions": arguments.transitions,
        "seed": arguments.seed,
        "observation_shape": list(spaces[0].shape),
        "machine": _machine(),
        "contenders": {
            name: {
                "bytes": stored[name],
                "bytes_per_transition": stored[name] / arguments.transitions,
                "times_smaller": stored[BASELINE] / stored[name] if BASELINE in stored else None,
                "add_us_median": median(add_s[name]) * 1e6,
                "add_us_mean": mean(add_s[name]) * 1e6,
                **{f"sample_{batch}_ms": median(times[name]) * 1e3 for batch, times in sample_s.items()},
            }
            for name in buffers
        },
        "not_installed": absent,
    }


def _available(words: list[str] | None) -> tuple[list[Rival], dict[str, list[str]]]:
    wanted = [rival for rival in RIVALS if not words or any(word in rival.name for word in words)]
    absent = {rival.name: list(rival.missing) for rival in wanted if rival.missing}
    return [rival for rival in wanted if not rival.missing], absent


def fill(buffers: dict[str, Contender], steps: Iterable[Step]) -> dict[str, list[float]]:
    """Add every step to every buffer; gives the seconds of each addition."""
    seconds: dict[str, list[float]] = {name: [] for name in buffers}
    for at, step in enumerate(steps):
        for name in shuffled(list(buffers), at):
            started = perf_counter()
            buffers[name].add(step.obs, step.next_obs, step.action, step.reward, step.done, step.infos)
            seconds[name].append(perf_counter() - started)
    return seconds


def time_samples(buffers: dict[str, Contender], batch: int, samples: int) -> dict[str, list[float]]:
    """Seconds of each sample, after one of every buffer that is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in buffers}
    for at in range(samples + 1):
        for name in shuffled(list(buffers), at):
            started = perf_counter()
            buffers[name].sample(batch)
            if at:
                seconds[name].append(perf_counter() - started)
    return seconds


def shuffled(names: list[str], seed: int) -> list[str]:
    """Return the names in another order each time: who comes after its like finds caches warm."""
    return Random(seed).sample(names, len(names))  # noqa: S311 - an order, not a secret


def _machine() -> dict[str, Any]:
    return {
        "platform": platform.platform(),
        "python": platform.python_version(),
        "torch_threads": torch.get_num_threads(),
        "versions": {name: _version(name) for name in PACKAGES},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _table(result: dict[str, Any]) -> str:
    lines = [
        f"{result['game']}, {result['policy']} play, {result['transitions']:,} transitions",
        f"{'':26} {'B/transition':>12} {'smaller':>8} {'add µs':>8} " + " ".join(f"{f'{b} ms':>8}" for b in BATCHES),
    ]
    for name, row in result["contenders"].items():
        smaller = "" if row["times_smaller"] is None else f"{row['times_smaller']:.1f}×"
        samples = " ".join(f"{row[f'sample_{batch}_ms']:8.2f}" for batch in BATCHES)
        lines.append(
            f"{name:26} {row['bytes_per_transition']:12,.0f} {smaller:>8} {row['add_us_median']:8.0f} {samples}"
        )
    lines += [f"{name:26} not installed: {', '.join(modules)}" for name, modules in result["not_installed"].items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()

"""The figures behind the layout of lean columns and the choice of compiled kernels: docs/decisions 10 and 11.

For frames of random play: what a frame takes as runs that differ from the frame before and from the one 16 before, and
what a column takes, and 256 transitions take to sample, with chains of eight and of sixteen. And what importing numba
and compiling one function with it adds to a process, where it is installed.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import numpy as np
from games import GAMES, play

from rlmem.lean import Column
from rlmem.lean.kernels import runs

RESULTS = Path(__file__).parents[1] / "results" / "lean"
NUMBA = """
import json, time
def rss(): return int(open('/proc/self/statm').read().split()[1]) * 4096
import numpy as np
before, started = rss(), time.perf_counter()
import numba
imported, import_s = rss() - before, time.perf_counter() - started
numba.njit(lambda x: x.sum())(np.arange(10))
print(json.dumps({"version": numba.__version__, "imported_bytes": imported, "import_s": import_s,
                  "compiled_bytes": rss() - before}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("games", nargs="*", default=GAMES, metavar="GAME")
    parser.add_argument("--frames", type=int, default=3_000)
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER")
    arguments = parser.parse_args()
    games = {game: _measure(game, arguments.frames) for game in arguments.games}
    found = {"frames": arguments.frames, "platform": platform.platform(), "games": games, "numba": _numba()}
    (arguments.results / "design.json").write_text(json.dumps(found, indent=1) + "\n")


def _measure(game: str, count: int) -> dict[str, Any]:
    steps = list(play(game, "random", count, 0))
    frames = [np.ascontiguousarray(step.obs[0, -1]).reshape(-1) for step in steps]
    chains = {str(group): _chains(steps, group, compact=False) for group in (8, 16)}
    packed = {str(group): _chains(steps, group, compact=True) for group in (8, 16)}
    result = {"before": _mean(frames, 1), "16 before": _mean(frames, 16), "chains": chains, "compact chains": packed}
    print(game, result, flush=True)
    return result


def _mean(frames: list[np.ndarray], apart: int) -> float:
    """Mean bytes of the runs in which a frame differs from the one so many before; of the frame where they are more."""
    scratch = np.empty(frames[0].size + 32, np.uint8)
    sizes = [runs(one, other, scratch, scratch.size) for one, other in zip(frames, frames[apart:], strict=False)]
    return float(np.mean([frames[0].size if size is None else size for size in sizes]))


def _chains(steps: list[Any], group: int, *, compact: bool) -> dict[str, float]:
    name = "COMPACT_GROUP" if compact else "GROUP"
    with patch(f"rlmem.lean.pieces.{name}", group), patch(f"rlmem.lean.sequences.{name}", group):
        shape = steps[0].obs.shape[1:]
        column = Column(rows=len(steps), n_envs=1, shape=shape, dtype=np.uint8, follows=True, compact=compact)
        for row, step in enumerate(steps):
            column.put(row, step.obs, step.next_obs)
    rng, seconds = np.random.default_rng(0), []
    for _ in range(40):
        rows = rng.integers(0, len(steps), 256)
        started = time.process_time()
        column.get_both(rows, np.zeros(256, np.int64))
        seconds.append(time.process_time() - started)
    return {"bytes_per_transition": column.nbytes / len(steps), "sample_256_ms": median(seconds) * 1e3}


def _numba() -> dict[str, Any] | None:
    done = subprocess.run([sys.executable, "-c", NUMBA], capture_output=True, text=True, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else None


if __name__ == "__main__":
    main()

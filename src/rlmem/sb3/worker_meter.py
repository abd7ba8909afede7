"""The child that meters environment workers: what the first ones add to the tree's summed PSS."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import Any, Final

from rlmem.observe import process_tree, pss_bytes
from rlmem.run import run_from_mapping
from rlmem.run.child import answer
from rlmem.run.model import FrameworkRun

_COUNTS: Final = (1, 3)
_STEPS: Final = 20


def _reply(question: dict[str, Any]) -> dict[str, Any]:
    """Start one worker, then three, and read the tree each time; runs in the child."""
    from rlmem.sb3.building import build_vec_env

    run = run_from_mapping(question["run"])
    assert isinstance(run, FrameworkRun)  # noqa: S101 - only framework runs have vector environments
    before = _tree_bytes()
    totals = []
    for count in _COUNTS:
        env = build_vec_env(replace(run.env, n_envs=count, frame_stack=1, normalize=False))
        env.reset()
        for _ in range(_STEPS):
            env.step([env.action_space.sample() for _ in range(count)])
        totals.append(_tree_bytes())
        env.close()
    each = (totals[1] - totals[0]) // (_COUNTS[1] - _COUNTS[0])
    return {"worker_bytes": each, "helper_bytes": max(totals[0] - before - each, 0)}


def _tree_bytes() -> int:
    return sum(pss_bytes(pid) for pid in process_tree(os.getpid()))


if __name__ == "__main__":
    answer(_reply, sys.argv[1:])

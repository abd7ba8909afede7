"""A real training of a run, short as it can be, that goes through every phase: the child under the meter.

It says on its pipe when it enters a phase, so that readings can be told apart, and what it changed to be
quick: epochs repeat the same step, and a replay buffer is filled before the first update.
"""

from __future__ import annotations

import sys
from typing import Any, Final

from rlmem.observe import high_water_bytes, pss_bytes, rss_bytes
from rlmem.run import run_from_mapping
from rlmem.run.child import answer
from rlmem.run.model import FrameworkRun

_UPDATES: Final = 10
"""Gradient steps of an off-policy run after its buffer is full: the second already finds everything in place."""


def _reply(question: dict[str, Any]) -> dict[str, Any]:
    import os

    from rlmem.sb3.building import build_model, build_vec_env

    run = run_from_mapping(question["run"])
    assert isinstance(run, FrameworkRun)  # noqa: S101 - only framework runs are trained
    pid = os.getpid()
    env = build_vec_env(run.env)
    model = build_model(run, env, **_changes(run))
    built = rss_bytes(pid)
    model.learn(timesteps(run), log_interval=None)
    reply = {
        "rss_bytes": rss_bytes(pid),
        "hwm_bytes": high_water_bytes(pid),
        "pss_bytes": pss_bytes(pid),
        "built_bytes": built,
    }
    env.close()
    return reply


def _changes(run: FrameworkRun) -> dict[str, Any]:
    """Return what is set otherwise than in the run, without bearing on the peak."""
    if run.spec.off_policy:
        return {"learning_starts": _fill(run), "train_freq": (1, "step"), "gradient_steps": 1}
    return {"n_epochs": 1} if "n_epochs" in run.spec.settings else {}


def _fill(run: FrameworkRun) -> int:
    from rlmem.plan.buffers import filled_rows

    return filled_rows(run)


def timesteps(run: FrameworkRun) -> int:
    """Return how long to train: two rollouts with their updates, or a full buffer and some updates."""
    if run.spec.off_policy:
        return _fill(run) + _UPDATES * run.n_envs
    if run.spec.on_policy:
        return 2 * run.training.n_steps * run.n_envs
    return 1


if __name__ == "__main__":
    answer(_reply, sys.argv[1:])

"""The child that traces the update of a run: built from its description, with fake weights and a weightless buffer."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

from rlmem.plan.trace import trace_to_dict
from rlmem.run import run_from_mapping
from rlmem.run.child import answer
from rlmem.run.model import FrameworkRun


def _reply(question: dict[str, Any]) -> dict[str, Any]:
    """Trace the update; runs in the child, which traces once, since a used heap is not like a new one."""
    from rlmem.sb3.fake_training import trace_on_gpu, trace_update

    run = run_from_mapping(question["run"])
    assert isinstance(run, FrameworkRun)  # noqa: S101 - only framework runs are traced
    model = weightless_model(run)
    if run.device.startswith("cuda"):
        return trace_to_dict(trace_on_gpu(model, rows=question["rows"]))
    return trace_to_dict(trace_update(model, rows=question["rows"], updates=question["updates"]))


def weightless_model(run: FrameworkRun) -> Any:
    """Return the run's real model on a synthetic environment, its weights fake and its buffer without memory."""
    from rlmem.plan.recorder import fake_mode, modules_stay_where_they_are
    from rlmem.sb3.building import build_model, build_vec_env
    from rlmem.sb3.weightless import weightless_arrays

    env = build_vec_env(replace(run.env, n_envs=1, workers="in-process", id=None, make=None, wrappers=()))
    with fake_mode(), modules_stay_where_they_are(), weightless_arrays():
        return build_model(replace(run, device="cpu"), env)


if __name__ == "__main__":
    answer(_reply, sys.argv[1:])

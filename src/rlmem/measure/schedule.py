"""How long a real training must be until its peak has been seen, and what may be left out of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from rlmem.plan.buffers import filled_rows
from rlmem.plan.framework import minibatches
from rlmem.run.model import FrameworkRun
from rlmem.run.spaces import sample_bytes
from rlmem.run.wrappers import stored_observation

UPDATES: Final = 20
"""Gradient steps until the allocator has settled; the second already finds the optimizer's state."""

_TINY_BUFFER_BYTES: Final = 32 * 2**20
_TINY_ROWS: Final = 8
_TINY_STEPS: Final = 32


def timesteps(run: FrameworkRun) -> int:
    """Return how long to train: at least two rollouts with their updates, or a full buffer and some updates."""
    if run.spec.off_policy:
        return filled_rows(run) + UPDATES * run.n_envs
    if run.spec.on_policy:
        return rollouts(run) * run.training.n_steps * run.n_envs
    return 1


def rollouts(run: FrameworkRun) -> int:
    """Return how many rollouts make enough updates; two at least, for the second finds what the first left."""
    return max(2, -(-UPDATES // minibatches(run)))


def updates(run: FrameworkRun) -> int:
    """Return how many gradient steps such a training makes."""
    return rollouts(run) * minibatches(run) if run.spec.on_policy else UPDATES


def without_repetition(run: FrameworkRun) -> dict[str, Any]:
    """Return the settings that are changed for speed and do not bear on the peak."""
    if run.spec.off_policy:
        return {"learning_starts": filled_rows(run), "train_freq": (1, "step"), "gradient_steps": 1}
    return {"n_epochs": 1} if "n_epochs" in run.spec.settings else {}


def tiny(run: FrameworkRun) -> FrameworkRun:
    """Return the run with the same policy and next to no data: what is left is the process itself."""
    row = sample_bytes(stored_observation(run.env))
    steps = max(2, min(_TINY_STEPS, _TINY_BUFFER_BYTES // row))
    batch = min(_TINY_ROWS, steps)
    local = run.env.workers == "in-process"
    env = replace(
        run.env,
        n_envs=1,
        workers="in-process",
        **({} if local else {"id": None, "make": None, "wrappers": ()}),
    )
    return replace(run, env=env, training=_small(run, steps=steps, batch=batch), evaluation=None, checkpoint=None)


def _small(run: FrameworkRun, *, steps: int, batch: int) -> Any:
    training = run.training
    if run.spec.off_policy:
        return replace(
            training, buffer_size=steps, batch_size=batch, given=training.given | {"buffer_size", "batch_size"}
        )
    size = batch if training.batch_size is not None else None
    given = training.given | {"n_steps"} | ({"batch_size"} if size else set())
    return replace(training, n_steps=steps, batch_size=size, given=given)

"""How long a real training must be until its peak has been seen, and what may be left out of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from rlmem.plan.buffers import filled_rows
from rlmem.plan.framework import minibatches, rows_per_update
from rlmem.plan.policies import policy_cost
from rlmem.run.model import FrameworkRun, Training
from rlmem.run.spaces import sample_bytes
from rlmem.run.wrappers import stored_observation

UPDATES: Final = 10
"""Gradient steps until the allocator has settled; the second already finds the optimizer's state."""

_SHORT_BUFFER_BYTES: Final = 64 * 2**20
_SHORT_ELEMENTS: Final = 4_000_000
"""How many activations a step of the short training may have: what a few cores do in a fraction of a second."""


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
    """Return the settings that are changed for speed and do not bear on the peak.

    A second epoch is made where an epoch is one minibatch: the next is taken while the last is still held.
    """
    if run.spec.off_policy:
        return {"learning_starts": filled_rows(run), "train_freq": (1, "step"), "gradient_steps": 1}
    return {"n_epochs": 1 if minibatches(run) > 1 else 2} if "n_epochs" in run.spec.settings else {}


def short(run: FrameworkRun) -> FrameworkRun:
    """Return the run with the same policy, next to no buffer, and as many rows as a quick step may have."""
    rows = short_rows(run)
    env = replace(run.env, n_envs=1, workers="in-process")
    if run.env.workers == "subprocess":
        env = replace(env, id=None, make=None, wrappers=())  # the main process has no environment of its own
    return replace(run, env=env, training=_short_training(run, rows), evaluation=None, checkpoint=None)


def short_rows(run: FrameworkRun) -> int:
    """Return how many rows the short training's updates have: the run's own where that is quick, else fewer."""
    own = rows_per_update(run)
    by_buffer = _SHORT_BUFFER_BYTES // sample_bytes(stored_observation(run.env))
    by_work = _SHORT_ELEMENTS // max(policy_cost(run).graph.saved, 1)
    return max(2, min(own, by_buffer, by_work))


def _short_training(run: FrameworkRun, rows: int) -> Training:
    training = run.training
    if run.spec.off_policy:
        given = training.given | {"buffer_size", "batch_size"}
        return replace(training, buffer_size=rows, batch_size=rows, total_timesteps=None, given=given)
    if training.batch_size is None or run.algorithm == "TRPO":
        return replace(training, n_steps=rows, given=training.given | {"n_steps"})
    given = training.given | {"n_steps", "batch_size"}
    return replace(training, n_steps=2 * rows, batch_size=rows, given=given)

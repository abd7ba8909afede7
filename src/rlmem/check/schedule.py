"""How often things happen in a run: cycles of collecting and learning, calls of env.step, gradient updates.

Counted as the framework's loops count: `learn` goes on while fewer timesteps than asked for have been done,
so the last cycle is always a whole one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rlmem.run.model import FrameworkRun, Setting

_LEARNING_STARTS: Final = 100
_CRITIC_UPDATES: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The counts of one run; None where the run does not fix them.

    A cycle is one collecting and the learning after it. ``calls`` counts env.step over the whole run, which is
    what callbacks count. ``minibatches`` is a pass over the rollout, for on-policy algorithms.
    """

    cycle_timesteps: int | None = None
    cycles: int | None = None
    calls: int | None = None
    minibatches: int | None = None
    cycle_updates: int | None = None
    updates: int | None = None


def schedule(run: FrameworkRun) -> Schedule:
    """Return how often things happen in ``run``."""
    if run.spec.on_policy:
        return _on_policy(run)
    return _off_policy(run) if run.spec.off_policy else Schedule()


def other_setting(run: FrameworkRun, name: str) -> Setting:
    """Return a setting that does not bear on memory, or None where it was not given."""
    return dict(run.training.other).get(name)


def times(run: FrameworkRun, frequency: int | None) -> int | None:
    """Return how often a callback with this frequency comes in the run, or None where that is not known."""
    calls = schedule(run).calls
    return None if frequency is None or calls is None else calls // frequency


def _on_policy(run: FrameworkRun) -> Schedule:
    training = run.training
    rollout = training.n_steps * run.n_envs
    cycles = _cycles(training.total_timesteps, rollout)
    batch = min(training.batch_size or rollout, rollout)
    minibatches = -(-rollout // batch)
    updates = minibatches * _epochs(run) + (1 if run.algorithm == "TRPO" else 0)
    return Schedule(
        cycle_timesteps=rollout,
        cycles=cycles,
        calls=None if cycles is None else cycles * training.n_steps,
        minibatches=minibatches,
        cycle_updates=updates,
        updates=None if cycles is None else cycles * updates,
    )


def _epochs(run: FrameworkRun) -> int:
    """Return the passes over the rollout: TRPO's are its critic's, beside one step of the policy."""
    if run.algorithm == "A2C":
        return 1
    if run.algorithm != "TRPO":
        return run.training.n_epochs
    given = other_setting(run, "n_critic_updates")
    return given if isinstance(given, int) else _CRITIC_UPDATES


def _off_policy(run: FrameworkRun) -> Schedule:
    training = run.training
    if training.train_freq_unit == "episode":
        return Schedule(calls=_cycles(training.total_timesteps, run.n_envs))
    collected = training.train_freq * run.n_envs
    cycles = _cycles(training.total_timesteps, collected)
    updates = collected if training.gradient_steps < 0 else training.gradient_steps
    if cycles is None:
        return Schedule(cycle_timesteps=collected, cycle_updates=updates)
    return Schedule(
        cycle_timesteps=collected,
        cycles=cycles,
        calls=cycles * training.train_freq,
        cycle_updates=updates,
        updates=max(cycles - learning_starts(run) // collected, 0) * updates,
    )


def learning_starts(run: FrameworkRun) -> int:
    """Return the timesteps before the first update of an off-policy run."""
    given = run.training.learning_starts
    return _LEARNING_STARTS if given is None else given


def _cycles(total: int | None, each: int) -> int | None:
    return None if total is None else -(-total // each)

"""Rules about rollouts, minibatches and how often a run updates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from rlmem.check.model import INFO, WARNING, Finding, FrameworkRule
from rlmem.check.schedule import learning_starts, other_setting, schedule
from rlmem.check.wording import count, ratio
from rlmem.plan import Plan, make_plan
from rlmem.run.model import FrameworkRun
from rlmem.units import format_bytes

_SEARCH: Final = 10_000
_LONG: Final = 4
_SAVING_BYTES: Final = 2**20


class UnevenMinibatches(FrameworkRule):
    code = "RLM001"
    title = "batch_size does not divide the rollout"
    severity = WARNING
    families = ("on-policy",)

    def check_run(self, plan: Plan, run: FrameworkRun) -> Iterator[Finding]:
        batch, rollout = run.training.batch_size, run.training.n_steps * run.n_envs
        if batch is None or batch >= rollout or rollout % batch == 0:
            return
        yield self.finding(
            f"a rollout of {run.training.n_steps:,} steps × {count(run.n_envs, 'env')} = {rollout:,} samples is not a "
            f"multiple of batch_size {batch:,}: after {rollout // batch:,} whole minibatches comes one of "
            f"{count(rollout % batch, 'sample')}, whose noisier gradient gets the same step size",
            f"take a batch_size that divides {rollout:,}{_nearest_divisors(rollout, batch)}",
        )


class BatchBeyondRollout(FrameworkRule):
    code = "RLM002"
    title = "batch_size is larger than the rollout"
    severity = WARNING
    families = ("on-policy",)

    def check_run(self, plan: Plan, run: FrameworkRun) -> Iterator[Finding]:
        batch, rollout = run.training.batch_size, run.training.n_steps * run.n_envs
        if batch is None or batch <= rollout:
            return
        yield self.finding(
            f"batch_size {batch:,} is larger than the rollout of {run.training.n_steps:,} steps × "
            f"{count(run.n_envs, 'env')} = {rollout:,} samples: each epoch is one batch of {rollout:,}",
            f"give batch_size {rollout:,}, which is what happens anyway, or n_steps ≥ {-(-batch // run.n_envs):,}",
        )


class RolloutBeyondEpisodes(FrameworkRule):
    code = "RLM003"
    title = "n_steps is far beyond the episode length"
    severity = INFO
    families = ("on-policy",)
    stock_only = True

    def check_run(self, plan: Plan, run: FrameworkRun) -> Iterator[Finding]:
        length, n_steps = run.env.episode_length, run.training.n_steps
        if length is None or n_steps < _LONG * length or length * run.n_envs == 1:
            return
        shorter = make_plan(replace(run, training=replace(run.training, n_steps=length)), plan.machine)
        saved = plan.peak.ram_bytes - shorter.peak.ram_bytes
        if saved < _SAVING_BYTES:
            return
        yield self.finding(
            f"n_steps {n_steps:,} is {ratio(n_steps, length)} × the episode length ({length:,} steps), so every env "
            f"plays about {count(n_steps // length, 'episode')} in one rollout; a rollout of one episode would take "
            f"{format_bytes(saved)} less at the peak",
            f"try n_steps between {length:,} and {_LONG * length:,} and look at the returns: a shorter rollout means "
            "more frequent updates from fewer samples, which changes learning",
            size=saved,
        )


class Orientation(FrameworkRule):
    code = "RLM004"
    title = "how often this run collects and updates"
    severity = INFO
    families = ("on-policy", "off-policy")

    def check_run(self, plan: Plan, run: FrameworkRun) -> Iterator[Finding]:
        message = _on_policy_counts(run) if run.spec.on_policy else _off_policy_counts(run)
        yield self.finding(message, "nothing to do: compare these counts with what you meant")


def _nearest_divisors(whole: int, wanted: int) -> str:
    below = next((size for size in range(wanted, max(wanted - _SEARCH, 1), -1) if whole % size == 0), None)
    above = next((size for size in range(wanted, min(wanted + _SEARCH, whole)) if whole % size == 0), None)
    found = [f"{size:,}" for size in (below, above) if size is not None]
    return f", such as {' or '.join(found)}" if found else ""


def _on_policy_counts(run: FrameworkRun) -> str:
    planned = schedule(run)
    most = "at most " if other_setting(run, "target_kl") is not None else ""
    parts = [f"{planned.cycle_timesteps:,} samples an iteration"]
    if run.training.batch_size is not None:
        parts.append(
            f"{count(planned.minibatches or 1, 'minibatch')}".replace("minibatchs", "minibatches") + " an epoch"
        )
    parts.append(f"{most}{count(planned.cycle_updates or 0, 'gradient update')} an iteration")
    if planned.cycles is not None:
        parts += [_iterations(run, planned.cycles), f"{most}{planned.updates:,} updates in all"]
    return ", ".join(parts)


def _iterations(run: FrameworkRun, cycles: int) -> str:
    """Return the iterations, and why there is one more than the division gives where there is."""
    rollout, total = run.training.n_steps * run.n_envs, run.training.total_timesteps or 0
    text = count(cycles, "iteration")
    if total % rollout == 0 or cycles == 1:
        return text
    return f"{text} (the last begins at {cycles - 1:,} × {rollout:,} < {total:,} and is run to its end)"


def _off_policy_counts(run: FrameworkRun) -> str:
    planned, training = schedule(run), run.training
    if planned.cycle_timesteps is None:
        return (
            f"learns after every {count(training.train_freq, 'episode')}, from timestep {learning_starts(run):,} on: "
            "how many updates that makes depends on how long the episodes are"
        )
    text = (
        f"collects {training.train_freq:,} × {count(run.n_envs, 'env')} = "
        f"{count(planned.cycle_timesteps, 'timestep')}, then makes "
        f"{count(planned.cycle_updates or 0, 'gradient update')} of {training.batch_size:,} samples"
    )
    if planned.updates is None:
        return text
    return f"{text}: {planned.updates:,} updates in all, from timestep {learning_starts(run):,} on"


RULES: Final = (UnevenMinibatches(), BatchBeyondRollout(), RolloutBeyondEpisodes(), Orientation())

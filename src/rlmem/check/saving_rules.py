"""Rules about callbacks that count, files that pile up, and settings that do nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rlmem.check.model import INFO, WARNING, Finding, FrameworkRule, PlanRule
from rlmem.check.schedule import schedule, times
from rlmem.check.storage import component_bytes
from rlmem.check.wording import count, ratio
from rlmem.plan import Plan
from rlmem.run.model import FileGrowth, FrameworkRun, GenericRun, Policy
from rlmem.units import format_bytes

_GB: Final = 10**9
_MUCH_DISK_BYTES: Final = 10 * _GB
_COUNTED: Final = ("on-policy", "off-policy")
_WITH_CRITICS: Final = ("SAC", "TQC", "CrossQ", "TD3", "DDPG")
_WITH_QUANTILES: Final = ("QRDQN", "TQC")
_WITHOUT_SHARED_FEATURES: Final = ("DQN", "QRDQN", "ARS")
_LSTM_OPTIONS: Final = ("lstm_hidden_size", "n_lstm_layers", "shared_lstm", "enable_critic_lstm")


class _CountsCalls(FrameworkRule):
    """A callback's frequency counts calls of env.step, each of which is a step in every environment."""

    families = _COUNTED
    severity = WARNING

    def of_frequency(self, run: FrameworkRun, setting: str, frequency: int | None, event: str) -> Iterator[Finding]:
        if frequency is None:
            return
        expected = times(run, frequency)
        if expected == 0:
            yield self._never(run, setting, frequency, event)
        elif run.n_envs > 1:
            yield self._rarer(run, setting, frequency, event, expected)

    def _never(self, run: FrameworkRun, setting: str, frequency: int, event: str) -> Finding:
        calls = schedule(run).calls or 0
        return self.finding(
            f"{setting} {frequency:,} counts calls of env.step, and the whole run makes {calls:,} "
            f"({run.training.total_timesteps:,} timesteps, {count(run.n_envs, 'env')}): there is never {event}",
            f"give {setting} at most {calls:,}; for ten over the run, {max(calls // 10, 1):,}",
        )

    def _rarer(self, run: FrameworkRun, setting: str, frequency: int, event: str, expected: int | None) -> Finding:
        timesteps = frequency * run.n_envs
        cycles = f", every {ratio(frequency, run.training.n_steps)} iterations" if run.spec.on_policy else ""
        often = "" if expected is None else f", {count(expected, 'time')} in the run"
        return self.finding(
            f"{setting} counts calls of env.step, not timesteps: {frequency:,} calls × {run.n_envs:,} envs is {event} "
            f"every {timesteps:,} timesteps{cycles}{often}",
            f"to have it every {frequency:,} timesteps, give {setting} {max(frequency // run.n_envs, 1):,}",
        )


class SaveFrequency(_CountsCalls):
    code = "RLM020"
    title = "save_freq counts calls of env.step, not timesteps"

    def check_run(self, plan: Plan, run: FrameworkRun) -> Iterator[Finding]:
        if run.checkpoint is not None:
            yield from self.of_frequency(run, "save_freq", run.checkpoint.save_freq, "a checkpoint")


class EvalFrequency(_CountsCalls):
    code = "RLM021"
    title = "eval_freq counts calls of env.step, not timesteps"

    def check_run(self, plan: Plan, run: FrameworkRun) -> Iterator[Finding]:
        if run.evaluation is not None:
            yield from self.of_frequency(run, "eval_freq", run.evaluation.eval_freq, "an evaluation")


class WithoutEffect(FrameworkRule):
    code = "RLM022"
    title = "a setting that does nothing"
    severity = WARNING

    def check_run(self, plan: Plan, run: FrameworkRun) -> Iterator[Finding]:
        for setting in sorted(run.training.given - run.spec.settings):
            yield self.finding(
                f"`training.{setting}` is no setting of {run.algorithm}: it changes nothing here, and "
                f"{run.algorithm}({setting}=…) raises TypeError",
                "remove it, so that nobody plans with it",
            )
        for setting in _idle_policy_options(run.algorithm, run.policy):
            yield self.finding(
                f"`policy.{setting}` is no option of {run.algorithm}'s policies: it changes nothing here, and in "
                "policy_kwargs it raises TypeError",
                "remove it",
            )
        for message, advice in (*_idle_saving(run), *_idle_processes(run)):
            yield self.finding(message, advice)


class ReplaySavedEachTime(FrameworkRule):
    code = "RLM023"
    title = "the replay buffer is written whole at every checkpoint"
    severity = WARNING
    families = ("off-policy",)

    def check_run(self, plan: Plan, run: FrameworkRun) -> Iterator[Finding]:
        checkpoint = run.checkpoint
        if checkpoint is None or not checkpoint.save_replay_buffer:
            return
        size = component_bytes(plan, "save/replay_buffer_file", where="disk")
        often = times(run, checkpoint.save_freq)
        if often == 0:
            return
        written = size if often is None else size * often
        total = "" if often is None else f"; {count(often, 'checkpoint')} write {format_bytes(written)} in all"
        yield self.finding(
            f"every checkpoint pickles the whole replay buffer, filled or not: {format_bytes(size)} a file{total}, and "
            "CheckpointCallback deletes none",
            "save the buffer once at the end (model.save_replay_buffer), or rarer, and delete old files; a buffer_size "
            "no larger than what the run fills makes smaller files",
            size=written,
            severity=WARNING if written > _GB else INFO,
        )


class DiskGrowth(PlanRule):
    code = "RLM024"
    title = "saved files pile up"
    severity = WARNING

    def check(self, plan: Plan) -> Iterator[Finding]:
        if isinstance(plan.run, GenericRun):
            if plan.run.files is not None:
                yield from self._generic(plan.run, plan.run.files)
        else:
            yield from self._checkpoints(plan, plan.run)

    def _generic(self, run: GenericRun, files: FileGrowth) -> Iterator[Finding]:
        total = files.total
        if total is None and run.growth is not None and run.growth.per == files.per:
            total = run.growth.total
        if total is None:
            return
        kept = total if files.keep is None else min(total, files.keep)
        size = files.files * files.file_bytes * kept
        words = f"{count(files.files, 'file')} × {format_bytes(files.file_bytes)} × {kept:,} kept"
        yield from self._sized(f"{words} (one set each {files.per})", size)

    def _checkpoints(self, plan: Plan, run: FrameworkRun) -> Iterator[Finding]:
        often = None if run.checkpoint is None else times(run, run.checkpoint.save_freq)
        if run.checkpoint is None or not often:
            return
        kept = often if run.checkpoint.keep is None else min(often, run.checkpoint.keep)
        model = component_bytes(plan, "save/model_file", where="disk")
        replay = component_bytes(plan, "save/replay_buffer_file", where="disk")
        each = f"{format_bytes(model)} of model" + (f" and {format_bytes(replay)} of replay buffer" if replay else "")
        yield from self._sized(f"{count(kept, 'checkpoint')} × {each}", (model + replay) * kept)

    def _sized(self, words: str, size: int) -> Iterator[Finding]:
        if size > _GB:
            yield self.finding(
                f"{words} = {format_bytes(size)} on disk by the end of the run",
                "keep the last few and the best, and delete the rest as the run goes; or save less often",
                size=size,
                severity=WARNING if size > _MUCH_DISK_BYTES else INFO,
            )


def _idle_policy_options(algorithm: str, policy: Policy) -> Iterator[str]:
    if policy.n_critics is not None and algorithm not in _WITH_CRITICS:
        yield "n_critics"
    if policy.n_quantiles is not None and algorithm not in _WITH_QUANTILES:
        yield "n_quantiles"
    if policy.share_features_extractor is not None and algorithm in _WITHOUT_SHARED_FEATURES:
        yield "share_features_extractor"
    if algorithm != "RecurrentPPO":
        default = Policy()
        yield from (name for name in _LSTM_OPTIONS if getattr(policy, name) != getattr(default, name))


def _idle_saving(run: FrameworkRun) -> Iterator[tuple[str, str]]:
    checkpoint, training = run.checkpoint, run.training
    if checkpoint is not None and checkpoint.save_replay_buffer and not run.spec.off_policy:
        why = f"{run.algorithm} has no replay buffer, and CheckpointCallback passes over it in silence"
        yield f"`checkpoint.save_replay_buffer` does nothing: {why}", "remove it; it costs neither memory nor disk"
    if checkpoint is not None and checkpoint.save_vecnormalize and not run.env.normalize:
        yield (
            "`checkpoint.save_vecnormalize` does nothing: the environment has no VecNormalize",
            "remove it, or say `env.normalize: true` if the environment is normalised",
        )
    if run.spec.off_policy and training.n_steps > 1 and training.replay_buffer_class is not None:
        given = f"replay_buffer_class {training.replay_buffer_class} is given"
        yield (
            f"`training.n_steps` {training.n_steps:,} is ignored, since {given}",
            "leave replay_buffer_class out for n-step returns, or give NStepReplayBuffer its n_steps by itself",
        )


def _idle_processes(run: FrameworkRun) -> Iterator[tuple[str, str]]:
    kinds = {run.env.workers} | ({run.evaluation.workers} if run.evaluation else set())
    if run.env.start_method is not None and "subprocess" not in kinds:
        yield (
            f"`env.start_method` {run.env.start_method} does nothing: the environments run in the main process",
            "remove it, or say `env.workers: subprocess`",
        )
    if run.processes.workers:
        yield (
            f"`processes.workers` {run.processes.workers:,} does nothing for {run.framework}: its workers are its envs",
            "remove it; give `env.n_envs` and `env.workers: subprocess`",
        )


RULES: Final = (SaveFrequency(), EvalFrequency(), WithoutEffect(), ReplaySavedEachTime(), DiskGrowth())

"""A real training under the meter, of a described run or of a script, and what the plan had said."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from rlmem.errors import EnvironmentReadError, InputError, ScriptError
from rlmem.machine import Machine
from rlmem.machine.memory_group import memory_group
from rlmem.measure.captured import CapturedRun
from rlmem.measure.parts import traced_parts
from rlmem.observe import TreePeak, TreeSampler
from rlmem.plan import Plan, make_plan
from rlmem.plan.buffers import filled_rows, replay_rows
from rlmem.plan.schedule import timesteps, without_repetition
from rlmem.run import write_run
from rlmem.run.child import ask
from rlmem.run.model import FrameworkRun, Run
from rlmem.units import format_bytes

TIMEOUT_S: Final = 3600.0
_NAMED: Final = 5
_KILLED: Final = (f"exit code -{signal.SIGKILL}", "was killed (SIGKILL)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptCommand:
    """A training script as it is called, and how long it may take to come to `learn()`."""

    script: Path
    arguments: tuple[str, ...] = ()
    timeout_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What a run was predicted to take, and what it took. ``reduced`` says what was made smaller to measure it."""

    run: FrameworkRun
    plan: Plan
    ram_bytes: int
    ram_phase: str | None
    phase_bytes: Mapping[str, int] | None
    """The main process's own high-water mark in each phase; None where the kernel does not let it be set back."""
    file_bytes: int
    meter: str
    timesteps: int
    reduced: str | None = None
    script: ScriptCommand | None = None
    notes: tuple[str, ...] = ()

    @property
    def ram_error(self) -> float:
        """The prediction's error: positive when it said too much."""
        return self.plan.peak.ram_bytes / self.ram_bytes - 1


def measure(
    run: Run, machine: Machine, *, most_timesteps: int | None = None, progress: Callable[[int, int], None] | None = None
) -> Measurement:
    """Train for real until the peak has been seen, and return it beside the plan's.

    A replay buffer that would take more than ``most_timesteps`` to fill is made smaller, in both.
    """
    if not isinstance(run, FrameworkRun):
        raise InputError("only framework runs can be measured: a generic run describes a program, it is not one")
    if run.device.startswith("cuda"):
        raise InputError("measure meters host memory of CPU runs here; set device: cpu")
    smaller, reduced = _reduced(run, most_timesteps)
    plan = make_plan(smaller, machine, traced_parts(smaller))
    peak, reply = _train(smaller, progress)
    return Measurement(
        run=smaller,
        plan=plan,
        **_readings(peak, reply, several=run.env.workers == "subprocess"),
        timesteps=timesteps(smaller),
        reduced=reduced,
    )


def measure_script(
    command: ScriptCommand,
    captured: CapturedRun,
    machine: Machine,
    *,
    most_timesteps: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Measurement:
    """Let a captured script train for real until the peak has been seen, and return it beside the plan's.

    A replay buffer that would take more than ``most_timesteps`` to fill is filled that far, in both.
    """
    if captured.run.device.startswith("cuda"):
        raise InputError(
            f"{command.script}: measure meters host memory of CPU runs, and the script trains on "
            f"{captured.run.device}; CUDA_VISIBLE_DEVICES= before the command hides the card"
        )
    run = _filled_less(captured.run, most_timesteps)
    plan = make_plan(run, machine, captured.parts)
    peak, reply = _train(run, progress, script=command)
    return Measurement(
        run=run,
        plan=replace(plan, notes=(*plan.notes, *captured.notes)),
        **_readings(peak, reply, several=_has_workers(run)),
        timesteps=reply["timesteps"],
        reduced=_what_was_left_out(run, captured, machine, reply["timesteps"]),
        script=command,
        notes=_kept_out(reply["kept_out"]),
    )


def _has_workers(run: FrameworkRun) -> bool:
    """Whether a script's environments are in processes of their own; any other that is seen with it comes and goes."""
    return "subprocess" in (run.env.workers, run.evaluation.workers if run.evaluation else None)


def _readings(peak: TreePeak, reply: dict[str, Any], *, several: bool) -> dict[str, Any]:
    """Return what the meters said: the tree's where there are several processes, else the one's own."""
    return {
        "ram_bytes": peak.pss_bytes if several else reply["high_water_bytes"],
        "ram_phase": reply["peak_phase"],
        "phase_bytes": reply["phase_bytes"],
        "file_bytes": reply["file_bytes"],
        "meter": f"summed PSS of {peak.processes} processes at {peak.rate_hz:.0f} Hz" if several else "VmHWM",
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Capped:
    """Whether a training lived under a limit that the kernel enforced."""

    share: float
    limit_bytes: int
    lived: bool


def capped(measurement: Measurement, *, share: float) -> Capped:
    """Train again under a memory cgroup at ``share`` of the predicted peak, and say whether it lived.

    Code and libraries that other processes have in memory already are charged to nobody here, so the limit is that
    much lower than the prediction.
    """
    limit = int(measurement.plan.peak.ram_bytes * share) - measurement.file_bytes
    with memory_group(limit) as group:
        try:
            _train(measurement.run, None, script=measurement.script, place=group.add)
        except (EnvironmentReadError, ScriptError) as error:
            if not any(words in str(error) for words in _KILLED):
                raise  # it failed, but not of the limit
            return Capped(share=share, limit_bytes=limit, lived=False)
    return Capped(share=share, limit_bytes=limit, lived=True)


def _reduced(run: FrameworkRun, most: int | None) -> tuple[FrameworkRun, str | None]:
    if most is None or not run.spec.off_policy or timesteps(run) <= most:
        return run, None
    rows = max(most, 1)
    training = replace(run.training, buffer_size=rows, given=run.training.given | {"buffer_size"})
    words = f"the replay buffer holds {rows:,} transitions instead of {replay_rows(run):,}: the rest is extrapolated"
    return replace(run, training=training), words


def _filled_less(run: FrameworkRun, most: int | None) -> FrameworkRun:
    """Return the run as long as it may be measured; pages of a replay buffer that nobody writes take no memory."""
    if most is None or not run.spec.off_policy or timesteps(run) <= most:
        return run
    training = replace(run.training, total_timesteps=max(most, 1), given=run.training.given | {"total_timesteps"})
    return replace(run, training=training)


def _what_was_left_out(run: FrameworkRun, captured: CapturedRun, machine: Machine, done: int) -> str | None:
    if done < timesteps(run):
        return f"the script ended its training after {done:,} of {timesteps(run):,} timesteps: the peak may be higher"
    if run is captured.run:
        return None
    whole = make_plan(captured.run, machine, captured.parts).peak.ram_bytes
    return (
        f"{filled_rows(run):,} of the {filled_rows(captured.run):,} transitions that the script fills were filled, in "
        f"the measurement and in this prediction; the whole is predicted to take {format_bytes(whole)}, not measured"
    )


def _kept_out(names: list[str]) -> tuple[str, ...]:
    if not names:
        return ()
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return (f"kept out of your folders: {', '.join(names[:_NAMED])}{more}",)


def _train(
    run: FrameworkRun,
    progress: Callable[[int, int], None] | None,
    *,
    script: ScriptCommand | None = None,
    place: Callable[[int], None] | None = None,
) -> tuple[TreePeak, dict[str, Any]]:
    """Train in a child whose process tree is sampled from outside; ``place`` puts it where it belongs first."""
    samplers: list[TreeSampler] = []

    def started(pid: int) -> None:
        if place is not None:
            place(pid)
        sampler = TreeSampler(pid, tick=_tick(Path(folder) / "progress", timesteps(run), progress))
        samplers.append(sampler.__enter__())

    with TemporaryDirectory() as folder:
        try:
            reply = _trained(run, script, str(Path(folder) / "progress"), started)
        finally:
            for sampler in samplers:
                sampler.__exit__(None, None, None)
    return samplers[0].peak(), reply


def _trained(
    run: FrameworkRun, command: ScriptCommand | None, progress: str, started: Callable[[int], None]
) -> dict[str, Any]:
    """Return what the child says that trains the run: as described, or by its script."""
    if command is None:
        question = {"run": write_run(_on_its_environment(run)), "progress": progress}
        return ask("rlmem.sb3.real_training", question, subject="the training", timeout_s=TIMEOUT_S, started=started)
    from rlmem.sb3.script_training import ShortTraining, train_script

    training = ShortTraining(timesteps=timesteps(run), settings=without_repetition(run), progress=progress)
    limit_s = command.timeout_s + TIMEOUT_S
    return train_script(command.script, list(command.arguments), training, timeout_s=limit_s, started=started)


def _on_its_environment(run: FrameworkRun) -> FrameworkRun:
    """Return the run without the spaces of an environment that it names, which is then built as it is.

    Spaces are enough for plain arrays. What a lean buffer holds depends on what the environment shows.
    """
    if not run.buffer.is_lean or not (run.env.id or run.env.make):
        return run
    return replace(run, env=replace(run.env, observation=None, action=None))


def _tick(path: Path, total: int, progress: Callable[[int, int], None] | None) -> Callable[[], None] | None:
    """Return what hands the child's progress on, called now and then by the sampler."""
    if progress is None:
        return None

    def tick() -> None:
        text = path.read_text() if path.exists() else ""
        if text.isdigit():
            progress(min(int(text), total), total)

    return tick

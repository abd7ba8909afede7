"""A real training under the meter, and what the plan had said."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from rlmem.errors import EnvironmentReadError, InputError
from rlmem.machine import Machine
from rlmem.machine.memory_group import memory_group
from rlmem.measure.parts import traced_parts
from rlmem.observe import TreePeak, TreeSampler
from rlmem.plan import Plan, make_plan
from rlmem.plan.buffers import replay_rows
from rlmem.plan.schedule import timesteps
from rlmem.run import write_run
from rlmem.run.child import ask
from rlmem.run.model import FrameworkRun, Run

TIMEOUT_S: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What a run was predicted to take, and what it took. ``reduced`` says what was made smaller to measure it."""

    run: FrameworkRun
    plan: Plan
    ram_bytes: int
    ram_phase: str | None
    file_bytes: int
    meter: str
    timesteps: int
    reduced: str | None = None

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
    several = run.env.workers == "subprocess"
    return Measurement(
        run=smaller,
        plan=plan,
        ram_bytes=peak.pss_bytes if several else reply["high_water_bytes"],
        ram_phase=reply.get("peak_phase"),
        file_bytes=reply["file_bytes"],
        meter=f"summed PSS of {peak.processes} processes at {peak.rate_hz:.0f} Hz" if several else "VmHWM",
        timesteps=timesteps(smaller),
        reduced=reduced,
    )


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
            _train(measurement.run, None, place=group.add)
        except EnvironmentReadError as error:
            if f"exit code -{signal.SIGKILL}" not in str(error):
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


def _train(
    run: FrameworkRun, progress: Callable[[int, int], None] | None, *, place: Callable[[int], None] | None = None
) -> tuple[TreePeak, dict[str, Any]]:
    """Train in a child whose process tree is sampled from outside; ``place`` puts it where it belongs first."""
    samplers: list[TreeSampler] = []

    def started(pid: int) -> None:
        if place is not None:
            place(pid)
        sampler = TreeSampler(pid, tick=_tick(Path(folder) / "progress", timesteps(run), progress))
        samplers.append(sampler.__enter__())

    with TemporaryDirectory() as folder:
        question = {"run": write_run(run), "progress": str(Path(folder) / "progress")}
        try:
            reply = ask(
                "rlmem.sb3.real_training", question, subject="the training", timeout_s=TIMEOUT_S, started=started
            )
        finally:
            for sampler in samplers:
                sampler.__exit__(None, None, None)
    return samplers[0].peak(), reply


def _tick(path: Path, total: int, progress: Callable[[int, int], None] | None) -> Callable[[], None] | None:
    """Return what hands the child's progress on, called now and then by the sampler."""
    if progress is None:
        return None

    def tick() -> None:
        text = path.read_text() if path.exists() else ""
        if text.isdigit():
            progress(min(int(text), total), total)

    return tick

"""What Python programs call: the same answers as the command line's, as values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlmem.errors import InputError
from rlmem.machine import Machine, budget_machine, read_machine
from rlmem.plan import Plan, make_plan
from rlmem.run import FrameworkRun, GenericRun, Run, load_run

if TYPE_CHECKING:
    from rlmem.measure.captured import CapturedRun
    from rlmem.plan.parts import Parts


class ShownPlan(Plan):
    """A plan that prints as its table."""

    def __str__(self) -> str:
        from rlmem.report.text import plan_report, render

        return render(plan_report(self))


def plan(subject: Any, *, machine: Machine | None = None, trace: bool = False) -> Plan:
    """Return what a run will take: ``subject`` is a run, the path of a run file, or a live Stable-Baselines3 model.

    It is held against ``machine``, else against what the run file names, else against this machine. With ``trace``
    the update of a described run is traced on fake tensors and this machine's processes are metered; a live model
    is always traced.
    """
    if _is_model(subject):
        from rlmem.measure.captured import live

        return plan_captured(live(subject), machine=machine)
    run = subject if isinstance(subject, FrameworkRun | GenericRun) else _load(subject)
    parts = _parts(run, trace=trace) if isinstance(run, FrameworkRun) else None
    return _shown(make_plan(run, machine or machine_for(run), parts))


def _parts(run: FrameworkRun, *, trace: bool) -> Parts | None:
    """Return what has to be found out about a run; None where its description says it all."""
    if trace:
        from rlmem.measure.parts import traced_parts

        return traced_parts(run)
    if not run.buffer.is_lean:
        return None
    from rlmem.measure.lean_sample import with_sample
    from rlmem.plan.parts import described_parts

    return with_sample(run, described_parts(run))


def plan_script(
    script: str | Path, arguments: Sequence[str] = (), *, timeout_s: float = 60.0, machine: Machine | None = None
) -> Plan:
    """Return what an unmodified training script will take: it runs up to its first ``learn()``, and no further."""
    from rlmem.measure.captured import capture

    return plan_captured(capture(Path(script), list(arguments), timeout_s=timeout_s), machine=machine)


def plan_captured(captured: CapturedRun, *, machine: Machine | None) -> Plan:
    """Return the plan of a run that was read off a real model."""
    made = make_plan(captured.run, machine or machine_for(captured.run), captured.parts)
    return _shown(replace(made, notes=(*made.notes, *captured.notes)))


def _shown(made: Plan) -> Plan:
    return ShownPlan(**{name: getattr(made, name) for name in Plan.__dataclass_fields__})


def _is_model(subject: object) -> bool:
    """Whether it is a Stable-Baselines3 model, told without importing the framework."""
    return any(kind.__module__ == "stable_baselines3.common.base_class" for kind in type(subject).__mro__)


def _load(subject: object) -> Run:
    if not isinstance(subject, str | Path):
        raise InputError(f"plan takes a run, the path of a run file or a model, but got {type(subject).__name__}")
    return load_run(subject)


def machine_for(run: Run, *, ram_bytes: int | None = None, vram_bytes: int | None = None) -> Machine:
    """Return the machine: as told here, else in the run file, else the real one."""
    budget = run.budget
    return budget_machine(
        read_machine(),
        ram_bytes=budget.ram_bytes if ram_bytes is None else ram_bytes,
        vram_bytes=budget.vram_bytes if vram_bytes is None else vram_bytes,
        cores=budget.cores,
    )

"""What Python programs call: the same answers as the command line's, as values."""

from __future__ import annotations

from pathlib import Path

from rlmem.errors import InputError
from rlmem.machine import Machine, budget_machine, read_machine
from rlmem.plan import Plan, make_plan
from rlmem.run import FrameworkRun, GenericRun, Run, load_run


class ShownPlan(Plan):
    """A plan that prints as its table."""

    def __str__(self) -> str:
        from rlmem.report.text import plan_report, render

        return render(plan_report(self))


def plan(subject: Run | str | Path, *, machine: Machine | None = None) -> Plan:
    """Return what a run will take: ``subject`` is a run or the path of a run file.

    It is held against ``machine``, else against what the run file names, else against this machine.
    """
    run = subject if isinstance(subject, FrameworkRun | GenericRun) else _load(subject)
    made = make_plan(run, machine or machine_for(run))
    return ShownPlan(**{name: getattr(made, name) for name in Plan.__dataclass_fields__})


def _load(subject: str | Path) -> Run:
    if not isinstance(subject, str | Path):
        raise InputError(f"plan takes a run or the path of a run file, but got {type(subject).__name__}")
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

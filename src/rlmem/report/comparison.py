"""Plans side by side: one row a run, the smallest first."""

from __future__ import annotations

from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from rlmem.plan.model import Plan
from rlmem.report.json import SCHEMA
from rlmem.units import format_bytes


def largest_that_fits(plans: tuple[Plan, ...]) -> Plan | None:
    """Return the run that takes most among those that fit."""
    fitting = [plan for plan in plans if fits(plan)]
    return max(fitting, key=lambda plan: plan.peak.ram_bytes, default=None)


def fits(plan: Plan) -> bool:
    return plan.fits.ram is not False and plan.fits.vram is not False


def comparison_report(plans: tuple[Plan, ...]) -> Group:
    """Return the verdict, then the table."""
    best, limit = largest_that_fits(plans), plans[0].ram_limit_bytes
    if best is None:
        verdict = Text(f"NONE FITS in {format_bytes(limit)} of RAM", style="bold red")
    else:
        verdict = Text.assemble(
            ("LARGEST THAT FITS", "bold green"),
            f"  {best.run.name}: {format_bytes(best.peak.ram_bytes)} of {format_bytes(best.ram_limit_bytes)}",
        )
    return Group(verdict, Text(), comparison_table(plans))


def comparison_table(plans: tuple[Plan, ...]) -> Table:
    """Return one row a run, in order of peak RAM."""
    smallest = min(plan.peak.ram_bytes for plan in plans)
    table = Table(box=None, pad_edge=False)
    table.add_column("run", overflow="fold")
    for name in ("peak RAM", "ratio", "peak VRAM"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("phase", "dominated by", "fits"):
        table.add_column(name, no_wrap=True)
    for plan in sorted(plans, key=lambda plan: plan.peak.ram_bytes):
        table.add_row(*_row(plan, smallest))
    return table


def _row(plan: Plan, smallest: int) -> tuple[str | Text, ...]:
    phase = plan.peak_phase("ram")
    largest = phase.largest("ram")
    peak = plan.peak
    return (
        plan.run.name,
        format_bytes(peak.ram_bytes),
        f"{peak.ram_bytes / smallest:.1f}×",
        format_bytes(peak.vram_bytes) if peak.vram_bytes else "none",
        phase.name,
        largest.path if largest else "",
        Text("yes", style="green") if fits(plan) else Text("no", style="red"),
    )


def comparison_to_dict(plans: tuple[Plan, ...]) -> dict[str, Any]:
    """Return the comparison as JSON has it."""
    best = largest_that_fits(plans)
    return {
        "schema": SCHEMA,
        "runs": [_entry(plan) for plan in sorted(plans, key=lambda plan: plan.peak.ram_bytes)],
        "largest_that_fits": best.run.name if best else None,
    }


def _entry(plan: Plan) -> dict[str, Any]:
    peak = plan.peak
    largest = plan.peak_phase("ram").largest("ram")
    return {
        "name": plan.run.name,
        "peak": {
            "ram_bytes": peak.ram_bytes,
            "ram_phase": peak.ram_phase,
            "vram_bytes": peak.vram_bytes,
            "vram_phase": peak.vram_phase,
        },
        "dominated_by": largest.path if largest else None,
        "fits": fits(plan),
    }

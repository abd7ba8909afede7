"""Predicted against measured, for people and for programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rlmem.measure.training import Capped, Measurement
from rlmem.report.json import SCHEMA
from rlmem.units import format_bytes


def measurement_report(measurement: Measurement, caps: tuple[Capped, ...] = ()) -> RenderableType:
    """Return the error first, then the two numbers, then what each phase was said to take."""
    plan, error = measurement.plan, measurement.ram_error
    table = Table(box=None, pad_edge=False)
    table.add_column("peak RAM")
    table.add_column("", justify="right")
    table.add_column("")
    table.add_row("predicted", format_bytes(plan.peak.ram_bytes), f"in {plan.peak.ram_phase}")
    phase = f"in {measurement.ram_phase}, " if measurement.ram_phase else ""
    table.add_row("measured", format_bytes(measurement.ram_bytes), phase + measurement.meter)
    phases = ", ".join(f"{phase.name} {format_bytes(phase.ram_bytes)}" for phase in plan.phases)
    lines = [
        Text(f"phases predicted: {phases}", style="dim"),
        Text(f"{measurement.timesteps:,} timesteps", style="dim"),
    ]
    if measurement.reduced:
        lines.append(Text(measurement.reduced, style="yellow"))
    lines += [_cap_line(cap) for cap in caps]
    lines += [Text(note, style="dim") for note in measurement.notes]
    style = "bold green" if abs(error) <= 0.05 else "bold yellow"
    return Group(Text.assemble((f"{error:+.1%}", style), f"  {plan.run.name}"), Text(), table, Text(), *lines)


def _cap_line(cap: Capped) -> Text:
    right = cap.lived == (cap.share > 1)
    words = f"limited to {cap.share:.0%} of the prediction ({format_bytes(cap.limit_bytes)} charged): "
    return Text.assemble(words, ("lived" if cap.lived else "was killed", "green" if right else "bold red"))


def measurement_to_dict(measurement: Measurement, caps: tuple[Capped, ...] = ()) -> dict[str, Any]:
    """Return the result as JSON has it."""
    peak = measurement.plan.peak
    return {
        "schema": SCHEMA,
        "run": measurement.run.name,
        "predicted": {"ram_bytes": peak.ram_bytes, "ram_phase": peak.ram_phase, "vram_bytes": peak.vram_bytes},
        "measured": {
            "ram_bytes": measurement.ram_bytes,
            "ram_phase": measurement.ram_phase,
            "phases": dict(measurement.phase_bytes) if measurement.phase_bytes is not None else None,
            "meter": measurement.meter,
        },
        "error": {"ram": measurement.ram_error, "vram": None},
        "timesteps": measurement.timesteps,
        "reduced": measurement.reduced,
        "caps": [asdict(cap) for cap in caps],
        "notes": list(measurement.notes),
        "phases": {phase.name: phase.ram_bytes for phase in measurement.plan.phases},
    }

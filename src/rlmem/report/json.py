"""Plans and findings as JSON, and plans read back from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any, Final

from rlmem.check.model import Finding
from rlmem.errors import InputError
from rlmem.machine import Gpu, Machine
from rlmem.machine import as_dict as machine_to_dict
from rlmem.plan.model import Capacity, Component, GrowthForecast, Phase, Plan, Slope
from rlmem.run import run_from_mapping, write_run

SCHEMA: Final = 1


def plan_to_dict(plan: Plan, findings: Iterable[Finding] = ()) -> dict[str, Any]:
    """Return the plan as JSON has it."""
    return {
        "schema": SCHEMA,
        "run": write_run(plan.run),
        "machine": machine_to_dict(plan.machine),
        "peak": asdict(plan.peak),
        "steady": asdict(plan.steady),
        "phases": [_phase(phase) for phase in plan.phases],
        "parameters": plan.parameters,
        "fits": asdict(plan.fits),
        "growth": asdict(plan.growth) if plan.growth else None,
        "capacity": asdict(plan.capacity) if plan.capacity else None,
        "unmodelled": list(plan.unmodelled),
        "notes": list(plan.notes),
        "findings": [finding_to_dict(finding) for finding in findings],
    }


def _phase(phase: Phase) -> dict[str, Any]:
    return {
        "name": phase.name,
        "ram_bytes": phase.ram_bytes,
        "vram_bytes": phase.vram_bytes,
        "groups": {"ram": phase.groups("ram"), "vram": phase.groups("vram")},
        "components": [asdict(component) for component in phase.components],
    }


def finding_to_dict(finding: Finding) -> dict[str, Any]:
    return asdict(finding) | {"page": finding.page}


def findings_to_dict(findings: Iterable[Finding]) -> dict[str, Any]:
    return {"schema": SCHEMA, "findings": [finding_to_dict(finding) for finding in findings]}


def plan_from_dict(data: Mapping[str, Any]) -> Plan:
    """Return the plan that `plan_to_dict` wrote."""
    if data.get("schema") != SCHEMA:
        raise InputError(f"a plan must have the schema {SCHEMA}, but got {data.get('schema')!r}")
    growth, capacity, machine = data["growth"], data["capacity"], data["machine"]
    gpus = tuple(Gpu(**gpu) for gpu in machine["gpus"])
    return Plan(
        run=run_from_mapping(data["run"]),
        machine=Machine(**{**machine, "gpus": gpus}),
        phases=tuple(_read_phase(phase) for phase in data["phases"]),
        parameters=data["parameters"],
        unmodelled=tuple(data["unmodelled"]),
        notes=tuple(data["notes"]),
        growth=GrowthForecast(**growth) if growth else None,
        capacity=_read_capacity(capacity) if capacity else None,
    )


def _read_phase(data: Mapping[str, Any]) -> Phase:
    return Phase(name=data["name"], components=tuple(Component(**part) for part in data["components"]))


def _read_capacity(data: Mapping[str, Any]) -> Capacity:
    return Capacity(**{**data, "slopes": tuple(Slope(**slope) for slope in data["slopes"])})

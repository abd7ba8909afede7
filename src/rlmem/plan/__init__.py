"""What a run will take: phases of components, the peak, and the verdict against a machine."""

from __future__ import annotations

from rlmem.machine import Machine
from rlmem.plan import forecast, generic, off_policy, on_policy, search
from rlmem.plan.model import Component, Phase, Plan
from rlmem.plan.parts import Parts, described_parts
from rlmem.plan.versions import framework_version
from rlmem.run.model import FrameworkRun, GenericRun, Run


def make_plan(run: Run, machine: Machine, parts: Parts | None = None) -> Plan:
    """Return what ``run`` will take on ``machine``, from ``parts`` where they were read, traced or metered."""
    if isinstance(run, GenericRun):
        phases, parameters = generic.phases(run), generic.parameters(run)
    else:
        parts = parts or described_parts(run)
        phases, parameters = _family(run, parts), parts.cost.parameters
    return Plan(
        run=run,
        machine=machine,
        phases=phases,
        parameters=parameters,
        unmodelled=_unmodelled(run),
        notes=(*_notes(run), *(parts.notes if parts else ())),
        growth=forecast.growth(run, machine, parts),
        capacity=forecast.capacity(run, machine),
    )


def _family(run: FrameworkRun, parts: Parts) -> tuple[Phase, ...]:
    families = {"on-policy": on_policy.phases, "off-policy": off_policy.phases, "search": search.phases}
    return families[run.spec.family](run, parts)


def _unmodelled(run: Run) -> tuple[str, ...]:
    """Return what the plan leaves out, so that nothing is dropped in silence."""
    if isinstance(run, GenericRun):
        return ("whatever the run file does not describe",)
    parts = ["logging and callbacks other than evaluation and checkpoints"]
    if run.processes.env_bytes is None:
        parts.append("what an environment itself holds (emulator, simulator, data): give it as processes.env")
    if run.algorithm == "RecurrentPPO":
        parts.append("padding of sequences in recurrent minibatches, which depends on episode lengths")
    if run.algorithm == "ARS" and run.env.workers == "subprocess":
        parts.append("AsyncEval's worker processes")
    return tuple(parts)


def _notes(run: Run) -> tuple[str, ...]:
    if isinstance(run, GenericRun):
        return run.notes
    version, source = framework_version(run)
    return (f"Stable-Baselines3 {version} ({source})",)


__all__ = ["Component", "Phase", "Plan", "make_plan"]

"""Rules about the peak against what the machine has, and what decides it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from rlmem.check.model import ERROR, INFO, WARNING, Finding, PlanRule
from rlmem.check.wording import percent
from rlmem.plan import Component, Phase, Plan
from rlmem.plan.framework import rows_per_update
from rlmem.run.model import GenericRun
from rlmem.units import format_bytes

_ACTIVATIONS: Final = "update/activations"
_UNCHANGEABLE: Final = ("process/main", "cuda/context")
_CURES: Final = (
    ("buffer/flatten_copy", "fewer n_steps, or one env, which needs no copy"),
    ("buffer/action_masks", "fewer n_steps or envs, or fewer actions to mask"),
    ("update/", "a smaller batch_size"),
    ("process/", "fewer worker processes or environments"),
    ("network/", "a smaller network"),
    ("cuda/", "a smaller batch_size, or a larger card"),
)


class NearRamLimit(PlanRule):
    code = "RLM032"
    title = "peak RAM is close to the limit"
    severity = WARNING

    def check(self, plan: Plan) -> Iterator[Finding]:
        peak, limit = plan.peak.ram_bytes, plan.ram_limit_bytes
        if not _is_near(peak, limit):
            return
        yield self.finding(
            f"the peak of {format_bytes(peak)} ({plan.peak.ram_phase}) leaves {format_bytes(limit - peak)} of "
            f"{format_bytes(limit)} ({percent(limit - peak, limit)}): other processes and what the plan does not model "
            f"share that; {_decides(plan, 'ram')}",
            _cure(plan, "ram"),
            size=limit - peak,
        )


class OverRamLimit(PlanRule):
    code = "RLM033"
    title = "peak RAM is over the limit"
    severity = ERROR

    def check(self, plan: Plan) -> Iterator[Finding]:
        peak, limit = plan.peak.ram_bytes, plan.ram_limit_bytes
        if peak <= limit:
            return
        yield self.finding(
            f"the peak of {format_bytes(peak)} ({plan.peak.ram_phase}) is {format_bytes(peak - limit)} over the limit "
            f"of {format_bytes(limit)}{_source(plan)}{_when(plan)}; {_decides(plan, 'ram')}",
            _cure(plan, "ram"),
            size=peak - limit,
        )


class VramLimit(PlanRule):
    code = "RLM034"
    title = "peak VRAM against the card"
    severity = WARNING

    def check(self, plan: Plan) -> Iterator[Finding]:
        peak, limit = plan.peak.vram_bytes, plan.vram_limit_bytes
        if limit is None or not peak or not (peak > limit or _is_near(peak, limit)):
            return
        over = peak > limit
        distance = f"is {format_bytes(peak - limit)} over" if over else f"leaves {format_bytes(limit - peak)} of"
        yield self.finding(
            f"the peak of {format_bytes(peak)} of VRAM ({plan.peak.vram_phase}) {distance} the "
            f"{format_bytes(limit)} of the card; {_decides(plan, 'vram')}",
            _cure(plan, "vram"),
            size=abs(peak - limit),
            severity=ERROR if over else WARNING,
        )


class ActivationsDominate(PlanRule):
    code = "RLM035"
    title = "activations are most of the update"
    severity = INFO

    def check(self, plan: Plan) -> Iterator[Finding]:
        place = "vram" if plan.run.device.startswith("cuda") else "ram"
        phase = max(plan.phases, key=lambda item: _activation_bytes(item, place))
        size, total = _activation_bytes(phase, place), phase.total(place)
        if 2 * size <= total:
            return
        rows = "; ".join(_per_row(plan, part) for part in _activations(phase, place))
        yield self.finding(
            f"activations take {format_bytes(size)} of the {format_bytes(total)} of {place.upper()} in {phase.name} "
            f"({percent(size, total)}): {rows}",
            "fewer rows in the graph at once: a smaller batch, or gradient accumulation over several small ones, which "
            "gives the same gradient; and no graph (torch.no_grad) where nothing is learnt",
            size=size,
        )


def _is_near(peak: int, limit: int) -> bool:
    return limit * 9 < peak * 10 and peak <= limit


def _source(plan: Plan) -> str:
    source = plan.machine.ram_limit_source
    return f" that {source} sets" if source.startswith("cgroup") else ""


def _when(plan: Plan) -> str:
    growth = plan.growth
    return "" if growth is None or growth.limit_at is None else f", reached at {growth.per} {growth.limit_at:,}"


def _decider(plan: Plan, where: str) -> Component | None:
    """Return the largest component of the deciding phase that the run's settings can change."""
    phase = plan.peak_phase(where)
    parts = (part for part in phase.components if part.where == where and part.path not in _UNCHANGEABLE)
    return max(parts, key=lambda part: part.bytes, default=phase.largest(where))


def _decides(plan: Plan, where: str) -> str:
    part = _decider(plan, where)
    if part is None:
        return f"{plan.peak_phase(where).name} decides"
    return f"{part.path} decides with {format_bytes(part.bytes)} ({part.formula})"


def _cure(plan: Plan, where: str) -> str:
    part = _decider(plan, where)
    if part is None or part.path in _UNCHANGEABLE:
        return "a larger machine"
    if isinstance(plan.run, GenericRun):
        return f"make `{part.path}` smaller: it is the largest piece of the deciding phase"
    if part.path.startswith("buffer/") and plan.run.spec.off_policy:
        return "a smaller buffer_size, or smaller observations"
    return next(
        (cure for prefix, cure in _CURES if part.path.startswith(prefix)),
        "fewer n_steps or envs, or smaller observations",
    )


def _activations(phase: Phase, where: str) -> list[Component]:
    return [part for part in phase.components if part.path.startswith(_ACTIVATIONS) and part.where == where]


def _activation_bytes(phase: Phase, where: str) -> int:
    return sum(part.bytes for part in _activations(phase, where))


def _per_row(plan: Plan, part: Component) -> str:
    rows = _rows(plan, part)
    name = part.path.removeprefix(_ACTIVATIONS).removeprefix("/")
    return f"{name + ': ' if name else ''}{format_bytes(part.bytes // rows)} for each of {rows:,} rows"


def _rows(plan: Plan, part: Component) -> int:
    """Return the rows in the graph: the samples of a minibatch, or what a generic network says."""
    run = plan.run
    if not isinstance(run, GenericRun):
        return rows_per_update(run)
    sizes = dict(run.sizes)
    network = next(item for item in run.networks if part.path == f"{_ACTIVATIONS}/{item.name}")
    return math.prod(sizes[dim] if isinstance(dim, str) else dim for dim in network.rows)


RULES: Final = (NearRamLimit(), OverRamLimit(), VramLimit(), ActivationsDominate())

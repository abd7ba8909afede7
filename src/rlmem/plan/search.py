"""ARS: a population of weight vectors around one policy; no buffer, no gradients."""

from __future__ import annotations

from rlmem.plan import framework
from rlmem.plan.model import EXACT, Component, Phase
from rlmem.plan.on_policy import evaluate, save
from rlmem.plan.parts import Parts
from rlmem.run.model import FrameworkRun


def phases(run: FrameworkRun, parts: Parts) -> tuple[Phase, ...]:
    """Return the phases of a random search."""
    cost = parts.cost
    elements, deltas = cost.online.parameters, run.training.n_delta
    base = (*framework.standing(run, parts), *framework.networks(run, cost))
    place = framework.device_place(run)
    candidates = (
        Component(
            path="update/candidates",
            where=place,
            bytes=2 * deltas * elements * 4,
            formula=f"2 × {deltas} candidates × {elements:,} × 4 B",
            basis=EXACT,
        ),
        Component(
            path="update/deltas",
            where=place,
            bytes=2 * deltas * elements * 4,
            formula=f"noise and scaled noise: 2 × {deltas} × {elements:,} × 4 B",
            basis=EXACT,
        ),
        Component(
            path="network/copies",
            where=place,
            bytes=2 * elements * 4,
            formula=f"the weight vector and the evaluated copy: 2 × {elements:,} × 4 B",
            basis=EXACT,
        ),
    )
    alive = (*base, *candidates)
    device = framework.cuda_parts(run, cost, alive, rows=run.n_envs)
    return (
        Phase(name="startup", components=base),
        Phase(name="collect", components=(*alive, *device)),
        Phase(name="update", components=(*alive, *device)),
        *evaluate(run, (*alive, *device)),
        *save(run, cost, (*alive, *device), ()),
    )

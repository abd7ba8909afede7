"""PPO, A2C, MaskablePPO, RecurrentPPO, TRPO: collect a rollout, flatten it, learn from it.

``RolloutBuffer.get`` merges steps and environments by copying: while the observations are copied they exist
twice, and for large observations that is the peak of the run.
"""

from __future__ import annotations

from rlmem.plan import framework
from rlmem.plan.buffers import BufferArray, flatten_copy_bytes
from rlmem.plan.model import ASSUMED, EXACT, Component, Phase
from rlmem.plan.parts import Parts
from rlmem.plan.policies import PolicyCost
from rlmem.run.model import FrameworkRun
from rlmem.units import plural


def phases(run: FrameworkRun, parts: Parts) -> tuple[Phase, ...]:
    """Return the phases of an on-policy run."""
    cost, arrays, rows = parts.cost, parts.arrays, framework.rows_per_update(run)
    buffer = framework.buffer_components(
        arrays, source=f"{plural(run.training.n_steps, 'step')} × {plural(run.n_envs, 'env')}"
    )
    base = (*framework.standing(run, parts), *framework.networks(run, cost))
    learnt = (*base, *framework.learning_state(run, cost))
    full = (*learnt, *buffer, *framework.kept_heap(run, parts))
    step = (*framework.update_step(run, cost, rows=rows, observations=1), *_natural_gradient(run, cost))
    device = framework.cuda_parts(run, cost, (*full, *step), rows=rows)
    traced = framework.traced_update(run, parts, (*framework.standing(run, parts), *buffer))
    updating = traced or (*full, *step, *device)
    waiting = framework.between_updates(full, device, step, updating)
    return (
        Phase(name="startup", components=(*base, *framework.context(device), *_made_resident(arrays, buffer))),
        Phase(name="collect", components=waiting),
        *_flatten(run, arrays, waiting),
        Phase(name="update", components=updating),
        *evaluate(run, waiting),
        *save(run, cost, waiting, arrays),
    )


def _made_resident(arrays: tuple[BufferArray, ...], buffer: tuple[Component, ...]) -> tuple[Component, ...]:
    """Return the arrays that are resident before anything is written into them: those not made by np.zeros."""
    eager = {array.path for array in arrays if not array.lazy}
    return tuple(component for component in buffer if component.path in eager)


def _flatten(run: FrameworkRun, arrays: tuple[BufferArray, ...], alive: tuple[Component, ...]) -> tuple[Phase, ...]:
    size = flatten_copy_bytes(run, arrays)
    if not size:
        return ()
    copy = Component(
        path="buffer/flatten_copy",
        where="ram",
        bytes=size,
        formula=f"swap_and_flatten copies the largest array ({run.n_envs} envs)",
        basis=EXACT,
    )
    return (Phase(name="flatten", components=(*alive, copy)),)


def _natural_gradient(run: FrameworkRun, cost: PolicyCost) -> tuple[Component, ...]:
    """Return TRPO's conjugate-gradient vectors, each as long as the policy's parameters."""
    if run.algorithm != "TRPO":
        return ()
    vectors = 6
    elements = cost.online.parameters
    return (
        Component(
            path="update/conjugate_gradient",
            where=framework.device_place(run),
            bytes=vectors * elements * 4,
            formula=f"{vectors} vectors × {elements:,} × 4 B",
            basis=ASSUMED,
        ),
    )


def evaluate(run: FrameworkRun, alive: tuple[Component, ...]) -> tuple[Phase, ...]:
    """Return the evaluation: the buffer stays while the evaluation environment steps."""
    return (Phase(name="evaluate", components=alive),) if run.evaluation else ()


def save(
    run: FrameworkRun, cost: PolicyCost, alive: tuple[Component, ...], arrays: tuple[BufferArray, ...]
) -> tuple[Phase, ...]:
    """Return the saving of a checkpoint, in the middle of collecting."""
    if run.checkpoint is None:
        return ()
    return (Phase(name="save", components=(*alive, *framework.saving(run, cost, arrays))),)

"""DQN, QRDQN, SAC, TQC, CrossQ, TD3, DDPG: a replay buffer that fills, and updates from samples of it.

``np.zeros`` reserves and does not touch: a replay buffer grows as it fills, and what a run never fills is
never resident.
"""

from __future__ import annotations

from rlmem.plan import framework
from rlmem.plan.buffers import BufferArray, filled_rows, replay_rows
from rlmem.plan.model import EXACT, Component, Phase
from rlmem.plan.on_policy import evaluate, save
from rlmem.plan.parts import Parts
from rlmem.run.model import FrameworkRun


def phases(run: FrameworkRun, parts: Parts) -> tuple[Phase, ...]:
    """Return the phases of an off-policy run, with the buffer as full as it gets."""
    cost, arrays, rows = parts.cost, parts.arrays, framework.rows_per_update(run)
    buffer = framework.buffer_components(arrays, source=f"{replay_rows(run):,} transitions", filled=filled_rows(run))
    base = (*framework.standing(run, parts), *framework.networks(run, cost))
    full = (*base, *framework.learning_state(run, cost), *buffer, *framework.kept_heap(run, parts))
    step = framework.update_step(run, cost, rows=rows, observations=2)
    device = framework.cuda_parts(run, cost, (*full, *step), rows=rows)
    traced = framework.traced_update(run, parts, (*framework.standing(run, parts), *buffer))
    updating = traced or (*full, *step, *device)
    waiting = framework.between_updates(full, device, step, updating)
    return (
        Phase(name="startup", components=(*base, *framework.context(device), *_reserved(arrays, run))),
        Phase(name="collect", components=waiting),
        Phase(name="update", components=updating),
        *evaluate(run, waiting),
        *save(run, cost, waiting, arrays),
    )


def _reserved(arrays: tuple[BufferArray, ...], run: FrameworkRun) -> tuple[Component, ...]:
    """Return the buffer before anything is in it: reserved, and resident only where it holds Python objects."""
    eager = tuple(array for array in arrays if not array.lazy)
    lazy = Component(
        path="buffer/reserved",
        where="virtual",
        bytes=sum(array.bytes for array in arrays if array.lazy and array.reserved),
        formula="reserved at once, resident as it fills",
        basis=EXACT,
    )
    return (lazy, *framework.buffer_components(eager, source=f"{replay_rows(run):,} transitions"))

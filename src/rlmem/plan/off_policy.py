"""DQN, QRDQN, SAC, TQC, CrossQ, TD3, DDPG: a replay buffer that fills, and updates from samples of it.

``np.zeros`` reserves and does not touch: a replay buffer grows as it fills, and what a run never fills is
never resident.
"""

from __future__ import annotations

from rlmem.plan import framework
from rlmem.plan.buffers import filled_rows, replay_arrays, replay_rows
from rlmem.plan.model import Phase
from rlmem.plan.on_policy import evaluate, save
from rlmem.plan.policies import policy_cost
from rlmem.run.model import FrameworkRun


def phases(run: FrameworkRun) -> tuple[Phase, ...]:
    """Return the phases of an off-policy run, with the buffer as full as it gets."""
    cost, arrays, rows = policy_cost(run), replay_arrays(run), framework.rows_per_update(run)
    buffer = framework.buffer_components(arrays, source=f"{replay_rows(run):,} transitions", filled=filled_rows(run))
    made = framework.buffer_components(arrays, source="", filled=0)
    base = (*framework.standing(run), *framework.networks(run, cost))
    full = (*base, *framework.learning_state(run, cost), *buffer)
    step = framework.update_step(run, cost, rows=rows, observations=2)
    device = framework.cuda_parts(run, cost, (*full, *step), rows=rows)
    return (
        Phase(name="startup", components=(*base, *(part for part in made if part.bytes))),
        Phase(name="collect", components=(*full, *device)),
        Phase(name="update", components=(*full, *step, *device)),
        *evaluate(run, (*full, *device)),
        *save(run, cost, (*full, *device), arrays),
    )

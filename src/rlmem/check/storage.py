"""What a run's buffer holds of its observations, leaf by leaf: the bytes that the rules speak about."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from rlmem.plan import Plan
from rlmem.plan.buffers import filled_rows, replay_arrays, rollout_arrays
from rlmem.run.model import FrameworkRun
from rlmem.run.spaces import Leaf, leaves, sample_spec
from rlmem.run.wrappers import stored_observation

WORTH_TELLING_BYTES: Final = 64 * 2**20
"""Below this a buffer's waste is nobody's trouble, and no finding."""

_OBSERVATIONS: Final = ("buffer/observations", "buffer/next_observations")


def rows(run: FrameworkRun) -> int:
    """Return how many samples the buffer ever holds at once."""
    return filled_rows(run) if run.spec.off_policy else run.training.n_steps * run.n_envs


def copies(run: FrameworkRun) -> int:
    """Return how many observations a sample holds: replay keeps the next one beside it."""
    return 2 if run.spec.off_policy and not run.training.optimize_memory_usage else 1


def observation_bytes(run: FrameworkRun) -> int:
    """Return the bytes of all observations in the buffer, next ones included."""
    arrays = replay_arrays(run) if run.spec.off_policy else rollout_arrays(run)
    return rows(run) * sum(array.row_bytes for array in arrays if array.path in _OBSERVATIONS)


def single_frame_bytes(run: FrameworkRun) -> int:
    """Return the same without the frame stack."""
    return observation_bytes(replace(run, env=replace(run.env, frame_stack=1)))


def stored_leaves(run: FrameworkRun) -> tuple[tuple[str, Leaf], ...]:
    """Return the leaves of the observation as they reach the buffer, with what to call each."""
    named = leaves(stored_observation(run.env))
    return tuple((f"observation `{key}`" if key else "the observation", leaf) for key, leaf in named)


def leaf_bytes(run: FrameworkRun, leaf: Leaf) -> int:
    """Return what one leaf takes in the buffer at its own dtype."""
    return rows(run) * copies(run) * sample_spec(leaf).nbytes


def component_bytes(plan: Plan, path: str, *, phase: str | None = None, where: str | None = None) -> int:
    """Return the bytes of a component in the named phase, or in whichever phase has most of it."""
    phases = [item for item in plan.phases if phase in (None, item.name)]
    sizes = (
        sum(part.bytes for part in item.components if part.path == path and where in (None, part.where))
        for item in phases
    )
    return max(sizes, default=0)

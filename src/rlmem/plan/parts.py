"""What a framework run is made of: read off the real thing where there is one, else computed from its description."""

from __future__ import annotations

from dataclasses import dataclass

from rlmem.plan.buffers import BufferArray, replay_arrays, rollout_arrays
from rlmem.plan.lean_buffers import Described, lean_described
from rlmem.plan.policies import PolicyCost, policy_cost
from rlmem.plan.trace import UpdateTrace
from rlmem.run.model import FrameworkRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What this machine's processes take, metered by short real trainings; None where nothing was metered.

    ``heap_ratio`` is the heap of the short training over that of its trace: what the trace's heap is scaled by.
    """

    floor_bytes: int | None = None
    heap_ratio: float = 1.0
    worker_bytes: int | None = None
    helper_bytes: int = 0
    described: str = "metered by a short real training"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStep:
    """What an update that cannot be traced takes: metered for real at two batch sizes, and extrapolated."""

    bytes: int
    rows: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The pieces that a plan of a framework run is put together from."""

    cost: PolicyCost
    arrays: tuple[BufferArray, ...]
    update: UpdateTrace | None = None
    step: MeasuredStep | None = None
    calibration: Calibration = Calibration()
    notes: tuple[str, ...] = ()


def described_parts(run: FrameworkRun) -> Parts:
    """Return the parts as the run's description has them: no trace, nothing metered."""
    cost = policy_cost(run)
    arrays, notes = _described_arrays(run)
    return Parts(cost=cost, arrays=arrays, notes=notes)


def _described_arrays(run: FrameworkRun) -> Described:
    stock = _stock_arrays(run)
    return lean_described(run, stock) if run.buffer.is_lean else (stock, ())


def _stock_arrays(run: FrameworkRun) -> tuple[BufferArray, ...]:
    if run.spec.on_policy:
        return rollout_arrays(run)
    return replay_arrays(run) if run.spec.off_policy else ()

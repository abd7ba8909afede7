"""What follows when a size varies: how fast memory grows, when it is full, and how much fits."""

from __future__ import annotations

from collections.abc import Callable

from rlmem.machine import Machine
from rlmem.plan import generic, off_policy
from rlmem.plan.buffers import filled_rows, replay_rows
from rlmem.plan.model import Capacity, GrowthForecast, Phase, Slope
from rlmem.plan.parts import Parts
from rlmem.run.model import FrameworkRun, GenericRun


def growth(run: FrameworkRun | GenericRun, machine: Machine, parts: Parts | None = None) -> GrowthForecast | None:
    """Return how a filling buffer grows, or None where nothing fills."""
    if isinstance(run, GenericRun):
        return _generic_growth(run, machine)
    return _replay_growth(run, machine, parts) if parts and run.spec.off_policy else None


def _generic_growth(run: GenericRun, machine: Machine) -> GrowthForecast | None:
    if run.growth is None:
        return None
    size, by = run.growth.size, run.growth.by
    full = dict(run.sizes)[size]

    def peak(count: int) -> int:
        return _peak(generic.phases(generic.with_size(run, size, min(count, full))))

    units = -(-full // by)
    return GrowthForecast(
        per=run.growth.per,
        bytes_per=peak(2 * by) - peak(by) if full >= 2 * by else peak(by) - peak(0),
        full_bytes=peak(full),
        full_at=units,
        limit_at=_first_over(lambda unit: peak(unit * by), machine.ram_limit_bytes, last=units),
    )


def _replay_growth(run: FrameworkRun, machine: Machine, parts: Parts) -> GrowthForecast:
    arrays = [array for array in parts.arrays if array.lazy]
    row_bytes = sum(array.row_bytes for array in arrays)
    rows = filled_rows(run)
    full = _peak(off_policy.phases(run, parts))
    held = sum(array.resident_bytes(rows) for array in arrays)
    room = machine.ram_limit_bytes - (full - held)
    over = max(room // row_bytes + 1, 1) if room < held else None
    return GrowthForecast(
        per="timestep",
        bytes_per=row_bytes,
        full_bytes=full,
        full_at=rows if rows == replay_rows(run) else None,
        limit_at=over,
    )


def capacity(run: FrameworkRun | GenericRun, machine: Machine) -> Capacity | None:
    """Return the peak as fixed cost and slope over the size that the run asks about."""
    if isinstance(run, FrameworkRun) or run.capacity is None:
        return None
    size, value = run.capacity, dict(run.sizes)[run.capacity]

    def at(count: int) -> Phase:
        return max(generic.phases(generic.with_size(run, size, count)), key=lambda phase: phase.ram_bytes)

    here, more = at(value), at(value + 1)
    slope = more.ram_bytes - here.ram_bytes
    return Capacity(
        size=size,
        value=value,
        phase=here.name,
        fixed_bytes=here.ram_bytes - slope * value,
        per_unit_bytes=slope,
        largest_that_fits=_largest(lambda count: at(count).ram_bytes, machine.ram_limit_bytes),
        slopes=_slopes(here, more, value),
    )


def _slopes(here: Phase, more: Phase, value: int) -> tuple[Slope, ...]:
    after = {component.path: component.bytes for component in more.components}
    return tuple(
        Slope(path=part.path, per_unit_bytes=step, fixed_bytes=part.bytes - step * value)
        for part in here.components
        if part.where == "ram" and (step := after.get(part.path, part.bytes) - part.bytes) >= 0
    )


def _peak(phases: tuple[Phase, ...]) -> int:
    return max(phase.ram_bytes for phase in phases)


def _first_over(size_at: Callable[[int], int], limit: int, *, last: int) -> int | None:
    """Return the first unit whose size is over the limit, or None; sizes only grow."""
    if size_at(last) <= limit:
        return None
    low, high = 1, last
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if size_at(middle) > limit else (middle + 1, high)
    return low


def _largest(size_at: Callable[[int], int], limit: int) -> int | None:
    """Return the largest count whose size is within the limit, 0 where none is, None where all are."""
    ceiling = 2**40
    over = _first_over(size_at, limit, last=ceiling)
    return None if over is None else over - 1

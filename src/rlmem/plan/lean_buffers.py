"""Lean buffers: what they hold of observations, by a sample of the environment, or at most, where there is none.

How much an observation has in common with the one before is nothing that its space tells. No constant stands in for
it: without a sample, plain arrays are the bound.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, TypeAlias

from rlmem.plan.buffers import BufferArray, filled_rows
from rlmem.plan.model import ASSUMED, MEASURED
from rlmem.run.model import Buffer, FrameworkRun
from rlmem.units import format_bytes, plural

_OBSERVATIONS: Final = "buffer/observations"
_NEXT: Final = "buffer/next_observations"
_MASKS: Final = "buffer/action_masks"
_MASK_ITEM_BYTES: Final = 4
"""What the stock buffer takes for each yes or no; a lean one takes a byte at most."""

UNSEEN: Final = (
    "how lean the buffer is cannot be known without stepping the environment: its observations are planned with what "
    "plain arrays take at most; "
)
NO_SAMPLE: Final = UNSEEN + "name the environment by `env.id` or `env.make` to have it sampled"
LEFT_ALONE: Final = UNSEEN + "a live model's is left alone, rlmem.lean.inspect tells of another"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeanColumn:
    """What was sampled of one column: what a row of one environment adds, and what an environment has beside."""

    path: str
    row_bytes: float
    fixed_bytes: float
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeanSample:
    """The columns of a buffer as they grew while the real environment was stepped for ``steps``."""

    columns: tuple[LeanColumn, ...]
    steps: int


def sample_to_dict(sample: LeanSample) -> dict[str, Any]:
    return asdict(sample)


def sample_from_dict(data: Mapping[str, Any]) -> LeanSample:
    return LeanSample(columns=tuple(LeanColumn(**column) for column in data["columns"]), steps=data["steps"])


Described: TypeAlias = tuple[tuple[BufferArray, ...], tuple[str, ...]]
"""A buffer's arrays, and what there is to say about them."""


def lean_described(run: FrameworkRun, stock: tuple[BufferArray, ...]) -> Described:
    """Return a run's stock arrays with those that a lean buffer holds otherwise at the most that they can take."""
    arrays, notes = within_limit(run, tuple(at_most(array) for array in _merged(stock)))
    return arrays, (NO_SAMPLE, *notes)


def lean_sampled(run: FrameworkRun, arrays: tuple[BufferArray, ...], sample: LeanSample) -> Described:
    """Return a lean buffer's arrays with those known at most as they were sampled."""
    return within_limit(run, tuple(_as_sampled(array, sample, run.n_envs) for array in arrays))


def _merged(stock: tuple[BufferArray, ...]) -> list[BufferArray]:
    """Return the arrays with next observations in the observations: a lean buffer has one column for both.

    What is still copied to merge steps and environments is a few bytes a row, one array at a time, and not shown;
    recurrent states are large enough to be.
    """
    following = next((array for array in stock if array.path == _NEXT), None)
    merged = []
    for array in stock:
        if array.path == _OBSERVATIONS and following is not None:
            both = array.row_bytes + following.row_bytes
            merged.append(replace(array, row_bytes=both, row_formula=f"2 × {array.row_formula}"))
        elif array.path != _NEXT:
            merged.append(replace(array, flattened=array.flattened and array.path == "buffer/lstm_states"))
    return merged


def at_most(array: BufferArray) -> BufferArray:
    """Return plain arrays as the bound of what a column takes in their place; others as they are."""
    if array.path not in (_OBSERVATIONS, _MASKS):
        return array
    size = array.row_bytes // (_MASK_ITEM_BYTES if array.path == _MASKS else 1)
    formula = f"{size:,} B" if array.path == _MASKS else array.row_formula
    return replace(
        array,
        row_bytes=size,
        row_formula=f"{formula} at most: how lean they are only the environment can tell",
        largest_row_bytes=0,
        flattened=False,
        lazy=True,
        reserved=False,
        basis=ASSUMED,
    )


def _as_sampled(array: BufferArray, sample: LeanSample, n_envs: int) -> BufferArray:
    columns = [column for column in sample.columns if column.path == array.path]
    if not columns or array.basis != ASSUMED:
        return array
    size = math.ceil(sum(column.row_bytes for column in columns))
    fixed = math.ceil(sum(column.fixed_bytes for column in columns) * n_envs)
    words = max(columns, key=lambda column: column.row_bytes).words
    beside = f"; {format_bytes(fixed)} beside" if fixed else ""
    return replace(
        array,
        row_bytes=size,
        fixed_bytes=fixed,
        most_bytes=None,
        row_formula=f"{size:,} B new, over {plural(sample.steps, 'step')} of the real environment ({words}){beside}",
        basis=MEASURED,
    )


# --- the limit ------------------------------------------------------------------------------------------------------


def within_limit(run: FrameworkRun, arrays: tuple[BufferArray, ...]) -> Described:
    """Return the arrays as the buffer's ``memory_limit`` lets them become, and what happens when they come there."""
    limit, rows = run.buffer.memory_limit, _filled(run)
    if limit is None:
        return arrays, ()
    whole = sum(array.resident_bytes(rows) for array in arrays)
    columns = [array for array in arrays if array.path == _OBSERVATIONS]
    if whole <= limit or not columns:
        return arrays, ()
    room = max(limit - whole + columns[0].resident_bytes(rows), 0)
    held = tuple(replace(array, most_bytes=room) if array is columns[0] else array for array in arrays)
    return held, (_at_the_limit(run.buffer, limit, whole, measured=columns[0].basis == MEASURED),)


def _filled(run: FrameworkRun) -> int:
    return filled_rows(run) if run.spec.off_policy else run.training.n_steps * run.n_envs


def _at_the_limit(buffer: Buffer, limit: int, whole: int, *, measured: bool) -> str:
    would = "would take" if measured else "may take up to"
    then = (
        "it gives up its oldest transitions"
        if buffer.when_full == "forget"
        else "it raises MemoryLimitReached and training ends"
    )
    return f"the lean buffer {would} {format_bytes(whole)}; at its memory_limit of {format_bytes(limit)} {then}"

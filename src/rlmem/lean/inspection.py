"""What lean buffers would make of an environment, told by stepping it: bytes of an observation, and what is new a step.

The observations of random play go through real columns. What a further row adds is the slope of a column's own
size over its later rows; what it has once, whatever its length, does not count.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, Final

from rlmem.errors import LeanBufferError
from rlmem.lean.column import Column
from rlmem.lean.kernels import Array
from rlmem.lean.random_play import Leaf, Leaves, count_of, leaves_of, play
from rlmem.units import format_bytes, plural

FEWEST_STEPS: Final = 64
"""With fewer there is no slope to speak of."""

_MARKED_ROWS: Final = 16
_PROBED_MARKS: Final = 2
"""By these a column has looked at its rows for the first time."""

_SETTLED_ROWS: Final = 1056
"""By then a column has looked at its rows for the second time, and may have written them again."""

_LONGER: Final = 4
"""How many times as many rows the columns are made for: their blocks are then more like a long buffer's."""

_COMPARED: Final = 0.7
"""Over which part of the rows differences are taken; the rest is for where they begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """How a column grows: what each further row of an environment adds, and what an environment has beside that."""

    row_bytes: float
    fixed_bytes: float
    rows: int
    words: str


class Probe:
    """A column that is filled for a while, to see how it grows."""

    def __init__(
        self,
        *,
        rows: int,
        n_envs: int,
        shape: tuple[int, ...],
        dtype: Any,
        follows: bool,
        compact: bool,
        lossy: str | None = None,
    ) -> None:
        self.column = Column(
            rows=rows, n_envs=n_envs, shape=shape, dtype=dtype, follows=follows, compact=compact, lossy=lossy
        )
        self._rows = 0
        self._marks: list[tuple[int, int]] = []

    def put(self, observations: Array, following: Array) -> None:
        """Write the next row."""
        self.column.put(self._rows, observations, following if self.column.follows else None)
        self._rows += 1
        if self._rows % _MARKED_ROWS == 0 or self._rows == self.column.rows:
            self._marks.append((self._rows, self.column.nbytes - _index_bytes(self.column)))

    def growth(self) -> Growth:
        """Return how the column has grown; it must be full, or have some rows."""
        if not self._marks:
            raise LeanBufferError(f"a column must have {_MARKED_ROWS} rows to see how it grows, but has {self._rows}")
        slope = max(_slope(self._later_marks(), _rows_a_block(self.column)), 0.0)
        rows, held = self._marks[-1]
        index = _index_bytes(self.column) / self.column.rows
        each = self.column.n_envs
        return Growth(
            row_bytes=(slope + index) / each,
            fixed_bytes=max(held - slope * rows, 0.0) / each,
            rows=self._rows,
            words=self.column.describe(),
        )

    def _later_marks(self) -> list[tuple[int, int]]:
        """Return the marks from where the column had decided how to hold its rows."""
        settled = [mark for mark in self._marks if mark[0] >= _SETTLED_ROWS]
        return settled if len(settled) > len(self._marks) // 3 else self._marks[_PROBED_MARKS:] or self._marks[-1:]


def _index_bytes(column: Column) -> int:
    """Return what the index over all rows takes, written or not."""
    held = column._held
    return int(held.firsts.nbytes + (0 if held.next_firsts is None else held.next_firsts.nbytes))


def _rows_a_block(column: Column) -> float:
    """Return after how many rows a block is full, as long as no episode ends."""
    return column._held.sequences.length / max(column.layout.shift, 1)


def _slope(marks: list[tuple[int, int]], period: float) -> float:
    """Return how much a row adds: what whole blocks add, over all places where they can begin.

    A block that is being filled takes more than it will when it is sealed, so a line through any two marks is off.
    """
    span = marks[-1][0] - marks[0][0]
    if not span:
        return marks[0][1] / marks[0][0]
    blocks = int(_COMPARED * span / period)
    lag = round((blocks * period or span / 2) / _MARKED_ROWS) * _MARKED_ROWS or _MARKED_ROWS
    sizes = dict(marks)
    added = [sizes[rows + lag] - size for rows, size in marks if rows + lag in sizes]
    return sum(added) / len(added) / lag if added else (marks[-1][1] - marks[0][1]) / span


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a kind of buffer holds of a step of one environment: as plain arrays, and lean."""

    stock_bytes: int
    new_bytes: float

    @property
    def ratio(self) -> float:
        """How many times as much a stock buffer holds."""
        return self.stock_bytes / self.new_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafInspection:
    """One plain array of an observation: its size, the structure that was found, and what buffers hold of it.

    A stock replay buffer holds every observation twice, once as the one before it's next.
    """

    key: str
    shape: tuple[int, ...]
    dtype: str
    observation_bytes: int
    structure: str
    replay: Held
    replay_compact: Held
    rollout: Held
    rollout_compact: Held


KINDS: Final = {
    "replay": "replay",
    "replay_compact": "replay, compact",
    "rollout": "rollout",
    "rollout_compact": "rollout, compact",
}
"""The kinds of buffers that are tried, and what they are called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What lean buffers make of an environment. ``steps`` is how many were taken in each of ``n_envs`` environments."""

    leaves: tuple[LeafInspection, ...]
    steps: int
    n_envs: int
    seed: int

    @property
    def observation_bytes(self) -> int:
        return sum(leaf.observation_bytes for leaf in self.leaves)

    def held(self, kind: str) -> Held:
        """Return what a kind of buffer (`KINDS`) holds of a step, all arrays together."""
        parts: list[Held] = [getattr(leaf, kind) for leaf in self.leaves]
        return Held(
            stock_bytes=sum(part.stock_bytes for part in parts), new_bytes=math.fsum(part.new_bytes for part in parts)
        )

    def __str__(self) -> str:
        return "\n".join([_verdict(self), "", *_table(self), "", _sample(self)])

    def to_dict(self) -> dict[str, Any]:
        """Return the inspection as JSON has it."""
        return {
            "observation_bytes": self.observation_bytes,
            **{kind: _held_to_dict(self.held(kind)) for kind in KINDS},
            "leaves": [_leaf_to_dict(leaf) for leaf in self.leaves],
            "steps": self.steps,
            "n_envs": self.n_envs,
            "seed": self.seed,
        }


def inspection_from_dict(data: Mapping[str, Any]) -> Inspection:
    """Return the inspection that `Inspection.to_dict` wrote."""
    return Inspection(
        leaves=tuple(_leaf_from_dict(leaf) for leaf in data["leaves"]),
        steps=data["steps"],
        n_envs=data["n_envs"],
        seed=data["seed"],
    )


def _held_to_dict(held: Held) -> dict[str, Any]:
    return asdict(held) | {"ratio": held.ratio}


def _leaf_to_dict(leaf: LeafInspection) -> dict[str, Any]:
    return asdict(leaf) | {"shape": list(leaf.shape), **{kind: _held_to_dict(getattr(leaf, kind)) for kind in KINDS}}


def _leaf_from_dict(data: Mapping[str, Any]) -> LeafInspection:
    held = {kind: Held(stock_bytes=data[kind]["stock_bytes"], new_bytes=data[kind]["new_bytes"]) for kind in KINDS}
    return LeafInspection(**{**data, "shape": tuple(data["shape"]), **held})


# --- stepping -------------------------------------------------------------------------------------------------------


def inspect(env: Any, steps: int = 500, seed: int = 0) -> Inspection:
    """Return what lean buffers make of an environment, after stepping it with random actions.

    It may be one of Gymnasium, a vector environment of Gymnasium or of Stable-Baselines3, with Box or Dict
    observations. It is reset first and left where it then stands.
    """
    if steps < FEWEST_STEPS:
        raise LeanBufferError(f"steps ≥ {FEWEST_STEPS} must hold, but got {steps}")
    n_envs = count_of(env)
    probes = {leaf.key: _probes(leaf, rows=_LONGER * steps, n_envs=n_envs) for leaf in leaves_of(env)}
    for step in islice(play(env, seed=seed), steps):
        for key, kinds in probes.items():
            _put(kinds, key, step.observations, step.following)
    leaves = tuple(_leaf(leaf, probes[leaf.key]) for leaf in leaves_of(env))
    return Inspection(leaves=leaves, steps=steps, n_envs=n_envs, seed=seed)


def _probes(leaf: Leaf, *, rows: int, n_envs: int) -> dict[str, Probe]:
    return {
        kind: Probe(
            rows=rows,
            n_envs=n_envs,
            shape=leaf.shape,
            dtype=leaf.dtype,
            follows=kind.startswith("replay"),
            compact=kind.endswith("compact"),
        )
        for kind in KINDS
    }


def _put(kinds: Mapping[str, Probe], key: str, observations: Leaves, following: Leaves) -> None:
    for probe in kinds.values():
        probe.put(observations[key], following[key])


def _leaf(leaf: Leaf, probes: Mapping[str, Probe]) -> LeafInspection:
    size = math.prod(leaf.shape) * leaf.dtype.itemsize
    growth = {kind: probe.growth() for kind, probe in probes.items()}
    held = {
        kind: Held(stock_bytes=size * (2 if probe.column.follows else 1), new_bytes=growth[kind].row_bytes)
        for kind, probe in probes.items()
    }
    return LeafInspection(
        key=leaf.key,
        shape=leaf.shape,
        dtype=str(leaf.dtype),
        observation_bytes=size,
        structure=growth["replay"].words,
        **held,
    )


# --- for people -----------------------------------------------------------------------------------------------------


def _verdict(inspection: Inspection) -> str:
    held = inspection.held("replay")
    largest = max(inspection.leaves, key=lambda leaf: leaf.observation_bytes)
    where = f"{largest.key}: " if largest.key else ""
    return (
        f"{format_bytes(inspection.observation_bytes)} an observation, {_bytes(held.new_bytes)} new a step: "
        f"{_times(held)} in a replay buffer ({where}{largest.structure})"
    )


def _table(inspection: Inspection) -> list[str]:
    rows = [("", "observation", *KINDS.values())]
    rows += [_row(leaf.key or _shape(leaf), leaf.observation_bytes, leaf) for leaf in inspection.leaves]
    if len(inspection.leaves) > 1:
        totals = [_cell(inspection.held(kind)) for kind in KINDS]
        rows.append(("all", format_bytes(inspection.observation_bytes), *totals))
    rows = [*zip(*rows, strict=True)]  # what is counted goes down, so that a narrow terminal holds it
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(_aligned(row, widths)).rstrip() for row in rows]
    return [*lines, *(["", *_structures(inspection)] if len(inspection.leaves) > 1 else [])]


def _aligned(row: tuple[str, ...], widths: list[int]) -> list[str]:
    return [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]


def _row(name: str, size: int, leaf: LeafInspection) -> tuple[str, ...]:
    return (name, format_bytes(size), *(_cell(getattr(leaf, kind)) for kind in KINDS))


def _structures(inspection: Inspection) -> list[str]:
    return [f"{leaf.key} ({_shape(leaf)}): {leaf.structure}" for leaf in inspection.leaves]


def _shape(leaf: LeafInspection) -> str:
    return f"{'×'.join(map(str, leaf.shape)) or 'scalar'} {leaf.dtype}"


def _cell(held: Held) -> str:
    return f"{_bytes(held.new_bytes)} {_times(held):>6}"


def _bytes(size: float) -> str:
    return format_bytes(math.ceil(size))


def _times(held: Held) -> str:
    return f"{held.ratio:.0f}×" if held.ratio >= 9.95 else f"{held.ratio:.1f}×"


def _sample(inspection: Inspection) -> str:
    envs = f" in each of {plural(inspection.n_envs, 'environment')}" if inspection.n_envs > 1 else ""
    return f"{inspection.steps:,} steps of random play{envs}, seed {inspection.seed}; trained play may show more"

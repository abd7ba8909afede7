"""Parts of a snapshot as cells in a row, read a few at a time, so that an array need not exist as a whole."""

from __future__ import annotations

import math
from typing import Any, Final, Protocol

import numpy as np

from rlmem.errors import StoreError
from rlmem.lean.column import Column
from rlmem.lean.kernels import Array
from rlmem.store.entries import ArrayEntry
from rlmem.store.reading import Snapshot

WINDOW_BYTES: Final = 4 * 2**20
"""About so much is read at a time."""


class Cells(Protocol):
    """An array whose first ``lead`` axes count cells; some of them are read at a time."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    lead: int

    def read(self, start: int, stop: int) -> Array:
        """Return cells ``start`` to ``stop``, one after the other."""
        ...


def cell_bytes(cells: Cells) -> int:
    return math.prod(cells.shape[cells.lead :]) * cells.dtype.itemsize


def at_a_time(cells: Cells) -> int:
    """Return how many cells make a window."""
    return max(1, WINDOW_BYTES // max(cell_bytes(cells), 1))


class ArrayCells:
    """A plain array, chunk by chunk; the chunk that was read last is kept."""

    def __init__(self, snapshot: Snapshot, path: str, *, lead: int | None = None) -> None:
        entry = snapshot.entry(path)
        if not isinstance(entry, ArrayEntry):
            raise StoreError(f"{path!r} must be an array, but is {snapshot.kind(path)}")
        self._snapshot, self._entry = snapshot, entry
        self.dtype, self.shape = np.dtype(entry.dtype), entry.shape
        self.lead = _lead(self.shape, self.dtype.itemsize) if lead is None else lead
        self._kept: tuple[int, Array] | None = None

    def read(self, start: int, stop: int) -> Array:
        inner = self.shape[self.lead :]
        size = math.prod(inner) * self.dtype.itemsize
        return self._bytes(start * size, stop * size).view(self.dtype).reshape(stop - start, *inner)

    def _bytes(self, start: int, stop: int) -> Array:
        out: Array = np.empty(stop - start, np.uint8)
        size, at = self._entry.chunk_bytes, start
        while at < stop:
            index = at // size
            part = self._chunk(index)[at - index * size : stop - index * size]
            out[at - start : at - start + part.size] = part
            at += part.size
        return out

    def _chunk(self, index: int) -> Array:
        if self._kept is None or self._kept[0] != index:
            chunk: Array = np.empty(self._entry.chunk_size(index), np.uint8)
            self._snapshot._chunk(self._entry, index, memoryview(chunk))
            self._kept = index, chunk
        return self._kept[1]


def _lead(shape: tuple[int, ...], itemsize: int) -> int:
    """Return after how many axes a cell is no larger than a window."""
    for lead in range(min(len(shape), 1), len(shape)):
        if math.prod(shape[lead:]) * itemsize <= WINDOW_BYTES:
            return lead
    return len(shape)


class ColumnCells:
    """The observations of a lean column, or those that followed; the column itself is held as lean as it is."""

    lead = 2

    def __init__(self, column: Column, *, following: bool = False) -> None:
        held = column._held
        rows = min(held.written, column.rows)
        self._get = column.get_next if following else column.get
        self._n_envs = column.n_envs
        self.dtype, self.shape = column.dtype, (rows, column.n_envs, *column.shape)
        self.rows_held = min(rows, held.written - held.kept_from)
        self.newest = (held.written - 1) % column.rows

    @property
    def has_gaps(self) -> bool:
        """Whether the oldest rows were forgotten, so that not every row can be read."""
        return self.rows_held < self.shape[0]

    def read(self, start: int, stop: int) -> Array:
        cells = np.arange(start, stop)
        return np.ascontiguousarray(self._get(cells // self._n_envs, cells % self._n_envs))


class WholeCells:
    """An array that is in memory already, such as a tensor."""

    lead = 0

    def __init__(self, array: Array) -> None:
        self.dtype, self.shape, self._array = array.dtype, tuple(array.shape), array

    def read(self, start: int, stop: int) -> Array:
        return self._array[None][start:stop]

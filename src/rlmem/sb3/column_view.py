"""A column where Stable-Baselines3's own code expects an array: what it indexes is read, what it assigns is put."""

from __future__ import annotations

import math
import weakref
from collections import deque
from typing import Any, NoReturn

import numpy as np

from rlmem.errors import LeanBufferError
from rlmem.lean import Column
from rlmem.lean.kernels import Array
from rlmem.units import format_bytes


class ColumnAccess:
    """A column, how far it has been written, and what was last read from it.

    ``unwritten`` stands in rows that were never written, as in the array that a stock buffer would have made.
    """

    def __init__(self, column: Column, *, unwritten: float = 0) -> None:
        self.column, self.unwritten = column, unwritten
        self._row_shape = (column.n_envs, *column.shape)
        self._given: deque[weakref.ref[Array]] = deque(maxlen=2)
        self.clear()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_given"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._given = deque(maxlen=2)

    def clear(self) -> None:
        """Forget all rows."""
        self.column.clear()
        self._written, self._next_row = 0, 0
        self._waiting: Array | None = None

    def write(self, row: int, values: Array, *, following: bool) -> None:
        """Put a row; where rows have next observations too, what comes first waits for them."""
        self._check_turn(row)
        whole = values if values.shape == self._row_shape else np.broadcast_to(values, self._row_shape)
        if self.column.follows and not following:
            self._waiting = whole
            return
        if following and self._waiting is None:
            raise LeanBufferError(f"row {row} must have its observations written before the next observations")
        if following:
            self.column.put(row, self._waiting, whole)
        else:
            self.column.put(row, whole)
        self._waiting = None
        self._written += 1
        self._next_row = (row + 1) % self.column.rows

    def put(self, row: int, values: Array, following: Array) -> None:
        """Put a row with its next observations at once."""
        self._check_turn(row)
        self.column.put(row, values, following)
        self._written += 1
        self._next_row = (row + 1) % self.column.rows

    def _check_turn(self, row: int) -> None:
        if row != self._next_row:
            raise LeanBufferError(
                f"rows of a lean buffer are written in order, and row {self._next_row} is next, but got row {row}"
            )

    def read(self, rows: Array, envs: Array, *, following: bool) -> Array:
        """Return a fresh array of the rows' observations, or of those that followed."""
        get = self.column.get_next if following else self.column.get
        if not self._any_unwritten(rows):
            return self._giving(_in_order(get(rows, envs)))
        out = np.full((len(rows), *self.column.shape), self.unwritten, self.column.dtype)
        there = rows < self._written
        if there.any():
            out[there] = get(rows[there], envs[there])
        return self._giving(out)

    def read_both(self, rows: Array, envs: Array) -> tuple[Array, Array]:
        """Return observations and those that followed, in one fresh array where they overlap."""
        if self._any_unwritten(rows):
            return self.read(rows, envs, following=False), self.read(rows, envs, following=True)
        first, second = self.column.get_both(rows, envs)
        return _in_order(first), _in_order(second)

    def gave(self, array: Array) -> bool:
        """Whether nobody but the reader can hold the memory of this array."""
        return any(given() is array for given in self._given)

    def _any_unwritten(self, rows: Array) -> bool:
        return self._written < self.column.rows and bool((rows >= self._written).any())

    def _giving(self, array: Array) -> Array:
        self._given.append(weakref.ref(array))
        return array


def _in_order(array: Array) -> Array:
    """Return the array with each item in C order: how it lies in memory decides the last bits of what is computed."""
    return array if not len(array) or array[0].flags.c_contiguous else np.ascontiguousarray(array)


class ColumnView:
    """Stands for an array of steps × environments × shape that is not there; ``flat``: in the order of `get`.

    Reading it takes memory for what is indexed, and nothing reads the whole of it by accident.
    """

    def __init__(self, access: ColumnAccess, *, following: bool = False, flat: bool = False, dtype: Any = None) -> None:
        self._access, self._following, self._flat = access, following, flat
        self.dtype = np.dtype(access.column.dtype if dtype is None else dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        column = self._access.column
        leading = (column.rows * column.n_envs,) if self._flat else (column.rows, column.n_envs)
        return (*leading, *column.shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """What is held, not what an array of this shape would take."""
        return self._access.column.nbytes

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.shape} {self.dtype}, {format_bytes(self.nbytes)} held>"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NoReturn:
        size = format_bytes(math.prod(self.shape) * self.dtype.itemsize)
        raise LeanBufferError(
            f"observations of a lean buffer are not held as an array, which would take {size}: "
            "use sample() or get(), or index the rows and environments you need"
        )

    def __setitem__(self, row: Any, values: Any) -> None:
        if self._flat or not isinstance(row, int | np.integer):
            raise LeanBufferError("observations of a lean buffer can only be written a row at a time, by add()")
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} is out of bounds for a buffer of {len(self)} rows")
        self._access.write(int(row), np.asarray(values), following=self._following)

    def __getitem__(self, index: Any) -> Array:
        index = index if isinstance(index, tuple) else (index,)
        axes = 1 if self._flat else 2
        places, rest = index[:axes], index[axes:]
        if len(places) == axes and all(_is_plain(place) for place in places):
            numbers, (rows, envs) = places[0], self._split(*places)
        else:
            numbers = np.arange(math.prod(self.shape[:axes])).reshape(self.shape[:axes])[places]
            rows, envs = self._split_numbers(np.ravel(numbers))
        found = self._access.read(rows, envs, following=self._following)
        if np.ndim(numbers) != 1:
            found = found.reshape(*np.shape(numbers), *found.shape[1:])
        if any(not isinstance(item, slice) or item != slice(None) for item in rest):
            found = found[(*[slice(None)] * np.ndim(numbers), *rest)]
        return found if found.dtype == self.dtype else found.astype(self.dtype)

    def flattened(self) -> ColumnView:
        """Return what `swap_and_flatten` would make of the array: all steps of an environment, then of the next."""
        return ColumnView(self._access, following=self._following, flat=True, dtype=self.dtype)

    def _split(self, first: Array, second: Array | None = None) -> tuple[Array, Array]:
        if second is None:
            return self._split_numbers(np.where(first < 0, first + len(self), first))
        return np.where(first < 0, first + len(self), first), second

    def _split_numbers(self, numbers: Array) -> tuple[Array, Array]:
        """Return rows and environments of an array's leading positions, counted through."""
        column = self._access.column
        if self._flat:
            return numbers % column.rows, numbers // column.rows
        return numbers // column.n_envs, numbers % column.n_envs


def _is_plain(place: Any) -> bool:
    return isinstance(place, np.ndarray) and place.ndim == 1 and place.dtype.kind in "iu"

"""A column of observations: rows × environments, each byte held once.

Rows are written in order and begin again at the first when the last has been written, as replay and rollout buffers
do it. How observations are cut and packed is decided on the first of them and checked by value on every one; a
column that finds itself mistaken writes itself again. One thread may write while others read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from threading import RLock
from typing import Any, Final

import numpy as np
import xxhash

from rlmem.errors import LeanBufferError
from rlmem.lean.kernels import Array
from rlmem.lean.layout import Layout, find_layout
from rlmem.lean.packing import Packing, find_packing
from rlmem.lean.rows import DoesNotFit, Rows

_PROBED_ROWS: Final = 32
_PROBED_BYTES: Final = 64 * 2**20
"""After so many rows, or when they take so many bytes, the layout is decided."""

_SECOND_LOOK_ROWS: Final = 1024
_SECOND_LOOK_BYTES: Final = 256 * 2**20
"""After so many it is seen whether most observations have been seen before."""

_WINDOW_PIECES: Final = 16
_SHARED_BYTES: Final = 512
"""Windows of more pieces than this, each at least so large, are looked up among all that was ever seen."""

_SEEN_BEFORE: Final = 0.5


LOSSY: Final = ("float16",)
"""What floats can be rounded to, by name only."""


def _narrow_float(dtype: np.dtype[Any], lossy: str) -> np.dtype[Any]:
    if lossy not in LOSSY:
        raise LeanBufferError(f"lossy must be one of {', '.join(LOSSY)}, but got {lossy!r}")
    narrow = np.dtype(lossy)
    return narrow if dtype.kind == "f" and dtype.itemsize > narrow.itemsize else dtype


class Column:
    """Observations of one shape, ``rows`` × ``n_envs``, bit-exactly and without their repetitions.

    With ``follows``, each row has a next observation too: most often the following row's, and then held once.
    ``compact`` keeps blocks compressed: smaller still, and slower to read. ``lossy="float16"`` keeps floats with half
    the precision and is the only thing here that changes a bit.
    """

    def __init__(
        self,
        *,
        rows: int,
        n_envs: int,
        shape: tuple[int, ...],
        dtype: Any,
        follows: bool = False,
        compact: bool = False,
        lossy: str | None = None,
    ) -> None:
        self.rows, self.n_envs = rows, n_envs
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)
        self._row_shape = (n_envs, *self.shape)
        if self.dtype.hasobject:
            raise LeanBufferError(f"observations must be plain numbers, but got dtype {self.dtype}")
        self.follows, self.compact, self.lossy = follows, compact, lossy
        self._kept = self.dtype if lossy is None else _narrow_float(self.dtype, lossy)
        self._written = 0
        self._decisions = self._when_to_decide()
        self._lock = RLock()
        self._held = self._empty(Layout(shape=self.shape, dtype=self._kept), Packing(dtype=self._kept), shared=False)

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            state = {name: value for name, value in self.__dict__.items() if name != "_lock"}
            return state | {"_held": self._held.snapshot()}  # the writer may go on before all of it is copied

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = RLock()

    @property
    def layout(self) -> Layout:
        """How an observation is cut into pieces."""
        return self._held.layout

    @property
    def packing(self) -> Packing:
        """How the elements of a piece are kept."""
        return self._held.packing

    @property
    def shared(self) -> bool:
        """Whether pieces are looked up among all that was seen in any environment."""
        return self._held.sequences.shared

    def describe(self) -> str:
        """Say in words what was found, and what is lost if anything is."""
        words = [self.layout.describe(), *([] if self.packing.is_identity else [self.packing.describe()])]
        words += ["looked up among all that was seen"] if self.shared else []
        words += [] if self._kept == self.dtype else [f"LOSSY: {self.dtype} is rounded to {self._kept}"]
        return "; ".join(words)

    @property
    def raw_bytes(self) -> int:
        """What plain arrays would take for the rows written so far."""
        one = math.prod(self.shape) * self.dtype.itemsize * (2 if self.follows else 1)
        return int(min(self._held.written, self.rows) * self.n_envs * one)

    @property
    def nbytes(self) -> int:
        """Everything resident: blocks, keys, the open tails, the index, the last observations."""
        with self._lock:
            return self._held.nbytes

    # --- writing and reading ---------------------------------------------------------------------------------------

    def put(self, row: int, observations: Array, following: Array | None = None) -> None:
        """Write a row: an observation for each environment, and the one that followed it where rows have both."""
        if self.follows != (following is not None):
            raise LeanBufferError(f"this column {'needs' if self.follows else 'has no'} next observations")
        with self._lock:
            self._put(row, self._row(observations), None if following is None else self._row(following))

    def _row(self, observations: Array) -> Array:
        """Return one observation of each environment in the column's shape and type."""
        if isinstance(observations, np.ndarray) and observations.shape == self._row_shape:
            return observations if observations.dtype == self._kept else observations.astype(self._kept)
        return np.asarray(observations, self._kept).reshape(self._row_shape)

    def _put(self, row: int, observations: Array, following: Array | None) -> None:
        try:
            self._held.put(row, observations, following)
        except DoesNotFit:
            self._widen(observations if following is None else np.concatenate([observations, following]))
            self._held.put(row, observations, following)
        self._written += 1
        if self._written in self._decisions:
            self._decide(again=self._written != self._decisions[0])

    def forget(self, oldest: int) -> None:
        """Give back what only rows before ``oldest``, in the order of writing, still need."""
        with self._lock:
            self._held.forget(oldest)

    def clear(self) -> None:
        """Forget all rows, and keep what was learnt about them."""
        with self._lock:
            self._held = self._empty(self.layout, self.packing, shared=self.shared)

    def get(self, rows: Array, envs: Array) -> Array:
        """Return the observations of some rows and environments."""
        with self._lock:
            return self._given(self._held.get(np.asarray(rows), np.asarray(envs)))

    def get_next(self, rows: Array, envs: Array) -> Array:
        """Return the observations that followed those of some rows and environments."""
        with self._lock:
            return self._given(self._held.get_next(np.asarray(rows), np.asarray(envs)))

    def get_both(self, rows: Array, envs: Array) -> tuple[Array, Array]:
        """Return the observations and those that followed; where they overlap, so do the arrays."""
        with self._lock:
            first, second = self._held.get_both(np.asarray(rows), np.asarray(envs))
            return self._given(first), self._given(second)

    def _given(self, observations: Array) -> Array:
        """Return observations in the type in which they came."""
        return observations if observations.dtype == self.dtype else observations.astype(self.dtype)

    # --- what the observations are like ------------------------------------------------------------------------------

    def _when_to_decide(self) -> tuple[int, ...]:
        """Return after how many rows to look at what there is."""
        step_bytes = max(int(self.n_envs * math.prod(self.shape) * self.dtype.itemsize), 1)
        first = min(self.rows, _PROBED_ROWS, max(3, _PROBED_BYTES // step_bytes))
        if self.rows < _SECOND_LOOK_ROWS or step_bytes * _SECOND_LOOK_ROWS > _SECOND_LOOK_BYTES:
            return (first,)
        return first, _SECOND_LOOK_ROWS

    def _decide(self, *, again: bool) -> None:
        """Look at the rows so far, and write them again if they can be held better."""
        layout, packing, shared = self.layout, self.packing, self.shared
        if not again:
            seen = [*self._histories()]
            layout = find_layout(seen, shape=self.shape, dtype=self._kept)
            shared = layout.count > _WINDOW_PIECES and layout.piece_bytes >= _SHARED_BYTES
            packing = find_packing(np.concatenate(seen), dtype=self._kept, piece_elements=self._piece_elements(layout))
        elif layout.count == 1 and not shared:
            shared = self._mostly_seen_before()
        if (layout, packing, shared) != (self.layout, self.packing, self.shared):
            self._rewrite_first_fitting(layout, [packing, Packing(dtype=self._kept)], shared=shared)

    def _piece_elements(self, layout: Layout) -> int:
        return int(layout.piece_bytes // self._kept.itemsize)

    def _histories(self) -> Iterator[Array]:
        """Yield what the first environments saw, one step after the other."""
        rows = self._rows_there()[:_PROBED_ROWS]
        for env in range(min(self.n_envs, 2)):
            yield self._held.get(rows, np.full(len(rows), env))

    def _rows_there(self) -> Array:
        """Return the rows that can be read, in the order in which they were written."""
        held = self._held
        return np.arange(max(held.written - self.rows, held.kept_from), held.written) % self.rows

    def _mostly_seen_before(self) -> bool:
        """Whether pieces that take more than a reference to them have mostly been seen before."""
        size, rows = self.layout.piece_bytes, self._rows_there()
        count = len(rows) * self.n_envs
        if size < _SHARED_BYTES or self._held.nbytes < count * size // 8:
            return False
        seen = {
            xxhash.xxh3_128_digest(np.ascontiguousarray(self._held.get(np.array([row]), np.array([env]))))
            for row in rows
            for env in range(self.n_envs)
        }
        return len(seen) < _SEEN_BEFORE * count

    def _widen(self, observations: Array) -> None:
        """Choose a packing that holds these observations too."""
        self._rewrite_first_fitting(self.layout, self.packing.wider(observations), shared=self.shared)

    def _rewrite_first_fitting(self, layout: Layout, packings: Iterable[Packing], *, shared: bool) -> None:
        """Write all rows again with the first packing that holds them; the last of them holds everything."""
        for packing in packings:
            try:
                self._rewrite(layout, packing, shared=shared)
            except DoesNotFit:
                continue
            return

    def _rewrite(self, layout: Layout, packing: Packing, *, shared: bool) -> None:
        """Write all rows again, one by one, in the order in which they were written."""
        old, rows_there = self._held, self._rows_there()
        new = self._empty(layout, packing, shared=shared, begun_at=old.written - len(rows_there))
        everywhere = np.arange(self.n_envs)
        for row in rows_there.tolist():
            rows = np.full(self.n_envs, row)
            following = old.get_next(rows, everywhere) if self.follows else None
            new.put(row, old.get(rows, everywhere), following)
        self._held = new

    def _empty(self, layout: Layout, packing: Packing, *, shared: bool, begun_at: int = 0) -> Rows:
        return Rows(
            rows=self.rows,
            n_envs=self.n_envs,
            layout=layout,
            packing=packing,
            follows=self.follows,
            compact=self.compact,
            shared=shared,
            begun_at=begun_at,
        )

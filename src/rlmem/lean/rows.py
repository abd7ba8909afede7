"""Rows of observations in one layout and packing: the index over the sequences of pieces.

An observation is found by the number of its first piece. The one that followed it lies right behind what moved out,
unless something unusual happened; only then is its number kept as well.
"""

from __future__ import annotations

import copy

import numpy as np

from rlmem.lean.kernels import NEW, Array
from rlmem.lean.layout import Layout
from rlmem.lean.packing import Packing
from rlmem.lean.pieces import PLAIN_BELOW_BYTES
from rlmem.lean.sequences import OwnSequences, Sequences, SharedSequence


class DoesNotFit(Exception):  # noqa: N818 - an answer, not a fault: the packing is too narrow
    """An observation has a value that the packing cannot hold."""


class Rows:
    """``rows`` × ``n_envs`` observations, written in order and then over again."""

    def __init__(
        self,
        *,
        rows: int,
        n_envs: int,
        layout: Layout,
        packing: Packing,
        follows: bool,
        compact: bool,
        shared: bool,
        begun_at: int = 0,
    ) -> None:
        self.rows, self.n_envs, self.layout, self.packing, self.follows = rows, n_envs, layout, packing, follows
        size = packing.packed_bytes(layout.piece_bytes)
        row = max(min(layout.row_bytes * packing.bits // (8 * layout.dtype.itemsize), size), 1)
        kind = SharedSequence if shared else OwnSequences
        self.sequences: Sequences = kind(
            size=size, row=row, count=layout.count, n_envs=n_envs, compact=compact, pieces=rows * max(layout.shift, 1)
        )
        # Where every row brings one small piece, its number need not be kept: it is the row's own.
        self.counted = not follows and not shared and layout.count == 1 and size < PLAIN_BELOW_BYTES
        self.firsts: Array = np.zeros((0 if self.counted else rows, n_envs), np.uint32)
        self.next_firsts: Array | None = None
        self.written = self.kept_from = self.begun_at = begun_at
        self._end: Array = np.zeros(n_envs, np.int64)
        self._last: Array | None = None
        self._shift = layout.shift or layout.count
        direct = packing.is_identity and not layout.axis and not layout.newest_first
        self._cut_shape = (n_envs, layout.count, -1) if direct else None

    # --- writing -------------------------------------------------------------------------------------------------

    def put(self, row: int, observations: Array, following: Array | None) -> None:
        """Write a row, or raise DoesNotFit and leave everything as it was."""
        packed = self._packed(observations)
        packed_following = None if following is None else self._packed(following)
        if self.written >= self.rows:
            self.forget((row + 1) % self.rows)
        firsts = self._add(packed, following=False)
        if not self.counted:
            self.firsts[row] = firsts
        if packed_following is not None:
            self._put_following(row, firsts, self._add(packed_following, following=True))
        self.written += 1

    def _packed(self, observations: Array) -> Array:
        if self._cut_shape is not None and observations.flags.c_contiguous:
            return observations.reshape(self._cut_shape).view(np.uint8)
        packed = self.packing.pack(self.layout.cut(observations))
        if packed is None:
            raise DoesNotFit
        return packed

    def _add(self, pieces: Array, *, following: bool) -> Array:
        """Append what is new of the observations; return the number of each one's first piece.

        One that stands still is appended all the same where it follows, next to nothing as it is: it then lies where
        it is looked for.
        """
        if self.counted:
            return self._count(pieces)
        last = self._last
        if last is None:
            last = self._last = np.empty_like(pieces)
            left: Array | None = np.full(self.n_envs, 1 + NEW, np.uint8)
        else:
            left = self.sequences.extend_simply(pieces, last, self._end, shift=self.layout.shift, following=following)
        for env, kind in () if left is None else enumerate(left.tolist()):
            if not kind:
                continue
            new = self.layout.count if kind == 1 + NEW else self._shift
            before = last[env, -1] if self._end[env] else None
            self.sequences.extend(env, pieces[env, -new:], before)
            self._end[env] += new
            last[env] = pieces[env]
        return self._end - self.layout.count

    def _count(self, pieces: Array) -> Array:
        for env in range(self.n_envs):
            self.sequences.extend(env, pieces[env], None)
        self._end += 1
        return self._end

    def _put_following(self, row: int, firsts: Array, nexts: Array) -> None:
        if self.next_firsts is None and (nexts != firsts + self._shift).any():
            self.next_firsts = self.firsts + np.uint32(self._shift)
        if self.next_firsts is not None:
            self.next_firsts[row] = nexts

    def forget(self, oldest: int) -> None:
        """Give back what only rows before ``oldest``, in the order of writing, still need."""
        kept_from = self.written - 1 - (self.written - 1 - oldest) % self.rows
        if kept_from <= self.kept_from:
            return
        self.kept_from = kept_from
        firsts = np.full(self.n_envs, kept_from - self.begun_at) if self.counted else self.firsts[oldest]
        self.sequences.drop_before(firsts if self.rows > 1 else self._end - self.layout.count)

    def snapshot(self) -> Rows:
        """Return the rows as they are now; what is sealed is shared."""
        twin = copy.copy(self)
        twin.sequences, twin.firsts, twin._end = self.sequences.snapshot(), self.firsts.copy(), self._end.copy()
        twin.next_firsts = None if self.next_firsts is None else self.next_firsts.copy()
        twin._last = None if self._last is None else self._last.copy()
        return twin

    # --- reading -------------------------------------------------------------------------------------------------

    def get(self, rows: Array, envs: Array) -> Array:
        if self.counted:
            return self._read(self.written - 1 - (self.written - 1 - rows) % self.rows - self.begun_at, envs)
        return self._read(self.firsts[rows, envs], envs)

    def get_next(self, rows: Array, envs: Array) -> Array:
        return self._read(self._nexts(rows, envs), envs)

    def get_both(self, rows: Array, envs: Array) -> tuple[Array, Array]:
        """Return observations and those that followed; where they share pieces, so do the arrays."""
        firsts = self.firsts[rows, envs]
        if self.next_firsts is not None and not np.array_equal(self.next_firsts[rows, envs], firsts + self._shift):
            return self._read(firsts, envs), self._read(self._nexts(rows, envs), envs)
        count = self.layout.count
        both = self._pieces(firsts, envs, count + self._shift)
        return self.layout.join(both[:, :count]), self.layout.join(both[:, self._shift :])

    def _nexts(self, rows: Array, envs: Array) -> Array:
        if self.next_firsts is None:
            return self.firsts[rows, envs] + np.uint32(self._shift)
        return self.next_firsts[rows, envs]

    def _read(self, firsts: Array, envs: Array) -> Array:
        return self.layout.join(self._pieces(firsts, envs, self.layout.count))

    def _pieces(self, firsts: Array, envs: Array, count: int) -> Array:
        out: Array = np.empty((len(firsts), count, self.sequences.size), np.uint8)
        self.sequences.read(firsts.astype(np.int64), envs, out)
        return self.packing.unpack(out, self.layout.piece_bytes // self.layout.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        """Everything resident: blocks, keys, the open tails, the index, the last observations."""
        held = (self.firsts, self.next_firsts, self._last, self._end)
        return int(self.sequences.nbytes + sum(array.nbytes for array in held if array is not None))

"""How an observation is cut into pieces, so that what two observations share is whole pieces.

A frame stack moves on by one frame a step, a sliding window by its shift: cut along that axis, each step brings few
new pieces. Where nothing moves on, the observation is one piece.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from rlmem.lean.kernels import Array

_ENOUGH: Final = 0.5
"""In which share of the changed steps a history must move on to be worth cutting along it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """An observation as ``count`` pieces along ``axis``, ``shift`` of them new a step; the newest last.

    ``newest_first`` says that the observation itself has them the other way round.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    axis: int = 0
    count: int = 1
    shift: int = 0
    newest_first: bool = False

    @property
    def piece_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize // self.count

    @property
    def row_bytes(self) -> int:
        """Bytes of a piece after which its content may look alike again: the rows of an image."""
        row = self.moved_shape[-1] * self.dtype.itemsize if len(self.shape) > 1 else self.dtype.itemsize
        return max(min(row, self.piece_bytes), 1)

    @property
    def moved_shape(self) -> tuple[int, ...]:
        """The observation's shape with the axis of its pieces in front."""
        if not self.shape:
            return ()
        return (self.shape[self.axis], *self.shape[: self.axis], *self.shape[self.axis + 1 :])

    def cut(self, observations: Array) -> Array:
        """Return observations (items × shape) as bytes: items × pieces × bytes of a piece."""
        flat = np.ascontiguousarray(self._moved(observations)).reshape(len(observations), self.count, -1)
        return flat.view(np.uint8)

    def join(self, pieces: Array) -> Array:
        """Return observations from their pieces (items × pieces × bytes), as a view where that can be."""
        flat = pieces.view(self.dtype).reshape(len(pieces), *self.moved_shape)
        if self.newest_first:
            flat = flat[:, ::-1]
        return np.moveaxis(flat, 1, 1 + self.axis) if self.axis else flat

    def _moved(self, observations: Array) -> Array:
        if not self.shape:
            return observations
        moved = np.moveaxis(observations, 1 + self.axis, 1) if self.axis else observations
        return moved[:, ::-1] if self.newest_first else moved

    def describe(self) -> str:
        """Say in words what was found."""
        if self.count == 1:
            return "no moving history: an observation is one piece"
        what = "frame stack" if self.count <= _MOST_FRAMES else "sliding window"
        order = ", newest first" if self.newest_first else ""
        return f"{what} along axis {self.axis}: {self.count} pieces, {self.shift} new a step{order}"


_MOST_FRAMES: Final = 16
_MOST_CANDIDATES: Final = 64


def find_layout(episodes: Sequence[Array], *, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Layout:
    """Return the layout that observations seen one after the other show (each: steps × shape).

    Whatever it says is checked by value at every step later on, so a wrong guess costs memory and nothing else.
    """
    pairs = [pair for episode in episodes for pair in pairwise(_by_bits(episode))]
    changed = [(before, after) for before, after in pairs if not _same(before, after)]
    found = [
        (axis, moved, newest_first)
        for axis in range(len(shape))
        for newest_first in (False, True)
        if (moved := _moves_on(changed, axis, newest_first))
    ]
    if not found:
        return Layout(shape=shape, dtype=dtype)
    axis, moved, newest_first = min(found, key=lambda item: item[1] / shape[item[0]])
    unit = math.gcd(shape[axis], moved)
    return Layout(
        shape=shape,
        dtype=dtype,
        axis=axis,
        count=shape[axis] // unit,
        shift=moved // unit,
        newest_first=newest_first,
    )


def _moves_on(pairs: Sequence[tuple[Array, Array]], axis: int, newest_first: bool) -> int | None:
    """Return by how many slices along the axis most observations move on, or None."""
    if not pairs or pairs[0][0].shape[axis] < 2:
        return None
    step = -1 if newest_first else 1
    histories = [tuple(np.moveaxis(array, axis, 0)[::step] for array in pair) for pair in pairs]
    needed = max(1, math.ceil(_ENOUGH * len(pairs)))
    for shift in _candidates(histories, needed):
        if sum(bool(np.array_equal(one[shift:], other[:-shift])) for one, other in histories) >= needed:
            return shift
    return None


def _candidates(histories: Sequence[tuple[Array, ...]], needed: int) -> list[int]:
    """Return the shifts for which the first slice fits in enough of the pairs, the smallest first and not too many."""
    half = len(histories[0][0]) // 2
    fits: Array = np.zeros(half, np.int64)
    for one, other in histories:
        rest = tuple(range(1, one.ndim))
        fits += (one[1 : half + 1] == other[:1]).all(axis=rest) & (one[-1:] == other[-2 : -half - 2 : -1]).all(
            axis=rest
        )
    return [1 + int(index) for index in np.flatnonzero(fits >= needed)[:_MOST_CANDIDATES]]


def _by_bits(array: Array) -> Array:
    """Return the array as whole numbers: NaNs are then compared by their bytes, and noughts by their sign."""
    if array.dtype.kind not in "fc":
        return array
    if array.dtype.itemsize <= 8:
        return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")
    return np.ascontiguousarray(array)[..., None].view(np.uint8)


def _same(one: Array, other: Array) -> bool:
    return bool(np.array_equal(one, other))

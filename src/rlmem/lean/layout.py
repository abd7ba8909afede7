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


def find_layout(episodes: Sequence[Array], *, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Layout:
    """Return the layout that observations seen one after the other show (each: steps × shape).

    Whatever it says is checked by value at every step later on, so a wrong guess costs memory and nothing else.
    """
    pairs = [pair for episode in episodes for pair in pairwise(episode)]
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
    length = pairs[0][0].shape[axis] if pairs else 0
    needed = max(1, math.ceil(_ENOUGH * len(pairs)))
    for shift in range(1, length // 2 + 1):
        held = 0
        for index, (before, after) in enumerate(pairs):
            held += _moved_by(before, after, axis, shift, newest_first)
            if held + len(pairs) - index - 1 < needed:
                break
        if pairs and held >= needed:
            return shift
    return None


def _moved_by(before: Array, after: Array, axis: int, shift: int, newest_first: bool) -> bool:
    one, other = (np.moveaxis(array, axis, 0) for array in (before, after))
    if newest_first:
        one, other = one[::-1], other[::-1]
    kept = len(one) - shift
    return _same(one[shift : shift + 1], other[:1]) and _same(one[shift:], other[:kept])


def _same(one: Array, other: Array) -> bool:
    """Whether two arrays are alike to the last bit: NaNs are compared by their bytes, noughts by their sign."""
    if one.dtype.kind in "fc":
        return bool(one.tobytes() == other.tobytes())
    return bool(np.array_equal(one, other))

"""Elements in fewer bits, exactly: numbers that fit a narrower type, or few distinct values by their place in a list.

A packing is found on a sample and checked on everything after it; what does not fit any more makes the column choose
a wider one and write itself again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from rlmem.lean.kernels import Array

_MOST_VALUES: Final = 16
_LEAST_ELEMENTS: Final = 64
"""Pieces with fewer elements are left alone: nothing to gain, and time to lose."""

_FIRST_LOOK: Final = 4096

_NARROWER: Final = ("u1", "i1", "u2", "i2", "f2", "u4", "i4", "f4")


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """How elements are kept: as they are, in a ``narrow`` type, or as numbers of a few bits into ``values``."""

    dtype: np.dtype[np.generic]
    narrow: np.dtype[np.generic] | None = None
    values: tuple[int, ...] = ()

    @property
    def is_identity(self) -> bool:
        return self.narrow is None and not self.values

    @property
    def bits(self) -> int:
        """Bits an element takes."""
        if self.values:
            return next(bits for bits in (1, 2, 4) if len(self.values) <= 2**bits)
        return 8 * (self.dtype if self.narrow is None else self.narrow).itemsize

    def packed_bytes(self, piece_bytes: int) -> int:
        """Return what a piece of so many bytes takes."""
        return -(-piece_bytes // self.dtype.itemsize * self.bits // 8)

    def pack(self, pieces: Array) -> Array | None:
        """Return pieces (items × count × bytes) packed, or None when one has a value that does not fit."""
        if self.is_identity:
            return pieces
        if self.narrow is not None:
            return _narrowed(pieces, self.dtype, self.narrow)
        return self._numbered(pieces)

    def _numbered(self, pieces: Array) -> Array | None:
        elements = pieces.view(_word(self.dtype))
        values = np.array(self.values, elements.dtype)
        codes: Array = np.searchsorted(values, elements).astype(np.uint8)
        if not np.array_equal(values[np.minimum(codes, len(values) - 1)], elements):
            return None
        return _into_bits(codes, self.bits)

    def unpack(self, packed: Array, elements: int) -> Array:
        """Return the pieces as they were, of so many elements each."""
        if self.is_identity:
            return packed
        if self.narrow is not None:
            return packed.view(self.narrow).astype(self.dtype).view(np.uint8)
        values = np.array(self.values, _word(self.dtype))
        return values[_from_bits(packed, self.bits)[..., :elements]].view(np.uint8)

    def wider(self, sample: Array) -> Iterator[Packing]:
        """Yield packings that hold the sample and may hold what this one does; the last holds everything."""
        values = sorted({*self.values, *np.unique(np.ascontiguousarray(sample).view(_word(self.dtype))).tolist()})
        if self.values and len(values) <= _MOST_VALUES:
            yield Packing(dtype=self.dtype, values=tuple(values))
        flat = np.ascontiguousarray(sample).reshape(1, 1, -1).view(np.uint8)
        for name in _NARROWER:
            narrow = np.dtype(name)
            may_do = self.bits // 8 <= narrow.itemsize < self.dtype.itemsize and narrow != self.narrow
            if may_do and _narrowed(flat, self.dtype, narrow) is not None:
                yield Packing(dtype=self.dtype, narrow=narrow)
        yield Packing(dtype=self.dtype)

    def describe(self) -> str:
        """Say in words how elements are kept."""
        if self.values:
            return f"{len(self.values)} distinct values: {self.bits} bit instead of {8 * self.dtype.itemsize}"
        if self.narrow is not None:
            return f"{self.dtype} that fits {self.narrow}"
        return f"{self.dtype} as it is"


def find_packing(sample: Array, *, dtype: np.dtype[np.generic], piece_elements: int) -> Packing:
    """Return the narrowest packing that holds all of the sample exactly."""
    plain_number = dtype.kind in "buif" and dtype.itemsize <= 8 and dtype.isnative
    if piece_elements < _LEAST_ELEMENTS or not plain_number or not sample.size:
        return Packing(dtype=dtype)
    words = np.ascontiguousarray(sample).reshape(-1).view(_word(dtype))
    values = np.unique(words[:_FIRST_LOOK])
    if len(values) <= _MOST_VALUES:
        values = np.unique(words)
    # Images of bytes have few values at first and more later: only what is small by nature is numbered.
    if len(values) <= _MOST_VALUES and (dtype.itemsize > 1 or values[-1] < _MOST_VALUES):
        every = range(int(values[-1]) + 1) if dtype.itemsize == 1 else values.tolist()
        return Packing(dtype=dtype, values=tuple(every))
    flat = words.view(np.uint8).reshape(1, 1, -1)
    for name in _NARROWER:
        narrow = np.dtype(name)
        if narrow.itemsize < dtype.itemsize and _narrowed(flat, dtype, narrow) is not None:
            return Packing(dtype=dtype, narrow=narrow)
    return Packing(dtype=dtype)


def _word(dtype: np.dtype[np.generic]) -> np.dtype[np.generic]:
    """Return the unsigned integer of the same size: values are compared by their bits."""
    return np.dtype(f"u{dtype.itemsize}")


def _narrowed(pieces: Array, dtype: np.dtype[np.generic], narrow: np.dtype[np.generic]) -> Array | None:
    with np.errstate(all="ignore"):
        small = pieces.view(dtype).astype(narrow)
        back = small.astype(dtype)
    return small.view(np.uint8) if np.array_equal(back.view(np.uint8), pieces) else None


def _into_bits(codes: Array, bits: int) -> Array:
    """Return small numbers side by side in bytes, the first in the highest bits."""
    per_byte = 8 // bits
    missing = -codes.shape[-1] % per_byte
    if missing:
        codes = np.concatenate([codes, np.zeros((*codes.shape[:-1], missing), np.uint8)], axis=-1)
    if bits == 1:
        return np.packbits(codes, axis=-1)
    parts = codes.reshape(*codes.shape[:-1], -1, per_byte)
    shifts: Array = np.arange(8 - bits, -1, -bits, dtype=np.uint8)
    packed: Array = np.bitwise_or.reduce(parts << shifts, axis=-1)
    return packed


def _from_bits(packed: Array, bits: int) -> Array:
    if bits == 1:
        return np.unpackbits(packed, axis=-1)
    shifts: Array = np.arange(8 - bits, -1, -bits, dtype=np.uint8)
    parts = (packed[..., None] >> shifts) & np.uint8(2**bits - 1)
    return parts.reshape(*packed.shape[:-1], -1)

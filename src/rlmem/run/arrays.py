"""An array described before it exists: shape and dtype, hence bytes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

ITEM_BYTES: Final[dict[str, int]] = {
    "bool": 1,
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "uint16": 2,
    "float16": 2,
    "bfloat16": 2,
    "int32": 4,
    "uint32": 4,
    "float32": 4,
    "int64": 8,
    "uint64": 8,
    "float64": 8,
    "complex64": 8,
    "complex128": 16,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ArraySpec:
    """The shape and dtype of an array that need not exist yet."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.elements * ITEM_BYTES[self.dtype]

    def __str__(self) -> str:
        return f"{format_shape(self.shape)} × {ITEM_BYTES[self.dtype]} B"


def format_shape(shape: tuple[int, ...]) -> str:
    """Return a shape as it is written in formulas: ``17×49×71×58``."""
    return "×".join(str(size) for size in shape) if shape else "1"

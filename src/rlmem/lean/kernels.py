"""The compiled inner loops behind plain functions over arrays; NumPy does the same where there is no compiler.

Compiled C takes no memory beside its few kilobytes of code and needs no warming up. The choice is recorded in
`docs/decisions/0010-compiled-kernels.md`.
"""

from __future__ import annotations

import ctypes
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Final

import numpy as np

from rlmem.lean import fallback
from rlmem.lean.fallback import CHUNK, MOVED_ON, NEW, SAME, STILL, TAIL, Array

__all__ = [
    "CHUNK",
    "COMPILED",
    "MOVED_ON",
    "NEW",
    "SAME",
    "STILL",
    "TAIL",
    "Array",
    "address",
    "compare",
    "extend",
    "gather",
    "runs",
]


def _load() -> ctypes.CDLL | None:
    """Return the compiled kernels, or None where they could not be built."""
    folder = Path(__file__).parent
    found = [path for suffix in EXTENSION_SUFFIXES if (path := folder / f"_kernels{suffix}").exists()]
    if not found or sys.byteorder != "little":
        return None
    library = ctypes.CDLL(str(found[0]))
    pointer, size = ctypes.c_void_p, ctypes.c_int64
    library.lean_runs.restype = size
    library.lean_runs.argtypes = [pointer, pointer, size, pointer, size]
    library.lean_gather.restype = size
    library.lean_gather.argtypes = [pointer, *[size] * 5, pointer, *[size] * 4, pointer]
    library.lean_extend.restype = size
    library.lean_extend.argtypes = [pointer, pointer, pointer, *[size] * 7, pointer, pointer]
    library.lean_compare.restype = None
    library.lean_compare.argtypes = [pointer, pointer, *[size] * 4, pointer]
    return library


_LIBRARY: Final = _load()

COMPILED: Final = _LIBRARY is not None
"""Whether the compiled kernels are there. Without them everything works, and is many times slower."""


def address(array: Array) -> int:
    """Return where an array's first element lies; ``array.ctypes.data`` takes ten times as long."""
    address: int = array.__array_interface__["data"][0]
    return address


def runs(base: Array, now: Array, out: Array, room: int) -> int | None:
    """Write into ``out`` the runs in which ``now`` differs from ``base``; None when they take more than ``room``."""
    if _LIBRARY is None:
        return fallback.runs(base, now, out, room)
    written: int = _LIBRARY.lean_runs(address(base), address(now), now.size, address(out), room)
    return None if written < 0 else written


def gather(
    chunks: Array, places: Array, out: Array, *, length: int, group: int, size: int, row: int, count: int
) -> int | None:
    """Decode for each item of ``out`` its ``count`` pieces; return the number of an item that is torn, else None.

    ``places`` has either one number an item, of the first of consecutive pieces, or one for each piece.
    """
    if _LIBRARY is None:
        return fallback.gather(chunks, places, out, length=length, group=group, size=size, row=row, count=count)
    torn: int = _LIBRARY.lean_gather(
        chunks.ctypes.data,  # quicker than `address` for an array of records
        len(chunks),
        length,
        group,
        size,
        row,
        address(places),
        places.ndim == 1,
        len(out),
        count,
        out.strides[0] if len(out) > 1 else out.nbytes,
        address(out),
    )
    return torn - 1 if torn else None


def extend(
    tails: Array, now: Array, last: Array, ends: Array, *, shift: int, group: int, length: int, following: bool
) -> Array | None:
    """Append what is new of each observation to its tail where that is simple, and keep it as the last.

    Return None when all is done; else for each 0 or 1 + what `compare` says of it, and the caller has to append it.
    """
    if _LIBRARY is None:
        return fallback.extend(tails, now, last, ends, shift=shift, group=group, length=length, following=following)
    items, count, size = now.shape
    left = np.empty(items, np.uint8)
    lefts = _LIBRARY.lean_extend(
        address(tails),
        address(now),
        address(last),
        items,
        count,
        size,
        shift,
        group,
        length,
        following,
        address(ends),
        address(left),
    )
    return left if lefts else None


def compare(now: Array, last: Array, shift: int) -> Array:
    """Say of observations (items × pieces × bytes) whether each is the last one, that moved on, both, or new."""
    if _LIBRARY is None:
        return fallback.compare(now, last, shift)
    items, count, size = now.shape
    out = np.empty(items, np.uint8)
    _LIBRARY.lean_compare(address(now), address(last), items, count, size, shift, address(out))
    return out

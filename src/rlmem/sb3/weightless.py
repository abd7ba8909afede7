"""Arrays that have a shape, a dtype and no memory until written: buffers of any size can be built and read back."""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

_MAKERS: Final = ("zeros", "ones", "empty", "full")
_LIKE_MAKERS: Final = tuple(f"{name}_like" for name in _MAKERS)
_LAZY: Final = ("zeros", "empty", "empty_like")
"""What NumPy itself leaves to the kernel until it is written; the others, `zeros_like` too, write every page."""
_SMALL_BYTES: Final = 2**20
_MAP_NORESERVE: Final = 0x4000
"""Linux's flag, which Python names only from 3.13 on: do not count the mapping against what can be committed."""


class Region(mmap.mmap):
    """Address space behind a weightless array; ``eager`` where the real array would be resident at once."""

    eager = False


def weightless(shape: Any, dtype: Any, *, eager: bool = False) -> np.ndarray[Any, Any]:
    """Return an array of address space that the kernel need not back: a page is there once it is written."""
    sizes = tuple(int(size) for size in shape) if isinstance(shape, Iterable) else (int(shape),)
    kind = np.dtype(dtype)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
    region = Region(-1, math.prod(sizes) * kind.itemsize, flags=flags)
    region.eager = eager
    return np.frombuffer(region, dtype=kind).reshape(sizes)


def is_eager(array: np.ndarray[Any, Any]) -> bool:
    """Whether the array stands for one that would be resident as soon as it is made."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    owner = base.obj if isinstance(base, memoryview) else base
    return isinstance(owner, Region) and owner.eager


@contextmanager
def weightless_arrays() -> Iterator[None]:
    """Let NumPy make large arrays without memory while buffers are built."""
    originals = {name: getattr(np, name) for name in (*_MAKERS, *_LIKE_MAKERS)}
    for name in _MAKERS:
        setattr(np, name, _maker(name, originals[name]))
    for name in _LIKE_MAKERS:
        setattr(np, name, _like_maker(name, originals[name]))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(np, name, original)


def _maker(name: str, original: Any) -> Any:
    position = 2 if name == "full" else 1

    def make(shape: Any, *args: Any, **kwargs: Any) -> Any:
        dtype = kwargs.get("dtype", args[position - 1] if len(args) >= position else None)
        if dtype is None:
            fill = kwargs.get("fill_value", args[0] if args else None)
            dtype = np.asarray(fill).dtype if name == "full" else float
        if not _is_large(shape, dtype):
            return original(shape, *args, **kwargs)
        return weightless(shape, dtype, eager=name not in _LAZY)

    return make


def _like_maker(name: str, original: Any) -> Any:
    position = 2 if name == "full_like" else 1

    def make(prototype: Any, *args: Any, **kwargs: Any) -> Any:
        dtype = kwargs.get("dtype", args[position - 1] if len(args) >= position else None)
        kind = getattr(prototype, "dtype", None) if dtype is None else dtype
        shape = kwargs.get("shape")
        sizes = getattr(prototype, "shape", None) if shape is None else shape
        if not isinstance(prototype, np.ndarray) or not _is_large(sizes, kind):
            return original(prototype, *args, **kwargs)
        return weightless(sizes, kind, eager=name not in _LAZY)

    return make


def _is_large(shape: Any, dtype: Any) -> bool:
    """Whether an array is worth making weightless; one of Python objects cannot be."""
    kind = np.dtype(dtype)
    return not kind.hasobject and int(np.prod(shape, dtype=object)) * kind.itemsize >= _SMALL_BYTES

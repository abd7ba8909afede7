"""Arrays that have a shape, a dtype and no memory until they are written.

With them buffers of any size can be built and read back."""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

_MAKERS: Final = ("zeros", "ones", "empty", "full")
_SMALL_BYTES: Final = 2**20
_MAP_NORESERVE: Final = 0x4000
"""Linux's flag, which Python names only from 3.13 on: do not count the mapping against what can be committed."""


def weightless(shape: Any, dtype: Any) -> np.ndarray[Any, Any]:
    """Return an array of address space that the kernel need not back: a page is there once it is written."""
    sizes = (int(shape),) if isinstance(shape, int | np.integer) else tuple(int(size) for size in shape)
    kind = np.dtype(dtype)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
    region = mmap.mmap(-1, math.prod(sizes) * kind.itemsize, flags=flags)
    return np.frombuffer(region, dtype=kind).reshape(sizes)


@contextmanager
def weightless_arrays() -> Iterator[None]:
    """Let NumPy make large arrays without memory while buffers are built."""
    originals = {name: getattr(np, name) for name in _MAKERS}
    for name in _MAKERS:
        setattr(np, name, _maker(name, originals[name]))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(np, name, original)


def _maker(name: str, original: Any) -> Any:
    position = 2 if name == "full" else 1

    def make(shape: Any, *args: Any, **kwargs: Any) -> Any:
        dtype = kwargs.get("dtype", args[position - 1] if len(args) >= position else float)
        count = int(np.prod(shape, dtype=object))
        if dtype is None or count * np.dtype(dtype).itemsize < _SMALL_BYTES:
            return original(shape, *args, **kwargs)
        return weightless(shape, dtype)

    return make

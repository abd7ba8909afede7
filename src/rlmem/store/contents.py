"""What a snapshot is made of, as the caller has it: a mapping of paths to parts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

import numpy as np

from rlmem.errors import StoreError
from rlmem.lean.column import Column
from rlmem.lean.kernels import Array
from rlmem.store.naming import Buffer

LEAST_CHUNK_BYTES: Final = 64 * 2**10
MOST_CHUNK_BYTES: Final = 4 * 2**20
_CHUNKS: Final = 512
"""Into about so many chunks an array is cut: a change rewrites one part in so many of it, and no less."""

_PATH: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+=@ -]*(/[A-Za-z0-9_][A-Za-z0-9_.+=@ -]*)*", re.ASCII)


@runtime_checkable
class ByteSource(Protocol):
    """An array whose bytes, in C order, are handed out on request, so that it need not exist as a whole."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    def read(self, start: int, stop: int) -> Buffer:
        """Return bytes ``start`` to ``stop`` of the array; threads may ask at once."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensors:
    """Named tensors, written as safetensors files.

    ``formats`` names the safetensors type of those that NumPy has no type for: a bfloat16 tensor is given as the uint16
    array of its bits, with "BF16".
    """

    tensors: Mapping[str, Array]
    formats: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayPart:
    """A plain array, written in chunks; those that have not changed are not written again.

    A background save writes a ``mutable`` array before it returns; any other must not change until it is written. Rings
    that fill slowly are given as far as they are filled, with the ``chunk_bytes`` of the whole. ``compress`` takes
    zstd: smaller, and slower than most disks.
    """

    array: Array | ByteSource
    mutable: bool = False
    compress: bool = False
    chunk_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnPart:
    """A lean column: its sealed blocks are written as they are in memory, each once."""

    column: Column


@dataclass(frozen=True, slots=True, kw_only=True)
class Json:
    """Anything that JSON can say."""

    value: Any


Part: TypeAlias = Tensors | ArrayPart | ColumnPart | Json
Contents: TypeAlias = Mapping[str, Part]


def chunk_bytes_for(nbytes: int) -> int:
    """Return the size of chunks for an array of so many bytes: a power of two between 64 KiB and 4 MiB."""
    wanted = 1 << max(nbytes // _CHUNKS, 1).bit_length() - 1
    return min(max(wanted, LEAST_CHUNK_BYTES), MOST_CHUNK_BYTES)


def check_path(path: str) -> str:
    """Return the path of a part, or raise StoreError: it may become a file's name one day."""
    if not isinstance(path, str) or len(path) > 512 or not _PATH.fullmatch(path):
        raise StoreError(f"a part's path must be words separated by slashes, but got {path!r:.80}")
    return path


class PlainBytes:
    """The bytes of an array in memory, without a copy where it lies in C order."""

    def __init__(self, array: Array) -> None:
        self.dtype, self.shape = array.dtype, tuple(array.shape)
        self._flat = array.reshape(-1).view(np.uint8) if array.flags.c_contiguous else None
        self._array = array

    def read(self, start: int, stop: int) -> Buffer:
        if self._flat is not None:
            return memoryview(self._flat[start:stop])
        size = self.dtype.itemsize
        first, last = start // size, -(-stop // size)
        part = self._array.flat[first:last].view(np.uint8)
        return memoryview(part[start - first * size : stop - first * size])


def source_of(array: Array | ByteSource) -> ByteSource:
    """Return where the bytes of an array come from."""
    if array.dtype.kind not in "biufc":
        raise StoreError(f"an array must be of plain numbers, but got dtype {array.dtype}")
    return PlainBytes(array) if isinstance(array, np.ndarray) else array

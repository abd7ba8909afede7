"""The process's real allocator, asked for every block of a trace and given none of the memory.

What a process has resident is not what its tensors take: the C library keeps freed blocks, cannot reuse some
of them, and returns others at once. Instead of a model of that, the traced blocks are requested from the real
allocator and never written: pages that nobody touches take no memory, and the allocator's own books
(``mallinfo2``) say how large the heap would be.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Final

_ALIGNMENT: Final = 64
"""Torch aligns CPU tensors to a cache line, which glibc serves differently from plain blocks."""

_ALWAYS_MAPPED_BYTES: Final = 32 * 2**20
"""Blocks above this are mapped one by one and returned when freed: arithmetic is enough for them."""


class _MallInfo2(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    ]


@dataclass(frozen=True, slots=True)
class Block:
    """One block of the shadow heap: an address of the real allocator, or only a size."""

    bytes: int
    address: int | None


class ShadowHeap:
    """Blocks that are requested and never written."""

    def __init__(self) -> None:
        self._libc = _glibc()
        self._mapped = 0
        self._start = self._raw_level()

    @property
    def is_real(self) -> bool:
        """Whether there is a glibc to ask; without one, only sizes are added up."""
        return self._libc is not None

    def allocate(self, size: int) -> Block:
        if self._libc is None or size > _ALWAYS_MAPPED_BYTES:
            self._mapped += size
            return Block(size, None)
        address = ctypes.c_void_p()
        failed = self._libc.posix_memalign(ctypes.byref(address), _ALIGNMENT, size)
        if failed or address.value is None:
            self._mapped += size
            return Block(size, None)
        return Block(size, address.value)

    def free(self, block: Block) -> None:
        if block.address is None or self._libc is None:
            self._mapped -= block.bytes
        else:
            self._libc.free(block.address)

    def level(self) -> int:
        """Return how much larger the heap is than when it began."""
        return self._raw_level() - self._start

    def _raw_level(self) -> int:
        if self._libc is None:
            return self._mapped
        info = self._libc.mallinfo2()
        return int(info.arena + info.hblkhd + self._mapped)


def _glibc() -> Any:
    """Return the C library if it is a glibc that keeps books, else None."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallinfo2"):
        return None
    libc.mallinfo2.restype = _MallInfo2
    libc.posix_memalign.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    return libc


@dataclass(frozen=True, slots=True, kw_only=True)
class HeapBooks:
    """What the allocator of this process has, and what of it is in use."""

    bytes: int
    in_use_bytes: int


def read_books() -> HeapBooks:
    """Return the allocator's books; zeros where the C library keeps none."""
    libc = _glibc()
    if libc is None:
        return HeapBooks(bytes=0, in_use_bytes=0)
    info = libc.mallinfo2()
    return HeapBooks(bytes=int(info.arena + info.hblkhd), in_use_bytes=int(info.uordblks + info.hblkhd))


def trim() -> None:
    """Give back what the allocator keeps, so that a reading begins from what is in use."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)

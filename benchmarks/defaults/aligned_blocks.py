"""What glibc makes of equal blocks asked for one after the other, plain and aligned as torch asks for them.

A large block, a small one behind it that stays, the large one freed, and again: an aligned block does not fit into
the hole that an equal one has left. Blocks are requested and never written. Each way runs in a process of its own.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys

from rlmem.plan.shadow_heap import read_books

MIB = 2**20
ROUNDS = 4


def main() -> None:
    if len(sys.argv) > 1:
        _grow(aligned=sys.argv[1] == "aligned")
        return
    for way in ("plain", "aligned"):
        print(way, flush=True)
        subprocess.run([sys.executable, __file__, way], check=True)


def _grow(*, aligned: bool) -> None:
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    libc.posix_memalign.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.c_size_t]

    def block(size: int) -> int:
        if not aligned:
            return int(libc.malloc(size))
        address = ctypes.c_void_p()
        libc.posix_memalign(ctypes.byref(address), 64, size)
        return int(address.value or 0)

    libc.free(block(30 * MIB))  # lets glibc take blocks of this size from the heap from now on
    start = read_books().bytes
    for number in range(1, ROUNDS + 1):
        large = block(16 * MIB)
        block(256 * 1024)
        print(f"  block {number}: the heap has grown by {(read_books().bytes - start) / MIB:.1f} MiB")
        libc.free(large)


if __name__ == "__main__":
    main()

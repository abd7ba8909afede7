"""A model of PyTorch's CUDA caching allocator: what the driver hands out for a sequence of allocations.

Tensors are not what the driver counts. The allocator rounds each request up, cuts it out of a larger
segment, and keeps what is freed, so the memory taken from the device depends on the order of events.
The model is of one stream and of the default settings; only expandable segments can be switched on.

Two pools, small and large, never share memory:

- A request is rounded up to 512 B. Up to 1 MiB it goes to the small pool, above to the large one.
- It takes the smallest free block that holds it, of equals the one at the lowest address. The rest of the
  block is split off if it is at least 512 B (small pool) or more than 1 MiB (large pool); otherwise the whole
  block counts as allocated.
- Where no free block will do, a segment is taken from the device: 2 MiB in the small pool; 20 MiB for
  requests below 10 MiB; the request rounded up to 2 MiB for larger ones.
- A freed block is joined with its free neighbours in the same segment, and stays reserved.
- Where the device is full, segments that are free as a whole go back to it, once, before the request fails.

With expandable segments a pool is one range of addresses, backed by memory in steps of 2 MiB (small pool) or
20 MiB (large pool) wherever the request does not fit; a remainder of 512 B is split off in both pools, and any
whole step that is free can go back to the device.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeAlias

_MIB: Final = 2**20
_ROUNDING: Final = 512
_SMALL_REQUEST: Final = _MIB
_SMALL_SEGMENT: Final = 2 * _MIB
_LARGE_SEGMENT: Final = 20 * _MIB
_OWN_SEGMENT: Final = 10 * _MIB
"""From this size on, a request gets a segment made for it."""
_SEGMENT_ROUNDING: Final = 2 * _MIB
_ENDLESS: Final = 2**60
"""Addresses that an expandable segment may grow into: more than any device has."""

_FREE: Final = 0
_USED: Final = 1
_UNMAPPED: Final = 2

Event: TypeAlias = tuple[bool, int, int]
"""Whether it is an allocation (or its end), which one, and the bytes asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorPeak:
    """What a sequence of allocations took: ``reserved`` is what the driver counts, the context apart."""

    peak_allocated_bytes: int
    peak_reserved_bytes: int
    reserved_at_end: int
    segments: int
    out_of_memory: bool


def replay(
    events: Iterable[Event], *, expandable_segments: bool = False, device_total_bytes: int | None = None
) -> AllocatorPeak:
    """Return what the allocator would take for the events, in their order.

    ``device_total_bytes`` is what there is for segments, the context already deducted (None: without end). The
    replay stops at the first request that cannot be met. A key may be used again once it has been freed; the
    bytes of an event that frees are not looked at.
    """
    allocator = _Allocator(expandable=expandable_segments, limit=device_total_bytes)
    alive: dict[int, _Block | None] = {}
    for allocate, key, size in events:
        if not allocate:
            allocator.free(_alive(alive, key))
            continue
        if key in alive:
            raise ValueError(f"a key must be freed before it is allocated again, but {key} is alive")
        block = allocator.allocate(size) if size else None  # PyTorch does not ask for nothing
        if size and block is None:
            return allocator.peak(out_of_memory=True)
        alive[key] = block
    return allocator.peak(out_of_memory=False)


class _Block:
    """A range of addresses, linked to its neighbours in the same segment."""

    __slots__ = ("address", "next", "pool", "previous", "size", "state")

    def __init__(self, pool: _Pool, address: int, size: int, state: int) -> None:
        self.pool, self.address, self.size, self.state = pool, address, size, state
        self.previous: _Block | None = None
        self.next: _Block | None = None

    def split(self, size: int) -> _Block:
        """Keep the first ``size`` bytes and return the rest, a block in the same state."""
        rest = _Block(self.pool, self.address + size, self.size - size, self.state)
        rest.previous, rest.next = self, self.next
        if self.next is not None:
            self.next.previous = rest
        self.size, self.next = size, rest
        return rest

    def absorb_next(self) -> None:
        """Take over the block that follows."""
        gone = self.next
        assert gone is not None  # noqa: S101 - the caller has looked
        self.size += gone.size
        self.next = gone.next
        if gone.next is not None:
            gone.next.previous = self


class _Device:
    """Counts what was taken from the device, and refuses what it does not have."""

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.reserved = self.peak = 0

    def take(self, size: int) -> bool:
        if self.limit is not None and self.reserved + size > self.limit:
            return False
        self.reserved += size
        self.peak = max(self.peak, self.reserved)
        return True

    def give_back(self, size: int) -> None:
        self.reserved -= size


class _Pool(ABC):
    """Free blocks by size, and what both ways of taking memory from the device have in common."""

    def __init__(self, device: _Device, *, small: bool) -> None:
        self.device, self.small = device, small
        self._free: list[tuple[int, int]] = []
        self._at: dict[int, _Block] = {}

    def take(self, size: int) -> _Block | None:
        """Return a used block for the request from what is reserved, or else from the device."""
        block = self._best_fit(size)
        if block is not None:
            self._unlist(block)
        else:
            block = self._grow(size)
        return None if block is None else self._cut(block, size)

    def give(self, block: _Block) -> None:
        """Free a used block and join it with its free neighbours."""
        block.state = _FREE
        self._list(self._joined(block))

    @abstractmethod
    def release(self) -> None:
        """Give back to the device what is reserved and free."""

    @abstractmethod
    def segments(self) -> int:
        """Return how many separate ranges are reserved."""

    @abstractmethod
    def _grow(self, size: int) -> _Block | None:
        """Return a free block, not listed, of memory from the device; None where it is full."""

    def _best_fit(self, size: int) -> _Block | None:
        index = bisect_left(self._free, (size, 0))
        return self._at[self._free[index][1]] if index < len(self._free) else None

    def _splits(self, remainder: int) -> bool:
        return remainder >= _ROUNDING if self.small else remainder > _SMALL_REQUEST

    def _cut(self, block: _Block, size: int) -> _Block:
        if self._splits(block.size - size):
            self._list(block.split(size))
        block.state = _USED
        return block

    def _joined(self, block: _Block) -> _Block:
        """Return the block with its listed free neighbours joined to it, none of them listed any more."""
        if block.next is not None and block.next.state == _FREE:
            self._unlist(block.next)
            block.absorb_next()
        before = block.previous
        if before is not None and before.state == _FREE:
            self._unlist(before)
            before.absorb_next()
            return before
        return block

    def _list(self, block: _Block) -> None:
        insort(self._free, (block.size, block.address))
        self._at[block.address] = block

    def _unlist(self, block: _Block) -> None:
        del self._free[bisect_left(self._free, (block.size, block.address))]
        del self._at[block.address]


class _SegmentPool(_Pool):
    """Takes segments from the device one by one, as cudaMalloc gives them."""

    def __init__(self, device: _Device, *, small: bool) -> None:
        super().__init__(device, small=small)
        self._count = 0
        self._next_address = 0

    def segments(self) -> int:
        return self._count

    def release(self) -> None:
        for block in list(self._at.values()):
            if block.previous is None and block.next is None:
                self._unlist(block)
                self.device.give_back(block.size)
                self._count -= 1

    def _grow(self, size: int) -> _Block | None:
        segment = self._segment_bytes(size)
        if not self.device.take(segment):
            return None
        block = _Block(self, self._next_address, segment, _FREE)
        self._next_address += segment
        self._count += 1
        return block

    def _segment_bytes(self, size: int) -> int:
        if self.small:
            return _SMALL_SEGMENT
        return _LARGE_SEGMENT if size < _OWN_SEGMENT else _rounded(size, _SEGMENT_ROUNDING)


class _ExpandablePool(_Pool):
    """Backs one endless range of addresses with memory, step by step and where it is needed."""

    def __init__(self, device: _Device, *, small: bool) -> None:
        super().__init__(device, small=small)
        self._step = _SMALL_SEGMENT if small else _LARGE_SEGMENT
        self._unmapped = {0: _Block(self, 0, _ENDLESS, _UNMAPPED)}

    def segments(self) -> int:
        # Unmapped blocks have no unmapped neighbours, so a mapped range ends where each but a first one begins.
        return sum(block.previous is not None for block in self._unmapped.values())

    def release(self) -> None:
        for block in list(self._at.values()):
            self._unmap(block)

    def _splits(self, remainder: int) -> bool:
        return remainder >= _ROUNDING

    def _best_fit(self, size: int) -> _Block | None:
        """Return the best fit, where a block that could grow counts as large as it could become."""
        index = bisect_left(self._free, (size, 0))
        if index >= len(self._free):
            return None
        best = self._at[self._free[index][1]]
        for _, address in islice(self._free, index + 1, None):
            if _reach(self._at[address]) >= _reach(best):
                break
            best = self._at[address]
        return best

    def _grow(self, size: int) -> _Block | None:
        block = self._room(size)
        if block.state == _UNMAPPED:
            mapped = self._map(block, min(block.size, size))
            if mapped is None:
                return None
            block = mapped
        while block.size < size:
            after = block.next
            assert after is not None  # noqa: S101 - there is room
            mapped = self._map(after, min(after.size, size - block.size))
            if mapped is None:
                return None
            block = mapped
        self._unlist(block)
        return block

    def _room(self, size: int) -> _Block:
        """Return the first of the neighbours, free or unmapped, that together hold the request."""
        for _, block in sorted(self._unmapped.items()):
            before = block.previous
            first = before if before is not None and before.state == _FREE else block
            if _unused_from(first, size) >= size:
                return first
        raise AssertionError("the range of addresses has no end")

    def _map(self, block: _Block, size: int) -> _Block | None:
        """Back the beginning of an unmapped block with memory; return it joined with its free neighbours, listed."""
        size = _rounded(size, self._step)
        if not self.device.take(size):
            return None
        del self._unmapped[block.address]
        if size < block.size:
            rest = block.split(size)
            self._unmapped[rest.address] = rest
        block.state = _FREE
        joined = self._joined(block)
        self._list(joined)
        return joined

    def _unmap(self, block: _Block) -> None:
        """Give back the whole steps within a free block; what lies before and after them stays."""
        start = _rounded(block.address, self._step)
        end = (block.address + block.size) // self._step * self._step
        if start >= end:
            return
        self._unlist(block)
        if end < block.address + block.size:
            self._list(block.split(end - block.address))
        if start > block.address:
            unmapped = block.split(start - block.address)
            self._list(block)
            block = unmapped
        self.device.give_back(block.size)
        block.state = _UNMAPPED
        self._list_unmapped(block)

    def _list_unmapped(self, block: _Block) -> None:
        after, before = block.next, block.previous
        if after is not None and after.state == _UNMAPPED:
            del self._unmapped[after.address]
            block.absorb_next()
        if before is not None and before.state == _UNMAPPED:
            before.absorb_next()
        else:
            self._unmapped[block.address] = block


def _reach(block: _Block) -> int:
    """Return how large a free block could become by growing into what follows it."""
    after = block.next
    return block.size + (after.size if after is not None and after.state == _UNMAPPED else 0)


def _unused_from(block: _Block | None, enough: int) -> int:
    """Return the bytes in a row that are not used, from the block on; counts no further than ``enough``."""
    total = 0
    while block is not None and block.state != _USED and total < enough:
        total += block.size
        block = block.next
    return total


class _Allocator:
    """Both pools on one device."""

    def __init__(self, *, expandable: bool, limit: int | None) -> None:
        self._device = _Device(limit)
        make = _ExpandablePool if expandable else _SegmentPool
        self._small: _Pool = make(self._device, small=True)
        self._large: _Pool = make(self._device, small=False)
        self._allocated = self._peak_allocated = 0

    def allocate(self, size: int) -> _Block | None:
        """Return the block for a request; None where the device is full, whatever is given back."""
        size = _rounded(size, _ROUNDING)
        pool = self._small if size <= _SMALL_REQUEST else self._large
        block = pool.take(size) or self._after_release(pool, size)
        if block is not None:
            self._allocated += block.size
            self._peak_allocated = max(self._peak_allocated, self._allocated)
        return block

    def free(self, block: _Block | None) -> None:
        if block is not None:
            self._allocated -= block.size
            block.pool.give(block)

    def peak(self, *, out_of_memory: bool) -> AllocatorPeak:
        return AllocatorPeak(
            peak_allocated_bytes=self._peak_allocated,
            peak_reserved_bytes=self._device.peak,
            reserved_at_end=self._device.reserved,
            segments=self._small.segments() + self._large.segments(),
            out_of_memory=out_of_memory,
        )

    def _after_release(self, pool: _Pool, size: int) -> _Block | None:
        self._large.release()
        self._small.release()
        return pool.take(size)


def _rounded(size: int, step: int) -> int:
    return -(-size // step) * step


def _alive(blocks: dict[int, _Block | None], key: int) -> _Block | None:
    if key not in blocks:
        raise ValueError(f"what is freed must be alive, but {key} is not")
    return blocks.pop(key)

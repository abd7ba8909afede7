"""What a traced update step allocated: every storage's birth and death, in order.

The trace itself is made on fake tensors by `rlmem.plan.recorder`; these are its results, free of torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, Final

PARAMETERS: Final = "parameters"
GRADIENTS: Final = "gradients"
OPTIMIZER: Final = "optimizer"
MINIBATCH: Final = "minibatch"
ACTIVATIONS: Final = "activations"
TEMPORARIES: Final = "temporaries"
SCRATCH: Final = "scratch"
HOST: Final = "host"
"""What is made by NumPy and stays in host memory even where the tensors are on a GPU."""

KINDS: Final = (PARAMETERS, GRADIENTS, OPTIMIZER, MINIBATCH, ACTIVATIONS, TEMPORARIES, SCRATCH, HOST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """One storage: alive from event ``born`` until event ``died`` (None: beyond the end)."""

    bytes: int
    born: int
    died: int | None
    kind: str
    op: str
    module: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HeapReading:
    """What the process's allocator made of the blocks: its largest extent, and its extent after the last update."""

    peak_bytes: int
    peak_event: int
    end_bytes: int


@dataclass(frozen=True, kw_only=True)
class UpdateTrace:
    """The allocations of some updates; from the second on the optimizer's state is in place."""

    allocations: tuple[Allocation, ...]
    rows: int
    heap: HeapReading | None = None
    seconds: float = 0.0

    @cached_property
    def peak_event(self) -> int:
        """The event at which the heap was largest, or without a heap the one at which most bytes were alive."""
        if self.heap is not None:
            return self.heap.peak_event
        levels = self._levels()
        return max(range(len(levels)), key=levels.__getitem__, default=0)

    @property
    def peak_bytes(self) -> int:
        """The bytes alive at the peak; what the allocator keeps beside them is `kept_at_peak`."""
        return sum(self.at_peak.values())

    def kept_at_peak(self, ratio: float = 1.0) -> int:
        """Return what the allocator holds at the peak beyond what is alive, its heap scaled by ``ratio``."""
        return max(int(self.heap.peak_bytes * ratio) - self.peak_bytes, 0) if self.heap else 0

    def kept_at_end(self, ratio: float = 1.0) -> int:
        """Return what the allocator still holds after the last update beyond what is alive then."""
        return max(int(self.heap.end_bytes * ratio) - self.alive_at_end, 0) if self.heap else 0

    @property
    def host_bytes(self) -> int:
        """The most that NumPy had at once."""
        levels = replace(self, heap=None, allocations=tuple(item for item in self.allocations if item.kind == HOST))
        return levels.peak_bytes

    @property
    def alive_at_end(self) -> int:
        """What outlives the updates: parameters, gradients, optimizer state."""
        return sum(item.bytes for item in self.allocations if item.died is None)

    @property
    def at_peak(self) -> dict[str, int]:
        """The bytes alive at the peak, by kind."""
        totals = dict.fromkeys(KINDS, 0)
        for allocation in self.allocations:
            if allocation.born <= self.peak_event and (allocation.died is None or allocation.died > self.peak_event):
                totals[allocation.kind] += allocation.bytes
        return totals

    def lasting(self, kind: str) -> int:
        """Return the bytes of a kind that outlive the update."""
        return sum(item.bytes for item in self.allocations if item.kind == kind and item.died is None)

    def _levels(self) -> list[int]:
        changes = [0] * (2 + max((max(item.born, item.died or 0) for item in self.allocations), default=0))
        for item in self.allocations:
            changes[item.born] += item.bytes
            if item.died is not None:
                changes[item.died] -= item.bytes
        return list(accumulate(changes))


def trace_to_dict(trace: UpdateTrace) -> dict[str, Any]:
    """Return the trace as JSON has it, with each word written once."""
    words = sorted({word for item in trace.allocations for word in (item.kind, item.op, item.module)})
    number = {word: index for index, word in enumerate(words)}
    rows = [
        (item.bytes, item.born, item.died, number[item.kind], number[item.op], number[item.module])
        for item in trace.allocations
    ]
    heap = asdict(trace.heap) if trace.heap else None
    return {"words": words, "allocations": rows, "rows": trace.rows, "heap": heap, "seconds": trace.seconds}


def trace_from_dict(data: Mapping[str, Any]) -> UpdateTrace:
    """Return the trace that `trace_to_dict` wrote."""
    words: list[str] = data["words"]
    return UpdateTrace(
        allocations=tuple(_allocation(row, words) for row in data["allocations"]),
        rows=data["rows"],
        heap=HeapReading(**data["heap"]) if data["heap"] else None,
        seconds=data["seconds"],
    )


def _allocation(row: Iterable[Any], words: list[str]) -> Allocation:
    size, born, died, kind, op, module = row
    return Allocation(bytes=size, born=born, died=died, kind=words[kind], op=words[op], module=words[module])

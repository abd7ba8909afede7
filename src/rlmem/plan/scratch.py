"""What a convolution takes on the CPU beside its tensors, metered on the real operation.

oneDNN lays tensors out anew for its kernels, and those copies are seen by no dispatcher. Each distinct
convolution of a trace is run for real on few rows, the high-water mark is read, and the excess is scaled to the
traced rows: the copies grow with the rows.
"""

from __future__ import annotations

import ctypes
import gc
import math
import os
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

import torch

from rlmem.observe import high_water_bytes, reset_high_water, rss_bytes
from rlmem.plan import trace
from rlmem.plan.recorder import Convolution
from rlmem.plan.trace import Allocation, UpdateTrace

_PROBE_BYTES: Final = 24 * 2**20
_M_MMAP_THRESHOLD: Final = -3
_OUTPUTS_BACKWARD: Final = 3


def with_scratch(update: UpdateTrace, convolutions: Iterable[Convolution]) -> UpdateTrace:
    """Return the trace with the metered scratch of each convolution in its place."""
    known: dict[Convolution, float] = {}
    added = []
    for convolution in convolutions:
        key = replace(convolution, at=0, input_shape=(0, *convolution.input_shape[1:]))
        if key not in known:
            known[key] = _scratch_per_row(convolution)
        size = int(known[key] * convolution.input_shape[0])
        lasts = _OUTPUTS_BACKWARD if convolution.backward else 1
        if size > 0:
            added.append(_scratch(convolution, size, lasts))
    return replace(update, allocations=(*update.allocations, *added))


def _scratch(convolution: Convolution, size: int, lasts: int) -> Allocation:
    op = "convolution_backward" if convolution.backward else "convolution"
    at = convolution.at
    return Allocation(bytes=size, born=at, died=at + lasts, kind=trace.SCRATCH, op=op, module="oneDNN")


def _scratch_per_row(convolution: Convolution) -> float:
    """Return the bytes that one row adds to what the operation's tensors take."""
    rows = _probe_rows(convolution)
    call = _call(convolution, rows)
    made = call()  # the first call makes the kernels
    outputs = sum(item.numel() * item.element_size() for item in made if item is not None)
    del made
    gc.collect()
    pid = os.getpid()
    reset_high_water()
    before = rss_bytes(pid)
    made = call()
    excess = high_water_bytes(pid) - before - outputs
    return max(excess, 0) / rows


def _probe_rows(convolution: Convolution) -> int:
    """Return how many rows make the tensors large enough to meter."""
    row = 4 * (math.prod(convolution.input_shape[1:]) + math.prod(convolution.weight_shape[:1]) * 16)
    return max(1, min(convolution.input_shape[0], -(-_PROBE_BYTES // row)))


def _call(convolution: Convolution, rows: int) -> Any:
    """Return the real operation on ``rows`` rows, ready to be called."""
    inputs = torch.rand((rows, *convolution.input_shape[1:]))
    weight = torch.rand(convolution.weight_shape)
    settings = (
        list(convolution.stride),
        list(convolution.padding),
        list(convolution.dilation),
        convolution.transposed,
        list(convolution.output_padding),
        convolution.groups,
    )
    bias = torch.rand(convolution.weight_shape[1 if convolution.transposed else 0])
    with torch.no_grad():
        output = torch.ops.aten.convolution(inputs, weight, bias, *settings)
    if not convolution.backward:
        return lambda: (torch.ops.aten.convolution(inputs, weight, bias, *settings),)
    mask = [convolution.needs_input_gradient, True, True]
    gradient = torch.rand_like(output)
    del output
    return lambda: torch.ops.aten.convolution_backward(gradient, inputs, weight, list(bias.shape), *settings, mask)


def _return_freed_memory_at_once() -> None:
    """Let glibc map every large block by itself, so that the high-water mark shows what lives and nothing kept."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_MMAP_THRESHOLD, 128 * 1024)
        libc.malloc_trim(0)

"""What a convolution takes on the CPU beside its tensors, metered on the real operation in a child process.

oneDNN lays tensors out anew for its kernels, and no dispatcher sees those copies. Each distinct convolution of
a trace is run for real on few rows, the high-water mark is read, and the excess is scaled to the traced rows:
the copies grow with the rows.
"""

from __future__ import annotations

import ctypes
import gc
import math
import os
import sys
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, Final

from rlmem.observe import high_water_bytes, reset_high_water, rss_bytes
from rlmem.plan.recorder import Convolution, Scratch
from rlmem.run.child import answer, ask

_PROBE_BYTES: Final = 24 * 2**20
_M_MMAP_THRESHOLD: Final = -3


def cpu_scratch(convolutions: Iterable[Convolution]) -> Scratch:
    """Return what each of these convolutions takes beside its tensors on this CPU, whatever its rows."""
    distinct = list({item.for_any_rows: item for item in convolutions}.values())
    if not distinct:
        return lambda _convolution: ()
    reply = ask(__name__, {"convolutions": [asdict(item) for item in distinct]}, subject="convolutions on this CPU")
    per_row = {item.for_any_rows: size for item, size in zip(distinct, reply["bytes_per_row"], strict=True)}
    return lambda item: (int(per_row.get(item.for_any_rows, 0) * item.rows),)


def _reply(question: dict[str, Any]) -> dict[str, Any]:
    """Meter each convolution; runs in the child."""
    _return_freed_memory_at_once()
    return {"bytes_per_row": [_metered(_convolution(item)) for item in question["convolutions"]]}


def _convolution(data: dict[str, Any]) -> Convolution:
    fields: Any = {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}
    return Convolution(**fields)


def _metered(convolution: Convolution) -> float:
    rows = _probe_rows(convolution)
    call = _call(convolution, rows)
    outputs = sum(item.numel() * item.element_size() for item in call() if item is not None)
    gc.collect()
    pid = os.getpid()
    reset_high_water()
    before = rss_bytes(pid)
    call()  # the second call: the first made the kernels
    return max(high_water_bytes(pid) - before - outputs, 0) / rows


def _probe_rows(convolution: Convolution) -> int:
    """Return how many rows make the tensors large enough to meter."""
    row = 4 * math.prod(convolution.input_shape[1:])
    return max(1, min(convolution.rows, -(-_PROBE_BYTES // row)))


def _call(convolution: Convolution, rows: int) -> Any:
    """Return the real operation on ``rows`` rows, ready to be called."""
    import torch

    inputs = torch.rand((rows, *convolution.input_shape[1:]))
    weight = torch.rand(convolution.weight_shape)
    bias = torch.rand(convolution.weight_shape[1 if convolution.transposed else 0])
    settings = (
        list(convolution.stride),
        list(convolution.padding),
        list(convolution.dilation),
        convolution.transposed,
        list(convolution.output_padding),
        convolution.groups,
    )
    if not convolution.backward:
        return lambda: (torch.ops.aten.convolution(inputs, weight, bias, *settings),)
    gradient = torch.rand_like(torch.ops.aten.convolution(inputs, weight, bias, *settings))
    mask = [convolution.needs_input_gradient, True, True]
    return lambda: torch.ops.aten.convolution_backward(gradient, inputs, weight, list(bias.shape), *settings, mask)


def _return_freed_memory_at_once() -> None:
    """Let glibc map every large block by itself, so that the high-water mark shows what lives and nothing kept."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_MMAP_THRESHOLD, 128 * 1024)


if __name__ == "__main__":
    answer(_reply, sys.argv[1:])

"""What a CUDA process has on the device besides its tensors, and what the caching allocator makes of them.

Figures are defaults metered on one H200 with torch 2.11, and shown as `assumed`: workspaces in
`benchmarks/results/cuda_facts.json`, the context as driver less reserved in `cuda_accuracy.json` beside it. A
traced update is replayed through the model of the caching allocator: VRAM is what the driver counts.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from rlmem.plan import trace
from rlmem.plan.caching_allocator import Event, replay
from rlmem.plan.layers import Stack
from rlmem.plan.model import ASSUMED, TRACED, Component
from rlmem.plan.trace import UpdateTrace

if TYPE_CHECKING:
    from rlmem.plan.recorder import Convolution

MIB: Final = 2**20

CONTEXT_BYTES: Final = {False: 751 * MIB, True: 767 * MIB}
"""Driver context and loaded kernels, without and with those of cuDNN."""

_CUBLAS_WORKSPACES: Final = (32 * MIB, MIB)
"""cuBLAS's workspace on Hopper and cuBLASLt's: the training thread takes them, and autograd's again."""

CUBLAS_BYTES: Final = 2 * sum(_CUBLAS_WORKSPACES)

SLACK_FRACTION: Final = 0.20
"""What the caching allocator keeps reserved beyond what is allocated at the peak, where nothing was traced."""

_SPLIT_BYTES: Final = 4 * MIB
"""What the gradient of a weight takes beyond the copies, to sum up its parts."""


def cudnn_workspaces(convolution: Convolution) -> tuple[int, ...]:
    """Return the workspaces cuDNN asks for: copies of input, output and weight in its own layout.

    Backwards it asks twice, for the gradient of the input and for that of the weight.
    """
    elements = math.prod(convolution.input_shape) + convolution.output_elements + math.prod(convolution.weight_shape)
    copies = 4 * elements
    if not convolution.backward:
        return (copies,)
    weight = copies + _SPLIT_BYTES
    return (copies, weight) if convolution.needs_input_gradient else (weight,)


def traced_components(update: UpdateTrace, *, with_cudnn: bool) -> tuple[Component, ...]:
    """Return the device's memory at the peak of a traced update, as the driver counts it."""
    peak = replay(_events(update))
    kinds = {kind: size for kind, size in update.at_peak.items() if kind != trace.HOST and size}
    words = f"traced at {update.rows:,} rows"
    parts = [_traced(_PATHS[kind], size, words) for kind, size in kinds.items()]
    slack = max(peak.peak_reserved_bytes - sum(kinds.values()) - CUBLAS_BYTES, 0)
    return (
        *parts,
        _assumed("cuda/context", CONTEXT_BYTES[with_cudnn], "driver context and kernels: metered on an H200"),
        _assumed("cuda/workspace", CUBLAS_BYTES, "cuBLAS and cuBLASLt on Hopper, for two threads"),
        _traced("cuda/reserved_slack", slack, "reserved by the caching allocator beyond that: lifetimes replayed"),
    )


_PATHS: Final = {
    trace.PARAMETERS: "network/parameters",
    trace.GRADIENTS: "network/gradients",
    trace.OPTIMIZER: "network/optimizer",
    trace.MINIBATCH: "update/minibatch_tensor",
    trace.ACTIVATIONS: "update/activations",
    trace.TEMPORARIES: "update/temporaries",
    trace.SCRATCH: "cuda/convolution_workspace",
}


def _events(update: UpdateTrace) -> list[Event]:
    """Return births and deaths on the device in order, with cuBLAS's workspaces where the threads first need them.

    The training thread multiplies matrices when it acts, before the first update. Autograd's begins with the first
    gradient, and its workspace is often cut from a segment that a convolution's has just left, which is then too
    small for the next: so when it comes makes a difference to what is reserved.
    """
    on_device = [(key, item) for key, item in enumerate(update.allocations) if item.kind != trace.HOST]
    changes = [(item.born, True, key, item.bytes) for key, item in on_device]
    changes += [(item.died, False, key, item.bytes) for key, item in on_device if item.died is not None]
    acting = sum(1 for _, item in on_device if item.kind == trace.PARAMETERS) - 0.5
    backward = min((item.born for _, item in on_device if item.kind == trace.GRADIENTS), default=acting + 1) - 0.5
    workspaces = [
        (at, True, -1 - 2 * thread - index, size)
        for thread, at in enumerate((acting, backward))
        for index, size in enumerate(_CUBLAS_WORKSPACES)
    ]
    return [(alive, key, size) for _, alive, key, size in sorted([*changes, *workspaces])]


def overheads(*, tensors_bytes: int, graph: Stack, rows: int, convolutional: bool) -> tuple[Component, ...]:
    """Return context, library workspaces and the allocator's slack over ``tensors_bytes`` of tensors."""
    workspace = CUBLAS_BYTES + (graph.widest * rows * 4 if convolutional else 0)
    described = "cuBLAS" + (", cuDNN: input + output of the widest convolution" if convolutional else "")
    slack = int((tensors_bytes + workspace) * SLACK_FRACTION)
    return (
        _assumed("cuda/context", CONTEXT_BYTES[convolutional], "driver context and kernels: metered on an H200"),
        _assumed("cuda/workspace", workspace, described),
        _assumed("cuda/reserved_slack", slack, f"{SLACK_FRACTION:.0%} of tensors and workspaces: default"),
    )


def _assumed(path: str, size: int, formula: str) -> Component:
    return Component(path=path, where="vram", bytes=size, formula=formula, basis=ASSUMED)


def _traced(path: str, size: int, formula: str) -> Component:
    return Component(path=path, where="vram", bytes=size, formula=formula, basis=TRACED)

"""What a CUDA process has on the device besides its tensors.

Figures are defaults metered on one H200 with torch 2.11, and shown as `assumed`.
"""

from __future__ import annotations

from typing import Final

from rlmem.plan.layers import Stack
from rlmem.plan.model import ASSUMED, Component

MIB: Final = 2**20

CONTEXT_BYTES: Final = 621 * MIB
CUBLAS_BYTES: Final = 32 * MIB
SLACK_FRACTION: Final = 0.25
"""What the caching allocator keeps reserved beyond what is allocated at the peak."""


def overheads(*, tensors_bytes: int, graph: Stack, rows: int, convolutional: bool) -> tuple[Component, ...]:
    """Return context, library workspaces and the allocator's slack over ``tensors_bytes`` of tensors."""
    workspace = CUBLAS_BYTES + (graph.widest * rows * 4 if convolutional else 0)
    described = "cuBLAS" + (", cuDNN: input + output of the widest convolution" if convolutional else "")
    slack = int((tensors_bytes + workspace) * SLACK_FRACTION)
    return (
        _vram("cuda/context", CONTEXT_BYTES, "driver context and kernels: default, metered on an H200"),
        _vram("cuda/workspace", workspace, described),
        _vram("cuda/reserved_slack", slack, f"{SLACK_FRACTION:.0%} of tensors and workspaces: default"),
    )


def _vram(path: str, size: int, formula: str) -> Component:
    return Component(path=path, where="vram", bytes=size, formula=formula, basis=ASSUMED)

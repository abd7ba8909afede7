"""Observations and the next ones on their way to a device: what they share goes there once."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from rlmem.lean.kernels import Array


def pair_to_device(first: Array, second: Array, device: Any) -> tuple[Any, Any]:
    """Return both arrays as tensors on a device; when they are views of one array, that is moved and cut there."""
    root = first.base
    if root is None or root is not second.base or not isinstance(root, np.ndarray) or not root.flags.c_contiguous:
        return torch.as_tensor(first, device=device), torch.as_tensor(second, device=device)
    moved = torch.as_tensor(root.reshape(-1).view(np.uint8), device=device).view(torch.as_tensor(first[:0]).dtype)
    return _cut(moved, first, root), _cut(moved, second, root)


def _cut(moved: Any, view: Array, root: Array) -> Any:
    """Return of the moved root what the view is of the root; floats are laid out as a tensor of their own would be."""
    size = view.itemsize
    offset = (view.__array_interface__["data"][0] - root.__array_interface__["data"][0]) // size
    tensor = moved.as_strided(view.shape, [stride // size for stride in view.strides], offset)
    return tensor.contiguous() if tensor.is_floating_point() else tensor

"""A features extractor of the user's own, built and read in a child process.

The real module is built, two rows go through it, and what autograd saved for the backward pass is counted.
"""

from __future__ import annotations

import sys
from typing import Any

from rlmem.run.child import answer, ask
from rlmem.run.environment import find
from rlmem.run.gymnasium_spaces import build
from rlmem.run.layers import Opaque
from rlmem.run.space_reader import space_from_mapping, write_space
from rlmem.run.spaces import Space

_ROWS = 2


def read_features(path: str, observation: Space, features_dim: int | None) -> Opaque:
    """Return what the extractor ``package.module:Class`` takes on rows of ``observation``."""
    question = {"path": path, "observation": write_space(observation), "features_dim": features_dim}
    reply = ask(__name__, question, subject=f"the features extractor {path}")
    return Opaque(**(reply | {"output": tuple(reply["output"])}))


def _reply(question: dict[str, Any]) -> dict[str, Any]:
    """Build the extractor and send two rows through it; runs in the child."""
    import torch

    space = build(space_from_mapping(question["observation"]))
    keywords = {"features_dim": question["features_dim"]} if question["features_dim"] else {}
    module = find(question["path"])(space, **keywords)
    own = {tensor.untyped_storage().data_ptr() for tensor in (*module.parameters(), *module.buffers())}
    rows = _rows(space)
    own |= {tensor.untyped_storage().data_ptr() for tensor in _tensors(rows)}
    saved: dict[int, int] = {}
    widths = [0]

    def keep(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    for inner in module.modules():
        inner.register_forward_hook(lambda _module, into, out: widths.append(_elements(into) + _elements(out)))
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = module(rows)
    return {
        "name": question["path"],
        "output": list(output.shape[1:]),
        "parameters": sum(tensor.numel() for tensor in module.parameters()),
        "tensors": len(list(module.parameters())),
        "buffer_bytes": sum(tensor.numel() * tensor.element_size() for tensor in module.buffers()),
        "saved": sum(saved.values()) // 4 // _ROWS,
        "widest": max(widths) // _ROWS,
    }


def _rows(space: Any) -> Any:
    """Return two rows of the space as the policy would hand them on: tensors of float32."""
    import numpy
    import torch

    samples = [space.sample() for _ in range(_ROWS)]
    if isinstance(samples[0], dict):
        return {key: torch.as_tensor(numpy.stack([item[key] for item in samples])).float() for key in samples[0]}
    return torch.as_tensor(numpy.stack(samples)).float()


def _tensors(value: Any) -> tuple[Any, ...]:
    return tuple(value.values()) if isinstance(value, dict) else (value,)


def _elements(value: Any) -> int:
    if isinstance(value, tuple | list):
        return sum(_elements(item) for item in value)
    return value.numel() if hasattr(value, "numel") else 0


if __name__ == "__main__":
    answer(_reply, sys.argv[1:])

"""Gymnasium's live spaces as rlmem's plain ones."""

from __future__ import annotations

from typing import Any

from rlmem.errors import InputError
from rlmem.run.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple


def describe(space: Any) -> Space:
    """Return the plain description of a live Gymnasium space."""
    match type(space).__name__:
        case "Box":
            return Box(
                shape=tuple(int(size) for size in space.shape),
                dtype=str(space.dtype),
                low=_one_number(space.low),
                high=_one_number(space.high),
            )
        case "Discrete":
            return Discrete(n=int(space.n))
        case "MultiDiscrete":
            return MultiDiscrete(nvec=tuple(int(size) for size in space.nvec.reshape(-1)))
        case "MultiBinary":
            return MultiBinary(shape=tuple(int(size) for size in space.shape))
        case "Dict":
            return Dict(items=tuple((str(key), describe(item)) for key, item in space.spaces.items()))
        case "Tuple":
            return Tuple(items=tuple(describe(item) for item in space.spaces))
        case name:
            raise InputError(
                f"a space must be Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple, but got {name}"
            )


def build(space: Space) -> Any:
    """Return the live Gymnasium space that a plain one describes."""
    import numpy
    from gymnasium import spaces

    match space:
        case Box():
            unbounded = (0, 255) if space.dtype == "uint8" else (-numpy.inf, numpy.inf)
            low, high = (
                bound if given is None else given
                for given, bound in zip((space.low, space.high), unbounded, strict=True)
            )
            return spaces.Box(low=low, high=high, shape=space.shape, dtype=numpy.dtype(space.dtype))
        case Discrete(n=n):
            return spaces.Discrete(n)
        case MultiDiscrete(nvec=nvec):
            return spaces.MultiDiscrete(numpy.array(nvec))
        case MultiBinary(shape=shape):
            return spaces.MultiBinary(shape[0] if len(shape) == 1 else shape)
        case Dict(items=items):
            return spaces.Dict({key: build(item) for key, item in items})
        case Tuple():
            return spaces.Tuple(tuple(build(item) for item in space.items))


def _one_number(bounds: Any) -> float | None:
    """Return the bound that all elements share, or None where they differ or are infinite."""
    lowest, highest = float(bounds.min()), float(bounds.max())
    return lowest if lowest == highest and abs(lowest) < float("inf") else None

"""Observation and action spaces as plain values, without Gymnasium."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

from rlmem.run.arrays import ArraySpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """An array of numbers. ``low`` and ``high`` are the bounds where they are one number, else None."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Discrete:
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiDiscrete:
    nvec: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiBinary:
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dict:
    items: tuple[tuple[str, Space], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuple:
    items: tuple[Space, ...]


Leaf: TypeAlias = Box | Discrete | MultiDiscrete | MultiBinary
Space: TypeAlias = Leaf | Dict | Tuple


def leaves(space: Space) -> tuple[tuple[str, Leaf], ...]:
    """Return the leaf spaces with the key that leads to each; the key of a lone leaf is empty."""
    if isinstance(space, Dict):
        branches = space.items
    elif isinstance(space, Tuple):
        branches = tuple((str(index), item) for index, item in enumerate(space.items))
    else:
        return (("", space),)
    return tuple((f"{name}/{key}" if key else name, leaf) for name, branch in branches for key, leaf in leaves(branch))


def sample_spec(leaf: Leaf) -> ArraySpec:
    """Return how one sample of a leaf space lies in a buffer row, as Stable-Baselines3 shapes it."""
    match leaf:
        case Box(shape=shape, dtype=dtype):
            return ArraySpec(shape=shape, dtype=dtype)
        case Discrete():
            return ArraySpec(shape=(1,), dtype="int64")
        case MultiDiscrete(nvec=nvec):
            return ArraySpec(shape=(len(nvec),), dtype="int64")
        case MultiBinary(shape=shape):
            return ArraySpec(shape=shape, dtype="int8")


def sample_bytes(space: Space) -> int:
    """Return the bytes of one sample of the space."""
    return sum(sample_spec(leaf).nbytes for _, leaf in leaves(space))


def flat_dim(space: Space) -> int:
    """Return the width of the space as a network input: discrete values are one-hot."""
    return sum(_leaf_dim(leaf) for _, leaf in leaves(space))


def _leaf_dim(leaf: Leaf) -> int:
    match leaf:
        case Box(shape=shape) | MultiBinary(shape=shape):
            return math.prod(shape)
        case Discrete(n=n):
            return n
        case MultiDiscrete(nvec=nvec):
            return sum(nvec)


def action_dim(action: Space) -> int:
    """Return how many numbers one action has in a buffer."""
    return sum(sample_spec(leaf).elements for _, leaf in leaves(action))


def is_image(space: Space) -> bool:
    """Whether Stable-Baselines3 takes the space for an image: uint8, three axes, 0 to 255.

    Bounds that are not given count as 0 to 255, which is what a uint8 image has.
    """
    return (
        isinstance(space, Box)
        and len(space.shape) == 3
        and space.dtype == "uint8"
        and space.low in (None, 0)
        and space.high in (None, 255)
    )


def is_channels_first(image: Box) -> bool:
    """Whether the smallest axis of an image comes first, which is how Stable-Baselines3 tells."""
    return image.shape.index(min(image.shape)) == 0

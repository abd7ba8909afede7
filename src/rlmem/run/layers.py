"""A network described layer by layer, without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class Conv:
    """A convolution over ``dims`` spatial axes."""

    dims: int
    out: int
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    bias: bool = True
    transposed: bool = False
    output_padding: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    out: int
    bias: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Lstm:
    hidden: int
    layers: int = 1
    bidirectional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A pooling layer; a max pool also saves the index of each maximum."""

    kind: str
    dims: int
    kernel: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptivePool:
    kind: str
    dims: int
    output: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Norm:
    """Batch normalisation (running statistics beside its parameters) or layer normalisation."""

    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Activation:
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Flatten:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A free parameter beside the layers, such as the log standard deviation of a Gaussian policy."""

    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Opaque:
    """A module that was read as a whole; ``saved`` and ``widest`` are elements a row."""

    name: str
    output: tuple[int, ...]
    parameters: int
    tensors: int
    buffer_bytes: int
    saved: int
    widest: int


Layer: TypeAlias = Conv | Linear | Lstm | Pool | AdaptivePool | Norm | Activation | Flatten | Parameter | Opaque

ACTIVATIONS = (
    "relu",
    "tanh",
    "sigmoid",
    "elu",
    "gelu",
    "silu",
    "leaky_relu",
    "softmax",
    "dropout",
    "identity",
)

"""Layer arithmetic: what a stack of layers has in parameters, and what a row leaves in the graph."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Final, TypeAlias

from rlmem.errors import InputError
from rlmem.run.layers import (
    Activation,
    AdaptivePool,
    Conv,
    Flatten,
    Layer,
    Linear,
    Lstm,
    Norm,
    Opaque,
    Parameter,
    Pool,
)

Shape: TypeAlias = tuple[int, ...]

_SAVES_INPUT: Final = ("gelu", "silu")
"""Activations whose backward pass needs their input; the others need their output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """What layers take. Activation figures are elements a row: they scale with the rows in the graph.

    ``saved`` is what the backward pass needs; ``widest`` is the largest pair of gradients (of a layer's
    output and of its input) that exists on the way back.
    """

    output: Shape
    parameters: int = 0
    tensors: int = 0
    buffer_bytes: int = 0
    saved: int = 0
    widest: int = 0
    output_is_saved: bool = True

    def then(self, other: Stack) -> Stack:
        """Return both, one after the other."""
        return replace(_side_by_side(self, other), output=other.output, output_is_saved=other.output_is_saved)

    def beside(self, other: Stack) -> Stack:
        """Return both side by side; the output is this one's."""
        return _side_by_side(self, other)

    def times(self, count: int) -> Stack:
        return replace(
            self,
            parameters=self.parameters * count,
            tensors=self.tensors * count,
            buffer_bytes=self.buffer_bytes * count,
            saved=self.saved * count,
        )


def _side_by_side(one: Stack, other: Stack) -> Stack:
    return replace(
        one,
        parameters=one.parameters + other.parameters,
        tensors=one.tensors + other.tensors,
        buffer_bytes=one.buffer_bytes + other.buffer_bytes,
        saved=one.saved + other.saved,
        widest=max(one.widest, other.widest),
    )


def stack(layers: Iterable[Layer], *, input_shape: Shape) -> Stack:
    """Return what ``layers`` take on rows of ``input_shape``. The input itself is the caller's to count."""
    return reduce(_add, layers, Stack(output=input_shape))


def mlp(inputs: int, hidden: Iterable[int], *, outputs: int | None = None, bias: bool = True) -> Stack:
    """Return a multi-layer perceptron: an activation after each hidden layer, none after the output."""
    layers: list[Layer] = []
    for width in hidden:
        layers += [Linear(out=width, bias=bias), Activation(name="tanh")]
    if outputs is not None:
        layers.append(Linear(out=outputs, bias=bias))
    return stack(layers, input_shape=(inputs,))


def _add(before: Stack, layer: Layer) -> Stack:
    match layer:
        case Parameter(shape=shape):
            return replace(before, parameters=before.parameters + math.prod(shape), tensors=before.tensors + 1)
        case Opaque():
            return before.then(_opaque(layer))
        case Flatten():
            return replace(before, output=(math.prod(before.output),))
        case Activation():
            return _activation(before, layer)
        case _:
            return _transform(before, layer)


def _opaque(module: Opaque) -> Stack:
    return Stack(
        output=module.output,
        parameters=module.parameters,
        tensors=module.tensors,
        buffer_bytes=module.buffer_bytes,
        saved=module.saved,
        widest=module.widest,
    )


def _activation(before: Stack, layer: Activation) -> Stack:
    if layer.name == "identity":
        return before
    elements = math.prod(before.output)
    needs_input = layer.name in _SAVES_INPUT and not before.output_is_saved
    saved = before.saved + elements + (elements if needs_input else 0)
    return replace(before, saved=saved, widest=max(before.widest, 2 * elements), output_is_saved=True)


def _transform(before: Stack, layer: Conv | Linear | Lstm | Pool | AdaptivePool | Norm) -> Stack:
    """Add a layer whose backward pass needs its input."""
    output = _output_shape(layer, before.output)
    parameters, tensors, buffer_bytes = _parameters(layer, before.output)
    into, out = math.prod(before.output), math.prod(output)
    saved = before.saved + (0 if before.output_is_saved else into) + _extra_saved(layer, before.output, output)
    return replace(
        before,
        output=output,
        parameters=before.parameters + parameters,
        tensors=before.tensors + tensors,
        buffer_bytes=before.buffer_bytes + buffer_bytes,
        saved=saved,
        widest=max(before.widest, into + out),
        output_is_saved=isinstance(layer, Lstm),
    )


def _extra_saved(layer: Layer, inputs: Shape, output: Shape) -> int:
    match layer:
        case Pool(kind="max") | AdaptivePool(kind="max"):
            return 2 * math.prod(output)  # an int64 index for each maximum: two float32 elements
        case Lstm():
            return sum(_lstm_workspace(width, layer.hidden, inputs[:-1]) for width in _lstm_widths(layer, inputs[-1]))
        case _:
            return 0


def _lstm_workspace(width: int, hidden: int, sequence: Shape) -> int:
    """Return what one layer and direction keeps: its input laid out anew, output and gates, and states beside them.

    The states are as oneDNN lays them out on the CPU, with one step more than the sequence has; a fit to its
    workspaces, within 10 %.
    """
    steps = math.prod(sequence)
    return (width + 5 * hidden) * steps + (12 * max(width, hidden) + 11 * hidden) * (steps + bool(sequence)) // 2


def _lstm_widths(lstm: Lstm, inputs: int) -> list[int]:
    """Return the input width of each layer and direction."""
    directions = 2 if lstm.bidirectional else 1
    return ([inputs] + [lstm.hidden * directions] * (lstm.layers - 1)) * directions


def _parameters(layer: Layer, inputs: Shape) -> tuple[int, int, int]:
    """Return trainable elements, how many tensors they are in, and bytes of untrained state."""
    match layer:
        case Conv():
            weights = inputs[0] * layer.out * math.prod(layer.kernel)
            return weights + layer.out * layer.bias, 1 + layer.bias, 0
        case Linear(out=out, bias=bias):
            return inputs[-1] * out + out * bias, 1 + bias, 0
        case Lstm():
            return _lstm_parameters(layer, inputs[-1])
        case Norm(kind="batch"):
            return 2 * inputs[0], 2, 2 * inputs[0] * 4 + 8  # running mean and variance, and a counter
        case Norm():
            return 2 * math.prod(inputs), 2, 0
        case _:
            return 0, 0, 0


def _lstm_parameters(lstm: Lstm, inputs: int) -> tuple[int, int, int]:
    widths = _lstm_widths(lstm, inputs)
    return sum(4 * lstm.hidden * (width + lstm.hidden + 2) for width in widths), 4 * len(widths), 0


def _output_shape(layer: Layer, inputs: Shape) -> Shape:
    match layer:
        case Conv():
            return (layer.out, *_spatial(layer, inputs))
        case Pool():
            _check_axes(layer.dims, inputs)
            return (inputs[0], *map(_window, inputs[1:], layer.kernel, layer.stride, (0,) * layer.dims))
        case AdaptivePool():
            _check_axes(layer.dims, inputs)
            return (inputs[0], *layer.output)
        case Linear(out=out):
            return (*inputs[:-1], out)
        case Lstm():
            return (*inputs[:-1], layer.hidden * (2 if layer.bidirectional else 1))
        case _:
            return inputs


def _spatial(conv: Conv, inputs: Shape) -> Shape:
    _check_axes(conv.dims, inputs)
    if not conv.transposed:
        return tuple(map(_window, inputs[1:], conv.kernel, conv.stride, conv.padding))
    sizes = zip(inputs[1:], conv.kernel, conv.stride, conv.padding, conv.output_padding, strict=True)
    return tuple(_widened(*numbers) for numbers in sizes)


def _widened(size: int, kernel: int, stride: int, padding: int, extra: int) -> int:
    wider = (size - 1) * stride - 2 * padding + kernel + extra
    if wider < 1:
        raise InputError(f"a padding of {padding} does not fit on an axis of {size} with a window of {kernel}")
    return wider


def _window(size: int, kernel: int, stride: int, padding: int) -> int:
    if size + 2 * padding < kernel:
        raise InputError(f"a window of {kernel} does not fit on an axis of {size} with padding {padding}")
    return (size + 2 * padding - kernel) // stride + 1


def _check_axes(dims: int, inputs: Shape) -> None:
    if len(inputs) != dims + 1:
        raise InputError(f"a {dims}d layer takes channels and {dims} axes, but its input has the shape {inputs}")

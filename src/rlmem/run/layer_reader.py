"""Layers as a run file writes them: ``- conv2d: {out: 32, kernel: 8, stride: 4}``, ``- relu``, ``- linear: 512``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from rlmem.run.document import Node
from rlmem.run.layers import (
    ACTIVATIONS,
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
from rlmem.run.section import Section, nearest
from rlmem.run.space_reader import read_shape

_CONVS: Final = tuple(f"conv{dims}d" for dims in (1, 2, 3))
_TRANSPOSED: Final = tuple(f"conv_transpose{dims}d" for dims in (1, 2, 3))
_POOLS: Final = tuple(f"{kind}pool{dims}d" for kind in ("max", "avg") for dims in (1, 2, 3))
_ADAPTIVE: Final = tuple(f"adaptive_{name}" for name in _POOLS)
_NORMS: Final = ("batchnorm", "layernorm")
_WITH_VALUE: Final = (*_CONVS, *_TRANSPOSED, *_POOLS, *_ADAPTIVE, "linear", "lstm", "parameter", "opaque")
_PLAIN: Final = (*ACTIVATIONS, *_NORMS, "flatten")


def read_layers(section: Section, key: str) -> tuple[Layer, ...]:
    """Return the layers listed under ``key``."""
    return tuple(_read(section, node, f"{key}[{index}]") for index, node in enumerate(section.items(key)))


def _read(parent: Section, node: Node, key: str) -> Layer:
    if isinstance(node.value, str):
        return _plain(parent, node)
    section = parent.inner(node, key)
    if len(section.keys) != 1:
        raise section.error("a layer must be one word or one key, such as `relu` or `linear: 512`")
    name = section.keys[0]
    if name not in _WITH_VALUE:
        raise section.error(f"unknown layer `{name}`{nearest(name, (*_WITH_VALUE, *_PLAIN))}")
    return _with_value(section, name)


def _plain(parent: Section, node: Node) -> Layer:
    name = str(node.value)
    if name in ACTIVATIONS:
        return Activation(name=name)
    if name in _NORMS:
        return Norm(kind=name.removesuffix("norm"))
    if name == "flatten":
        return Flatten()
    hint = f"; `{name}` needs a value" if name in _WITH_VALUE else nearest(name, (*_WITH_VALUE, *_PLAIN))
    raise parent.error(f"unknown layer `{name}`{hint}", node)


def _with_value(section: Section, name: str) -> Layer:
    node = section.required(name)
    if name in _CONVS or name in _TRANSPOSED:
        return _conv(section.inner(node, name), dims=int(name[-2]), transposed=name in _TRANSPOSED)
    if name in _POOLS:
        return _pool(section, node, name)
    if name in _ADAPTIVE:
        output = _per_axis(section, name, dims=int(name[-2]))
        return AdaptivePool(kind=name[len("adaptive_") :][:3], dims=int(name[-2]), output=output)
    if name == "lstm":
        return _lstm(section, node)
    if name == "opaque":
        return _opaque(section.inner(node, name))
    if name == "parameter":
        return Parameter(shape=read_shape(section, name))
    return _linear(section, node)


def _conv(section: Section, *, dims: int, transposed: bool) -> Conv:
    out = section.as_integer(section.required("out"), "out")
    section.required("kernel")
    conv = Conv(
        dims=dims,
        out=out,
        kernel=_per_axis(section, "kernel", dims=dims),
        stride=_per_axis(section, "stride", dims=dims) or (1,) * dims,
        padding=_per_axis(section, "padding", dims=dims, low=0) or (0,) * dims,
        output_padding=_per_axis(section, "output_padding", dims=dims, low=0) or (0,) * dims if transposed else (),
        bias=section.boolean("bias") is not False,
        transposed=transposed,
    )
    section.finish()
    return conv


def _pool(section: Section, node: Node, name: str) -> Pool:
    dims, kind = int(name[-2]), name[:3]
    if isinstance(node.value, dict):
        inner = section.inner(node, name)
        inner.required("kernel")
        kernel = _per_axis(inner, "kernel", dims=dims)
        stride = _per_axis(inner, "stride", dims=dims) or kernel
        inner.finish()
    else:
        kernel = stride = _per_axis(section, name, dims=dims)
    return Pool(kind=kind, dims=dims, kernel=kernel, stride=stride)


def _lstm(section: Section, node: Node) -> Lstm:
    if not isinstance(node.value, dict):
        return Lstm(hidden=section.as_integer(node, "lstm"))
    inner = section.inner(node, "lstm")
    lstm = Lstm(
        hidden=inner.as_integer(inner.required("hidden"), "hidden"),
        layers=inner.integer("layers", high=1000) or 1,
        bidirectional=bool(inner.boolean("bidirectional")),
    )
    inner.finish()
    return lstm


def _opaque(section: Section) -> Opaque:
    counts = {
        key: section.as_integer(section.required(key), key, low=0)
        for key in ("parameters", "tensors", "buffer_bytes", "saved", "widest")
    }
    opaque = Opaque(name=section.text("name") or "module", output=read_shape(section, "output"), **counts)
    section.finish()
    return opaque


def _linear(section: Section, node: Node) -> Linear:
    if not isinstance(node.value, dict):
        return Linear(out=section.as_integer(node, "linear"))
    inner = section.inner(node, "linear")
    linear = Linear(out=inner.as_integer(inner.required("out"), "out"), bias=inner.boolean("bias") is not False)
    inner.finish()
    return linear


def _per_axis(section: Section, key: str, *, dims: int, low: int = 1) -> tuple[int, ...]:
    """Return one number for each axis; a lone number stands for all of them."""
    nodes = section.items(key)
    values = tuple(section.as_integer(node, key, low=low, high=10**6) for node in nodes)
    if len(values) not in (0, 1, dims):
        raise section.error(f"`{section.name}.{key}` must be one number or {dims}, but got {len(values)}", nodes[0])
    return values * dims if len(values) == 1 else values


def write_layer(layer: Layer) -> str | dict[str, Any]:
    """Return the layer as a run file writes it."""
    match layer:
        case Activation(name=name):
            return name
        case Norm(kind=kind):
            return f"{kind}norm"
        case Flatten():
            return "flatten"
        case Parameter(shape=shape):
            return {"parameter": list(shape)}
        case Linear(out=out, bias=bias):
            return {"linear": {"out": out, "bias": bias}}
        case Lstm():
            return {"lstm": {"hidden": layer.hidden, "layers": layer.layers, "bidirectional": layer.bidirectional}}
        case Pool():
            return {f"{layer.kind}pool{layer.dims}d": {"kernel": list(layer.kernel), "stride": list(layer.stride)}}
        case AdaptivePool():
            return {f"adaptive_{layer.kind}pool{layer.dims}d": list(layer.output)}
        case Opaque():
            return {"opaque": asdict(layer) | {"output": list(layer.output)}}
        case Conv():
            return _write_conv(layer)


def _write_conv(conv: Conv) -> dict[str, Any]:
    name = f"conv_transpose{conv.dims}d" if conv.transposed else f"conv{conv.dims}d"
    value = {
        "out": conv.out,
        "kernel": list(conv.kernel),
        "stride": list(conv.stride),
        "padding": list(conv.padding),
    }
    if conv.transposed:
        value["output_padding"] = list(conv.output_padding)
    return {name: value | {"bias": conv.bias}}

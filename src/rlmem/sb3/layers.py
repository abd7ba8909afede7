"""Described layers as a real features extractor."""

from __future__ import annotations

from typing import Any, Final

import torch
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import nn

from rlmem.errors import InputError
from rlmem.run.environment import find
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

_ACTIVATIONS: Final = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "leaky_relu": nn.LeakyReLU,
    "dropout": nn.Dropout,
    "identity": nn.Identity,
}


def extractor_class(layers: tuple[Layer, ...]) -> type[BaseFeaturesExtractor]:
    """Return the features extractor that ``layers`` describe; a module that was read as a whole is that module."""
    if len(layers) == 1 and isinstance(layers[0], Opaque):
        found: type[BaseFeaturesExtractor] = find(layers[0].name)
        return found

    class DescribedExtractor(BaseFeaturesExtractor):
        """The layers of the run file, one after the other, then flattened."""

        def __init__(self, observation_space: Any) -> None:
            super().__init__(observation_space, features_dim=1)
            shape: tuple[int, ...] = tuple(observation_space.shape)
            modules: list[nn.Module] = []
            for layer in layers:
                module = _module(layer, shape)
                modules.append(module)
                with torch.no_grad():
                    shape = tuple(module.eval()(torch.zeros((1, *shape))).shape[1:])
                module.train()
            self.layers = nn.Sequential(*modules, nn.Flatten())
            self._features_dim = int(torch.Size(shape).numel())

        def forward(self, observations: torch.Tensor) -> torch.Tensor:
            features: torch.Tensor = self.layers(observations)
            return features

    return DescribedExtractor


def _module(layer: Layer, shape: tuple[int, ...]) -> nn.Module:
    match layer:
        case Conv():
            return _conv(layer, shape[0])
        case Linear(out=out, bias=bias):
            return nn.Linear(shape[-1], out, bias=bias)
        case Pool():
            kind = {"max": "MaxPool", "avg": "AvgPool"}[layer.kind]
            pool: nn.Module = getattr(nn, f"{kind}{layer.dims}d")(layer.kernel, layer.stride)
            return pool
        case AdaptivePool():
            kind = {"max": "AdaptiveMaxPool", "avg": "AdaptiveAvgPool"}[layer.kind]
            adaptive: nn.Module = getattr(nn, f"{kind}{layer.dims}d")(layer.output)
            return adaptive
        case Norm(kind="layer"):
            return nn.LayerNorm(shape)
        case Norm():
            norm: nn.Module = getattr(nn, f"BatchNorm{max(len(shape) - 1, 1)}d")(shape[0])
            return norm
        case Activation(name="softmax"):
            return nn.Softmax(dim=-1)
        case Activation(name=name):
            return _ACTIVATIONS[name]()
        case Flatten():
            return nn.Flatten()
        case Lstm():
            return _OutputOnly(shape[-1], layer)
        case Parameter() | Opaque():
            raise InputError(
                "a features extractor cannot have free parameters or a module read as a whole among its layers"
            )


class _OutputOnly(nn.Module):
    """An LSTM that hands on its output and drops its states."""

    def __init__(self, inputs: int, lstm: Lstm) -> None:
        super().__init__()
        self.lstm = nn.LSTM(
            inputs, lstm.hidden, num_layers=lstm.layers, bidirectional=lstm.bidirectional, batch_first=True
        )

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.lstm(inputs)[0]
        return output


def _conv(layer: Conv, channels: int) -> nn.Module:
    keywords: dict[str, Any] = {
        "kernel_size": layer.kernel,
        "stride": layer.stride,
        "padding": layer.padding,
        "bias": layer.bias,
    }
    if layer.transposed:
        keywords["output_padding"] = layer.output_padding
    name = f"ConvTranspose{layer.dims}d" if layer.transposed else f"Conv{layer.dims}d"
    conv: nn.Module = getattr(nn, name)(channels, layer.out, **keywords)
    return conv

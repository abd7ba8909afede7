"""Layer arithmetic against real torch modules: parameters and shapes exactly, saved activations within 10 %."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import nn

from rlmem.errors import InputError
from rlmem.plan.layers import mlp, stack
from rlmem.run.document import as_node
from rlmem.run.layer_reader import read_layers
from rlmem.run.layers import Layer
from rlmem.run.section import Section

ROWS = 3
SAVED_TOLERANCE = 0.10


def layers(*written: Any) -> tuple[Layer, ...]:
    return read_layers(Section(as_node({"layers": list(written)}), name="network", file="test"), "layers")


class Sequence(nn.Module):
    """An LSTM that hands on its outputs only."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__()
        self.lstm = nn.LSTM(*args, batch_first=True, **keywords)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.lstm(rows)[0]


EXACT: dict[str, tuple[tuple[int, ...], list[Any], Callable[[], nn.Module]]] = {
    "conv1d": (
        (6, 30),
        [{"conv1d": {"out": 16, "kernel": 5, "stride": 2, "padding": 2}}],
        lambda: nn.Conv1d(6, 16, 5, 2, 2),
    ),
    "conv2d": (
        (3, 20, 17),
        [{"conv2d": {"out": 8, "kernel": [3, 5], "stride": [2, 1]}}],
        lambda: nn.Conv2d(3, 8, (3, 5), (2, 1)),
    ),
    "conv2d without bias": (
        (3, 9, 9),
        [{"conv2d": {"out": 4, "kernel": 3, "bias": False}}],
        lambda: nn.Conv2d(3, 4, 3, bias=False),
    ),
    "conv3d": (
        (2, 9, 8, 7),
        [{"conv3d": {"out": 4, "kernel": 3, "padding": 1}}],
        lambda: nn.Conv3d(2, 4, 3, padding=1),
    ),
    "transposed 1d": (
        (8, 7),
        [{"conv_transpose1d": {"out": 5, "kernel": 4, "stride": 2, "padding": 1}}],
        lambda: nn.ConvTranspose1d(8, 5, 4, 2, 1),
    ),
    "transposed 2d": (
        (8, 5, 6),
        [{"conv_transpose2d": {"out": 3, "kernel": 3, "stride": 2, "padding": 1, "output_padding": 1}}],
        lambda: nn.ConvTranspose2d(8, 3, 3, 2, 1, 1),
    ),
    "transposed 3d": (
        (4, 3, 3, 3),
        [{"conv_transpose3d": {"out": 2, "kernel": 2, "stride": 2}}],
        lambda: nn.ConvTranspose3d(4, 2, 2, 2),
    ),
    "max pool 1d": ((4, 11), [{"maxpool1d": 3}], lambda: nn.MaxPool1d(3)),
    "max pool 2d": ((4, 11, 9), [{"maxpool2d": {"kernel": 3, "stride": 2}}], lambda: nn.MaxPool2d(3, 2)),
    "max pool 3d": ((4, 6, 6, 6), [{"maxpool3d": 2}], lambda: nn.MaxPool3d(2)),
    "avg pool 2d": ((4, 11, 9), [{"avgpool2d": [2, 3]}], lambda: nn.AvgPool2d((2, 3))),
    "adaptive avg 1d": ((4, 11), [{"adaptive_avgpool1d": 3}], lambda: nn.AdaptiveAvgPool1d(3)),
    "adaptive max 2d": ((4, 11, 9), [{"adaptive_maxpool2d": [3, 2]}], lambda: nn.AdaptiveMaxPool2d((3, 2))),
    "adaptive avg 3d": ((4, 6, 5, 4), [{"adaptive_avgpool3d": 2}], lambda: nn.AdaptiveAvgPool3d(2)),
    "linear": ((7,), [{"linear": 5}], lambda: nn.Linear(7, 5)),
    "linear without bias": ((7,), [{"linear": {"out": 5, "bias": False}}], lambda: nn.Linear(7, 5, bias=False)),
    "linear on a sequence": ((6, 7), [{"linear": 5}], lambda: nn.Linear(7, 5)),
    "lstm": ((6, 7), [{"lstm": 5}], lambda: Sequence(7, 5)),
    "lstm of two layers": ((6, 7), [{"lstm": {"hidden": 5, "layers": 2}}], lambda: Sequence(7, 5, num_layers=2)),
    "lstm both ways": (
        (6, 7),
        [{"lstm": {"hidden": 5, "layers": 2, "bidirectional": True}}],
        lambda: Sequence(7, 5, num_layers=2, bidirectional=True),
    ),
    "batch norm 1d": ((7,), ["batchnorm"], lambda: nn.BatchNorm1d(7)),
    "batch norm 2d": ((7, 4, 4), ["batchnorm"], lambda: nn.BatchNorm2d(7)),
    "layer norm": ((7,), ["layernorm"], lambda: nn.LayerNorm(7)),
    "layer norm of an image": ((3, 4, 5), ["layernorm"], lambda: nn.LayerNorm((3, 4, 5))),
    "flatten": ((3, 4, 5), ["flatten"], lambda: nn.Flatten()),
}


@pytest.mark.parametrize(("shape", "written", "module"), EXACT.values(), ids=EXACT)
def test_one_layer(shape: tuple[int, ...], written: list[Any], module: Callable[[], nn.Module]) -> None:
    planned, real = stack(layers(*written), input_shape=shape), module()
    assert planned.output == tuple(real(torch.rand(ROWS, *shape)).shape[1:])
    assert planned.parameters == sum(parameter.numel() for parameter in real.parameters())
    assert planned.tensors == len(list(real.parameters()))
    assert planned.buffer_bytes == sum(buffer.numel() * buffer.element_size() for buffer in real.buffers())


def _nature_cnn() -> tuple[list[Any], nn.Module]:
    written = [
        {"conv2d": {"out": 32, "kernel": 8, "stride": 4}},
        "relu",
        {"conv2d": {"out": 64, "kernel": 4, "stride": 2}},
        "relu",
        {"conv2d": {"out": 64, "kernel": 3}},
        "relu",
        "flatten",
        {"linear": 512},
        "relu",
    ]
    module = nn.Sequential(
        *(nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(3136, 512), nn.ReLU()),
    )
    return written, module


def _volume_cnn() -> tuple[list[Any], nn.Module]:
    written = [
        {"conv3d": {"out": 8, "kernel": 3, "padding": 1}},
        "relu",
        {"maxpool3d": 2},
        {"conv3d": {"out": 16, "kernel": 3, "padding": 1}},
        "relu",
        {"maxpool3d": 2},
        "flatten",
        {"linear": 32},
        "relu",
    ]
    module = nn.Sequential(
        *(nn.Conv3d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool3d(2)),
        *(nn.Conv3d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool3d(2)),
        *(nn.Flatten(), nn.Linear(16 * 3 * 4 * 3, 32), nn.ReLU()),
    )
    return written, module


def _normed() -> tuple[list[Any], nn.Module]:
    written = [
        *(
            {"conv2d": {"out": 8, "kernel": 3}},
            "batchnorm",
            "relu",
            {"avgpool2d": 2},
            {"conv2d": {"out": 8, "kernel": 3}},
        ),
        *("gelu", "flatten", {"linear": 64}, "layernorm", "silu", {"linear": 4}),
    ]
    module = nn.Sequential(
        *(
            nn.Conv2d(3, 8, 3),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.AvgPool2d(2),
            nn.Conv2d(8, 8, 3),
            nn.GELU(),
            nn.Flatten(),
        ),
        *(nn.Linear(392, 64), nn.LayerNorm(64), nn.SiLU(), nn.Linear(64, 4)),
    )
    return written, module


def _decoder() -> tuple[list[Any], nn.Module]:
    written = [{"linear": 64}, "relu", {"linear": 128}, "sigmoid", {"linear": 256}, "softmax"]
    module = nn.Sequential(
        nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 128), nn.Sigmoid(), nn.Linear(128, 256), nn.Softmax(dim=-1)
    )
    return written, module


def _recurrent() -> tuple[list[Any], nn.Module]:
    written = [{"linear": 64}, "tanh", {"lstm": 48}, {"linear": 8}]
    return written, nn.Sequential(nn.Linear(32, 64), nn.Tanh(), Sequence(64, 48), nn.Linear(48, 8))


def _bidirectional() -> tuple[list[Any], nn.Module]:
    written = [{"linear": 64}, "tanh", {"lstm": {"hidden": 128, "layers": 2, "bidirectional": True}}, {"linear": 8}]
    lstm = Sequence(64, 128, num_layers=2, bidirectional=True)
    return written, nn.Sequential(nn.Linear(32, 64), nn.Tanh(), lstm, nn.Linear(256, 8))


STACKS = {
    "Nature CNN": ((4, 84, 84), _nature_cnn),
    "3D CNN": ((3, 12, 16, 12), _volume_cnn),
    "norms": ((3, 20, 20), _normed),
    "decoder": ((20,), _decoder),
    "recurrent": ((10, 32), _recurrent),
    "bidirectional": ((50, 32), _bidirectional),
}


def saved_elements(module: nn.Module, rows: torch.Tensor) -> float:
    """Return what autograd keeps for the backward pass, in float32 elements a row, without input and parameters."""
    own = {tensor.untyped_storage().data_ptr() for tensor in (rows, *module.parameters(), *module.buffers())}
    kept: dict[int, int] = {}
    alive = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
            alive.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = module(rows)
    assert output.requires_grad
    return sum(kept.values()) / 4 / len(rows)


@pytest.mark.parametrize(("shape", "make"), STACKS.values(), ids=STACKS)
def test_saved_activations(shape: tuple[int, ...], make: Callable[[], tuple[list[Any], nn.Module]]) -> None:
    written, module = make()
    planned = stack(layers(*written), input_shape=shape)
    assert planned.parameters == sum(parameter.numel() for parameter in module.parameters())
    assert planned.saved == pytest.approx(saved_elements(module, torch.rand(8, *shape)), rel=SAVED_TOLERANCE)


@pytest.mark.parametrize("hidden", [(64, 64), (400, 300), (7,)])
def test_saved_activations_of_a_perceptron(hidden: tuple[int, ...]) -> None:
    widths = (11, *hidden)
    body = [part for pair in pairwise(widths) for part in (nn.Linear(*pair), nn.Tanh())]
    module = nn.Sequential(*body, nn.Linear(widths[-1], 3))
    planned = mlp(11, hidden, outputs=3)
    assert planned.parameters == sum(parameter.numel() for parameter in module.parameters())
    assert planned.saved == pytest.approx(saved_elements(module, torch.rand(8, 11)), rel=SAVED_TOLERANCE)


@pytest.mark.parametrize(
    ("shape", "written"),
    [
        ((3, 4, 4), {"conv2d": {"out": 2, "kernel": 5}}),
        ((3, 4, 4), {"maxpool2d": 5}),
        ((3, 4, 4), {"conv1d": {"out": 2, "kernel": 1}}),
        ((4,), {"maxpool1d": 1}),
        ((2, 3, 3), {"conv_transpose2d": {"out": 2, "kernel": 1, "padding": 3}}),
    ],
    ids=str,
)
def test_layers_that_torch_refuses_are_refused(shape: tuple[int, ...], written: Any) -> None:
    with pytest.raises(InputError, match=r"window|takes channels|does not fit"):
        stack(layers(written), input_shape=shape)

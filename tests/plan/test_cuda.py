"""Traced updates, replayed as a GPU would have them, against what the driver of a real one counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlmem.plan import trace
from rlmem.plan.cuda import CONTEXT_BYTES, CUBLAS_BYTES, cudnn_workspaces, traced_components
from rlmem.plan.model import ASSUMED, TRACED
from rlmem.plan.recorder import Convolution
from rlmem.plan.trace import Allocation, UpdateTrace
from rlmem.run import run_from_mapping
from rlmem.sb3.fake_training import trace_on_gpu
from rlmem.sb3.tracing import weightless_model

RECORDED = Path(__file__).parents[2] / "benchmarks" / "results" / "cuda_accuracy.json"
TOLERANCE = 0.02
MIB = 2**20


SHAPES = {"game boy": [144, 160, 12], "atari": [84, 84, 4]}


def _images(shape: list[int], rows: int) -> Any:
    return run_from_mapping(
        {
            "framework": "sb3",
            "algorithm": "PPO",
            "device": "cuda",
            "env": {"observation": {"shape": shape, "dtype": "uint8"}, "action": {"discrete": 6}},
            "training": {"n_steps": rows, "batch_size": rows},
            "policy": {"class": "CnnPolicy"},
        }
    )


@pytest.mark.parametrize(("name", "rows"), [(name, rows) for name in SHAPES for rows in (256, 1024, 4096)])
def test_images_take_what_the_driver_counted(name: str, rows: int) -> None:
    driver = json.loads(RECORDED.read_text())[f"ppo {name} {rows}"]["driver_bytes"]
    update = trace_on_gpu(weightless_model(_images(SHAPES[name], rows)), rows=rows)
    total = sum(part.bytes for part in traced_components(update, with_cudnn=True))
    assert total == pytest.approx(driver, rel=TOLERANCE)


def test_host_memory_is_not_on_the_device() -> None:
    def allocation(size: int, born: int, died: int | None, kind: str) -> Allocation:
        return Allocation(bytes=size, born=born, died=died, kind=kind, op="", module="")

    update = UpdateTrace(
        allocations=(
            allocation(8 * MIB, 0, None, trace.PARAMETERS),
            allocation(500 * MIB, 1, 5, trace.HOST),
            allocation(40 * MIB, 2, 4, trace.ACTIVATIONS),
            allocation(8 * MIB, 3, None, trace.GRADIENTS),
        ),
        rows=2,
    )
    parts = {part.path: part for part in traced_components(update, with_cudnn=False)}
    assert {part.where for part in parts.values()} == {"vram"}
    assert parts["network/parameters"].bytes == parts["network/gradients"].bytes == 8 * MIB
    assert parts["update/activations"].bytes == 40 * MIB
    assert parts["cuda/workspace"].bytes == CUBLAS_BYTES
    assert parts["cuda/context"].bytes == CONTEXT_BYTES[False]
    assert "update/minibatch" not in parts
    assert 0 <= parts["cuda/reserved_slack"].bytes < 60 * MIB, "whole segments, and nothing of the host's"
    assert {parts["cuda/context"].basis, parts["cuda/workspace"].basis} == {ASSUMED}
    assert parts["cuda/reserved_slack"].basis == TRACED


def _convolution(*, backward: bool, needs_input_gradient: bool) -> Convolution:
    return Convolution(
        backward=backward,
        input_shape=(2, 3, 10, 10),
        weight_shape=(8, 3, 3, 3),
        stride=(1, 1),
        padding=(0, 0),
        dilation=(1, 1),
        transposed=False,
        output_padding=(0, 0),
        groups=1,
        needs_input_gradient=needs_input_gradient,
        output_elements=2 * 8 * 8 * 8,
    )


def test_a_convolution_backwards_asks_once_more_where_its_input_has_a_gradient() -> None:
    forward = cudnn_workspaces(_convolution(backward=False, needs_input_gradient=False))
    first = cudnn_workspaces(_convolution(backward=True, needs_input_gradient=False))
    inner = cudnn_workspaces(_convolution(backward=True, needs_input_gradient=True))
    assert (len(forward), len(first), len(inner)) == (1, 1, 2)
    assert inner[0] == forward[0]
    assert inner[1] == first[0] > forward[0]

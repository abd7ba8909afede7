"""Traces made by hand, and recorded ones against torch's own memory profiler on the same steps run for real."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.modules import module as torch_module
from torch.profiler import ProfilerActivity, profile

from rlmem.plan import trace
from rlmem.plan.recorder import fake_mode, recording
from rlmem.plan.shadow_heap import ShadowHeap
from rlmem.plan.trace import Allocation, HeapReading, UpdateTrace, trace_from_dict, trace_to_dict

ROWS = 512
PEAK_TOLERANCE = 0.02


def _allocation(size: int, born: int, died: int | None, kind: str = trace.ACTIVATIONS) -> Allocation:
    return Allocation(bytes=size, born=born, died=died, kind=kind, op="aten::mm", module="Linear")


BY_HAND = UpdateTrace(
    allocations=(
        _allocation(100, 0, None, trace.PARAMETERS),
        _allocation(30, 1, 3, trace.HOST),
        _allocation(50, 2, 6),
        _allocation(40, 4, 7),
        _allocation(25, 5, None, trace.GRADIENTS),
        _allocation(80, 8, 9, trace.TEMPORARIES),
    ),
    rows=4,
    seconds=0.5,
)


def test_the_peak_is_where_most_is_alive() -> None:
    assert BY_HAND.peak_event == 5
    assert BY_HAND.peak_bytes == 100 + 50 + 40 + 25
    assert {kind: size for kind, size in BY_HAND.at_peak.items() if size} == {
        trace.PARAMETERS: 100,
        trace.ACTIVATIONS: 90,
        trace.GRADIENTS: 25,
    }
    assert tuple(BY_HAND.at_peak) == trace.KINDS


def test_a_block_that_dies_as_another_is_born_does_not_count_with_it() -> None:
    """A death has an event of its own, before the next birth."""
    touching = UpdateTrace(allocations=(_allocation(10, 0, 1), _allocation(20, 2, 3)), rows=1)
    assert touching.peak_bytes == 20


def test_what_outlives_the_update_is_told_by_kind() -> None:
    assert BY_HAND.alive_at_end == 125
    assert BY_HAND.lasting(trace.PARAMETERS) == 100
    assert BY_HAND.lasting(trace.GRADIENTS) == 25
    assert BY_HAND.lasting(trace.ACTIVATIONS) == 0
    assert BY_HAND.host_bytes == 30


def test_without_a_heap_nothing_is_kept() -> None:
    assert BY_HAND.kept_at_peak() == BY_HAND.kept_at_end() == 0


def test_the_heap_says_where_the_peak_is_and_what_is_kept() -> None:
    heap = HeapReading(peak_bytes=400, peak_event=8, end_bytes=150)
    with_heap = UpdateTrace(allocations=BY_HAND.allocations, rows=4, heap=heap)
    assert with_heap.peak_event == 8
    assert with_heap.peak_bytes == 100 + 25 + 80
    assert with_heap.kept_at_peak() == 400 - 205
    assert with_heap.kept_at_end() == 150 - 125
    assert with_heap.kept_at_peak(ratio=0.75) == 300 - 205
    assert with_heap.kept_at_peak(ratio=0.1) == 0, "an allocator cannot hold less than what is alive"
    assert with_heap.host_bytes == 30, "the heap's peak is not NumPy's"


def test_an_empty_trace_has_no_peak() -> None:
    empty = UpdateTrace(allocations=(), rows=1)
    assert (empty.peak_bytes, empty.alive_at_end, empty.host_bytes) == (0, 0, 0)


@pytest.mark.parametrize("heap", [None, HeapReading(peak_bytes=400, peak_event=8, end_bytes=150)], ids=str)
def test_json_reads_back_as_the_same_trace(heap: HeapReading | None) -> None:
    written = UpdateTrace(allocations=BY_HAND.allocations, rows=4, heap=heap, seconds=0.5)
    assert trace_from_dict(json.loads(json.dumps(trace_to_dict(written)))) == written


def _mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 8))


def _normed() -> nn.Module:
    layers = (nn.Linear(64, 300), nn.LayerNorm(300), nn.GELU(), nn.Linear(300, 5), nn.Softmax(dim=-1))
    return nn.Sequential(*layers)


def _steps(make: Callable[[], nn.Module], optimizer: type[torch.optim.Optimizer], **keywords: Any) -> nn.Module:
    """Build a network and train it twice."""
    net = make()
    learner = optimizer(net.parameters(), lr=0.01, **keywords)
    for _ in range(2):
        loss = net(torch.rand(ROWS, 64)).pow(2).mean()
        learner.zero_grad()
        loss.backward()
        learner.step()
    return net


def _profiled(work: Callable[[], Any]) -> tuple[int, int]:
    """Return the most that torch's CPU allocator had beyond the start, and what it had at the end."""
    gc.collect()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        alive = work()
    events = profiler.profiler.kineto_results.events()
    changes = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
    levels = list(accumulate(size for _, size in changes))
    del alive
    return max(levels), levels[-1]


def _recorded(work: Callable[[], Any], **options: Any) -> UpdateTrace:
    with recording(fake_mode(), **options) as record:
        alive = work()
        record.finish()
    del alive
    return UpdateTrace(allocations=record.allocations, rows=ROWS)


@pytest.mark.parametrize(
    ("make", "optimizer", "keywords"),
    [
        (_mlp, torch.optim.Adam, {}),
        (_mlp, torch.optim.Adam, {"foreach": True}),
        (_mlp, torch.optim.SGD, {"momentum": 0.9}),
        (_normed, torch.optim.RMSprop, {}),
    ],
    ids=["adam", "adam over lists", "sgd", "layer norm, rmsprop"],
)
def test_a_recorded_step_has_the_peak_that_the_profiler_sees(make: Any, optimizer: Any, keywords: Any) -> None:
    peak, end = _profiled(lambda: _steps(make, optimizer, **keywords))
    recorded = _recorded(lambda: _steps(make, optimizer, **keywords))
    assert recorded.peak_bytes == pytest.approx(peak, rel=PEAK_TOLERANCE)
    assert recorded.alive_at_end == pytest.approx(end, rel=PEAK_TOLERANCE)


def test_what_a_forward_pass_leaves_is_what_autograd_saved() -> None:
    saved: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    net, rows = _mlp(), torch.rand(ROWS, 64)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = net(rows)
    for known in (*net.parameters(), rows):
        saved.pop(known.untyped_storage().data_ptr(), None)

    def forward() -> Any:
        fake, inputs = _mlp(), torch.rand(ROWS, 64)
        return fake, inputs, fake(inputs)

    parameters = sum(parameter.nbytes for parameter in net.parameters())
    assert _recorded(forward).alive_at_end == parameters + rows.nbytes + output.nbytes + sum(saved.values())


def test_the_heap_of_a_recording_is_never_below_what_is_alive() -> None:
    """Also where the process has holes to put everything into, as this one is made to have."""
    holes = [torch.empty(12_000) for _ in range(2000)]
    pins = holes[::10]
    del holes
    heap = ShadowHeap()
    with recording(fake_mode(), heap=heap) as record:
        net = _steps(_mlp, torch.optim.Adam)
        record.finish()
    plain = UpdateTrace(allocations=record.allocations, rows=ROWS)
    assert record.heap_peak_bytes >= plain.peak_bytes
    assert record.heap_end_bytes >= plain.alive_at_end
    assert record.heap is None, "its blocks were given back"
    del net, pins


def test_values_are_answered() -> None:
    with recording(fake_mode()):
        values = torch.rand(4, 3)
        assert values.sum().item() == 0.5
        assert float(values[0, 0]) == 0.5
        assert torch.arange(3).max().item() == 1
        assert bool(torch.isfinite(values).all()) is True
        assert torch.equal(values, values + 1) is True
        assert (values > 2).any(), "a condition on values takes the branch"


def test_a_question_may_be_denied() -> None:
    with recording(fake_mode(), denied=frozenset({"aten::all"})):
        assert bool((torch.rand(3) > 0).all()) is False
        assert bool((torch.rand(3) > 0).any()) is True


def test_numpy_is_answered_without_memory() -> None:
    with recording(fake_mode()):
        array = torch.rand(10**6, 1000).numpy()
    assert array.shape == (10**6, 1000)
    assert isinstance(array, np.ndarray)
    assert array.base is not None
    assert sum(array.strides) == 0, "one element stands for all"


def test_masks_let_everything_through() -> None:
    with recording(fake_mode()):
        values, mask = torch.rand(6, 3), torch.rand(6) > 0.5
        assert values[mask].shape == (6, 3)
        assert values[values > 0.5].shape == (18,)
        assert torch.masked_select(values, values > 0.5).shape == (18,)
        assert (values > 0.5).nonzero().shape == (18, 2)
        values[mask] = 0.0
        assert values.shape == (6, 3)


def _hooks() -> tuple[int, int]:
    return len(torch_module._global_forward_pre_hooks), len(torch_module._global_forward_hooks)


def test_torch_is_left_as_it_was() -> None:
    move, hooks = nn.Module.to, _hooks()
    with recording(fake_mode()):
        net = nn.Linear(2, 2).to("meta")
        assert net.weight.device.type == "cpu"
        assert nn.Module.to is not move
        assert _hooks() == (hooks[0] + 1, hooks[1] + 1)
    assert nn.Module.to is move
    assert _hooks() == hooks
    assert torch.ones(2).sum().item() == 2.0


class _Failing(nn.Module):
    def forward(self, rows: torch.Tensor) -> float:
        return 1 / 0


def test_torch_is_left_as_it_was_after_an_error() -> None:
    move, hooks = nn.Module.to, _hooks()
    with pytest.raises(ZeroDivisionError), recording(fake_mode()):
        nn.Sequential(nn.Linear(4, 2), _Failing())(torch.rand(1, 4))
    assert nn.Module.to is move
    assert _hooks() == hooks
    assert torch.ones(2).numpy().sum() == 2.0


def test_a_convolution_holds_its_scratch_only_while_it_runs() -> None:
    def forward() -> Any:
        net = nn.Conv2d(3, 8, 3, bias=False)
        return net, net(torch.rand(2, 3, 10, 10))

    recorded = _recorded(forward, scratch=lambda _convolution: (1000, 5000))
    scratch = [item for item in recorded.allocations if item.kind == trace.SCRATCH]
    assert [item.bytes for item in scratch] == [1000, 5000]
    assert scratch[0].died is not None
    assert scratch[0].died < scratch[1].born
    assert recorded.lasting(trace.SCRATCH) == 0
    assert recorded.peak_bytes == 4 * (8 * 27 + 2 * 300 + 2 * 8 * 64) + 5000

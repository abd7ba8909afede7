"""The algorithm's own ``train()``, run on fake tensors.

A shallow copy of the model sets itself up again under fake tensors, through its real ``_setup_model``, so
that subclasses, custom policies and custom losses are what is traced. The live model, its weights, its
buffer and its random generators are left alone.
"""

from __future__ import annotations

import copy
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.buffers import DictReplayBuffer, ReplayBuffer
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from torch.utils._pytree import tree_map

from rlmem.plan import trace
from rlmem.plan.cuda import cudnn_workspaces
from rlmem.plan.recorder import Recording, fake_mode, modules_stay_where_they_are, recording
from rlmem.plan.scratch import cpu_scratch
from rlmem.plan.shadow_heap import ShadowHeap, trim
from rlmem.plan.trace import HeapReading, UpdateTrace
from rlmem.sb3.weightless import weightless_arrays

UPDATES: Final = 10
"""How many updates are traced: the heap has settled by then. The second already finds the optimizer's state."""

GPU_UPDATES: Final = 3
_SURVEY_UPDATES: Final = 1
_TINY_STEPS: Final = 2


def trace_on_gpu(model: BaseAlgorithm, *, rows: int, updates: int = GPU_UPDATES) -> UpdateTrace:
    """Return the trace of updates as they run on a GPU: cuDNN's workspaces, optimizers over lists of tensors."""
    started = time.monotonic()
    record = _record(model, rows=rows, updates=updates, foreach=True, scratch=cudnn_workspaces, outputs_first=True)
    return UpdateTrace(allocations=record.allocations, rows=rows, seconds=time.monotonic() - started)


def trace_update(model: BaseAlgorithm, *, rows: int, updates: int = UPDATES) -> UpdateTrace:
    """Return the trace of updates of ``rows`` rows each, with what the allocator makes of them.

    A heap that an earlier trace has been in is not like a new one: one process should trace once.
    """
    started = time.monotonic()
    scratch = cpu_scratch(_record(model, rows=rows, updates=_SURVEY_UPDATES).convolutions)
    trim()
    heap = ShadowHeap()
    record = _record(model, rows=rows, updates=updates, scratch=scratch, heap=heap)
    reading = HeapReading(
        peak_bytes=record.heap_peak_bytes, peak_event=record.heap_peak_event, end_bytes=record.heap_end_bytes
    )
    return UpdateTrace(
        allocations=record.allocations,
        rows=rows,
        heap=reading if heap.is_real else None,
        seconds=time.monotonic() - started,
    )


def _record(model: BaseAlgorithm, *, rows: int, updates: int, foreach: bool = False, **options: Any) -> Recording:
    samples = _sample(model)
    with _undisturbed_random_numbers():
        mode = fake_mode()
        with mode, modules_stay_where_they_are(), weightless_arrays():
            twin = _fake_twin(model)
        if foreach:
            _step_over_lists(twin)
        with recording(mode, denied=_denied(model), **options) as record:
            _note_parameters(twin, record)
            _train(twin, _Stub(samples, rows, record, updates))
            _name_what_is_left(twin, record)
            record.finish()
    return record


def _step_over_lists(twin: BaseAlgorithm) -> None:
    """Let the optimizers work as they do on a GPU: on all tensors at once, with temporaries for all."""
    for optimizer in _optimizers(twin):
        for group in optimizer.param_groups:
            group["foreach"] = True


def _denied(model: BaseAlgorithm) -> frozenset[str]:
    """Return what must be answered with no: a recurrent policy asks whether no sequence begins with an episode."""
    return frozenset({"aten::all"}) if hasattr(model, "_last_lstm_states") else frozenset()


def _fake_twin(model: BaseAlgorithm) -> BaseAlgorithm:
    """Return a copy of the model that has set itself up again with fake tensors."""
    twin = copy.copy(model)
    twin.seed = None
    twin.verbose = 0
    twin.device = torch.device("cpu")
    twin.policy_kwargs = dict(model.policy_kwargs)
    if isinstance(twin, OffPolicyAlgorithm):
        twin.replay_buffer_kwargs = dict(model.replay_buffer_kwargs)
        twin.replay_buffer = _Nothing()
    twin._setup_model()
    twin.set_logger(Logger(folder=None, output_formats=[]))
    return twin


class _Nothing:
    """Stands where a buffer would, until the stub with samples is put in."""


class _Stub:
    """A buffer that hands out one fake minibatch after the other, by way of a NumPy copy as the real one does."""

    def __init__(self, samples: Any, rows: int, record: Recording, updates: int) -> None:
        self._samples, self._record, self.updates = samples, record, updates
        self.values: Any = np.zeros(2, dtype=np.float32)
        self.returns: Any = self.values
        self.buffer_size, self.n_envs, self.full, self.pos, self.rows = rows, 1, True, 0, rows

    def get(self, batch_size: int | None = None) -> Iterator[Any]:
        """Yield minibatches as a rollout buffer does: all rows at once where no size is asked for."""
        if batch_size is None:
            yield self._minibatch(self.rows)
            return
        for _ in range(self.updates):
            yield self._minibatch(min(batch_size, self.rows))

    def sample(self, batch_size: int, env: Any = None) -> Any:
        return self._minibatch(batch_size)

    def _minibatch(self, rows: int) -> Any:
        """Return a minibatch as tensors; for a moment there is another as NumPy arrays beside it."""
        as_numpy = self._made(rows, trace.HOST)
        minibatch = self._made(rows, trace.MINIBATCH)
        del as_numpy
        return minibatch

    def _made(self, rows: int, kind: str) -> Any:
        def fake(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            made = torch.empty((rows, *value.shape[1:]), dtype=value.dtype)
            self._record.name(made, kind)
            return made

        states = getattr(self._samples, "lstm_states", None)
        if states is None:
            return tree_map(fake, self._samples)
        # A recurrent minibatch is one sequence here: its states have no rows of their own.
        rest = tree_map(fake, self._samples._replace(lstm_states=None))
        return rest._replace(lstm_states=tree_map(torch.empty_like, states))


def _train(twin: BaseAlgorithm, stub: _Stub) -> None:
    """Run the algorithm's own update on the stub's minibatches."""
    if isinstance(twin, OffPolicyAlgorithm):
        twin.replay_buffer = stub
        twin.train(gradient_steps=stub.updates, batch_size=stub.rows)
        return
    assert isinstance(twin, OnPolicyAlgorithm)  # noqa: S101 - the caller has checked the family
    twin.rollout_buffer = stub
    for _ in range(_rounds(twin, stub)):
        twin.train()


def _rounds(twin: Any, stub: _Stub) -> int:
    """Return how often to call ``train()``, having set what it repeats to what the trace needs."""
    if hasattr(twin, "n_epochs"):
        twin.n_epochs, twin.batch_size = 1, stub.rows
        return 1
    if not hasattr(twin, "n_critic_updates"):
        return stub.updates  # A2C: one step over the whole rollout
    rounds, stub.updates, twin.n_critic_updates = max(stub.updates // 4, 2), 2, 2
    return rounds


def _sample(model: BaseAlgorithm) -> Any:
    """Return one tiny real sample of the model's own buffer class, to read shapes and dtypes from."""
    if isinstance(model, OffPolicyAlgorithm):
        return _replay_sample(model)
    return _rollout_sample(model)


def _rollout_sample(model: Any) -> Any:
    live = model.rollout_buffer
    kwargs: dict[str, Any] = {"gamma": live.gamma, "gae_lambda": live.gae_lambda, "n_envs": 1, "device": "cpu"}
    if hasattr(live, "hidden_state_shape"):
        _, layers, _, hidden = live.hidden_state_shape
        kwargs["hidden_state_shape"] = (_TINY_STEPS, layers, 1, hidden)
    tiny = type(live)(_TINY_STEPS, live.observation_space, live.action_space, **kwargs)
    tiny.full = True
    with _undisturbed_random_numbers():
        return next(iter(tiny.get(None)))


def _replay_sample(model: Any) -> Any:
    """Return a sample of the stock class for the space: hindsight and custom classes hand out the same tuples."""
    spaces = (model.observation_space, model.action_space)
    dictionary = isinstance(model.replay_buffer, DictReplayBuffer)
    stock = (DictReplayBuffer if dictionary else ReplayBuffer)(_TINY_STEPS, *spaces, device="cpu", n_envs=1)
    stock.pos = _TINY_STEPS
    stock.full = True
    with _undisturbed_random_numbers():
        return stock.sample(_TINY_STEPS)


def _note_parameters(twin: BaseAlgorithm, record: Recording) -> None:
    """Take down what is there before the first update, and mark gradients as they come."""
    for tensor in (*twin.policy.parameters(), *twin.policy.buffers()):
        record.note(tensor, kind=trace.PARAMETERS, op="parameter")

    def mark(parameter: torch.Tensor) -> None:
        if parameter.grad is not None:
            record.name(parameter.grad, trace.GRADIENTS)

    for parameter in twin.policy.parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(mark)


def _name_what_is_left(twin: BaseAlgorithm, record: Recording) -> None:
    """Name the optimizers' state, and the parameters again: TRPO puts new tensors in their place."""
    for parameter in twin.policy.parameters():
        record.name(parameter, trace.PARAMETERS)
    for optimizer in _optimizers(twin):
        for state in optimizer.state.values():
            for value in state.values():
                if isinstance(value, torch.Tensor):
                    record.name(value, trace.OPTIMIZER)


def _optimizers(model: BaseAlgorithm) -> list[torch.optim.Optimizer]:
    """Return every optimizer that the model or its policy holds, once."""
    holders = [model, *model.policy.modules()]
    found = (value for holder in holders for value in vars(holder).values())
    return list({id(item): item for item in found if isinstance(item, torch.optim.Optimizer)}.values())


@contextmanager
def _undisturbed_random_numbers() -> Iterator[None]:
    """Put the global random generators back as they were: planning must not change what is learnt."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])

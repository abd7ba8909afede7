"""Every algorithm's own train(), traced on fake tensors and held against the same model trained for real."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import DQN, PPO, SAC
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import DummyVecEnv

from rlmem.plan import trace
from rlmem.sb3.building import algorithm_class
from rlmem.sb3.fake_training import trace_on_gpu, trace_update
from rlmem.sb3.synthetic import SyntheticEnv

VECTOR = spaces.Box(-1, 1, (5,))
IMAGE = spaces.Box(0, 255, (36, 40, 3), np.uint8)
CHOICE, TORQUE = spaces.Discrete(4), spaces.Box(-1, 1, (2,))
ROLLOUT = ("PPO", "A2C", "TRPO", "MaskablePPO", "RecurrentPPO")
CRITICS = ("SAC", "TQC", "CrossQ", "TD3", "DDPG")
ROWS = 8
CASES = [(name, "Mlp") for name in (*ROLLOUT, "DQN", "QRDQN", *CRITICS)] + [("PPO", "Cnn"), ("DQN", "Cnn")]

pytestmark = pytest.mark.filterwarnings("ignore:.*mini-batch.*:UserWarning")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def build(algorithm: str | type, head: str = "Mlp", *, observation: Any = None, **settings: Any) -> Any:
    kind = algorithm_class(algorithm) if isinstance(algorithm, str) else algorithm
    name = next(base.__name__ for base in kind.__mro__ if base.__name__ in (*ROLLOUT, *CRITICS, "DQN", "QRDQN"))
    if name in ROLLOUT:
        small = {"n_steps": 2 * ROWS} | ({} if name == "A2C" else {"batch_size": ROWS})
    else:
        small = {"buffer_size": 40, "batch_size": ROWS, "learning_starts": ROWS, "train_freq": 1}
    spaces = observation or (IMAGE if head == "Cnn" else VECTOR), TORQUE if name in CRITICS else CHOICE
    env = DummyVecEnv([lambda: SyntheticEnv(*spaces)])
    policy = f"{head}LstmPolicy" if name == "RecurrentPPO" else f"{head}Policy"
    return kind(policy, env, device="cpu", seed=0, **(small | settings))


def optimizers(model: Any) -> list[torch.optim.Optimizer]:
    policy = model.policy
    holders = (policy, getattr(policy, "actor", None), getattr(policy, "critic", None))
    found = [getattr(holder, "optimizer", None) for holder in holders]
    return [item for item in (*found, getattr(model, "ent_coef_optimizer", None)) if item is not None]


@pytest.mark.parametrize(("algorithm", "head"), CASES)
def test_what_lasts_is_what_a_real_training_leaves(algorithm: str, head: str) -> None:
    model = build(algorithm, head)
    rows = 2 * ROWS if algorithm in ("A2C", "TRPO") else ROWS
    traced = trace_on_gpu(model, rows=rows)
    model.learn(4 * ROWS, log_interval=None)
    policy = model.policy
    parameters = sum(tensor.nbytes for tensor in (*policy.parameters(), *policy.buffers()))
    gradients = sum(item.grad.nbytes for item in policy.parameters() if item.grad is not None)
    state = sum(
        value.nbytes
        for optimizer in optimizers(model)
        for values in optimizer.state.values()
        for value in values.values()
        if isinstance(value, torch.Tensor)
    )
    assert traced.lasting(trace.PARAMETERS) == parameters
    assert traced.lasting(trace.GRADIENTS) == gradients
    assert traced.lasting(trace.OPTIMIZER) == state
    assert traced.rows == rows
    assert traced.peak_bytes > parameters + gradients
    observations = 1 if algorithm in ROLLOUT else 2
    assert traced.at_peak[trace.MINIBATCH] >= rows * observations * IMAGE.sample().nbytes * (head == "Cnn")


@pytest.mark.parametrize("algorithm", ["PPO", "SAC"])
def test_more_rows_take_more_in_proportion(algorithm: str) -> None:
    model = build(algorithm)
    few, more, many = (trace_on_gpu(model, rows=rows) for rows in (2000, 4000, 8000))
    assert few.lasting(trace.PARAMETERS) == many.lasting(trace.PARAMETERS)
    assert many.peak_bytes - more.peak_bytes == pytest.approx(2 * (more.peak_bytes - few.peak_bytes), rel=0.02)


def _state(model: Any) -> dict[str, Any]:
    return {name: id(value) for name, value in vars(model).items()}


def _buffer(model: Any) -> Any:
    return model.replay_buffer if hasattr(model, "replay_buffer") else model.rollout_buffer


@pytest.mark.parametrize("algorithm", ["PPO", "RecurrentPPO", "DQN", "SAC"])
def test_the_live_model_is_left_alone(algorithm: str) -> None:
    model = build(algorithm)
    model.learn(3 * ROWS, log_interval=None)
    weights = {name: tensor.clone() for name, tensor in model.policy.state_dict().items()}
    gradients = [None if item.grad is None else item.grad.clone() for item in model.policy.parameters()]
    held, attributes = _buffer(model), _state(model)
    contents = {name: value.copy() for name, value in vars(held).items() if isinstance(value, np.ndarray)}
    settings = dict(model.policy_kwargs)
    randomness = random.getstate(), np.random.get_state()[1].copy(), torch.get_rng_state()
    trace_on_gpu(model, rows=ROWS)
    assert random.getstate() == randomness[0]
    assert np.array_equal(np.random.get_state()[1], randomness[1])
    assert torch.equal(torch.get_rng_state(), randomness[2])
    assert _state(model) == attributes, "no attribute was put in another's place"
    assert model.policy_kwargs == settings
    assert all(torch.equal(tensor, weights[name]) for name, tensor in model.policy.state_dict().items())
    for item, before in zip(model.policy.parameters(), gradients, strict=True):
        assert (item.grad is None) == (before is None)
        assert before is None or torch.equal(item.grad, before)
    assert _buffer(model) is held
    assert contents
    assert all(np.array_equal(vars(held)[name], value) for name, value in contents.items())
    model.learn(2 * ROWS, log_interval=None)


def test_tracing_does_not_change_what_is_learnt() -> None:
    def weights(*, traced: bool) -> Any:
        model = PPO("MlpPolicy", "CartPole-v1", n_steps=2 * ROWS, batch_size=ROWS, device="cpu", seed=0)
        if traced:
            trace_update(model, rows=ROWS, updates=2)
        return model.learn(4 * ROWS, log_interval=None).policy.state_dict()

    plain, after = weights(traced=False), weights(traced=True)
    assert all(torch.equal(plain[name], after[name]) for name in plain)


def test_a_cpu_trace_has_the_heap_and_the_scratch_of_real_convolutions() -> None:
    """Of the real network: the scratch is metered on this CPU, the heap is its C library's."""
    model = build("PPO", "Cnn", observation=spaces.Box(0, 255, (84, 84, 4), np.uint8))
    update = trace_update(model, rows=128, updates=2)
    assert update.heap is not None
    assert update.heap.peak_bytes >= update.peak_bytes > 128 * 84 * 84 * 4 * 5
    assert any(item.kind == trace.SCRATCH and item.bytes for item in update.allocations)
    assert update.lasting(trace.SCRATCH) == update.lasting(trace.HOST) == 0
    assert update.seconds > 0


def test_the_minibatch_is_there_twice_for_a_moment() -> None:
    update = trace_on_gpu(build("DQN", "Cnn"), rows=100)
    minibatch = 100 * (2 * 36 * 40 * 3 + 8 + 4 + 4)
    assert update.host_bytes == pytest.approx(minibatch, rel=0.01)
    assert update.at_peak[trace.MINIBATCH] == pytest.approx(minibatch, rel=0.01)


class Wide(BaseFeaturesExtractor):
    """Features of the user's own: an embedding that nothing in the framework knows."""

    def __init__(self, observation_space: spaces.Box, features_dim: int = 33) -> None:
        super().__init__(observation_space, features_dim)
        self.first = torch.nn.Linear(observation_space.shape[0], 700)
        self.second = torch.nn.GRU(700, features_dim, batch_first=True)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        hidden = torch.sin(self.first(observations)).unsqueeze(1)
        return self.second(hidden)[0].squeeze(1)


@pytest.mark.parametrize("algorithm", ["PPO", "SAC", "DQN"])
def test_a_features_extractor_of_the_users_own(algorithm: str) -> None:
    model = build(algorithm, policy_kwargs={"features_extractor_class": Wide})
    update = trace_on_gpu(model, rows=256)
    plain = trace_on_gpu(build(algorithm), rows=256)
    assert update.lasting(trace.PARAMETERS) == sum(item.nbytes for item in model.policy.parameters())
    assert update.peak_bytes - plain.peak_bytes > 2 * 256 * 700 * 4, "what sin() saves, and what it gives"
    assert "Wide" in {item.module for item in update.allocations}


class Pairwise(PPO):
    """A loss of the user's own, over all pairs of a minibatch."""

    def train(self) -> None:
        for batch in self.rollout_buffer.get(self.batch_size):
            _, log_probability, _ = self.policy.evaluate_actions(batch.observations, batch.actions.long().flatten())
            differences = (log_probability[:, None] - log_probability[None, :]).exp()
            loss = (differences * batch.advantages[:, None]).mean()
            self.policy.optimizer.zero_grad()
            loss.backward()
            self.policy.optimizer.step()


def test_a_loss_of_the_users_own() -> None:
    update = trace_on_gpu(build(Pairwise), rows=2000)
    plain = trace_on_gpu(build("PPO"), rows=2000)
    matrix = 2000 * 2000 * 4
    assert update.peak_bytes > plain.peak_bytes + 2 * matrix
    assert sum(item.bytes == matrix for item in update.allocations) >= 3


class LongWay(SAC):
    """An update of the user's own around the framework's."""

    def train(self, gradient_steps: int, batch_size: int = 64) -> None:
        penalty = torch.zeros(3_000_000)
        super().train(gradient_steps, batch_size)
        del penalty


def test_an_update_of_the_users_own_around_the_frameworks() -> None:
    update, plain = (trace_on_gpu(build(kind), rows=ROWS) for kind in (LongWay, "SAC"))
    assert update.peak_bytes - plain.peak_bytes == 12_000_000


class Tuned(DQN):
    """A setup of the user's own, with one more network."""

    def _setup_model(self) -> None:
        super()._setup_model()
        self.policy.curiosity = torch.nn.Linear(1000, 1000)


def test_a_setup_of_the_users_own() -> None:
    more = trace_on_gpu(build(Tuned), rows=ROWS).lasting(trace.PARAMETERS)
    assert more - trace_on_gpu(build("DQN"), rows=ROWS).lasting(trace.PARAMETERS) == 4 * 1001 * 1000

"""Live models of every algorithm, and of users' own classes, read back as they are."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import sb3_contrib
import stable_baselines3
import torch
from gymnasium import spaces
from stable_baselines3 import DQN, PPO, SAC, HerReplayBuffer
from stable_baselines3.common.buffers import ReplayBuffer, RolloutBuffer
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack, VecNormalize

from rlmem.plan.buffers import replay_arrays, rollout_arrays
from rlmem.plan.policies import policy_cost
from rlmem.run import run_from_mapping, write_run
from rlmem.run.algorithms import ALGORITHMS
from rlmem.run.layers import Opaque
from rlmem.run.spaces import Box
from rlmem.sb3.reading import ModelReading, read_model
from rlmem.sb3.weightless import weightless_arrays

CONTINUOUS = ("SAC", "TD3", "DDPG", "TQC", "CrossQ")
GOALS = spaces.Dict({key: spaces.Box(-1, 1, (3,)) for key in ("achieved_goal", "desired_goal", "observation")})
IMAGE = spaces.Box(0, 255, (40, 36, 3), np.uint8)


class Env(gymnasium.Env):
    """An environment of the given spaces that does nothing."""

    def __init__(self, observation: Any, action: Any) -> None:
        self.observation_space, self.action_space = observation, action

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.observation_space.sample(), 0.0, False, False, {}

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        return np.zeros(len(achieved))


def vec_env(observation: Any, action: Any, n_envs: int = 1) -> DummyVecEnv:
    return DummyVecEnv([lambda: Env(observation, action)] * n_envs)


def build(
    algorithm: str, observation: Any = None, *, n_envs: int = 2, policy: str = "MlpPolicy", **settings: Any
) -> Any:
    kind = getattr(stable_baselines3, algorithm, None) or getattr(sb3_contrib, algorithm)
    action = spaces.Box(-1, 1, (2,)) if algorithm in CONTINUOUS else spaces.Discrete(4)
    if ALGORITHMS[algorithm].off_policy:
        settings = {"buffer_size": 101} | settings
    elif ALGORITHMS[algorithm].on_policy:
        batch = {"batch_size": 16} if "batch_size" in ALGORITHMS[algorithm].settings else {}
        settings = {"n_steps": 8} | batch | settings
    if algorithm == "RecurrentPPO":
        policy = policy.replace("Policy", "LstmPolicy")
    env = vec_env(observation or spaces.Box(-1, 1, (5,)), action, n_envs)
    return kind(policy, env, device="cpu", **settings)


def live_arrays(buffer: Any) -> dict[str, np.ndarray]:
    found = {}
    for name, value in vars(buffer).items():
        parts = value if isinstance(value, dict) else {"": value}
        found |= {f"{name}/{key}": part for key, part in parts.items() if isinstance(part, np.ndarray)}
    return found


def total(reading: ModelReading) -> int:
    return sum(array.bytes for array in reading.arrays)


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_is_read_as_it_is(algorithm: str) -> None:
    model = build(algorithm)
    reading = read_model(model, total_timesteps=12_345)
    run, policy = reading.run, model.policy
    assert (run.algorithm, run.framework) == (algorithm, ALGORITHMS[algorithm].framework)
    assert (run.n_envs, run.env.workers, run.training.total_timesteps) == (2, "in-process", 12_345)
    assert run_from_mapping(write_run(run)) == run
    assert reading.notes == ()
    assert reading.cost.parameters == sum(parameter.numel() for parameter in policy.parameters())
    buffer = getattr(model, "rollout_buffer", None) or getattr(model, "replay_buffer", None)
    live = live_arrays(buffer) if buffer is not None else {}
    assert total(reading) == sum(array.nbytes for array in live.values())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(
    ("observation", "policy"),
    [(spaces.Box(-1, 1, (5,)), "MlpPolicy"), (IMAGE, "CnnPolicy"), (GOALS, "MultiInputPolicy")],
    ids=["box", "image", "dict"],
)
def test_the_reading_agrees_with_the_plan_of_its_run(algorithm: str, observation: Any, policy: str) -> None:
    if algorithm in ("ARS", "CrossQ") and policy != "MlpPolicy":
        pytest.skip(f"{algorithm} has no {policy}")
    reading = read_model(build(algorithm, observation, policy=policy))
    planned = policy_cost(reading.run)
    beside = 1 if algorithm in ("SAC", "TQC", "CrossQ") else 0  # the entropy coefficient is learnt, too
    for ours, theirs in ((reading.cost.online, planned.online), (reading.cost.targets, planned.targets)):
        assert (ours.parameters, ours.tensors, ours.buffer_bytes) == (
            theirs.parameters,
            theirs.tensors,
            theirs.buffer_bytes,
        )
    assert reading.cost.optimized == planned.optimized + beside
    assert reading.cost.optimized_tensors == planned.optimized_tensors + beside
    if algorithm == "ARS":
        return
    arrays = (rollout_arrays if reading.run.spec.on_policy else replay_arrays)(reading.run)
    described = {array.path: (array.rows, array.row_bytes, array.flattened, array.lazy) for array in reading.arrays}
    assert described == {array.path: (array.rows, array.row_bytes, array.flattened, array.lazy) for array in arrays}


def test_hindsight_has_its_episodes_and_an_info_for_each_transition() -> None:
    model = build("SAC", GOALS, policy="MultiInputPolicy", replay_buffer_class=HerReplayBuffer, buffer_size=100)
    reading = read_model(model)
    rows = {array.path: array.bytes for array in reading.arrays}
    assert reading.run.training.replay_buffer_class == "HerReplayBuffer"
    assert rows["buffer/episodes"] == 100 * 16
    assert rows["buffer/infos"] == 100 * (8 + 64)
    assert rows["buffer/current_ep_start"] == 2 * 8


class Prioritized(ReplayBuffer):
    """A buffer with arrays of its own: beside the stock ones, in an object, and as a view of one that is counted."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.embeddings = np.zeros((self.buffer_size, self.n_envs, 16), dtype=np.float16)
        self.labels = np.empty((self.buffer_size, self.n_envs), dtype=object)
        self.tree = Tree(self.buffer_size)
        self.window = self.embeddings[:4]


class Tree:
    def __init__(self, leaves: int) -> None:
        self.sums = [np.zeros(2 * leaves - 1), np.zeros(leaves, dtype=np.int32)]


def test_a_buffer_of_ones_own_is_counted_with_what_it_adds() -> None:
    model = build("DQN", replay_buffer_class=Prioritized, buffer_size=100)
    reading = read_model(model)
    rows = {array.path: array for array in reading.arrays}
    assert (rows["buffer/embeddings"].rows, rows["buffer/embeddings"].row_bytes) == (100, 32)
    assert rows["buffer/tree"].bytes == 99 * 8 + 50 * 4
    assert rows["buffer/labels"].bytes == 100 * 8
    assert not rows["buffer/labels"].lazy
    assert "buffer/window" not in rows
    assert reading.run.training.replay_buffer_class == "ReplayBuffer"
    assert run_from_mapping(write_run(reading.run)) == reading.run


class WithCopies(RolloutBuffer):
    def reset(self) -> None:
        super().reset()
        self.futures = np.zeros_like(self.observations)


def test_a_buffer_far_larger_than_the_machine_is_read_without_memory() -> None:
    settings = {"n_steps": 2**20, "rollout_buffer_class": WithCopies, "batch_size": 2**20}
    with weightless_arrays():
        model = build("PPO", spaces.Box(-1, 1, (256, 256)), **settings)
    rows = {array.path: array for array in read_model(model).arrays}
    assert rows["buffer/observations"].bytes == 2**21 * 2**18
    assert rows["buffer/observations"].lazy
    assert rows["buffer/futures"].bytes == 2**21 * 2**18
    assert not rows["buffer/futures"].lazy  # zeros_like writes every page


class Extractor(BaseFeaturesExtractor):
    def __init__(self, space: Any, width: int = 7) -> None:
        super().__init__(space, features_dim=width)
        self.layers = torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(space.shape[0], width), torch.nn.BatchNorm1d(width)
        )

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.layers(rows)


def test_an_extractor_of_ones_own_is_read_as_a_whole() -> None:
    keywords = {"features_extractor_class": Extractor, "net_arch": {"pi": [8], "vf": []}}
    reading = read_model(build("PPO", policy_kwargs=keywords))
    (layer,) = reading.run.policy.features or ()
    assert isinstance(layer, Opaque)
    assert layer.name.endswith(":Extractor")
    assert (layer.output, layer.parameters, layer.tensors, layer.buffer_bytes) == ((7,), 5 * 7 + 7 + 14, 4, 2 * 28 + 8)
    assert reading.cost.online.buffer_bytes == layer.buffer_bytes
    assert run_from_mapping(write_run(reading.run)) == reading.run


@pytest.mark.parametrize(
    ("kind", "keywords", "name"),
    [
        (torch.optim.AdamW, {}, "adamw"),
        (torch.optim.SGD, {}, "sgd"),
        (torch.optim.SGD, {"momentum": 0.9}, "sgd+momentum"),
        (torch.optim.RMSprop, {}, "rmsprop"),
        (torch.optim.Adagrad, {}, None),
    ],
)
def test_the_optimizer_is_named(kind: Any, keywords: dict[str, Any], name: str | None) -> None:
    reading = read_model(build("PPO", policy_kwargs={"optimizer_class": kind, "optimizer_kwargs": keywords}))
    assert reading.run.policy.optimizer == name
    assert bool(reading.notes) == (name is None)


class Ours(DQN):
    """An algorithm of the user's own, with a second buffer and a frozen network."""

    def _setup_model(self) -> None:
        super()._setup_model()
        self.demonstrations = ReplayBuffer(10, self.observation_space, self.action_space, device="cpu")
        self.policy.frozen = torch.nn.Linear(3, 3).requires_grad_(False)


def test_a_subclass_is_described_as_what_it_derives_from() -> None:
    model = Ours("MlpPolicy", vec_env(spaces.Box(-1, 1, (5,)), spaces.Discrete(4)), buffer_size=50, device="cpu")
    reading = read_model(model)
    assert reading.run.algorithm == "DQN"
    assert "Ours" in reading.notes[0]
    assert reading.cost.optimized == sum(parameter.numel() for parameter in model.q_net.parameters())
    assert reading.cost.online.parameters == reading.cost.optimized + 12
    extra = next(array for array in reading.arrays if array.path == "buffer/demonstrations")
    assert extra.bytes == sum(array.nbytes for array in live_arrays(model.demonstrations).values())


def test_wrappers_are_not_applied_twice() -> None:
    env = VecNormalize(VecFrameStack(vec_env(IMAGE, spaces.Discrete(2), 2), 4), norm_obs=False)
    reading = read_model(PPO("CnnPolicy", env, n_steps=4, batch_size=4, device="cpu"))
    run, notes = reading.run, reading.notes
    assert isinstance(run.env.observation, Box)
    assert run.env.observation.shape == (12, 40, 36)
    assert (run.env.frame_stack, run.env.normalize, run.env.transpose_images) == (1, False, False)
    assert any("4 frames" in note for note in notes)
    assert any("VecNormalize" in note for note in notes)
    assert total(reading) == 8 * (12 * 40 * 36 + 8 + 24)


def test_workers_and_their_start_method_are_seen() -> None:
    env = SubprocVecEnv([lambda: gymnasium.make("CartPole-v1")] * 2, start_method="fork")
    try:
        run = read_model(PPO("MlpPolicy", env, n_steps=4, batch_size=4, device="cpu")).run
    finally:
        env.close()
    assert (run.env.workers, run.env.start_method, run.n_envs) == ("subprocess", "fork", 2)


def test_settings_are_given_as_they_are() -> None:
    model = SAC(
        "MlpPolicy",
        gymnasium.make("Pendulum-v1"),
        buffer_size=np.int64(64),
        train_freq=(2, "episode"),
        gradient_steps=-1,
        learning_starts=7,
        use_sde=True,
        optimize_memory_usage=True,
        replay_buffer_kwargs={"handle_timeout_termination": False},
        device="cpu",
    )
    run = read_model(model).run
    training = run.training
    assert (training.train_freq, training.train_freq_unit, training.gradient_steps) == (2, "episode", -1)
    assert (training.buffer_size, training.learning_starts, training.use_sde) == (64, 7, True)
    assert (training.optimize_memory_usage, training.handle_timeout_termination) == (True, False)
    assert run.env.episode_length == 200
    assert run_from_mapping(write_run(run)) == run

"""Real models built from descriptions: what is described is what is made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3 import HerReplayBuffer
from stable_baselines3.common.vec_env import SubprocVecEnv, VecFrameStack, VecNormalize

from rlmem.errors import InputError
from rlmem.plan.parts import described_parts
from rlmem.plan.policies import policy_cost
from rlmem.run import FrameworkRun, run_from_mapping
from rlmem.run.layers import Linear, Parameter
from rlmem.run.spaces import Box
from rlmem.sb3.building import algorithm_class, build_model, build_vec_env
from rlmem.sb3.layers import extractor_class
from rlmem.sb3.reading import read_model

VECTOR, IMAGE = {"shape": [5]}, {"shape": [36, 40, 3], "dtype": "uint8"}
FLOAT_IMAGE, VOLUME = {"shape": [3, 20, 24]}, {"shape": [2, 12, 10, 8]}
CHOICE, TORQUE = {"discrete": 4}, {"shape": [2], "low": -1.0, "high": 1.0}
GOALS = {"dict": {name: {"shape": [3]} for name in ("observation", "achieved_goal", "desired_goal")}}

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*mini-batch.*:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*different shape than a single frame.*:UserWarning"),
]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def make_run(algorithm: str, observation: Any, action: Any, **parts: Any) -> FrameworkRun:
    small = (
        {"n_steps": 8}
        if algorithm in ("PPO", "A2C", "TRPO", "MaskablePPO", "RecurrentPPO")
        else {"buffer_size": 40, "batch_size": 4, "learning_starts": 4}
    )
    if algorithm in ("PPO", "MaskablePPO", "RecurrentPPO", "TRPO"):
        small["batch_size"] = 8
    run = run_from_mapping(
        {
            "framework": "sb3",
            "algorithm": algorithm,
            "env": {"observation": observation, "action": action} | parts.pop("env", {}),
            "training": small | parts.pop("training", {}),
            **parts,
        }
    )
    assert isinstance(run, FrameworkRun)
    return run


def made(run: FrameworkRun) -> Any:
    return build_model(run, build_vec_env(run.env))


STACKS: dict[str, tuple[Any, list[Any]]] = {
    "linear": (VECTOR, [{"linear": 30}, "tanh", {"linear": 7}]),
    "layer norm": (VECTOR, [{"linear": 30}, "layernorm", "gelu", {"linear": {"out": 7, "bias": False}}]),
    "conv1d": ({"shape": [3, 50]}, [{"conv1d": {"out": 4, "kernel": 5, "stride": 2}}, "relu", "flatten"]),
    "conv2d": (FLOAT_IMAGE, [{"conv2d": {"out": 4, "kernel": 3}}, "batchnorm", {"maxpool2d": 2}, "flatten"]),
    "conv3d": (
        VOLUME,
        [{"conv3d": {"out": 4, "kernel": 3, "padding": 1}}, "relu", {"maxpool3d": 2}, "flatten", {"linear": 9}],
    ),
    "transposed": (FLOAT_IMAGE, [{"conv_transpose2d": {"out": 2, "kernel": 3, "stride": 2}}, "elu", "flatten"]),
    "lstm": ({"shape": [6, 5]}, [{"lstm": {"hidden": 8, "layers": 2, "bidirectional": True}}, "flatten"]),
}


@pytest.mark.parametrize("name", STACKS)
@pytest.mark.parametrize("algorithm", ["PPO", "SAC"])
def test_described_layers_have_the_parameters_that_the_plan_says(algorithm: str, name: str) -> None:
    observation, layers = STACKS[name]
    action = TORQUE if algorithm == "SAC" else CHOICE
    policy = {"class": "MlpPolicy", "features": layers, "net_arch": [6]}
    run = make_run(algorithm, observation, action, policy=policy)
    model = made(run)
    cost = policy_cost(run)
    assert cost.parameters == sum(item.numel() for item in model.policy.parameters())
    state = sum(item.nbytes for item in model.policy.buffers())
    assert cost.online.buffer_bytes + cost.targets.buffer_bytes == state
    kinds = {type(module).__name__ for module in model.policy.modules()}
    assert "DescribedExtractor" in kinds
    if algorithm == "PPO":
        model.learn(16, log_interval=None)


RUNS: dict[str, FrameworkRun] = {
    "ppo": make_run("PPO", VECTOR, TORQUE, training={"use_sde": True}, policy={"net_arch": {"pi": [8], "vf": [4, 4]}}),
    "ppo, images": make_run("PPO", IMAGE, CHOICE, env={"n_envs": 2, "frame_stack": 4}, policy={"class": "CnnPolicy"}),
    "ppo, dict": make_run(
        "PPO",
        {"dict": {"camera": IMAGE, "speed": VECTOR}},
        CHOICE,
        policy={"class": "MultiInputPolicy", "features_dim": 16},
    ),
    "ppo, normalised": make_run("PPO", VECTOR, {"multi_binary": 3}, env={"normalize": True, "n_envs": 3}),
    "a2c": make_run("A2C", VECTOR, CHOICE, policy={"optimizer": "sgd+momentum"}),
    "trpo": make_run("TRPO", VECTOR, TORQUE),
    "masked ppo": make_run("MaskablePPO", VECTOR, {"multi_discrete": [3, 4]}),
    "recurrent ppo": make_run(
        "RecurrentPPO",
        VECTOR,
        CHOICE,
        policy={"class": "MlpLstmPolicy", "lstm_hidden_size": 12, "n_lstm_layers": 2, "enable_critic_lstm": False},
    ),
    "dqn": make_run("DQN", VECTOR, CHOICE, policy={"net_arch": [5]}, training={"optimize_memory_usage": False}),
    "qrdqn": make_run("QRDQN", IMAGE, CHOICE, policy={"class": "CnnPolicy", "n_quantiles": 7}),
    "sac": make_run("SAC", VECTOR, TORQUE, policy={"n_critics": 3, "net_arch": {"pi": [8], "qf": [6]}}),
    "tqc": make_run("TQC", VECTOR, TORQUE, env={"n_envs": 2}),
    "crossq": make_run("CrossQ", VECTOR, TORQUE, policy={"net_arch": [16, 16]}),
    "td3": make_run("TD3", VECTOR, TORQUE, training={"train_freq": [2, "step"]}),
    "ddpg": make_run("DDPG", VECTOR, TORQUE, policy={"optimizer": "adamw"}),
    "hindsight": make_run(
        "SAC",
        GOALS,
        TORQUE,
        policy={"class": "MultiInputPolicy"},
        env={"episode_length": 5},
        training={"replay_buffer_class": "HerReplayBuffer", "learning_starts": 12},
    ),
    "ars": run_from_mapping(
        {"framework": "sb3", "algorithm": "ARS", "env": {"observation": VECTOR, "action": TORQUE, "episode_length": 9}}
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_what_is_built_is_what_was_described(name: str) -> None:
    run = RUNS[name]
    model = made(run)
    read, parts = read_model(model), described_parts(run)
    assert parts.cost.parameters == sum(item.numel() for item in model.policy.parameters())
    real, described = ({array.path: array.bytes for array in arrays} for arrays in (read.arrays, parts.arrays))
    real.pop("buffer/current_ep_start", None)  # a hindsight buffer's eight bytes an environment
    assert real == described
    assert read.run.n_envs == run.n_envs
    assert (read.run.training.n_steps, read.run.training.batch_size) == (run.training.n_steps, run.training.batch_size)


@pytest.mark.parametrize("name", ["ppo, images", "ppo, dict", "masked ppo", "recurrent ppo", "hindsight", "td3"])
def test_what_is_built_can_be_trained(name: str) -> None:
    model = made(RUNS[name])
    before = [item.clone() for item in model.policy.parameters()]
    model.learn(24, log_interval=None)
    pairs = zip(model.policy.parameters(), before, strict=True)
    assert any(not torch.equal(after, weights) for after, weights in pairs)


def test_settings_arrive() -> None:
    assert isinstance(made(RUNS["a2c"]).policy.optimizer, torch.optim.SGD)
    assert made(RUNS["a2c"]).policy.optimizer.defaults["momentum"] == 0.9
    assert made(RUNS["td3"]).train_freq.frequency == 2
    assert isinstance(made(RUNS["hindsight"]).replay_buffer, HerReplayBuffer)
    run = make_run(
        "DQN",
        VECTOR,
        CHOICE,
        training={"optimize_memory_usage": True, "replay_buffer_kwargs": {"handle_timeout_termination": False}},
    )
    buffer = made(run).replay_buffer
    assert buffer.optimize_memory_usage
    assert not buffer.handle_timeout_termination


def test_changes_override_settings() -> None:
    run = RUNS["ppo"]
    assert build_model(run, build_vec_env(run.env), n_epochs=1, n_steps=32).n_steps == 32


def test_wrappers_stand_around_the_environment() -> None:
    env = build_vec_env(make_run("PPO", IMAGE, CHOICE, env={"n_envs": 2, "frame_stack": 3, "normalize": True}).env)
    assert isinstance(env, VecNormalize)
    assert isinstance(env.venv, VecFrameStack)
    assert env.reset().shape == (2, 36, 40, 9)


def test_a_named_environment_is_the_real_one() -> None:
    run = run_from_mapping({"framework": "sb3", "algorithm": "PPO", "env": {"id": "CartPole-v1", "n_envs": 2}})
    env = build_vec_env(run.env)
    assert env.get_attr("spec")[0].id == "CartPole-v1"
    assert env.num_envs == 2


def test_workers_are_processes() -> None:
    env = build_vec_env(
        make_run("PPO", VECTOR, CHOICE, env={"n_envs": 2, "workers": "subprocess", "start_method": "fork"}).env
    )
    assert isinstance(env, SubprocVecEnv)
    pids = {process.pid for process in env.processes}
    assert len(pids) == 2
    assert env.reset().shape == (2, 5)
    env.close()


def test_episodes_of_synthetic_environments_end() -> None:
    env = build_vec_env(make_run("PPO", VECTOR, CHOICE, env={"episode_length": 3}).env)
    env.reset()
    assert [bool(env.step(np.array([0]))[2][0]) for _ in range(6)] == [False, False, True] * 2


def test_actions_without_bounds_are_given_some() -> None:
    env = build_vec_env(make_run("PPO", VECTOR, {"shape": [2]}).env)
    assert env.action_space.low.tolist() == [-1.0, -1.0]


def test_an_unknown_algorithm_is_not_found() -> None:
    with pytest.raises(LookupError, match="PP0"):
        algorithm_class("PP0")


def test_free_parameters_are_no_layers_of_an_extractor() -> None:
    from rlmem.run.gymnasium_spaces import build

    with pytest.raises(InputError, match="free parameters"):
        extractor_class((Linear(out=3), Parameter(shape=(2,))))(build(Box(shape=(4,), dtype="float32")))

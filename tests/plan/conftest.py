"""Real models, built by the framework itself from the same run that the plan is made for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
import sb3_contrib
import stable_baselines3
import torch
from stable_baselines3 import HerReplayBuffer
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecFrameStack, VecNormalize

from rlmem.machine import Machine
from rlmem.run import FrameworkRun, run_from_mapping
from rlmem.run.gymnasium_spaces import build
from rlmem.run.model import Policy, Training

_PASSED_ON = (
    "n_steps",
    "batch_size",
    "n_epochs",
    "buffer_size",
    "learning_starts",
    "optimize_memory_usage",
    "use_sde",
    "n_delta",
)
_REPLAY_CLASSES = {
    "ReplayBuffer": ReplayBuffer,
    "DictReplayBuffer": DictReplayBuffer,
    "NStepReplayBuffer": NStepReplayBuffer,
    "HerReplayBuffer": HerReplayBuffer,
}
_OPTIMIZERS = {
    "adam": (torch.optim.Adam, {}),
    "adamw": (torch.optim.AdamW, {}),
    "rmsprop": (torch.optim.RMSprop, {}),
    "sgd": (torch.optim.SGD, {}),
    "sgd+momentum": (torch.optim.SGD, {"momentum": 0.9}),
}


class FakeEnv(gymnasium.Env):
    """An environment of the given spaces whose episodes last four steps; it takes any goal and allows any action."""

    def __init__(self, run: FrameworkRun) -> None:
        self.observation_space = build(run.env.observation)
        self.action_space = build(run.env.action)
        if isinstance(self.action_space, gymnasium.spaces.Box):
            self.action_space = gymnasium.spaces.Box(-1, 1, self.action_space.shape, self.action_space.dtype)
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        return self.observation_space.sample(), 1.0, False, self._steps >= 4, {}

    def action_masks(self) -> np.ndarray:
        return np.ones(int(self.action_space.n), dtype=bool)

    def compute_reward(self, achieved: np.ndarray, desired: np.ndarray, info: Any) -> np.ndarray:
        return np.zeros(len(achieved), dtype=np.float32)


def make_model(run: FrameworkRun, **keywords: Any) -> Any:
    """Return the framework's own model of the run, small settings and all."""
    library = stable_baselines3 if hasattr(stable_baselines3, run.algorithm) else sb3_contrib
    policy = "MlpPolicy" if run.policy.class_name == "MlpPolicy" else run.policy.class_name
    settings = _settings(run) | {"policy_kwargs": _policy_keywords(run.policy)} | keywords
    return getattr(library, run.algorithm)(policy, _vec_env(run), device="cpu", seed=0, **settings)


def _vec_env(run: FrameworkRun) -> VecEnv:
    env: VecEnv = DummyVecEnv([lambda: FakeEnv(run)] * run.n_envs)
    if run.env.frame_stack > 1:
        env = VecFrameStack(env, run.env.frame_stack)
    return VecNormalize(env) if run.env.normalize else env


def _settings(run: FrameworkRun) -> dict[str, Any]:
    training: Training = run.training
    names = [name for name in _PASSED_ON if name in run.spec.settings and getattr(training, name) is not None]
    settings = {name: getattr(training, name) for name in names}
    settings |= {name: value for name, value in training.other if name in run.spec.settings}
    if training.replay_buffer_class is not None:
        settings["replay_buffer_class"] = _REPLAY_CLASSES[training.replay_buffer_class]
    if not training.handle_timeout_termination:
        settings["replay_buffer_kwargs"] = {"handle_timeout_termination": False}
    return settings


def _policy_keywords(policy: Policy) -> dict[str, Any]:
    keywords: dict[str, Any] = dict(policy.other)
    for name in ("share_features_extractor", "n_critics", "n_quantiles"):
        if getattr(policy, name) is not None:
            keywords[name] = getattr(policy, name)
    if policy.net_arch is not None:
        keywords["net_arch"] = _net_arch(policy)
    if policy.features_dim is not None:
        name = "cnn_output_dim" if policy.class_name.startswith("MultiInput") else "features_dim"
        keywords["features_extractor_kwargs"] = {name: policy.features_dim}
    if policy.optimizer is not None:
        keywords["optimizer_class"], keywords["optimizer_kwargs"] = _OPTIMIZERS[policy.optimizer]
    if not policy.normalize_images:
        keywords["normalize_images"] = False
    if "Lstm" in policy.class_name:
        for name in ("lstm_hidden_size", "n_lstm_layers", "shared_lstm", "enable_critic_lstm"):
            keywords[name] = getattr(policy, name)
    return keywords


def _net_arch(policy: Policy) -> list[int] | dict[str, list[int]]:
    pi, value = list(policy.net_arch.policy), list(policy.net_arch.value)
    return pi if pi == value else {"pi": pi, "vf": value, "qf": value}


def make_run(algorithm: str, observation: dict[str, Any], action: dict[str, Any], **parts: Any) -> FrameworkRun:
    """Return a run with small settings; ``parts`` are sections of the run file, env's without the spaces."""
    sb3 = hasattr(stable_baselines3, algorithm)
    training = _small(algorithm) | parts.pop("training", {})
    run = run_from_mapping(
        {
            "framework": "sb3" if sb3 else "sb3-contrib",
            "algorithm": algorithm,
            "env": {"observation": observation, "action": action} | parts.pop("env", {}),
            "training": training,
            **parts,
        }
    )
    assert isinstance(run, FrameworkRun)
    return run


def _small(algorithm: str) -> dict[str, Any]:
    if algorithm == "ARS":
        return {"n_delta": 2}
    if algorithm == "A2C":
        return {"n_steps": 4}
    if algorithm in ("PPO", "MaskablePPO", "RecurrentPPO"):
        return {"n_steps": 4, "batch_size": 4, "n_epochs": 1}
    if algorithm == "TRPO":
        return {"n_steps": 4, "batch_size": 4}
    return {"buffer_size": 20, "batch_size": 4, "learning_starts": 4}


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    """Tiny networks are faster on one thread, above all where other work has the cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session", name="make_model")
def _make_model() -> Any:
    return make_model


@pytest.fixture(scope="session", name="make_run")
def _make_run() -> Any:
    return make_run


@pytest.fixture(scope="session")
def machine() -> Machine:
    """A machine of 64 GiB with one GPU's worth of nothing: tests vary the run, not the machine."""
    return Machine(
        ram_total_bytes=64 * 2**30,
        ram_available_bytes=None,
        ram_limit_bytes=64 * 2**30,
        ram_limit_source="given",
        cgroup_usage_bytes=None,
        swap_total_bytes=0,
        swap_free_bytes=0,
        cores=8,
        cores_total=8,
        gpus=(),
    )

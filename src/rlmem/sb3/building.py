"""The real model of a run: its algorithm, its policy, its vector environment."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv, VecFrameStack, VecNormalize

import rlmem.sb3
from rlmem.run.algorithms import GOAL_REPLAY, N_STEP_REPLAY
from rlmem.run.environment import build_environment
from rlmem.run.gymnasium_spaces import build
from rlmem.run.model import Env, FrameworkRun, Policy
from rlmem.run.spaces import Box, Space
from rlmem.sb3.layers import extractor_class
from rlmem.sb3.synthetic import SyntheticEnv

_OPTIMIZERS: Final[dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]]] = {
    "adam": (torch.optim.Adam, {}),
    "adamw": (torch.optim.AdamW, {}),
    "rmsprop": (torch.optim.RMSprop, {}),
    "sgd": (torch.optim.SGD, {}),
    "sgd+momentum": (torch.optim.SGD, {"momentum": 0.9}),
}


def build_model(run: FrameworkRun, env: VecEnv, **changes: Any) -> BaseAlgorithm:
    """Return the run's model on ``env``; ``changes`` override settings of the algorithm."""
    settings = {key: value for key, value in algorithm_settings(run).items() if key in run.spec.settings}
    lean = lean_settings(run) if run.buffer.is_lean else {}
    keywords = settings | lean | changes | {"policy_kwargs": policy_settings(run), "device": run.device, "verbose": 0}
    model: BaseAlgorithm = algorithm_class(run.algorithm)(run.policy.class_name, env, **keywords)
    if run.buffer.is_lean and run.algorithm == "RecurrentPPO":
        rlmem.sb3.use_lean_rollout(model, **_lean_options(run))
    return model


def algorithm_class(name: str) -> Any:
    for module in ("stable_baselines3", "sb3_contrib"):
        found = getattr(importlib.import_module(module), name, None)
        if found is not None:
            return found
    raise LookupError(name)


def algorithm_settings(run: FrameworkRun) -> dict[str, Any]:
    """Return the settings that bear on memory, as the constructor takes them."""
    training = run.training
    settings: dict[str, Any] = {
        "n_steps": training.n_steps,
        "batch_size": training.batch_size,
        "n_epochs": training.n_epochs,
        "buffer_size": training.buffer_size,
        "learning_starts": training.learning_starts,
        "train_freq": (training.train_freq, training.train_freq_unit),
        "gradient_steps": training.gradient_steps,
        "optimize_memory_usage": training.optimize_memory_usage or None,
        "replay_buffer_class": replay_class(training.replay_buffer_class),
        "use_sde": training.use_sde or None,
        "n_delta": training.n_delta,
    }
    if not training.handle_timeout_termination:
        settings["replay_buffer_kwargs"] = {"handle_timeout_termination": False}
    return {key: value for key, value in settings.items() if value is not None}


def replay_class(name: str | None) -> Any:
    if name is None:
        return None
    from stable_baselines3 import HerReplayBuffer
    from stable_baselines3.common import buffers

    return HerReplayBuffer if name == "HerReplayBuffer" else getattr(buffers, name)


def lean_settings(run: FrameworkRun) -> dict[str, Any]:
    """Return what makes an algorithm's buffer a lean one; RecurrentPPO has no settings for it."""
    options = _lean_options(run)
    if run.spec.off_policy:
        kept = {} if run.training.handle_timeout_termination else {"handle_timeout_termination": False}
        kind, needed = _lean_replay(run)
        return {"replay_buffer_class": kind, "replay_buffer_kwargs": kept | needed | options}
    if run.algorithm == "RecurrentPPO":
        return {}
    name = "LeanMaskableRolloutBuffer" if run.algorithm == "MaskablePPO" else "LeanRolloutBuffer"
    return {"rollout_buffer_class": getattr(rlmem.sb3, name), "rollout_buffer_kwargs": options}


def _lean_replay(run: FrameworkRun) -> tuple[Any, dict[str, Any]]:
    """Return the lean class in the place of the one that the run names, or that the framework would pick."""
    name, n_steps = run.training.replay_buffer_class, run.training.n_steps
    if name == GOAL_REPLAY:
        return rlmem.sb3.LeanHerReplayBuffer, {}
    if name == N_STEP_REPLAY or (name is None and n_steps > 1):
        return rlmem.sb3.LeanNStepReplayBuffer, {
            "n_steps": n_steps,
            "gamma": dict(run.training.other).get("gamma", 0.99),
        }
    return rlmem.sb3.LeanReplayBuffer, {}


def _lean_options(run: FrameworkRun) -> dict[str, Any]:
    buffer = run.buffer
    options: dict[str, Any] = {"compact": buffer.compact, "memory_limit": buffer.memory_limit, "lossy": buffer.lossy}
    return options | {"when_full": buffer.when_full} if run.spec.off_policy else options


def policy_settings(run: FrameworkRun) -> dict[str, Any]:
    """Return the policy's keyword arguments."""
    policy = run.policy
    settings: dict[str, Any] = {
        "share_features_extractor": policy.share_features_extractor,
        "n_critics": policy.n_critics,
        "n_quantiles": policy.n_quantiles,
        "net_arch": _net_arch(run),
        **_optimizer(run),
        **_features(policy),
        **_recurrent(run),
    }
    if not policy.normalize_images:
        settings["normalize_images"] = False
    return {key: value for key, value in settings.items() if value is not None}


def _net_arch(run: FrameworkRun) -> Any:
    arch = run.policy.net_arch
    if arch is None:
        return None
    if run.algorithm in ("DQN", "QRDQN", "ARS"):
        return list(arch.policy)
    return {"pi": list(arch.policy), "vf" if run.spec.on_policy else "qf": list(arch.value)}


def _optimizer(run: FrameworkRun) -> dict[str, Any]:
    if run.policy.optimizer is None:
        return {}
    kind, keywords = _OPTIMIZERS[run.policy.optimizer]
    return {"optimizer_class": kind, "optimizer_kwargs": keywords}


def _features(policy: Policy) -> dict[str, Any]:
    if isinstance(policy.features, tuple):
        return {"features_extractor_class": extractor_class(policy.features), "features_extractor_kwargs": {}}
    if policy.features_dim is None:
        return {}
    key = "cnn_output_dim" if policy.class_name.startswith("MultiInput") else "features_dim"
    return {"features_extractor_kwargs": {key: policy.features_dim}}


def _recurrent(run: FrameworkRun) -> dict[str, Any]:
    if run.algorithm != "RecurrentPPO":
        return {}
    policy = run.policy
    return {
        "lstm_hidden_size": policy.lstm_hidden_size,
        "n_lstm_layers": policy.n_lstm_layers,
        "shared_lstm": policy.shared_lstm,
        "enable_critic_lstm": policy.enable_critic_lstm,
    }


def build_vec_env(env: Env) -> VecEnv:
    """Return the run's vector environment: real where the run names one, synthetic where it gives spaces."""
    makers = [_maker(env)] * env.n_envs
    venv: VecEnv = (
        SubprocVecEnv(makers, start_method=env.start_method) if env.workers == "subprocess" else DummyVecEnv(makers)
    )
    if env.frame_stack > 1:
        venv = VecFrameStack(venv, env.frame_stack)
    if env.normalize:
        venv = VecNormalize(venv)
    return venv


def build_stored_env(env: Env) -> VecEnv:
    """Return the run's vector environment as a model wraps it, whose observations are those that a buffer stores."""
    return BaseAlgorithm._wrap_env(build_vec_env(env), verbose=0, monitor_wrapper=False)


def _maker(env: Env) -> Callable[[], Any]:
    if env.id or env.make:
        return partial(build_environment, env.id, env.make, env.wrappers)
    return partial(_synthetic, env)


def _synthetic(env: Env) -> SyntheticEnv:
    assert env.observation is not None  # noqa: S101 - a run without spaces names an environment
    assert env.action is not None  # noqa: S101 - likewise
    return SyntheticEnv(build(env.observation), build(_bounded(env.action)), env.episode_length)


def _bounded(action: Space) -> Space:
    """Return the action space with bounds: the framework takes no unbounded actions."""
    if isinstance(action, Box) and (action.low is None or action.high is None):
        return replace(action, low=-1.0, high=1.0)
    return action

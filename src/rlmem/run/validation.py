"""What the framework itself would refuse: said before anything is planned."""

from __future__ import annotations

from typing import Final

from rlmem.run.algorithms import GOAL_REPLAY, N_STEP_REPLAY
from rlmem.run.model import FrameworkRun
from rlmem.run.spaces import Box, Dict, Discrete, MultiBinary, Space, Tuple, is_image

_BOX_ONLY: Final = ("SAC", "TD3", "DDPG", "TQC", "CrossQ")
_DISCRETE_ONLY: Final = ("DQN", "QRDQN")
_MLP_ONLY: Final = ("CrossQ", "ARS")
_GOAL_KEYS: Final = ("achieved_goal", "desired_goal", "observation")


def complaint(run: FrameworkRun) -> str | None:
    """Return what the framework would refuse about the run, or None. Unread spaces are passed over."""
    checks = (_action(run), _observation(run), _policy(run), _buffer(run), _rollout(run), _lean(run))
    return next((problem for problem in checks if problem), None)


def _action(run: FrameworkRun) -> str | None:
    action = run.env.action
    if action is None:
        return None
    if isinstance(action, Dict | Tuple):
        return f"{run.algorithm} does not take Dict or Tuple actions; flatten them in a wrapper"
    if run.algorithm in _BOX_ONLY and not isinstance(action, Box):
        return f"{run.algorithm} takes Box actions only, but `env.action` is {_name(action)}"
    if run.algorithm in _DISCRETE_ONLY and not isinstance(action, Discrete):
        return f"{run.algorithm} takes Discrete actions only, but `env.action` is {_name(action)}"
    if run.algorithm == "MaskablePPO" and isinstance(action, Box):
        return "MaskablePPO takes Discrete, MultiDiscrete or MultiBinary actions, but `env.action` is Box"
    if run.algorithm == "ARS" and not isinstance(action, Box | Discrete):
        return f"ARS takes Box or Discrete actions, but `env.action` is {_name(action)}"
    if isinstance(action, MultiBinary) and len(action.shape) != 1:
        return "MultiBinary actions must have one axis; flatten them in a wrapper"
    return None


def _observation(run: FrameworkRun) -> str | None:
    observation = run.env.observation
    if isinstance(observation, Tuple):
        return "Stable-Baselines3 does not take Tuple observations; use a Dict"
    if isinstance(observation, Dict):
        if any(isinstance(item, Dict | Tuple) for _, item in observation.items):
            return "Stable-Baselines3 does not take nested Dict observations; flatten them in a wrapper"
        if run.algorithm == "ARS":
            return "ARS does not take Dict observations"
    return None


def _policy(run: FrameworkRun) -> str | None:
    observation, name = run.env.observation, run.policy.class_name
    recurrent = "Lstm" in name
    if recurrent != (run.algorithm == "RecurrentPPO"):
        return f"{run.algorithm} does not take {name}" + ("" if recurrent else "; it takes MlpLstmPolicy and the like")
    if name == "LinearPolicy" and run.algorithm != "ARS":
        return "LinearPolicy is ARS's alone"
    if run.algorithm in _MLP_ONLY and name not in ("MlpPolicy", "LinearPolicy"):
        return f"{run.algorithm} does not take {name}; it has no such policy"
    if observation is None:
        return None
    if isinstance(observation, Dict) != name.startswith("MultiInput"):
        return f"{name} does not take {_name(observation)} observations; MultiInput policies and Dict go together"
    if name.startswith("Cnn") and run.policy.features is None and not _takes_cnn(run, observation):
        return (
            f"{name} takes uint8 images of three axes; describe another network for "
            f"{_name(observation)} observations under `policy.features`"
        )
    if run.policy.shared_lstm and run.policy.enable_critic_lstm:
        return "`shared_lstm` needs `enable_critic_lstm: false`: the critic has one LSTM, a shared one, or none"
    return None


def _takes_cnn(run: FrameworkRun, observation: Space) -> bool:
    """Whether the Nature CNN takes the observation: with `normalize_images: false`, any Box of three axes."""
    three_axes = isinstance(observation, Box) and len(observation.shape) == 3
    return is_image(observation) or (three_axes and not run.policy.normalize_images)


def _buffer(run: FrameworkRun) -> str | None:
    name, observation = run.training.replay_buffer_class, run.env.observation
    if name is None or observation is None:
        return None
    if name == GOAL_REPLAY:
        keys = tuple(sorted(key for key, _ in observation.items)) if isinstance(observation, Dict) else ()
        if not set(_GOAL_KEYS) <= set(keys):
            return f"{GOAL_REPLAY} needs a Dict observation with {', '.join(_GOAL_KEYS)}"
    elif (name == "DictReplayBuffer") != isinstance(observation, Dict):
        return f"{name} does not take {_name(observation)} observations"
    return None


def _rollout(run: FrameworkRun) -> str | None:
    training = run.training
    if run.algorithm in ("PPO", "MaskablePPO", "RecurrentPPO") and training.n_steps * run.n_envs == 1:
        return "n_steps × n_envs > 1 must hold, but got 1 × 1: advantages cannot be normalised over one step"
    if run.spec.off_policy and training.n_steps > 1 and isinstance(run.env.observation, Dict):
        return f"n-step returns ({N_STEP_REPLAY}) are not there for Dict observations"
    return None


def _lean(run: FrameworkRun) -> str | None:
    buffer = run.buffer
    if not buffer.is_lean:
        options = buffer.compact or buffer.memory_limit is not None or buffer.when_full != "error" or buffer.lossy
        return (
            "`buffer.compact`, `memory_limit`, `when_full` and `lossy` are for `kind: lean` only" if options else None
        )
    if run.spec.family == "search":
        return f"{run.algorithm} has no buffer to be lean"
    if run.training.optimize_memory_usage:
        return (
            "a lean buffer holds next observations once by itself: leave `training.optimize_memory_usage` out with "
            "`buffer: lean`"
        )
    if buffer.when_full != "error" and not run.spec.off_policy:
        return "`buffer.when_full: forget` is for replay buffers: a rollout is learnt from as a whole"
    return None


def _name(space: Space) -> str:
    return type(space).__name__

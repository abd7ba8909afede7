"""The program that test_resume.py starts: `resuming.py train|resume|die FOLDER [CASE ...]`; writes weights as .npz."""

from __future__ import annotations

import os
import signal
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

import ale_py
import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit
from sb3_contrib import QRDQN, TQC, TRPO, CrossQ, MaskablePPO, RecurrentPPO
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3, HerReplayBuffer
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_atari_env, make_vec_env
from stable_baselines3.common.noise import NormalActionNoise, OrnsteinUhlenbeckActionNoise
from stable_baselines3.common.utils import LinearSchedule
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack, VecNormalize

from rlmem.sb3 import (
    Checkpoints,
    LeanHerReplayBuffer,
    LeanNStepReplayBuffer,
    LeanReplayBuffer,
    LeanRolloutBuffer,
    Restorable,
    remaining,
    restore,
)


class Walk(gymnasium.Env):
    """Goes left and right, with noise of its own; ``telling``: says where it is, and can be put there."""

    def __init__(self, *, continuous: bool = False, masked: bool = False) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.action_space = spaces.Box(-1, 1, (1,), np.float32) if continuous else spaces.Discrete(3)
        self.masked, self._at = masked, np.zeros(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._at = self.np_random.normal(size=3)
        return self._at.astype(np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        push = float(np.asarray(action).reshape(-1)[0]) - (0 if isinstance(self.action_space, spaces.Box) else 1)
        self._at = 0.9 * np.roll(self._at, 1) + [push, 0, 0] + 0.1 * self.np_random.normal(size=3)
        return self._at.astype(np.float32), float(-abs(self._at[0])), bool(abs(self._at[1]) > 2), False, {}

    def action_masks(self) -> Any:
        return np.array([self._at[0] > -1, True, self._at[0] < 1]) if self.masked else np.ones(3, bool)


class TellingWalk(Walk):
    def get_state(self) -> dict[str, Any]:
        return {"at": self._at}

    def set_state(self, state: dict[str, Any]) -> None:
        self._at = state["at"]


class Reach(gymnasium.Env):
    """A goal to be reached on a line, for hindsight."""

    def __init__(self) -> None:
        line = spaces.Box(-10, 10, (1,), np.float32)
        self.observation_space = spaces.Dict({"observation": line, "achieved_goal": line, "desired_goal": line})
        self.action_space = spaces.Box(-1, 1, (1,), np.float32)
        self._at, self._goal = np.zeros(1, np.float32), np.zeros(1, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._at, self._goal = (self.np_random.uniform(-3, 3, 1).astype(np.float32) for _ in range(2))
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._at = np.clip(self._at + action, -10, 10).astype(np.float32)
        reward = float(self.compute_reward(self._at, self._goal, {}))
        return self._seen(), reward, reward == 0, False, {}

    def compute_reward(self, achieved: Any, desired: Any, infos: Any) -> Any:
        return -(np.abs(achieved - desired).sum(axis=-1) > 0.5).astype(np.float32)

    def get_state(self) -> dict[str, Any]:
        return {"at": self._at, "goal": self._goal}

    def set_state(self, state: dict[str, Any]) -> None:
        self._at, self._goal = state["at"], state["goal"]

    def _seen(self) -> dict[str, Any]:
        return {"observation": self._at, "achieved_goal": self._at, "desired_goal": self._goal}


def walks(n_envs: int = 1, *, telling: bool = True, **kwargs: Any) -> Any:
    kind = TellingWalk if telling else Walk
    return DummyVecEnv([lambda: TimeLimit(kind(**kwargs), 17)] * n_envs)


def reach() -> Any:
    return DummyVecEnv([lambda: TimeLimit(Reach(), 9)])


def cartpoles() -> Any:
    return make_vec_env("CartPole-v1", n_envs=3)


def pendulum() -> Any:
    return make_vec_env("Pendulum-v1", n_envs=1)


def breakout() -> Any:
    gymnasium.register_envs(ale_py)
    return VecFrameStack(make_atari_env("BreakoutNoFrameskip-v4", 2), 4)


def moving(n_envs: int = 1) -> Any:
    return walks(n_envs, continuous=True)


NET = {"policy_kwargs": {"net_arch": [16]}}
ROLLOUT = {"n_steps": 16, "batch_size": 12, "n_epochs": 2, **NET}
REPLAY = {"buffer_size": 90, "learning_starts": 20, "batch_size": 16, "train_freq": 8, "gradient_steps": 4, **NET}
LEAN = {"rollout_buffer_class": LeanRolloutBuffer, "rollout_buffer_kwargs": {"compact": True}}
LEAN_REPLAY = {"replay_buffer_class": LeanReplayBuffer}
HER = {"learning_starts": 40, "buffer_size": 70}
OU = OrnsteinUhlenbeckActionNoise(np.zeros(1), 0.3 * np.ones(1))
CHANGING = {"learning_rate": LinearSchedule(1e-2, 1e-4, 1.0)}

CASES: dict[str, tuple[Any, str, Any, dict[str, Any], dict[str, Any]]] = {
    "ppo-cartpole": (PPO, "MlpPolicy", cartpoles, ROLLOUT | CHANGING, {}),
    "ppo-lean": (PPO, "MlpPolicy", lambda: walks(3), ROLLOUT | LEAN, {}),
    "ppo-new-episode": (PPO, "MlpPolicy", lambda: walks(2, telling=False), ROLLOUT, {"new_episode": True}),
    "ppo-sde": (PPO, "MlpPolicy", pendulum, ROLLOUT | {"use_sde": True, "sde_sample_freq": 4}, {}),
    "ppo-normalize": (PPO, "MlpPolicy", lambda: VecNormalize(VecFrameStack(walks(2), 3)), ROLLOUT, {}),
    "ppo-normalize-new-episode": (
        PPO,
        "MlpPolicy",
        lambda: VecNormalize(VecFrameStack(walks(2, telling=False), 3)),
        ROLLOUT,
        {"new_episode": True},
    ),
    "ppo-subprocess": (
        PPO,
        "MlpPolicy",
        lambda: make_vec_env("CartPole-v1", 2, vec_env_cls=SubprocVecEnv, wrapper_class=Restorable),
        ROLLOUT,
        {},
    ),
    "a2c": (A2C, "MlpPolicy", lambda: walks(2), {**NET, "learning_rate": LinearSchedule(1e-2, 1e-4, 1.0)}, {}),
    "a2c-adam": (A2C, "MlpPolicy", lambda: walks(2), {**NET, "use_rms_prop": False}, {}),
    "trpo": (TRPO, "MlpPolicy", lambda: walks(2), {"n_steps": 16, "batch_size": 16, **NET}, {}),
    "maskable-ppo": (MaskablePPO, "MlpPolicy", lambda: walks(2, masked=True), ROLLOUT, {}),
    "recurrent-ppo": (
        RecurrentPPO,
        "MlpLstmPolicy",
        lambda: walks(2),
        ROLLOUT | {"policy_kwargs": {"net_arch": [8], "lstm_hidden_size": 8}},
        {},
    ),
    "dqn": (DQN, "MlpPolicy", lambda: walks(2), REPLAY | {"target_update_interval": 30}, {}),
    "dqn-lean": (DQN, "MlpPolicy", walks, REPLAY | LEAN_REPLAY | {"target_update_interval": 30}, {}),
    "dqn-shared-rows": (
        DQN,
        "MlpPolicy",
        walks,
        REPLAY
        | {
            "replay_buffer_class": ReplayBuffer,
            "optimize_memory_usage": True,
            "replay_buffer_kwargs": {"handle_timeout_termination": False},
        },
        {},
    ),
    "dqn-n-steps": (DQN, "MlpPolicy", walks, REPLAY | {"n_steps": 3}, {}),
    "dqn-n-steps-lean-new-episode": (
        DQN,
        "MlpPolicy",
        lambda: walks(2, telling=False),
        REPLAY | {"replay_buffer_class": LeanNStepReplayBuffer, "replay_buffer_kwargs": {"n_steps": 3, "gamma": 0.99}},
        {"new_episode": True},
    ),
    "dqn-atari-lean": (
        DQN,
        "CnnPolicy",
        breakout,
        REPLAY | LEAN_REPLAY | {"policy_kwargs": {"features_extractor_kwargs": {"features_dim": 8}, "net_arch": []}},
        {},
    ),
    "qrdqn": (QRDQN, "MlpPolicy", walks, REPLAY, {}),
    "sac": (SAC, "MlpPolicy", pendulum, REPLAY | CHANGING, {}),
    "sac-lean": (SAC, "MlpPolicy", lambda: moving(2), REPLAY | LEAN_REPLAY, {}),
    "sac-normalize": (SAC, "MlpPolicy", lambda: VecNormalize(moving(2)), REPLAY, {}),
    "sac-sde": (SAC, "MlpPolicy", moving, REPLAY | {"use_sde": True, "ent_coef": 0.1}, {}),
    "sac-episodes": (SAC, "MlpPolicy", moving, REPLAY | {"train_freq": (1, "episode")}, {}),
    "td3": (TD3, "MlpPolicy", moving, REPLAY | {"action_noise": NormalActionNoise(np.zeros(1), 0.1 * np.ones(1))}, {}),
    "td3-lean-ou-noise": (TD3, "MlpPolicy", lambda: moving(2), REPLAY | LEAN_REPLAY | {"action_noise": OU}, {}),
    "ddpg-ou-noise": (DDPG, "MlpPolicy", moving, REPLAY | {"action_noise": OU}, {}),
    "tqc": (TQC, "MlpPolicy", moving, REPLAY, {}),
    "crossq": (CrossQ, "MlpPolicy", moving, REPLAY, {}),
    "sac-her": (SAC, "MultiInputPolicy", reach, REPLAY | HER | {"replay_buffer_class": HerReplayBuffer}, {}),
    "sac-her-new-episode": (
        SAC,
        "MultiInputPolicy",
        reach,
        REPLAY | HER | {"replay_buffer_class": HerReplayBuffer},
        {"new_episode": True},
    ),
    "sac-her-lean": (SAC, "MultiInputPolicy", reach, REPLAY | HER | {"replay_buffer_class": LeanHerReplayBuffer}, {}),
}
EVERY = 100
TOTAL = 260


def weights(model: Any) -> dict[str, Any]:
    found = {}
    for name, state in model.get_parameters().items():
        tensors = state if name == "policy" else dict(_flat(state["state"]))
        found |= {f"{name}/{key}": value.detach().numpy() for key, value in tensors.items()}
    return found | {"timesteps": np.array([model.num_timesteps, model._n_updates])}


def _flat(state: Any) -> Any:
    for index, values in state.items():
        yield from ((f"{index}.{key}", value) for key, value in values.items() if isinstance(value, torch.Tensor))


def made(name: str) -> Any:
    from copy import deepcopy

    algorithm, policy, make_env, kwargs, _ = CASES[name]
    return algorithm(policy, make_env(), seed=3, device="cpu", **deepcopy(kwargs))


def train(folder: Path, name: str) -> None:
    """Train without a break twice: with and without saving."""
    _, _, _, kwargs, options = CASES[name]
    if not options and not kwargs.get("use_sde"):
        plain = made(name).learn(TOTAL)
        np.savez(folder / f"{name}.plain.npz", **weights(plain))
        plain.env.close()
    saving = Checkpoints(folder / name, every=EVERY, keep=None, **options)
    model = made(name).learn(TOTAL, callback=saving)
    np.savez(folder / f"{name}.whole.npz", **weights(model))
    model.env.close()


def resume(folder: Path, name: str) -> None:
    """Go on from the first snapshot."""
    from rlmem.store import Store

    _, _, make_env, _, options = CASES[name]
    first = Store.open(folder / name).snapshots()[0].step
    model = restore(folder / name, make_env(), step=first, device="cpu")
    assert model.num_timesteps == first < TOTAL
    again = Checkpoints(folder / f"{name}-again", every=EVERY, keep=None, **options)
    model.learn(remaining(model), reset_num_timesteps=False, callback=again)
    np.savez(folder / f"{name}.resumed.npz", **weights(model))
    model.env.close()


class Death(BaseCallback):
    """Ends the process as nothing can be prepared for."""

    def _on_step(self) -> bool:
        if self.num_timesteps > 230:
            os.kill(os.getpid(), signal.SIGKILL)
        return True


def die(folder: Path, name: str) -> None:
    """Train as in `train`, up to a sudden end; a snapshot may be half written by then."""
    saving = Checkpoints(folder / name, every=20, keep=2, **CASES[name][4])
    made(name).learn(TOTAL, callback=[saving, Death()])


def main(mode: str, folder: Path, names: list[str]) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", message="You have specified a mini-batch size")
    for name in names or CASES:
        try:
            {"train": train, "resume": resume, "die": die}[mode](folder, name)
        except Exception:
            (folder / f"{name}.{mode}.error").write_text(traceback.format_exc())


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])

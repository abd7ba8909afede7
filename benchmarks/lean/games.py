"""Real Atari play for the lean-storage benchmarks: the very transitions that Stable-Baselines3 would store.

Environments are made as users make them (`make_atari_env`, four frames stacked), then with the channels first, as
SB3's image policies do by themselves before anything reaches a replay buffer.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import ale_py
import gymnasium
import numpy as np
from policies import Policy, random_policy, skilled_policy
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecFrameStack, VecTransposeImage

GAMES = ("Breakout", "Pong", "Qbert", "SpaceInvaders", "Seaquest", "MsPacman", "Riverraid", "Enduro")
POLICIES = ("random", "skilled")
N_STACK = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of every environment, as `ReplayBuffer.add` takes it."""

    obs: np.ndarray
    next_obs: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    done: np.ndarray
    infos: list[dict[str, Any]]


def make_env(game: str, *, n_envs: int = 1, seed: int = 0, channels_first: bool = True) -> VecEnv:
    gymnasium.register_envs(ale_py)
    stacked = VecFrameStack(make_atari_env(f"{game}NoFrameskip-v4", n_envs=n_envs, seed=seed), N_STACK)
    return VecTransposeImage(stacked) if channels_first else stacked


def play(
    game: str, policy: str, steps: int, seed: int, *, n_envs: int = 1, channels_first: bool = True
) -> Iterator[Step]:
    """Play `steps` steps, each of `n_envs` transitions; the same arguments give the same transitions."""
    env = make_env(game, n_envs=n_envs, seed=seed, channels_first=channels_first)
    yield from drive(env, make_policy(game, policy, env), steps, seed)
    env.close()


def make_policy(game: str, policy: str, env: VecEnv) -> Policy:
    if policy == "random":
        return random_policy(env.action_space.n)
    if policy == "skilled":
        return skilled_policy(game)
    raise ValueError(f"`policy` must be one of {POLICIES}, got {policy!r}")


def drive(env: VecEnv, policy: Policy, steps: int, seed: int) -> Iterator[Step]:
    rng = np.random.default_rng(seed)
    obs = env.reset()
    for _ in range(steps):
        action = np.array([policy(ram, rng) for ram in rams(env)])
        new_obs, reward, done, infos = env.step(action)
        yield Step(
            obs=obs, next_obs=true_next(new_obs, done, infos), action=action, reward=reward, done=done, infos=infos
        )
        obs = new_obs


def true_next(new_obs: np.ndarray, done: np.ndarray, infos: list[dict[str, Any]]) -> np.ndarray:
    """What followed: where an episode ended, its last observation and not the first of the next episode.

    Word for word what `OffPolicyAlgorithm._store_transition` does.
    """
    next_obs = deepcopy(new_obs)
    for i, ended in enumerate(done):
        if ended and infos[i].get("terminal_observation") is not None:
            next_obs[i] = infos[i]["terminal_observation"]
    return next_obs


def rams(env: VecEnv) -> list[np.ndarray]:
    inner = env.unwrapped
    assert isinstance(inner, DummyVecEnv)
    return [one.unwrapped.ale.getRAM() for one in inner.envs]

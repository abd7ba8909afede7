"""Small environments in which everything happens that a buffer has to get right."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv


class Wanderer(gymnasium.Env):
    """A dot on a plane that ends by itself now and then; seen as an image, a window of floats, or a dict of all."""

    def __init__(self, kind: str, *, continuous: bool = False, masked: bool = False) -> None:
        self.kind, self.masked = kind, masked
        parts = {
            "image": spaces.Box(0, 255, (36, 36, 1), np.uint8),
            "window": spaces.Box(-np.inf, np.inf, (6, 3), np.float32),
            "state": spaces.Discrete(4),
        }
        self.observation_space = spaces.Dict(parts) if kind == "dict" else parts[kind]
        self.action_space = spaces.Box(-1, 1, (2,), np.float32) if continuous else spaces.Discrete(4)
        self._at, self._window = np.zeros(2), np.zeros((6, 3), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._at = self.np_random.integers(0, 36, 2).astype(float)
        self._window = np.zeros((6, 3), np.float32)
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        step = (
            np.asarray(action).reshape(-1) if np.ndim(action) else np.array([(1, 0), (-1, 0), (0, 1), (0, -1)][action])
        )
        self._at = np.clip(self._at + 2 * step, 0, 35)
        self._window = np.concatenate([self._window[1:], self.np_random.normal(size=(1, 3)).astype(np.float32)])
        reward = float(self._at.sum() / 70 + self._window[-1, 0])
        return self._seen(), reward, bool(self.np_random.random() < 0.05), False, {}

    def action_masks(self) -> Any:
        row, column = self._at
        return np.array([row < 35, row > 0, column < 35, column > 0]) if self.masked else np.ones(4, bool)

    def _seen(self) -> Any:
        image = np.zeros((36, 36, 1), np.uint8)
        image[tuple(self._at.astype(int))] = 255
        all_of_it = {"image": image, "window": self._window, "state": int(self._at[0] > 18) + 2 * int(self._at[1] > 18)}
        return all_of_it if self.kind == "dict" else all_of_it[self.kind]


@pytest.fixture(name="wanderers")
def _wanderers():
    def make(kind: str, n_envs: int = 1, **kwargs: Any) -> VecEnv:
        return DummyVecEnv([lambda: TimeLimit(Wanderer(kind, **kwargs), 13)] * n_envs)

    return make


@pytest.fixture(name="same")
def _same():
    """Whether two samples, or two states of weights, are the same to the last bit."""

    def same(one: Any, other: Any) -> bool:
        if one is None or other is None:
            return one is other
        if isinstance(one, dict):
            return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
        if isinstance(one, tuple):
            return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
        return one.shape == other.shape and one.dtype == other.dtype and bool((one == other).all())

    return same

"""Environments that have the right spaces and nothing behind them: random observations, made once and handed out."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

_SAMPLES = 4


class SyntheticEnv(gymnasium.Env[Any, Any]):
    """An environment of the given spaces whose observations take turns; an episode has ``episode_length`` steps."""

    def __init__(self, observation_space: Any, action_space: Any, episode_length: int | None = None) -> None:
        self.observation_space = observation_space
        self.action_space = action_space
        self._length = episode_length or 200
        self._samples = [observation_space.sample() for _ in range(_SAMPLES)]
        self._step = 0
        self._turn = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._step = 0
        return self._next(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._step += 1
        return self._next(), 1.0, self._step >= self._length, False, {}

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        """Answer a hindsight buffer: every goal is as good as any."""
        return np.zeros(len(achieved_goal), dtype=np.float32)

    def action_masks(self) -> Any:
        """Allow every action: one mask a choice."""
        space = self.action_space
        if hasattr(space, "nvec"):
            return np.ones(int(np.sum(space.nvec)), dtype=bool)
        count = int(space.n)
        return np.ones(2 * count if type(space).__name__ == "MultiBinary" else count, dtype=bool)

    def _next(self) -> Any:
        self._turn = (self._turn + 1) % _SAMPLES
        return self._samples[self._turn]

"""The replay buffer for hindsight experience that holds each byte of observation once."""

from __future__ import annotations

from typing import Any

import numpy as np
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer

from rlmem.lean.kernels import Array
from rlmem.sb3.lean_replay import LeanReplay


class LeanHerReplayBuffer(LeanReplay, HerReplayBuffer):
    """A HerReplayBuffer as lean as LeanReplayBuffer. What it forgets, it forgets by whole episodes."""

    ep_start: Array
    ep_length: Array
    _current_ep_start: Array

    def reset(self) -> None:
        """Forget all episodes."""
        super().reset()
        self.ep_start[:], self.ep_length[:] = 0, 0
        self._current_ep_start[:] = 0

    def sample(self, batch_size: int, env: Any = None) -> Any:
        """Return real and virtual transitions of whole episodes, as the stock buffer draws them."""
        return HerReplayBuffer.sample(self, batch_size, env)

    def _let_go(self, rows: Array) -> None:
        for env in range(self.n_envs):
            self._end_episode_that_holds(int(rows[-1]), env)
            self._shorten_running_episode(int(rows[-1] + 1) % self.buffer_size, env)
        self.ep_length[rows] = 0

    def _end_episode_that_holds(self, row: int, env: int) -> None:
        """Take what is left of an episode out of the draw when its first rows go, as writing over them would."""
        start, length = self.ep_start[row, env], self.ep_length[row, env]
        if length:
            left = (start + np.arange((row - start) % self.buffer_size, length)) % self.buffer_size
            self.ep_length[left, env] = 0

    def _shorten_running_episode(self, kept: int, env: int) -> None:
        """Let an episode that has not ended begin where rows are kept from."""
        length = int(self.pos - self._current_ep_start[env]) % self.buffer_size
        left = (self.pos - kept) % self.buffer_size
        if left < length:
            self._current_ep_start[env] = kept
            self.ep_start[(kept + np.arange(left)) % self.buffer_size, env] = kept

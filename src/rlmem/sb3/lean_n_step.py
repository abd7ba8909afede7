"""The replay buffer for n-step returns that holds each byte of observation once."""

from __future__ import annotations

from stable_baselines3.common.buffers import NStepReplayBuffer

from rlmem.sb3.lean_replay import LeanReplay


class LeanNStepReplayBuffer(LeanReplay, NStepReplayBuffer):
    """An NStepReplayBuffer as lean as LeanReplayBuffer; like the stock class, not for Dict spaces."""

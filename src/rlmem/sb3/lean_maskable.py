"""The rollout buffer for MaskablePPO that holds observations and action masks lean."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from sb3_contrib.common.maskable.buffers import MaskableDictRolloutBuffer, MaskableRolloutBuffer
from stable_baselines3.common.buffers import DictRolloutBuffer, RolloutBuffer

from rlmem.lean.kernels import Array
from rlmem.sb3.column_view import ColumnView
from rlmem.sb3.lean_buffer import for_dict_spaces_of
from rlmem.sb3.lean_rollout import LeanRollout


class LeanMaskableRollout(LeanRollout):
    """What is lean about a maskable rollout buffer: a mask is held as yes or no, and handed out as floats."""

    action_space: Any

    def _open_columns(self, *, follows: bool) -> None:
        super()._open_columns(follows=follows)
        self._open("action_masks", shape=(self.mask_dims,), dtype=np.bool_, follows=False, unwritten=1)
        self.action_masks = ColumnView(self._accesses["action_masks"], dtype=np.float32)

    def _reset_arrays(self) -> None:
        """Make the arrays of the plain rollout buffer: the maskable one's would fill a float for every action."""
        self.mask_dims = mask_dims(self.action_space)
        plain: Any = DictRolloutBuffer if isinstance(self, DictRolloutBuffer) else RolloutBuffer
        plain.reset(self)

    def add(self, *args: Any, action_masks: Array | None = None, **kwargs: Any) -> None:
        """Store a step of every environment; without masks all actions are allowed."""
        if action_masks is None:
            action_masks = np.ones((self.n_envs, self.mask_dims), np.bool_)
        super().add(*args, action_masks=action_masks, **kwargs)


class LeanMaskableRolloutBuffer(LeanMaskableRollout, MaskableRolloutBuffer):
    """A MaskableRolloutBuffer, or for a Dict space a MaskableDictRolloutBuffer, as lean as LeanRolloutBuffer."""


@for_dict_spaces_of(LeanMaskableRolloutBuffer)
class LeanMaskableDictRolloutBuffer(LeanMaskableRollout, MaskableDictRolloutBuffer):
    """What LeanMaskableRolloutBuffer is for Dict spaces."""


def mask_dims(space: Any) -> int:
    """Return how many yes or no a mask of an action space has."""
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return int(np.sum(space.nvec))
    if isinstance(space, spaces.MultiBinary) and isinstance(space.n, int):
        return 2 * space.n
    raise ValueError(f"actions must be Discrete, MultiDiscrete or flat MultiBinary to be masked, but got {space}")

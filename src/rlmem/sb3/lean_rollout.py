"""Rollout buffers for PPO, A2C and TRPO that hold each byte of observation once.

The stock code collects and hands out minibatches; `get` makes no flattened copy of the observations.
"""

from __future__ import annotations

from typing import Any

from stable_baselines3.common.buffers import DictRolloutBuffer, RolloutBuffer

from rlmem.sb3.lean_buffer import LeanBuffer, check_space, for_dict_spaces_of


class LeanRollout(LeanBuffer):
    """What is lean about a rollout buffer, whatever else it stores."""

    def __init__(
        self,
        buffer_size: int,
        observation_space: Any,
        action_space: Any,
        *args: Any,
        compact: bool = False,
        lossy: str | None = None,
        memory_limit: int | str | None = None,
        **kwargs: Any,
    ) -> None:
        check_space(self, observation_space, DictRolloutBuffer)
        self._take_options(compact=compact, memory_limit=memory_limit, lossy=lossy)
        super().__init__(buffer_size, observation_space, action_space, *args, **kwargs)  # type: ignore[call-arg]
        self._check_room()

    def reset(self) -> None:
        """Forget the rollout."""
        shape, self.obs_shape = self.obs_shape, {} if isinstance(self.obs_shape, dict) else (0,)
        try:
            self._reset_arrays()
        finally:
            self.obs_shape = shape
        self._open_columns(follows=False)

    def _reset_arrays(self) -> None:
        """Make the stock arrays, while those for observations would be empty."""
        super().reset()  # type: ignore[misc]

    def add(self, *args: Any, **kwargs: Any) -> None:
        """Store a step of every environment, as the stock buffer does."""
        super().add(*args, **kwargs)  # type: ignore[misc]
        self._note_add()


class LeanRolloutBuffer(LeanRollout, RolloutBuffer):
    """A RolloutBuffer, or for a Dict space a DictRolloutBuffer, that holds each byte of observation once.

    ``compact`` compresses on top of that; ``lossy="float16"`` rounds floats, and is off; ``memory_limit`` (bytes, or a
    text such as ``"2GB"``) raises MemoryLimitReached before a machine is out of memory; all else is as in the stock
    class.
    """


@for_dict_spaces_of(LeanRolloutBuffer)
class LeanDictRolloutBuffer(LeanRollout, DictRolloutBuffer):
    """What LeanRolloutBuffer is for Dict spaces."""

"""The rollout buffer for RecurrentPPO that holds observations lean, and the way to put it in.

RecurrentPPO has no ``rollout_buffer_class``: `use_lean_rollout` changes the buffer of a model that has been made or
loaded. The stock buffer that it puts away has taken no memory by then, since nothing was written to its arrays.
"""

from __future__ import annotations

from typing import Any

from sb3_contrib.common.recurrent.buffers import RecurrentDictRolloutBuffer, RecurrentRolloutBuffer

from rlmem.errors import LeanBufferError
from rlmem.sb3.lean_buffer import for_dict_spaces_of
from rlmem.sb3.lean_rollout import LeanRollout


class LeanRecurrentRolloutBuffer(LeanRollout, RecurrentRolloutBuffer):
    """A RecurrentRolloutBuffer, or for a Dict space a RecurrentDictRolloutBuffer, as lean as LeanRolloutBuffer."""


@for_dict_spaces_of(LeanRecurrentRolloutBuffer)
class LeanRecurrentDictRolloutBuffer(LeanRollout, RecurrentDictRolloutBuffer):
    """What LeanRecurrentRolloutBuffer is for Dict spaces."""


def use_lean_rollout(
    model: Any, *, compact: bool = False, memory_limit: int | str | None = None, lossy: str | None = None
) -> None:
    """Give a RecurrentPPO model a lean rollout buffer in the place of its own; to be called before `learn`."""
    stock = getattr(model, "rollout_buffer", None)
    if not isinstance(stock, RecurrentRolloutBuffer | RecurrentDictRolloutBuffer):
        raise LeanBufferError(
            f"use_lean_rollout is for RecurrentPPO, but got a {type(model).__name__}: "
            "give it rollout_buffer_class or replay_buffer_class instead"
        )
    model.rollout_buffer = LeanRecurrentRolloutBuffer(
        stock.buffer_size,
        stock.observation_space,
        stock.action_space,
        stock.hidden_state_shape,
        stock.device,
        gae_lambda=stock.gae_lambda,
        gamma=stock.gamma,
        n_envs=stock.n_envs,
        compact=compact,
        memory_limit=memory_limit,
        lossy=lossy,
    )

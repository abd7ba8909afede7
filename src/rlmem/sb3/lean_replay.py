"""Replay buffers for DQN, SAC and TD3 that hold each byte of observation once, the next observations included.

The stock code stores transitions. Rows can be forgotten, oldest first, so that a buffer keeps to a limit.
"""

from __future__ import annotations

import math
from typing import Any, Final, Literal

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common.buffers import DictReplayBuffer, ReplayBuffer
from stable_baselines3.common.type_aliases import DictReplayBufferSamples, ReplayBufferSamples

from rlmem.errors import LeanBufferError
from rlmem.lean.kernels import Array
from rlmem.sb3.lean_buffer import LeanBuffer, check_space, for_dict_spaces_of, shape_of, without_observations
from rlmem.sb3.pair_transfer import pair_to_device

WhenFull = Literal["error", "forget"]
_LEAST_SHARE_FORGOTTEN: Final = 256


class LeanReplay(LeanBuffer):
    """What is lean about a replay buffer, however it samples."""

    def __init__(
        self,
        buffer_size: int,
        observation_space: Any,
        action_space: Any,
        *args: Any,
        compact: bool = False,
        lossy: str | None = None,
        memory_limit: int | str | None = None,
        when_full: WhenFull = "error",
        **kwargs: Any,
    ) -> None:
        check_space(self, observation_space, DictReplayBuffer)
        _check_options(when_full, kwargs.get("optimize_memory_usage", False))
        self._take_options(compact=compact, memory_limit=memory_limit, lossy=lossy)
        self.when_full, self._forgotten = when_full, 0
        nothing = without_observations(observation_space)
        super().__init__(buffer_size, nothing, action_space, *args, **kwargs)  # type: ignore[call-arg]
        _check_options(when_full, self.optimize_memory_usage)  # type: ignore[attr-defined]
        self.observation_space, self.obs_shape = observation_space, shape_of(observation_space)
        self._open_columns(follows=True)
        self._check_room()

    def reset(self) -> None:
        """Forget all transitions."""
        super().reset()  # type: ignore[misc]
        self._forgotten = 0
        self._open_columns(follows=True)

    def add(self, *args: Any, **kwargs: Any) -> None:
        """Store a transition of every environment, as the stock buffer does."""
        was_full = self.full
        super().add(*args, **kwargs)  # type: ignore[misc]
        self._forgotten = max(self._forgotten - was_full, 0)
        self._note_add()

    def sample(self, batch_size: int, env: Any = None) -> Any:
        """Return a minibatch of the transitions that are held: the one the stock buffer draws, if none is forgotten."""
        if not self._forgotten:
            return super().sample(batch_size, env=env)  # type: ignore[misc]
        ages = np.random.randint(self._forgotten, super()._rows_held(), size=batch_size)
        return self._get_samples((self._oldest() + ages) % self.buffer_size, env=env)  # type: ignore[attr-defined]

    # --- forgetting ------------------------------------------------------------------------------------------------

    @property
    def forgotten(self) -> int:
        """How many of the oldest rows were given up for the limit, and have not been written over yet."""
        return self._forgotten

    def _keep_to(self, limit: int) -> None:
        while self.when_full == "forget" and self.nbytes > limit and self._rows_held() > 1:
            self._forget(self._rows_to_forget(limit))
        super()._keep_to(limit)

    def _rows_to_forget(self, limit: int) -> int:
        """Return how many rows hold what is too much, if all hold the same; whole blocks go, so some more."""
        rows, columns = self._rows_held(), max(self._columns_bytes(), 1)
        share = max((self.nbytes - limit) / columns, 1 / _LEAST_SHARE_FORGOTTEN)
        return max(1, min(math.ceil(rows * share), rows - 1))

    def _forget(self, count: int) -> None:
        going: Array = (self._oldest() + self._forgotten + np.arange(count)) % self.buffer_size
        self._forgotten += count
        self._let_go(going)
        for access in self._accesses.values():
            access.column.forget(int(going[-1] + 1) % self.buffer_size)

    def _let_go(self, rows: Array) -> None:
        """See to it that rows which are being forgotten cannot be sampled any more; plain sampling skips them."""

    def _oldest(self) -> int:
        return self.pos if self.full else 0

    def _rows_held(self) -> int:
        return super()._rows_held() - self._forgotten

    def _ways_out(self) -> str:
        forget = "" if self.when_full == "forget" else ", or let it forget the oldest with when_full='forget'"
        return f"{super()._ways_out()}{forget}"


class LeanUniformReplay(LeanReplay):
    """A lean replay buffer whose minibatches are transitions drawn evenly."""

    n_envs: int

    def add(self, obs: Any, next_obs: Any, action: Any, reward: Any, done: Any, infos: list[dict[str, Any]]) -> None:
        """Store a transition of every environment; what the stock buffer does, without its copies on the way."""
        stock: Any = self
        row, was_full = self.pos, self.full
        for name, access in self._accesses.items():
            key = name.removeprefix("observations/")
            seen, following = (obs, next_obs) if key == name else (obs[key], next_obs[key])
            access.put(row, seen, following)
        stock.actions[row] = action.reshape((self.n_envs, stock.action_dim))
        stock.rewards[row] = reward
        stock.dones[row] = done
        if stock.handle_timeout_termination:
            stock.timeouts[row] = [info.get("TimeLimit.truncated", False) for info in infos]
        self.pos = (row + 1) % self.buffer_size
        self.full = was_full or self.pos == 0
        self._forgotten = max(self._forgotten - was_full, 0)
        self._note_add()

    def _get_samples(self, batch_inds: Array, env: Any = None) -> Any:
        """Return transitions of random environments; observations and next observations are read in one go."""
        stock: Any = self
        chosen = batch_inds, np.random.randint(0, high=self.n_envs, size=(len(batch_inds),))
        observations, following = self._read_both(*chosen, env)
        running = 1 - stock.timeouts[chosen]
        rewards = stock.rewards[chosen].reshape(-1, 1)
        samples = DictReplayBufferSamples if isinstance(observations, dict) else ReplayBufferSamples
        return samples(
            observations=observations,
            actions=_fresh_to_torch(stock.actions[chosen], stock.device),
            next_observations=following,
            # An episode that ran out of time has not ended: its last value is still worth something.
            dones=_fresh_to_torch((stock.dones[chosen] * running).reshape(-1, 1), stock.device),
            rewards=_fresh_to_torch(rewards if env is None else stock._normalize_reward(rewards, env), stock.device),
        )

    def _read_both(self, rows: Array, envs: Array, env: Any) -> tuple[Any, Any]:
        """Return tensors of observations and next observations, by key where the space is a Dict."""
        if env is None and len(self._accesses) == 1 and "observations" in self._accesses:
            return self._pair_to_torch(*self._accesses["observations"].read_both(rows, envs))
        pairs = {name: access.read_both(rows, envs) for name, access in self._accesses.items()}
        if env is None:
            tensors = {name: self._pair_to_torch(*pair) for name, pair in pairs.items()}
            return self._by_key(tensors, 0), self._by_key(tensors, 1)
        return self._normalized(self._by_key(pairs, 0), env), self._normalized(self._by_key(pairs, 1), env)

    def _pair_to_torch(self, first: Array, second: Array) -> tuple[Any, Any]:
        device: Any = self.device  # type: ignore[attr-defined]
        if device.type == "cpu":
            return _fresh_to_torch(first, device), _fresh_to_torch(second, device)
        return pair_to_device(first, second, device)

    def _normalized(self, observations: Any, env: Any) -> Any:
        normalized = env.normalize_obs(observations)
        if isinstance(normalized, dict):
            return {key: self.to_torch(value) for key, value in normalized.items()}
        return self.to_torch(normalized)

    def _by_key(self, pairs: dict[str, tuple[Any, Any]], which: int) -> Any:
        if not isinstance(self.observation_space, spaces.Dict):
            return pairs["observations"][which]
        return {name.removeprefix("observations/"): pair[which] for name, pair in pairs.items()}


class LeanReplayBuffer(LeanUniformReplay, ReplayBuffer):
    """A ReplayBuffer, or for a Dict space a DictReplayBuffer, that holds each byte of observation once.

    ``compact`` compresses on top of that; ``lossy="float16"`` rounds floats, and is off. At ``memory_limit`` (bytes, or
    a text such as ``"2GB"``) it raises MemoryLimitReached, or with ``when_full="forget"`` gives up its oldest rows; all
    else is as in the stock class.
    """


@for_dict_spaces_of(LeanReplayBuffer)
class LeanDictReplayBuffer(LeanUniformReplay, DictReplayBuffer):
    """What LeanReplayBuffer is for Dict spaces."""


def _fresh_to_torch(array: Array, device: Any) -> Any:
    """Return a tensor of an array that nobody else holds.

    float32 is copied: it goes into matrix products as it is, and their last bits depend on how it lies in memory.
    """
    return th.tensor(array, device=device) if array.dtype == np.float32 else th.as_tensor(array, device=device)


def _check_options(when_full: str, optimize_memory_usage: bool) -> None:
    if when_full not in ("error", "forget"):
        raise LeanBufferError(f"when_full must be 'error' or 'forget', but got {when_full!r}")
    if optimize_memory_usage:
        raise LeanBufferError(
            "optimize_memory_usage must be False for a lean buffer: it holds next observations once by itself, "
            "and the true last one of every episode too"
        )

"""The replay buffers to compare with, each behind the same three methods.

Bytes are those that the filled store owns: arrays by `nbytes`, Python objects by `sys.getsizeof`. Allocator slack
is left out, in every contender's favour, and so is what a contender holds only because of its last sample.

TorchRL, cpprb and the zstd backend of sb3-extra-buffers are optional: see `requirements.txt`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from gc import get_referents
from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer


class Contender(Protocol):
    def add(
        self,
        obs: np.ndarray,
        next_obs: np.ndarray,
        action: np.ndarray,
        reward: np.ndarray,
        done: np.ndarray,
        infos: list[dict[str, Any]],
    ) -> None: ...

    def sample(self, batch_size: int) -> Any: ...

    def resident_bytes(self) -> int: ...


Build = Callable[[int, spaces.Box, spaces.Discrete], Contender]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    name: str
    build: Build
    needs: tuple[str, ...] = ()

    @property
    def missing(self) -> tuple[str, ...]:
        return tuple(module for module in self.needs if find_spec(module) is None)


class Sb3Buffer:
    """A replay buffer with the methods and attributes of Stable-Baselines3's."""

    def __init__(self, buffer: ReplayBuffer) -> None:
        self.buffer = buffer
        self.add = buffer.add
        self.sample = buffer.sample

    def resident_bytes(self) -> int:
        buffer = self.buffer
        stored = [buffer.observations, buffer.actions, buffer.rewards, buffer.dones, buffer.timeouts]
        if not buffer.optimize_memory_usage:
            stored.append(buffer.next_observations)
        return owned_bytes(stored)


class LeanBuffer:
    """rlmem's own, counted by what it says of itself: index, open tails and last observations included."""

    def __init__(self, n: int, observations: spaces.Box, actions: spaces.Discrete, *, compact: bool) -> None:
        from rlmem.sb3 import LeanReplayBuffer

        self.buffer = LeanReplayBuffer(n, observations, actions, device="cpu", compact=compact)
        self.add = self.buffer.add
        self.sample = self.buffer.sample

    def resident_bytes(self) -> int:
        return self.buffer.nbytes


class CpprbBuffer:
    """cpprb with its two ways of sharing; it wants the stack last and to be told where episodes end."""

    def __init__(self, n: int, observation_space: spaces.Box, action_space: spaces.Discrete) -> None:
        from cpprb import ReplayBuffer as Buffer

        stack, *frame = observation_space.shape
        fields = {
            "obs": {"shape": (*frame, stack), "dtype": observation_space.dtype},
            "act": {"dtype": np.int64},
            "rew": {},
            "done": {},
        }
        self.buffer = Buffer(n, fields, next_of="obs", stack_compress="obs")

    def add(
        self,
        obs: np.ndarray,
        next_obs: np.ndarray,
        action: np.ndarray,
        reward: np.ndarray,
        done: np.ndarray,
        infos: list[dict[str, Any]],
    ) -> None:
        obs, next_obs = np.moveaxis(obs[0], 0, -1), np.moveaxis(next_obs[0], 0, -1)
        self.buffer.add(obs=obs, next_obs=next_obs, act=action[0], rew=reward[0], done=done[0])
        if done[0]:
            self.buffer.on_episode_end()

    def sample(self, batch_size: int) -> dict[str, torch.Tensor]:
        batch = {name: torch.from_numpy(array) for name, array in self.buffer.sample(batch_size).items()}
        for name in ("obs", "next_obs"):
            batch[name] = batch[name].permute(0, 3, 1, 2)
        return batch

    def resident_bytes(self) -> int:
        return owned_bytes(each for each in get_referents(self.buffer) if isinstance(each, dict))


class TorchrlBuffer:
    """A TorchRL replay buffer of one tensordict a transition."""

    def __init__(self, storage: Any) -> None:
        from torchrl.data import TensorDictReplayBuffer

        self.storage = storage
        self.buffer = TensorDictReplayBuffer(storage=storage)

    def add(
        self,
        obs: np.ndarray,
        next_obs: np.ndarray,
        action: np.ndarray,
        reward: np.ndarray,
        done: np.ndarray,
        infos: list[dict[str, Any]],
    ) -> None:
        from tensordict import TensorDict

        following = {"observation": next_obs[0], "reward": reward[:1], "done": done[:1]}
        flat = {f"next_{name}": torch.from_numpy(array) for name, array in following.items()}
        here = {"observation": torch.from_numpy(obs[0]), "action": torch.from_numpy(action[:1])}
        self.buffer.add(TensorDict(here | flat, batch_size=[]))

    def sample(self, batch_size: int) -> Any:
        return self.buffer.sample(batch_size)

    def resident_bytes(self) -> int:
        stored = self.storage._storage
        if isinstance(stored, list):
            return owned_bytes([stored, self.storage._metadata])
        return owned_bytes(stored.values(include_nested=True, leaves_only=True))


def owned_bytes(roots: Iterable[Any]) -> int:
    """The bytes of all arrays, tensors, bytes and containers that can be reached from `roots`, each once."""
    total, seen, waiting = 0, set(), list(roots)
    while waiting:
        item = waiting.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, np.ndarray):
            owner = item
            while hasattr(owner, "base") and owner.base is not None:
                owner = owner.base
            if owner is not item:
                waiting.append(owner)
                continue
            total += item.nbytes
            waiting.extend(item.flat if item.dtype == object else ())
        elif isinstance(item, torch.Tensor):
            storage = item.untyped_storage()
            total += sys.getsizeof(item) + (0 if storage.data_ptr() in seen else storage.nbytes())
            seen.add(storage.data_ptr())
        elif isinstance(item, bytes | bytearray):
            total += sys.getsizeof(item)
        elif isinstance(item, Mapping):
            total += sys.getsizeof(item)
            waiting.extend(item.values())
        elif isinstance(item, list | tuple | set):
            total += sys.getsizeof(item)
            waiting.extend(item)
    return total


def _sb3(n: int, observations: spaces.Box, actions: spaces.Discrete, *, optimized: bool) -> Contender:
    return Sb3Buffer(
        ReplayBuffer(
            n,
            observations,
            actions,
            device="cpu",
            optimize_memory_usage=optimized,
            handle_timeout_termination=not optimized,
        )
    )


def _extra_buffers(
    n: int, observations: spaces.Box, actions: spaces.Discrete, *, method: str, optimized: bool = False
) -> Contender:
    from sb3_extra_buffers.compressed import CompressedReplayBuffer, find_buffer_dtypes

    dtypes = find_buffer_dtypes(
        obs_shape=observations.shape, elem_dtype=observations.dtype.type, compression_method=method
    )
    return Sb3Buffer(
        CompressedReplayBuffer(
            n,
            observations,
            actions,
            device="cpu",
            optimize_memory_usage=optimized,
            handle_timeout_termination=not optimized,
            dtypes=dtypes,
            compression_method=method,
        )
    )


def _torchrl(n: int, observations: spaces.Box, actions: spaces.Discrete, *, compressed: bool) -> Contender:
    from torchrl.data import CompressedListStorage, LazyTensorStorage

    return TorchrlBuffer(CompressedListStorage(n) if compressed else LazyTensorStorage(n))


ZSTD = ("sb3_extra_buffers", "zstd")
TORCHRL = ("torchrl", "tensordict")
BASELINE = "sb3"
LEAN, COMPACT = "rlmem lean", "rlmem lean compact"
RIVALS = (
    Rival(name=LEAN, build=partial(LeanBuffer, compact=False)),
    Rival(name=COMPACT, build=partial(LeanBuffer, compact=True)),
    Rival(name=BASELINE, build=partial(_sb3, optimized=False)),
    Rival(name="sb3 optimized", build=partial(_sb3, optimized=True)),
    # The hyphen is a minus: level -3, which the package's README recommends, then level 3.
    Rival(name="extra-buffers zstd-3", build=partial(_extra_buffers, method="zstd-3"), needs=ZSTD),
    Rival(name="extra-buffers zstd3", build=partial(_extra_buffers, method="zstd3"), needs=ZSTD),
    # The package's own published sizes are of these, which lose the last observation of every episode as SB3's do.
    Rival(name="extra-buffers zstd-3 opt.", build=partial(_extra_buffers, method="zstd-3", optimized=True), needs=ZSTD),
    Rival(name="extra-buffers zstd3 opt.", build=partial(_extra_buffers, method="zstd3", optimized=True), needs=ZSTD),
    Rival(name="torchrl lazy tensor", build=partial(_torchrl, compressed=False), needs=TORCHRL),
    Rival(name="torchrl compressed list", build=partial(_torchrl, compressed=True), needs=TORCHRL),
    Rival(name="cpprb", build=CpprbBuffer, needs=("cpprb",)),
)

"""Random play: what an environment shows while nobody has learnt anything, one row of transitions after the other.

Environments of Gymnasium, its vector environments and those of Stable-Baselines3 are told apart by what they offer;
none of the libraries is imported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from rlmem.errors import LeanBufferError
from rlmem.lean.kernels import Array

Leaves: TypeAlias = dict[str, Array]
"""The arrays of an observation by the key that leads to each; the key of a lone one is empty."""

_FINAL: Final = ("final_obs", "final_observation")
"""Where Gymnasium's vector environments put an episode's last observation, in newer and older versions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """A plain array within an observation."""

    key: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """A step of every environment: the observations before and after, and what was allowed in between."""

    observations: Leaves
    following: Leaves
    masks: Array | None = None


def leaves_of(env: Any) -> tuple[Leaf, ...]:
    """Return the plain arrays of one environment's observations."""
    return tuple(_leaves(getattr(env, "single_observation_space", env.observation_space), ""))


def count_of(env: Any) -> int:
    """Return how many environments step together."""
    return int(env.num_envs) if _is_vector(env) or _is_vec_env(env) else 1


def play(env: Any, *, seed: int) -> Iterator[Transition]:
    """Give one transition after the other, without end; what follows the last step of an episode is its true end."""
    leaves = leaves_of(env)
    if _is_vector(env):
        return _play_vector(env, leaves, seed)
    return _play_vec_env(env, leaves, seed) if _is_vec_env(env) else _play_one(env, leaves, seed)


def _is_vector(env: Any) -> bool:
    return hasattr(env, "single_observation_space")


def _is_vec_env(env: Any) -> bool:
    return hasattr(env, "step_wait") and hasattr(env, "num_envs")


def _leaves(space: Any, key: str) -> Iterator[Leaf]:
    inner = getattr(space, "spaces", None)
    if isinstance(inner, Mapping):
        for name, item in inner.items():
            yield from _leaves(item, f"{key}/{name}" if key else str(name))
    elif inner is not None or space.shape is None or space.dtype is None:
        raise LeanBufferError(f"observations must be arrays or a Dict of arrays, but got {space}")
    else:
        yield Leaf(key=key, shape=tuple(int(size) for size in space.shape), dtype=np.dtype(space.dtype))


def _taken(observation: Any, leaves: tuple[Leaf, ...], *, n_envs: int) -> Leaves:
    """Return copies of an observation's arrays: environments may write into theirs again."""
    return {leaf.key: np.array(_at(observation, leaf.key), leaf.dtype).reshape(n_envs, *leaf.shape) for leaf in leaves}


def _at(observation: Any, key: str) -> Any:
    for name in key.split("/") if key else ():
        observation = observation[name]
    return observation


# --- one environment ------------------------------------------------------------------------------------------------


def _play_one(env: Any, leaves: tuple[Leaf, ...], seed: int) -> Iterator[Transition]:
    choice = _Choice(env.action_space, seed)
    observations = _taken(env.reset(seed=seed)[0], leaves, n_envs=1)
    while True:
        masks = _masks_of_one(env)
        following, _, terminated, truncated, _ = env.step(choice.action(None if masks is None else masks[0]))
        after = _taken(following, leaves, n_envs=1)
        yield Transition(observations=observations, following=after, masks=masks)
        observations = _taken(env.reset()[0], leaves, n_envs=1) if terminated or truncated else after


def _masks_of_one(env: Any) -> Array | None:
    try:
        allowed = env.get_wrapper_attr("action_masks")
    except AttributeError:
        return None
    return np.array(allowed(), np.bool_).reshape(1, -1)


# --- Gymnasium's vector environments --------------------------------------------------------------------------------


def _play_vector(env: Any, leaves: tuple[Leaf, ...], seed: int) -> Iterator[Transition]:
    env.action_space.seed(seed)
    observations = _taken(env.reset(seed=seed)[0], leaves, n_envs=env.num_envs)
    while True:
        seen, _, _, _, info = env.step(env.action_space.sample())
        after = _taken(seen, leaves, n_envs=env.num_envs)
        yield Transition(observations=observations, following=_with_ends(after, info, leaves))
        observations = after


def _with_ends(after: Leaves, info: Mapping[str, Any], leaves: tuple[Leaf, ...]) -> Leaves:
    """Return what followed: where the next episode has begun already, the end of the last one."""
    name = next((name for name in _FINAL if name in info), None)
    if name is None:
        return after
    ends = {key: value.copy() for key, value in after.items()}
    for env in np.flatnonzero(info[f"_{name}"]):
        _put_end(ends, int(env), _of_env(info[name], int(env)), leaves)
    return ends


def _of_env(values: Any, env: int) -> Any:
    if isinstance(values, Mapping):
        return {name: _of_env(value, env) for name, value in values.items()}
    return values[env]


def _put_end(ends: Leaves, env: int, observation: Any, leaves: tuple[Leaf, ...]) -> None:
    for leaf in leaves:
        ends[leaf.key][env] = np.asarray(_at(observation, leaf.key), leaf.dtype).reshape(leaf.shape)


# --- Stable-Baselines3's vector environments ------------------------------------------------------------------------


def _play_vec_env(env: Any, leaves: tuple[Leaf, ...], seed: int) -> Iterator[Transition]:
    env.seed(seed)
    choice = _Choice(env.action_space, seed)
    observations = _taken(env.reset(), leaves, n_envs=env.num_envs)
    while True:
        masks = _masks_of_all(env)
        allowed = [None] * env.num_envs if masks is None else masks
        seen, _, dones, infos = env.step(np.array([choice.action(mask) for mask in allowed]))
        after = _taken(seen, leaves, n_envs=env.num_envs)
        yield Transition(observations=observations, following=_with_terminals(after, dones, infos, leaves), masks=masks)
        observations = after


def _masks_of_all(env: Any) -> Array | None:
    if not hasattr(env, "has_attr") or not env.has_attr("action_masks"):
        return None
    return np.array(env.env_method("action_masks"), np.bool_).reshape(env.num_envs, -1)


def _with_terminals(after: Leaves, dones: Array, infos: Any, leaves: tuple[Leaf, ...]) -> Leaves:
    ends = {key: value.copy() for key, value in after.items()} if np.any(dones) else after
    for env in np.flatnonzero(dones):
        last = infos[env].get("terminal_observation")
        if last is not None:
            _put_end(ends, int(env), last, leaves)
    return ends


class _Choice:
    """Random actions of a space, among those that a mask allows where there is one."""

    def __init__(self, space: Any, seed: int) -> None:
        space.seed(seed)
        self._space, self._random = space, np.random.default_rng(seed)

    def action(self, mask: Array | None) -> Any:
        if mask is None or not mask.any():
            return self._space.sample()
        if hasattr(self._space, "nvec"):
            parts = np.split(mask, np.cumsum(self._space.nvec)[:-1])
            return np.array([self._one(part) for part in parts], self._space.dtype)
        if hasattr(self._space, "start"):
            return self._space.start + self._one(mask)
        return self._space.sample()

    def _one(self, mask: Array) -> int:
        allowed = np.flatnonzero(mask)
        return int(self._random.choice(allowed)) if allowed.size else 0

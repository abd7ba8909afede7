"""Environments that can be put back into the middle of an episode.

An environment or wrapper that has ``get_state()`` and ``set_state(state)``, with a state of numbers, text, lists, dicts
and arrays, is taken at its word. Known ones without (classic control, Atari, the usual wrappers) are read by their
attributes. In worker processes, each environment needs a `Restorable` around it. Everything else cannot be restored.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import gymnasium
import numpy as np
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecEnvWrapper

from rlmem.errors import InputError
from rlmem.sb3.rng_state import generator_state, set_generator_state

_GYM: Final = "gymnasium.wrappers."
_ATARI: Final = "stable_baselines3.common.atari_wrappers."
_CLASSIC: Final = "gymnasium.envs.classic_control."
_ALE: Final = "ale_py.env.AtariEnv"
_VEC: Final = "stable_baselines3.common.vec_env."

_ATTRIBUTES: Final[dict[str, tuple[str, ...]]] = {
    f"{_CLASSIC}cartpole.CartPoleEnv": ("state", "steps_beyond_terminated"),
    f"{_CLASSIC}pendulum.PendulumEnv": ("state", "last_u"),
    f"{_CLASSIC}acrobot.AcrobotEnv": ("state",),
    f"{_CLASSIC}mountain_car.MountainCarEnv": ("state",),
    f"{_CLASSIC}continuous_mountain_car.Continuous_MountainCarEnv": ("state",),
    _ALE: (),
    f"{_GYM}common.TimeLimit": ("_elapsed_steps",),
    f"{_GYM}common.OrderEnforcing": ("_has_reset",),
    f"{_GYM}common.PassiveEnvChecker": (),
    f"{_GYM}transform_action.ClipAction": (),
    f"{_GYM}transform_action.RescaleAction": (),
    f"{_GYM}transform_observation.DtypeObservation": (),
    f"{_GYM}transform_observation.FlattenObservation": (),
    f"{_GYM}transform_observation.FilterObservation": (),
    f"{_GYM}transform_observation.GrayscaleObservation": (),
    f"{_GYM}transform_observation.RescaleObservation": (),
    f"{_GYM}transform_observation.ReshapeObservation": (),
    f"{_GYM}transform_observation.ResizeObservation": (),
    f"{_GYM}transform_reward.ClipReward": (),
    "stable_baselines3.common.monitor.Monitor": ("rewards", "needs_reset", "total_steps", "current_reset_info"),
    "sb3_contrib.common.wrappers.action_masker.ActionMasker": (),
    f"{_ATARI}AtariWrapper": (),
    f"{_ATARI}ClipRewardEnv": (),
    f"{_ATARI}EpisodicLifeEnv": ("lives", "was_real_done"),
    f"{_ATARI}FireResetEnv": (),
    f"{_ATARI}MaxAndSkipEnv": (),
    f"{_ATARI}NoopResetEnv": (),
    f"{_ATARI}WarpFrame": (),
    f"{_VEC}vec_check_nan.VecCheckNan": (),
    f"{_VEC}vec_extract_dict_obs.VecExtractDictObs": (),
    f"{_VEC}vec_frame_stack.VecFrameStack": (),
    f"{_VEC}vec_monitor.VecMonitor": ("episode_returns", "episode_lengths", "episode_count"),
    f"{_VEC}vec_normalize.VecNormalize": ("returns", "old_obs", "old_reward"),
    f"{_VEC}vec_transpose.VecTransposeImage": (),
}
"""What changes from step to step and is needed to go on; nothing for those that only look at the step at hand."""


class NotRestorable(InputError):  # noqa: N818 - it says what the environment is
    """An environment that cannot be put back into the middle of an episode."""


class Restorable(gymnasium.Wrapper):
    """Lets an environment in a worker process be put back: give it to `make_vec_env` as ``wrapper_class``."""

    def rlmem_state(self) -> dict[str, Any]:
        return env_state(self.env)

    def set_rlmem_state(self, state: dict[str, Any]) -> None:
        set_env_state(self.env, state)


# --- one environment -------------------------------------------------------------------------------------------------


def env_state(env: Any) -> dict[str, Any]:
    """Return where an environment and its wrappers are, or raise NotRestorable."""
    return {"layers": [_layer_state(layer) for layer in _layers(env)], "np_random": generator_state(env.unwrapped)}


def set_env_state(env: Any, state: dict[str, Any]) -> None:
    """Put an environment that has been reset where another one was; both must be wrapped alike."""
    _set_layers([*_layers(env)], state["layers"])
    set_generator_state(env.unwrapped, state["np_random"])


def _layers(env: Any) -> Iterator[Any]:
    """Give the wrappers from the outside, and the environment; none beneath one that answers for all."""
    layer = env
    while isinstance(layer, gymnasium.Wrapper):
        if not isinstance(layer, Restorable):
            yield layer
        if _has_own_state(layer):
            return
        layer = layer.env
    yield layer


def _has_own_state(layer: Any) -> bool:
    return callable(getattr(type(layer), "get_state", None)) and callable(getattr(type(layer), "set_state", None))


def _name(layer: Any) -> str:
    return f"{type(layer).__module__}.{type(layer).__qualname__}"


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _layer_state(layer: Any) -> dict[str, Any]:
    name = _name(layer)
    if _has_own_state(layer):
        return {"name": name, "own": layer.get_state()}
    if name not in _ATTRIBUTES:
        raise NotRestorable(f"{name} has no get_state() and set_state(state)")
    state: dict[str, Any] = {"name": name, "values": {key: _value(layer, key) for key in _ATTRIBUTES[name]}}
    if name == _ALE:
        state["ale"] = layer.clone_state(include_rng=True).serialize()
    if hasattr(layer, "stacked_obs"):
        state["stacked"] = layer.stacked_obs.stacked_obs
    return state


def _value(layer: Any, key: str) -> Any:
    value = getattr(layer, key, None)
    return np.array(value, np.float64) if isinstance(value, list) else value  # the rewards of a long episode


def _set_layers(layers: list[Any], states: list[dict[str, Any]]) -> None:
    names, stored = [_name(layer) for layer in layers], [state["name"] for state in states]
    if [*map(_short, names)] != [*map(_short, stored)]:  # a program's own classes are in __main__, or they are not
        raise InputError(
            f"the environment must be wrapped as it was when the snapshot was taken: {', '.join(stored)}; "
            f"but got {', '.join(names)}"
        )
    for layer, state in zip(layers, states, strict=True):
        _set_layer(layer, state)


def _set_layer(layer: Any, state: dict[str, Any]) -> None:
    if "own" in state:
        layer.set_state(state["own"])
        return
    for key in _ATTRIBUTES[_name(layer)]:  # and no other, whatever the snapshot says
        value = state["values"][key]
        setattr(layer, key, value.tolist() if isinstance(getattr(layer, key, None), list) else value)
    if "ale" in state:
        _set_ale(layer, state["ale"])
    if "stacked" in state:
        layer.stacked_obs.stacked_obs = state["stacked"]


def _set_ale(env: Any, state: bytes) -> None:
    import ale_py

    env.restore_state(ale_py.ALEState(state))


# --- vectors of them -------------------------------------------------------------------------------------------------


def vec_state(vec: VecEnv) -> dict[str, Any]:
    """Return where a vector of environments and its wrappers are, or raise NotRestorable."""
    wrappers, base = _taken_apart(vec)
    return {"wrappers": [_layer_state(wrapper) for wrapper in wrappers], "envs": _base_state(base)}


def set_vec_state(vec: VecEnv, state: dict[str, Any]) -> None:
    """Put a vector of environments that has been reset where another one was."""
    wrappers, base = _taken_apart(vec)
    _set_base(base, state["envs"])
    _set_layers(wrappers, state["wrappers"])


def _taken_apart(vec: VecEnv) -> tuple[list[Any], Any]:
    wrappers = []
    while isinstance(vec, VecEnvWrapper):
        wrappers.append(vec)
        vec = vec.venv
    return wrappers, vec


def _base_state(base: Any) -> list[Any]:
    if isinstance(base, DummyVecEnv):
        return [env_state(env) for env in base.envs]
    if _has_own_state(base):
        return [base.get_state()]
    if not base.has_attr("rlmem_state"):
        raise NotRestorable(f"environments of {_name(base)} must each be wrapped in rlmem.sb3.Restorable")
    return list(base.env_method("rlmem_state"))


def _set_base(base: Any, states: list[Any]) -> None:
    own = not isinstance(base, DummyVecEnv) and _has_own_state(base)
    if len(states) != (1 if own else base.num_envs):
        raise InputError(f"there must be {len(states)} environments, as in the snapshot, but got {base.num_envs}")
    if own:
        base.set_state(states[0])
        return
    for index, state in enumerate(states):
        if isinstance(base, DummyVecEnv):
            set_env_state(base.envs[index], state)
        else:
            base.env_method("set_rlmem_state", state, indices=[index])

"""The settings that a model was made with, as plain JSON, and the model made from them again.

Classes are said by a short name and looked up in a table of known ones: a snapshot can name nothing else. What has no
plain form (a schedule in code, a policy of one's own) is listed as unsaid, and whoever restores has to give it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Final

import numpy as np
import torch as th
from stable_baselines3.common import buffers, noise, torch_layers
from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike
from stable_baselines3.common.type_aliases import TrainFreq
from stable_baselines3.common.utils import ConstantSchedule, FloatSchedule, LinearSchedule
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer

from rlmem.errors import InputError
from rlmem.sb3 import plain_tree

_ALGORITHMS: Final = {
    **dict.fromkeys(("A2C", "DDPG", "DQN", "PPO", "SAC", "TD3"), "stable_baselines3"),
    **dict.fromkeys(("ARS", "CrossQ", "MaskablePPO", "QRDQN", "RecurrentPPO", "TQC", "TRPO"), "sb3_contrib"),
}
_LEAN: Final = (
    "LeanDictReplayBuffer",
    "LeanDictRolloutBuffer",
    "LeanHerReplayBuffer",
    "LeanMaskableDictRolloutBuffer",
    "LeanMaskableRolloutBuffer",
    "LeanNStepReplayBuffer",
    "LeanReplayBuffer",
    "LeanRolloutBuffer",
)
_NOT_SAID: Final = {
    "self",
    "policy",
    "env",
    "device",
    "monitor_wrapper",
    "_init_setup_model",
    "use_rms_prop",
    "rms_prop_eps",
}
_ELSEWHERE: Final = {"stats_window_size": "_stats_window_size"}
_DEFAULT_BUFFERS: Final = (
    buffers.ReplayBuffer,
    buffers.DictReplayBuffer,
    buffers.RolloutBuffer,
    buffers.DictRolloutBuffer,
)


def settings_of(model: Any) -> dict[str, Any]:
    """Return what is needed to make a model again: what can be said, and what cannot by its name."""
    unsaid: dict[str, str] = {}
    kwargs: dict[str, Any] = {}
    for name in inspect.signature(type(model).__init__).parameters:
        value = getattr(model, _ELSEWHERE.get(name, name), None)
        if name not in _NOT_SAID and hasattr(model, _ELSEWHERE.get(name, name)):
            _say(name, value, kwargs, unsaid)
    if type(model).__name__ == "A2C":
        kwargs["use_rms_prop"] = "optimizer_class" in model.policy_kwargs
    _leave_out_default_buffers(model, kwargs)
    algorithm, policy = _algorithm_name(type(model)), _policy_name(model)
    if algorithm is None:
        unsaid["algorithm"] = _kind(type(model))
    if policy is None:
        unsaid["policy"] = _kind(model.policy_class)
    return {"algorithm": algorithm, "policy": policy, "kwargs": kwargs, "unsaid": unsaid}


def build(settings: Mapping[str, Any], env: Any, *, algorithm: Any = None, device: Any = "auto", **given: Any) -> Any:
    """Return a fresh model made from settings, with ``given`` in the place of those of that name."""
    known = {**given, **({} if algorithm is None else {"algorithm": algorithm})}
    missing = {name: kind for name, kind in settings["unsaid"].items() if name.partition(".")[0] not in known}
    if missing:
        words = ", ".join(f"{name} ({kind})" for name, kind in sorted(missing.items()))
        arguments = ", ".join(sorted({f"`{name.partition('.')[0]}=`" for name in missing}))
        raise InputError(
            f"a snapshot has no code in it, and this model was made with some: {words}. Make the model as your "
            f"training program does and give it as `model=`, or give {arguments}"
        )
    cls = _algorithm(settings["algorithm"]) if algorithm is None else algorithm
    kwargs = {name: _meant(value) for name, value in settings["kwargs"].items()} | given
    policy = kwargs.pop("policy", settings["policy"])
    return cls(policy, env, device=device, **kwargs)


# --- saying ----------------------------------------------------------------------------------------------------------


def _say(name: str, value: Any, into: dict[str, Any], unsaid: dict[str, str]) -> None:
    try:
        into[name] = _said(value, name)
    except plain_tree.Unsayable as error:
        unsaid[error.place] = str(error).rpartition(" is a ")[2]


def _said(value: Any, place: str) -> Any:
    if isinstance(value, FloatSchedule):
        return _said(value.value_schedule, place)
    if isinstance(value, ConstantSchedule):
        return _said(value.val, place)
    if isinstance(value, LinearSchedule):
        return {"$linear": [value.start, value.end, value.end_fraction]}
    if isinstance(value, TrainFreq):
        return {"$tuple": [value.frequency, value.unit.value]}
    if isinstance(value, type):
        return {"$class": _class_name(value, place)}
    if isinstance(value, noise.ActionNoise):
        return _said_noise(value, place)
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _said(item, f"{place}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = [_said(item, f"{place}.{index}") for index, item in enumerate(value)]
        return items if isinstance(value, list) else {"$tuple": items}
    return _said_plainly(value, place)


def _said_plainly(value: Any, place: str) -> Any:
    if hasattr(value, "tolist"):  # an array or a number of NumPy's
        return {"$array": value.tolist()} if getattr(value, "ndim", 0) else value.item()
    try:
        packed = plain_tree.pack(value)
    except plain_tree.Unsayable as error:
        raise plain_tree.Unsayable(value, place) from error
    if packed.tensors:
        raise plain_tree.Unsayable(value, place)
    return packed.value


def _said_noise(value: Any, place: str) -> Any:
    if type(value) is noise.VectorizedActionNoise:
        return _said_noise(value.base_noise, place)
    common = {"mean": _said(value._mu, place), "sigma": _said(value._sigma, place)} if hasattr(value, "_mu") else {}
    if type(value) is noise.NormalActionNoise:
        return {"$noise": {"kind": "normal", **common}}
    if type(value) is noise.OrnsteinUhlenbeckActionNoise:
        more = {"theta": value._theta, "dt": value._dt, "initial_noise": _said(value.initial_noise, place)}
        return {"$noise": {"kind": "ornstein-uhlenbeck", **common, **more}}
    raise plain_tree.Unsayable(value, place)


def _leave_out_default_buffers(model: Any, kwargs: dict[str, Any]) -> None:
    """Let SB3 choose the buffer where it did: a class that is given makes it warn about n-step returns."""
    chosen = getattr(model, "replay_buffer_class", None) or getattr(model, "rollout_buffer_class", None)
    n_step = chosen is getattr(buffers, "NStepReplayBuffer", None) and getattr(model, "n_steps", 1) > 1
    if chosen in _DEFAULT_BUFFERS or n_step:
        kwargs.pop("replay_buffer_class", None)
        kwargs.pop("rollout_buffer_class", None)
    if n_step:
        kept = {key: item for key, item in kwargs["replay_buffer_kwargs"].items() if key not in ("n_steps", "gamma")}
        kwargs["replay_buffer_kwargs"] = kept


def _kind(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _algorithm_name(cls: type) -> str | None:
    name = cls.__name__
    return name if name in _ALGORITHMS and _algorithm(name) is cls else None


def _policy_name(model: Any) -> str | None:
    return next((name for name, cls in model.policy_aliases.items() if cls is model.policy_class), None)


def _class_name(cls: type, place: str) -> str:
    found = next((name for name, known in _known_classes() if known is cls), None)
    if found is None:
        raise plain_tree.Unsayable(_Named(cls), place)
    return found


class _Named:
    """Stands for a class in what is said of it."""

    def __new__(cls, named: type) -> Any:
        return object.__new__(type(named.__qualname__, (), {"__module__": named.__module__}))


def _known_classes() -> Iterator[tuple[str, type]]:
    for module, prefix in ((th.nn.modules.activation, "torch.nn"), (th.optim, "torch.optim")):
        for name, value in vars(module).items():
            if isinstance(value, type) and issubclass(value, th.nn.Module | th.optim.Optimizer):
                yield f"{prefix}.{name}", value
    for extractor in (torch_layers.NatureCNN, torch_layers.FlattenExtractor, torch_layers.CombinedExtractor):
        yield f"stable_baselines3.{extractor.__name__}", extractor
    yield "stable_baselines3.RMSpropTFLike", RMSpropTFLike
    yield "stable_baselines3.HerReplayBuffer", HerReplayBuffer
    for name, value in vars(buffers).items():
        if isinstance(value, type) and issubclass(value, buffers.BaseBuffer):
            yield f"stable_baselines3.{name}", value
    yield from _contrib_buffers()
    for name in _LEAN:
        yield f"rlmem.{name}", getattr(import_module("rlmem.sb3"), name)


def _contrib_buffers() -> Iterator[tuple[str, type]]:
    from sb3_contrib.common.maskable import buffers as maskable

    for name in ("MaskableRolloutBuffer", "MaskableDictRolloutBuffer"):
        yield f"sb3_contrib.{name}", getattr(maskable, name)


# --- meaning ---------------------------------------------------------------------------------------------------------


def _algorithm(name: str) -> Any:
    if name not in _ALGORITHMS:
        raise InputError(
            f"the snapshot's algorithm must be one of {', '.join(sorted(_ALGORITHMS))}, but is {name!r:.40}"
        )
    return getattr(import_module(_ALGORITHMS[name]), name)


def _meant(value: Any) -> Any:
    if isinstance(value, list):
        return [_meant(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) != 1 or not next(iter(value)).startswith("$"):
        return {key: _meant(item) for key, item in value.items()}
    word, inner = next(iter(value.items()))
    match word:
        case "$linear":
            return LinearSchedule(*inner)
        case "$tuple":
            return tuple(_meant(item) for item in inner)
        case "$class":
            return _class(inner)
        case "$noise":
            return _noise(inner)
        case "$array":
            return np.array(inner)
    return plain_tree.unpack(value, {}, {})


def _class(name: str) -> type:
    for known, cls in _known_classes():
        if known == name:
            return cls
    raise InputError(f"the snapshot names a class that is not known here: {name!r:.60}; give the model as `model=`")


def _noise(said: Mapping[str, Any]) -> Any:
    kwargs = {key: _meant(value) for key, value in said.items() if key != "kind"}
    if said["kind"] == "normal":
        return noise.NormalActionNoise(**kwargs)
    return noise.OrnsteinUhlenbeckActionNoise(**kwargs)

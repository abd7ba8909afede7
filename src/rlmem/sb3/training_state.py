"""Everything that a Stable-Baselines3 model is at one instant, as parts of a snapshot, and a model made so again.

The instant lies between two rollouts: what was collected has been learnt from, and nothing new has been collected.
"""

from __future__ import annotations

import platform
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final

import numpy as np
import stable_baselines3
import torch as th
from stable_baselines3.common.noise import ActionNoise, VectorizedActionNoise
from stable_baselines3.common.save_util import recursive_getattr, recursive_setattr

from rlmem.errors import InputError
from rlmem.sb3 import plain_tree
from rlmem.sb3.buffer_state import buffer_parts, restore_buffer, truncate_episodes
from rlmem.sb3.env_state import NotRestorable, set_vec_state, vec_state
from rlmem.sb3.model_settings import settings_of
from rlmem.sb3.rng_state import generator_state, rng_state, set_generator_state, set_rng_state
from rlmem.store import Contents, Json, Part, Snapshot

KIND: Final = "rlmem-sb3-training"
_COUNTERS: Final = (
    "num_timesteps",
    "_n_updates",
    "_n_calls",
    "_episode_num",
    "_total_timesteps",
    "_num_timesteps_at_start",
    "_current_progress_remaining",
    "exploration_rate",
)
_LAST: Final = ("_last_obs", "_last_original_obs", "_last_episode_starts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """How environments go on after a resume: from where they are, or with a new episode that a seed begins."""

    state: dict[str, Any] | None = None
    seed: int | None = None
    why: str = ""

    @property
    def resume(self) -> str:
        if self.state is not None:
            return "exact"
        return "exact, new episode" if not self.why else "new episode"


def episode_of(model: Any) -> Episode:
    """Return where the model's environments are; where they cannot be put back, a new episode begins instead."""
    try:
        state = vec_state(model.env)
        plain_tree.pack(state)
    except (NotRestorable, plain_tree.Unsayable) as error:
        return Episode(seed=seed_of(model), why=str(error))
    return Episode(state=state)


def seed_of(model: Any) -> int:
    """Return the seed of the episodes that begin at this step of this run, without drawing anything."""
    state: Any = np.random.get_state()
    entropy = [*state[1][:4].tolist(), state[2], model.num_timesteps]
    return int(np.random.SeedSequence(entropy).generate_state(1)[0] >> 1)


def begin_episode(model: Any, seed: int) -> None:
    """Begin a new episode in every environment, as a save does and a resume again."""
    model.env.seed(seed)
    model._last_obs = model.env.reset()
    model._last_episode_starts = np.ones((model.env.num_envs,), dtype=bool)
    if model._vec_normalize_env is not None:
        model._last_original_obs = model._vec_normalize_env.get_original_obs()
    if model.action_noise is not None:
        model.action_noise.reset()


def end_episodes(model: Any) -> None:
    """Let the replay buffer know that the episodes at hand end here."""
    if getattr(model, "replay_buffer", None) is not None:
        truncate_episodes(model.replay_buffer)


def resume_of(model: Any, episode: Episode, *, save_buffer: bool) -> dict[str, str]:
    """Return in words how exact a resume will be."""
    reasons = [episode.why] if episode.why else []
    if getattr(model, "replay_buffer", None) is not None and not save_buffer:
        reasons.append("the replay buffer is not saved")
    if type(model).__name__ == "ARS":
        reasons.append("ARS draws its candidates before a rollout begins")
    if not reasons:
        return {"resume": episode.resume}
    return {"resume": "new episode" if episode.state is None else "inexact", "why": "; ".join(reasons)}


def metadata_of(model: Any, episode: Episode, *, save_buffer: bool) -> dict[str, Any]:
    """Return what a list of snapshots shows of this one."""
    return {
        "kind": KIND,
        "algorithm": type(model).__name__,
        "num_timesteps": int(model.num_timesteps),
        "total_timesteps": int(model._total_timesteps),
        "versions": versions(),
        **resume_of(model, episode, save_buffer=save_buffer),
    }


def versions() -> dict[str, str]:
    """Return the versions that bear on exactness."""
    return {
        "rlmem": version("rlmem"),
        "python": platform.python_version(),
        "torch": str(th.__version__),
        "numpy": np.__version__,
        "stable_baselines3": stable_baselines3.__version__,
    }


# --- taking ----------------------------------------------------------------------------------------------------------


def contents_of(model: Any, episode: Episode, *, save_buffer: bool = True, prefix: str = "") -> Contents:
    """Return everything a model is now; tensors and arrays are those of the model, to be copied or written at once."""
    parts: dict[str, Part] = {f"{prefix}settings": Json(value=settings_of(model))}
    for name, state in model.get_parameters().items():
        parts |= plain_tree.parts(f"{prefix}torch/{name}", state)
    parts |= plain_tree.parts(f"{prefix}state", _state(model, episode))
    if save_buffer and getattr(model, "replay_buffer", None) is not None:
        parts |= buffer_parts(f"{prefix}replay_buffer", model.replay_buffer)
    return parts


def _state(model: Any, episode: Episode) -> dict[str, Any]:
    here = episode.state is not None
    return {
        "counters": {name: getattr(model, name) for name in _COUNTERS if hasattr(model, name)},
        "variables": {name: recursive_getattr(model, name) for name in _variables(model)},
        "last": {name: getattr(model, name) if here else None for name in _LAST},
        "lstm": _lstm(model),
        "statistics": {name: _sayable(getattr(model, name)) for name in ("ep_info_buffer", "ep_success_buffer")},
        "noise": [getattr(noise, "noise_prev", None) for noise in _noises(model.action_noise)],
        "vec_normalize": _normalization(model),
        "episode": {"state": episode.state, "seed": episode.seed},
        "rng": rng_state(),
        "action_space": generator_state(model.action_space),
    }


def _variables(model: Any) -> list[str]:
    """Return the names of tensors beside the networks: an entropy coefficient, the weights of ARS."""
    own = [name for name in ("weights",) if isinstance(getattr(model, name, None), th.Tensor)]
    return [*model._get_torch_save_params()[1], *own]


def _lstm(model: Any) -> Any:
    states = getattr(model, "_last_lstm_states", None)
    return None if states is None else tuple(tuple(part) for part in states)


def _sayable(entries: Any) -> list[Any] | None:
    """Return what is shown of past episodes; entries with anything else than numbers and text are left out."""
    if entries is None:
        return None
    said = []
    for entry in entries:
        try:
            plain_tree.pack(entry)
        except plain_tree.Unsayable:
            continue
        said.append(entry)
    return said


def _noises(noise: ActionNoise | None) -> Iterator[Any]:
    if isinstance(noise, VectorizedActionNoise):
        yield from noise.noises
    elif noise is not None:
        yield noise


def _normalization(model: Any) -> Any:
    env = model._vec_normalize_env
    if env is None:
        return None
    rms = getattr(env, "obs_rms", None)
    return {
        "obs": {key: _moments(item) for key, item in rms.items()} if isinstance(rms, dict) else _moments(rms),
        "ret": _moments(env.ret_rms),
        "by_key": isinstance(rms, dict),
    }


def _moments(rms: Any) -> Any:
    return None if rms is None else {"mean": rms.mean, "var": rms.var, "count": rms.count}


# --- putting back ----------------------------------------------------------------------------------------------------


def apply(snapshot: Snapshot, model: Any, *, prefix: str = "", rng: bool = True) -> None:
    """Make a model what another one was when the snapshot was taken; what it was before is lost."""
    state = plain_tree.read(snapshot, f"{prefix}state")
    _set_parameters(snapshot, model, prefix)
    for name in _variables(model):
        _set_variable(model, name, state["variables"])
    for name in _COUNTERS:
        if name in state["counters"] and hasattr(model, name):
            setattr(model, name, state["counters"][name])
    _set_statistics(model, state["statistics"])
    buffered = _set_buffer(snapshot, model, prefix)
    _set_lstm(model, state["lstm"])
    goes_on = state["episode"]["state"] is not None
    if rng and not goes_on:
        set_rng_state(state["rng"])  # an episode that begins may draw from it
    _set_environments(model, state, ends=buffered)
    _set_noise(model, state["noise"], runs=goes_on)
    set_generator_state(model.action_space, state["action_space"])
    if rng and goes_on:
        set_rng_state(state["rng"])


def _set_parameters(snapshot: Snapshot, model: Any, prefix: str) -> None:
    names = model._get_torch_save_params()[0]
    stored = {name: plain_tree.read(snapshot, f"{prefix}torch/{name}") for name in names}
    try:
        model.set_parameters(stored, exact_match=True, device=model.device)
    except (RuntimeError, ValueError) as error:
        raise InputError(
            f"snapshot {snapshot.info.label} does not fit this model: make it with the policy and settings that it was "
            f"trained with. {error}"
        ) from error


def _set_variable(model: Any, name: str, stored: dict[str, Any]) -> None:
    if name not in stored:
        raise InputError(
            f"the snapshot has no {name}: the model must be made with the settings that it was trained with"
        )
    recursive_setattr(model, f"{name}.data", stored[name].to(model.device))


def _set_statistics(model: Any, stored: dict[str, Any]) -> None:
    for name, entries in stored.items():
        if name in ("ep_info_buffer", "ep_success_buffer"):
            setattr(model, name, None if entries is None else deque(entries, maxlen=model._stats_window_size))


def _set_buffer(snapshot: Snapshot, model: Any, prefix: str) -> bool:
    if getattr(model, "replay_buffer", None) is None or f"{prefix}replay_buffer.json" not in snapshot.paths():
        return False
    restore_buffer(snapshot, f"{prefix}replay_buffer", model.replay_buffer)
    return True


def _set_lstm(model: Any, stored: Any) -> None:
    if stored is not None and getattr(model, "_last_lstm_states", None) is not None:
        parts = [tuple(tensor.to(model.device) for tensor in part) for part in stored]
        model._last_lstm_states = type(model._last_lstm_states)(*parts)


def _set_environments(model: Any, state: dict[str, Any], *, ends: bool) -> None:
    episode = state["episode"]
    if episode["state"] is None:
        _set_normalization(model, state["vec_normalize"])
        if ends:
            end_episodes(model)
        begin_episode(model, episode["seed"])
        return
    model.env.reset()  # what wraps an environment must have seen a reset before a step
    set_vec_state(model.env, episode["state"])
    _set_normalization(model, state["vec_normalize"])
    for name in _LAST:
        setattr(model, name, state["last"][name])


def _set_normalization(model: Any, stored: Any) -> None:
    env = model._vec_normalize_env
    if (env is None) != (stored is None):
        must, got = ("be", "is not") if stored is not None else ("not be", "is")
        raise InputError(f"the environment must {must} wrapped in VecNormalize, as when it was saved, but it {got}")
    if env is None:
        return
    _set_moments(env.ret_rms, stored["ret"])
    rms: Any = getattr(env, "obs_rms", None)
    if not stored["by_key"]:
        _set_moments(rms, stored["obs"])
        return
    for key in rms:
        _set_moments(rms[key], stored["obs"][key])


def _set_moments(rms: Any, stored: Any) -> None:
    if rms is not None and stored is not None:
        rms.mean, rms.var, rms.count = stored["mean"], stored["var"], stored["count"]


def _set_noise(model: Any, stored: list[Any], *, runs: bool) -> None:
    """Let noise with a memory go on where it was."""
    if model.action_noise is None or not runs:
        return
    if model.env.num_envs > 1 and not isinstance(model.action_noise, VectorizedActionNoise):
        model.action_noise = VectorizedActionNoise(model.action_noise, model.env.num_envs)
    for noise, before in zip(_noises(model.action_noise), stored, strict=True):
        if before is not None:
            noise.noise_prev = before
            _pass_over_one_reset(noise)


def _pass_over_one_reset(noise: Any) -> None:
    """`learn` begins by resetting the noise, also when it goes on in the middle of an episode."""

    def reset() -> None:
        del noise.reset

    noise.reset = reset

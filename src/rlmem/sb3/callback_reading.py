"""The callbacks that `learn` is given: what is evaluated and what is saved while training goes on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stable_baselines3.common.callbacks import BaseCallback, CheckpointCallback, EvalCallback
from stable_baselines3.common.vec_env import SubprocVecEnv

from rlmem.run.model import Checkpoint, Evaluation
from rlmem.sb3.reading import vec_env_layers


def callbacks(callback: Any) -> Iterator[Any]:
    """Give every callback that stands in the argument of `learn`, however nested."""
    if isinstance(callback, list | tuple):
        for item in callback:
            yield from callbacks(item)
    elif callback is not None:
        yield callback
        inner = [getattr(callback, name, None) for name in ("callbacks", "callback", "callback_on_new_best")]
        for item in inner if isinstance(callback, BaseCallback) else ():
            if isinstance(item, BaseCallback | list):
                yield from callbacks(item)


def callback_names(callback: Any) -> tuple[str, ...]:
    """Return the names of the callbacks; a plain function's is its own."""
    return tuple(
        type(item).__name__ if isinstance(item, BaseCallback) else getattr(item, "__name__", type(item).__name__)
        for item in callbacks(callback)
    )


def read_evaluation(callback: Any) -> Evaluation | None:
    """Return the evaluation of the first EvalCallback, subclasses included."""
    found = _evaluating(callback)
    if found is None:
        return None
    layers = tuple(vec_env_layers(found.eval_env))
    return Evaluation(
        n_envs=int(found.eval_env.num_envs),
        workers="subprocess" if any(isinstance(layer, SubprocVecEnv) for layer in layers) else "in-process",
        eval_freq=_positive(found.eval_freq),
        n_eval_episodes=_positive(found.n_eval_episodes) or 1,
    )


def evaluation_env(callback: Any) -> Any:
    """Return the vector environment of that evaluation, or None."""
    found = _evaluating(callback)
    return None if found is None else found.eval_env


def _evaluating(callback: Any) -> Any:
    return next((item for item in callbacks(callback) if isinstance(item, EvalCallback)), None)


def read_checkpoint(callback: Any) -> Checkpoint | None:
    """Return what the first CheckpointCallback saves, subclasses included."""
    found = next((item for item in callbacks(callback) if isinstance(item, CheckpointCallback)), None)
    if found is None:
        return None
    return Checkpoint(
        save_freq=_positive(found.save_freq),
        save_replay_buffer=bool(found.save_replay_buffer),
        save_vecnormalize=bool(found.save_vecnormalize),
    )


def _positive(value: Any) -> int | None:
    return max(int(value), 0) or None

"""The child that trains a run for real, as short as it can while every phase is gone through.

Epochs repeat the same step, so one is enough; a replay buffer is filled before the first update, since
updates on the way take time and no memory more.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from rlmem.observe import file_bytes, high_water_bytes, rss_bytes
from rlmem.plan.schedule import timesteps, without_repetition
from rlmem.plan.shadow_heap import read_books
from rlmem.run import run_from_mapping
from rlmem.run.child import answer
from rlmem.run.model import FrameworkRun

_RISE: Final = 1.002
"""A high-water mark that rises by less has not risen: the meter's own noise."""


def _reply(question: dict[str, Any]) -> dict[str, Any]:
    """Train, and say what the main process had at most; runs in the child."""
    from rlmem.sb3.building import build_model, build_vec_env

    run = run_from_mapping(question["run"])
    assert isinstance(run, FrameworkRun)  # noqa: S101 - only framework runs are trained
    env = build_vec_env(run.env)
    model = build_model(run, env, **without_repetition(run))
    built = _reading("built")
    phases = _PhaseOfPeak(model)
    model.learn(timesteps(run), log_interval=None, callback=_progress(question.get("progress")))
    trained = _reading("trained")
    env.close()
    return (
        built
        | trained
        | {"high_water_bytes": high_water_bytes(os.getpid()), "peak_phase": phases.peak()}
        | {"file_bytes": file_bytes(os.getpid())}
    )


class _PhaseOfPeak:
    """Says in which phase the high-water mark rose for the last time, by looking at it where phases meet."""

    def __init__(self, model: Any) -> None:
        self._highest, self._phase = 0, "collect"
        self._merging = "flatten" if model.n_envs > 1 else "update"  # one environment is merged without a copy
        if hasattr(model, "train"):  # a random search has none
            self._train, model.train = model.train, self._watched_train
        buffer = getattr(model, "rollout_buffer", None)
        if buffer is not None:
            self._get, buffer.get = buffer.get, self._watched_get

    def peak(self) -> str:
        self._ended("collect")
        return self._phase

    def _ended(self, phase: str) -> None:
        mark = high_water_bytes(os.getpid())
        if mark > self._highest * _RISE:
            self._highest, self._phase = mark, phase

    def _watched_train(self, *args: Any, **kwargs: Any) -> None:
        self._ended("collect")
        self._train(*args, **kwargs)
        self._ended("update")

    def _watched_get(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
        for index, minibatch in enumerate(self._get(*args, **kwargs)):
            if index == 0:
                self._ended(self._merging)
            yield minibatch


def _reading(when: str) -> dict[str, int]:
    """Return the resident set, and the part of it that is not the allocator's: code, interpreter, threads."""
    books, resident = read_books(), rss_bytes(os.getpid())
    return {
        f"{when}_bytes": resident,
        f"{when}_outside_heap_bytes": resident - books.bytes,
        f"{when}_in_use_bytes": books.in_use_bytes,
    }


def _progress(name: str | None) -> Any:
    """Return a callback that writes how far the training has come into a file, for whoever shows it."""
    if name is None:
        return None
    path = Path(name)
    from stable_baselines3.common.callbacks import BaseCallback

    class Progress(BaseCallback):
        def _on_step(self) -> bool:
            if self.n_calls % 200 == 0:
                path.write_text(str(self.num_timesteps))
            return True

    return Progress()


if __name__ == "__main__":
    answer(_reply, sys.argv[1:])

"""The script's side of a measurement: its first `learn()` made short, watched, and followed by nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback, ConvertCallback
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

from rlmem.observe import file_bytes
from rlmem.sb3.peak_phase import PeakPhase
from rlmem.sb3.write_guard import WriteGuard

if TYPE_CHECKING:
    from rlmem.sb3.script_training import ShortTraining

_REPORTED: Final = 200
"""Steps between two reports of how far the training has come."""


class ShortLearn:
    """The first `learn()` of any model; ``then`` is given what the meter said at its end, and ends the process."""

    def __init__(self, training: ShortTraining, *, then: Callable[[dict[str, Any]], None]) -> None:
        self._training, self._then = training, then
        # Opened here, before the guard: a file that is written for whoever measures, not by the script.
        self._progress = os.open(training.progress, os.O_WRONLY | os.O_CREAT) if training.progress else None
        self.begun = False

    def hook(self, guard: WriteGuard) -> None:
        """Take the place of what every `learn()` calls before anything else."""
        for kind in (BaseAlgorithm, OffPolicyAlgorithm):
            kind._setup_learn = self._hooked(kind._setup_learn)
        torch.save = _through(guard, torch.save)

    def _hooked(self, setup: Callable[..., Any]) -> Callable[..., Any]:
        def setup_learn(model: Any, total_timesteps: Any, callback: Any = None, *args: Any, **kwargs: Any) -> Any:
            if self.begun:  # the base class's own, or a learn() within the first
                return setup(model, total_timesteps, callback, *args, **kwargs)
            self.begun = True
            watched = _with(callback, _Watch(PeakPhase(model), self._report, self._then))
            prepared = setup(model, self._training.timesteps, watched, *args, **kwargs)
            _make_short(model, self._training.settings)
            return prepared

        return setup_learn

    def _report(self, done: int) -> None:
        if self._progress is not None:
            os.pwrite(self._progress, str(done).encode(), 0)


class _Watch(BaseCallback):
    """Says how far the training has come, and at its end what it took."""

    def __init__(
        self, phases: PeakPhase, report: Callable[[int], None], then: Callable[[dict[str, Any]], None]
    ) -> None:
        super().__init__()
        self._phases, self._report, self._then = phases, report, then

    def _on_step(self) -> bool:
        if self.n_calls % _REPORTED == 0:
            self._report(self._done())
        return True

    def _on_training_end(self) -> None:
        readings = self._phases.readings()
        self._then({**readings, "file_bytes": file_bytes(os.getpid()), "timesteps": self._done()})

    def _done(self) -> int:
        return int(self.model.num_timesteps - self.model._num_timesteps_at_start)


def _with(callback: Any, last: BaseCallback) -> Any:
    """Return the script's callbacks with one more behind them."""
    if callback is None:
        return last
    if isinstance(callback, list):
        return [*callback, last]
    return [callback if isinstance(callback, BaseCallback) else ConvertCallback(callback), last]


def _make_short(model: Any, settings: Mapping[str, Any]) -> None:
    """Give the model the settings that spare time and do not bear on the peak."""
    for name, value in settings.items():
        setattr(model, name, tuple(value) if isinstance(value, list) else value)
    if "train_freq" in settings:
        model._convert_train_freq()
    if "learning_starts" in settings:
        model.learning_starts += model._num_timesteps_at_start  # it may go on from an earlier training


def _through(guard: WriteGuard, save: Callable[..., None]) -> Callable[..., None]:
    """Return `torch.save` writing to names through the guard: its own writer is C++ and would go past it."""

    def guarded(obj: object, f: Any, *args: Any, **kwargs: Any) -> None:
        if not isinstance(f, str | os.PathLike):
            save(obj, f, *args, **kwargs)
            return
        with guard.open(f, "wb") as file:
            save(obj, file, *args, **kwargs)

    return guarded

"""In which phase a process had its peak: the kernel's high-water mark, read and set back where phases meet."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from rlmem.observe import high_water_bytes, reset_high_water

_RISE: Final = 1.002
"""A high-water mark that rises by less has not risen: the meter's own noise."""


class PeakPhase:
    """Says what the process had at most, in each phase, and in which phase that rose for the last time.

    The mark is set back at the end of each phase, so the kernel's own says nothing once this has begun: ask here.
    Where the kernel does not let it be set back there are no marks of phases, and the rest is as true.

    The classes of the model and of its rollout buffer are changed, not the objects: what hangs on a model is
    pickled with it when a callback saves.
    """

    def __init__(self, model: Any) -> None:
        self._marks: dict[str, int] = {}
        self._highest, self._phase = 0, "startup"
        self._apart = True
        self.ended("startup")
        if hasattr(model, "train"):  # a random search has none
            _watch_train(type(model), self)
        buffer = getattr(model, "rollout_buffer", None)
        if buffer is not None:
            # One environment is merged without a copy.
            _watch_get(type(buffer), self, merging="flatten" if model.n_envs > 1 else "update")

    def ended(self, phase: str) -> None:
        """Read the mark at the end of a phase, and let the next begin its own."""
        mark = high_water_bytes(os.getpid())
        self._marks[phase] = max(mark, self._marks.get(phase, 0))
        self._apart = self._apart and _set_back()
        if mark > self._highest * _RISE:
            self._highest, self._phase = mark, phase

    def readings(self) -> dict[str, Any]:
        """Return what was read, as the training's answer has it; what ends here is collecting."""
        self.ended("collect")
        return {
            "high_water_bytes": max(self._marks.values()),
            "peak_phase": self._phase,
            "phase_bytes": self._marks if self._apart else None,
        }


def _set_back() -> bool:
    with suppress(OSError):
        reset_high_water()
        return True
    return False


def _watch_train(kind: Any, phases: PeakPhase) -> None:
    train = kind.train

    def watched(self: Any, *args: Any, **kwargs: Any) -> None:
        phases.ended("collect")
        train(self, *args, **kwargs)
        phases.ended("update")

    kind.train = watched


def _watch_get(kind: Any, phases: PeakPhase, *, merging: str) -> None:
    get = kind.get

    def watched(self: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        for index, minibatch in enumerate(get(self, *args, **kwargs)):
            if index == 0:
                phases.ended(merging)
            yield minibatch

    kind.get = watched

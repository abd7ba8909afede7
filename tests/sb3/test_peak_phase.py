"""The phase of the peak, and the marks of each, on a process that takes memory when it is told to."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from rlmem.observe import reset_high_water, rss_bytes
from rlmem.sb3 import peak_phase
from rlmem.sb3.peak_phase import PeakPhase

MIB = 2**20
NOISE = 4 * MIB


def _take(size: int) -> mmap.mmap:
    """Return memory that the kernel gives at once and gets back at once when closed."""
    memory = mmap.mmap(-1, size)
    for _ in range(size // MIB):
        memory.write(bytes(MIB))
    return memory


def _model(*, merging: int, updating: int, n_envs: int = 2) -> Any:
    """Return what PeakPhase watches of an on-policy model; classes are made anew since it changes them."""

    class Buffer:
        def get(self) -> Iterator[int]:
            _take(merging).close()
            yield from range(2)

    class Model(SimpleNamespace):
        def train(self) -> None:
            for _ in self.rollout_buffer.get():
                _take(updating).close()

    return Model(rollout_buffer=Buffer(), n_envs=n_envs)


@pytest.fixture(autouse=True)
def _a_mark_of_now() -> None:
    try:
        reset_high_water()
    except OSError:
        pytest.skip("the kernel does not let this process set its mark back")


def _readings(model: Any) -> dict[str, Any]:
    phases = PeakPhase(model)
    model.train()
    return phases.readings()


def test_each_phase_has_a_mark_of_its_own() -> None:
    found = _readings(_model(merging=192 * MIB, updating=96 * MIB))
    marks = found["phase_bytes"]
    assert list(marks) == ["startup", "collect", "flatten", "update"]
    assert abs(marks["flatten"] - marks["update"] - 96 * MIB) < NOISE
    assert marks["update"] - marks["collect"] > 96 * MIB - NOISE
    assert found["high_water_bytes"] == max(marks.values())


def test_the_peak_is_in_the_highest_phase() -> None:
    assert _readings(_model(merging=128 * MIB, updating=MIB))["peak_phase"] == "flatten"
    assert _readings(_model(merging=128 * MIB, updating=MIB, n_envs=1))["peak_phase"] == "update"


def test_where_marks_cannot_be_set_back_the_peak_is_known_and_the_phases_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse() -> None:
        raise PermissionError

    monkeypatch.setattr(peak_phase, "reset_high_water", refuse)
    before = rss_bytes(os.getpid())
    found = _readings(_model(merging=MIB, updating=128 * MIB))
    assert (found["peak_phase"], found["phase_bytes"]) == ("update", None)
    assert abs(found["high_water_bytes"] - before - 128 * MIB) < NOISE

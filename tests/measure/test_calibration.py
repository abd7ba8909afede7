"""What was metered is written down to be shown, for the versions and the machine that it holds for."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlmem.measure import cache, calibration
from rlmem.measure.calibration import record, records
from rlmem.plan.parts import Calibration
from rlmem.run import run_from_mapping

MIB = 2**20
METERED = Calibration(floor_bytes=300 * MIB, heap_ratio=1.1)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RLMEM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def _run(algorithm: str = "PPO", **env: Any) -> Any:
    spaces = {"observation": {"shape": [4]}, "action": {"discrete": 2}}
    return run_from_mapping({"framework": "sb3", "algorithm": algorithm, "env": spaces | env})


def test_what_is_recorded_is_read_back() -> None:
    assert records() == ()
    record(_run(), METERED)
    (made,) = records()
    assert (made.run, made.floor_bytes, made.heap_ratio) == ("PPO MlpPolicy, spaces only", 300 * MIB, 1.1)
    assert (made.start_method, made.worker_bytes, made.helper_bytes) == (None, None, None)
    assert made.versions["rlmem"] is not None
    assert made.metered_at.endswith("+00:00")


def test_workers_are_kept_by_start_method() -> None:
    workers = replace(METERED, worker_bytes=7 * MIB, helper_bytes=MIB)
    for method in ("fork", None):
        record(_run(workers="subprocess", **({"start_method": method} if method else {})), workers)
    assert {made.start_method for made in records()} == {"fork", "forkserver"}
    assert {(made.worker_bytes, made.helper_bytes) for made in records()} == {(7 * MIB, MIB)}


def test_the_newest_of_a_kind_of_run_stays_and_the_same_is_not_newer(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    keep = calibration.keep
    monkeypatch.setattr(calibration, "keep", lambda kind, *rest: (written.append(kind), keep(kind, *rest)))
    record(_run(), METERED)
    record(_run(), METERED)
    assert len(written) == 1
    record(_run(), replace(METERED, floor_bytes=310 * MIB))
    assert [made.floor_bytes for made in records()] == [310 * MIB]


def test_a_heap_too_small_to_tell_has_no_ratio() -> None:
    record(_run(), Calibration(floor_bytes=300 * MIB))
    assert records()[0].heap_ratio is None


def test_what_was_not_metered_is_not_recorded(folder: Path) -> None:
    record(_run(), Calibration())
    assert not folder.exists()


@pytest.mark.parametrize("text", ["{", "[]", '{"run": "of another version"}'])
def test_entries_that_cannot_be_read_are_passed_over(folder: Path, text: str) -> None:
    record(_run(), METERED)
    (folder / "calibration-0.json").write_text(text)
    assert len(records()) == 1


def test_other_versions_and_other_settings_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    record(_run(), METERED)
    with monkeypatch.context() as patch:
        patch.setattr(cache, "version", lambda name: "0.0.0")
        assert records() == ()
    monkeypatch.setenv("MALLOC_ARENA_MAX", "17")
    assert records() == ()


def test_the_entry_is_plain_json(folder: Path) -> None:
    record(_run("A2C"), METERED)
    (path,) = folder.iterdir()
    assert json.loads(path.read_text())["run"].startswith("A2C")

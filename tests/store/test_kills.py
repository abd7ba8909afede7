"""Writers that are killed at any instant: the newest committed snapshot is always there and sound."""

from __future__ import annotations

import random
import runpy
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rlmem.errors import SnapshotNotFound
from rlmem.store import Json, Store

PROGRAM = Path(__file__).parent / "saving_program.py"


@pytest.fixture(scope="module")
def program() -> SimpleNamespace:
    return SimpleNamespace(**runpy.run_path(str(PROGRAM)))


@contextmanager
def running(place: Any, mode: str) -> Iterator[subprocess.Popen[str]]:
    options = [f"{name}={value}" for name, value in place.options.items()]
    command = [sys.executable, str(PROGRAM), mode, place.url, *options]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        try:
            yield child
        finally:
            child.kill()


def check(store: Store, committed: int, program: SimpleNamespace) -> None:
    snapshot = store.load()
    step = snapshot.json("step")
    assert committed <= step == snapshot.step
    assert np.array_equal(snapshot.array("ring"), program.ring_at(step))
    assert (snapshot.tensors("policy")["w"] == step).all()
    column = snapshot.column("observations")
    for row in range(0, min(step, program.ROWS), 37):
        newest = step - 1 - (step - 1 - row) % program.ROWS
        assert np.array_equal(column.get(np.array([row]), np.array([0])), program.observation(newest)[None, 0])
    assert store.verify().is_sound


def kill_often(place: Any, times: int, program: SimpleNamespace, *, longest_s: float = 0.3) -> None:
    chance, newest = random.Random(times), 0  # noqa: S311
    with running(place, "kill") as child:
        for _ in range(times):
            child.stdin.write(f"{chance.uniform(0, longest_s)}\n")
            child.stdin.flush()
            newest = max(newest, int(child.stdout.readline()))
            if newest:
                check(place.open(), newest, program)
    assert newest > 40  # it came to something between the kills


def test_kills(tmp_path: Path, kit: SimpleNamespace, program: SimpleNamespace) -> None:
    place = kit.place(str(tmp_path / "store"))
    kill_often(place, 30, program)
    store = place.open()
    time.sleep(0.1)
    store.collect(keep=1, grace_s=0.05)
    assert [*(tmp_path / "store" / "tmp").iterdir()] == []
    assert store.sizes().unnamed_bytes == 0


def test_kills_while_uploading(s3_endpoint: str, kit: SimpleNamespace, program: SimpleNamespace) -> None:
    kill_often(kit.s3_place(s3_endpoint, f"kills/{time.time_ns()}"), 5, program, longest_s=1)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_thousand_kills(tmp_path: Path, kit: SimpleNamespace, program: SimpleNamespace) -> None:
    kill_often(kit.place(str(tmp_path / "store")), 1000, program)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_hundred_kills_while_uploading(s3_endpoint: str, kit: SimpleNamespace, program: SimpleNamespace) -> None:
    kill_often(kit.s3_place(s3_endpoint, f"kills/{time.time_ns()}"), 100, program, longest_s=1)


# --- collecting ------------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """Stands for a kill between two deletions."""


@pytest.mark.parametrize("after", range(0, 14, 2))
def test_collecting_that_is_stopped_in_the_middle(
    folder: Store, kit: SimpleNamespace, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in range(1, 5):
        folder.save(kit.contents(seed=step % 3, steps=100), step=step)
    left, delete = after, folder.space.delete

    def delete_some(names: Any) -> None:
        nonlocal left
        for name in names:
            if not left:
                raise Killed
            left -= 1
            delete([name])

    monkeypatch.setattr(folder.space, "delete", delete_some)
    with pytest.raises(Killed):
        folder.collect(keep=1, grace_s=-60)
    monkeypatch.setattr(folder.space, "delete", delete)
    again = Store.open(folder.url)
    assert again.load().step == 4
    assert again.verify().is_sound
    again.collect(keep=1, grace_s=-60)
    assert again.verify().is_sound
    assert again.sizes().unnamed_bytes == 0


def test_collecting_while_another_reads_and_a_third_saves(tmp_path: Path, kit: SimpleNamespace) -> None:
    """The third is a process that saves and collects; this one reads and collects as well."""
    place = kit.place(str(tmp_path / "store"))
    with running(place, "save") as child:
        child.stdout.readline()
        store, reads = place.open(), 0
        deadline = time.monotonic() + 4
        while time.monotonic() < deadline:
            store.collect(keep=2, grace_s=60)
            snapshot = store.load()
            reads += 1
            with suppress(SnapshotNotFound):  # it was removed while it was read
                assert (snapshot.tensors("policy")["w"] == snapshot.step).all()
    assert reads > 10
    assert place.open().verify().is_sound


def test_a_reader_of_a_removed_snapshot_is_told(folder: Store) -> None:
    folder.save({"a": Json(value="x" * 20_000)}, step=1)
    snapshot = folder.load()
    folder.save({"a": Json(value=2)}, step=2)
    folder.collect(keep=1, grace_s=-60)
    with pytest.raises(SnapshotNotFound, match="was removed while it was read: load a newer one"):
        snapshot.json("a")

"""Saving in the background: what is saved is what was there when it was asked for."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rlmem.errors import StoreError, StoreUnavailable
from rlmem.store import ArrayPart, ColumnPart, Json, Saver, SaveWarning, Store, Tensors


class Gate:
    """Holds back or fails what a store writes, until it is opened."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open, self.error = threading.Event(), None
        self.open.set()
        self._put = store.space.put
        monkeypatch.setattr(store.space, "put", self.put)

    def put(self, name: str, pieces: Sequence[Any]) -> None:
        assert self.open.wait(30)
        if self.error is not None:
            raise self.error
        self._put(name, pieces)


@pytest.fixture
def gate(folder: Store, monkeypatch: pytest.MonkeyPatch) -> Gate:
    return Gate(folder, monkeypatch)


def test_training_goes_on_while_it_is_written(folder: Store, gate: Gate, kit: SimpleNamespace) -> None:
    observations = kit.frames(400)
    column = kit.column_of(observations[:200], rows=300)
    weights, settings = np.arange(1000.0), {"steps": [1]}
    gate.open.clear()
    saver = Saver(folder)
    saver.save(
        {
            "policy": Tensors(tensors={"w": weights}),
            "buffer": ColumnPart(column=column),
            "settings": Json(value=settings),
        },
        step=200,
    )
    weights += 1
    settings["steps"].append(2)
    for step in range(200, 400):
        column.put(step % 300, observations[step])
    assert saver.is_writing
    gate.open.set()
    assert saver.wait().step == 200
    snapshot = folder.load()
    assert np.array_equal(snapshot.tensors("policy")["w"], np.arange(1000.0))
    assert snapshot.json("settings") == {"steps": [1]}
    expected = observations[:200].reshape(400, *observations.shape[2:])
    assert np.array_equal(kit.everything(snapshot.column("buffer"), 200), expected)


def test_mutable_arrays_are_written_before_save_returns(folder: Store) -> None:
    saver, array = Saver(folder), np.arange(100_000.0)
    for step in range(5):
        saver.save({"a": ArrayPart(array=array, mutable=True)}, step=step)
        array += 1
        saver.wait()
        assert np.array_equal(folder.load().array("a"), np.arange(100_000.0) + step)


def test_large_tensors_are_not_copied(folder: Store) -> None:
    saver, weights = Saver(folder, copied_bytes=1000), np.arange(1000.0)
    saver.save({"p": Tensors(tensors={"w": weights}), "q": Tensors(tensors={"w": weights[:10]})}, step=1)
    weights += 1
    saver.close()
    assert folder.load().tensors("p")["w"][0] == 0
    assert folder.load().tensors("q")["w"][0] == 0


def test_training_that_is_faster_than_the_disk_waits_and_is_told(folder: Store, gate: Gate) -> None:
    saver = Saver(folder)
    gate.open.clear()
    saver.save({"a": ArrayPart(array=np.zeros(10))}, step=1)
    threading.Timer(0.7, gate.open.set).start()
    with pytest.warns(
        SaveWarning, match=r"training waited 0\.\d s for the last snapshot to be written to .*less often"
    ):
        saver.save({"a": ArrayPart(array=np.ones(10))}, step=2)
    saver.close()
    assert saver.waited_s > 0.5
    assert [info.step for info in folder.snapshots()] == [1, 2]


def test_a_store_that_is_unavailable_is_said_once_and_tried_again(folder: Store, gate: Gate) -> None:
    saver = Saver(folder)
    gate.error = StoreUnavailable("the disk is full")
    array = np.random.default_rng(0).normal(size=50_000)

    def save(step: int) -> None:
        array[:] += 1
        saver.save({"a": ArrayPart(array=array, mutable=step % 2 == 0), "b": Json(value="x" * 20_000)}, step=step)

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for step in range(1, 6):
            save(step)
    assert [str(warning.message).split(";")[0] for warning in said] == ["a snapshot was not written: the disk is full"]
    with pytest.raises(StoreUnavailable, match="the disk is full"):
        saver.wait()
    gate.error = None
    save(7)
    assert saver.wait().step == 7
    assert saver.error is None
    save(8)
    saver.close()
    assert np.array_equal(folder.load().array("a"), array)
    gate.error = StoreUnavailable("full again")
    save(9)
    with pytest.warns(SaveWarning, match="full again"):
        save(10)


def test_another_error_is_raised_by_the_next_call(folder: Store, gate: Gate) -> None:
    saver = Saver(folder)
    gate.error = ValueError("a mistake")
    saver.save({"a": ArrayPart(array=np.zeros(10))}, step=1)
    while saver.is_writing:
        time.sleep(0.01)
    with pytest.raises(StoreError, match="saving step 1 failed: ValueError: a mistake"):
        saver.save({"a": ArrayPart(array=np.zeros(10))}, step=2)
    gate.error = None
    saver.save({"a": ArrayPart(array=np.zeros(10))}, step=3)
    saver.close()


def train(folder: Store, error: Exception | None) -> None:
    with Saver(folder) as saver:
        saver.save({"a": ArrayPart(array=np.zeros(10))}, step=1)
        if error is not None:
            raise error


def test_what_stopped_the_training_is_not_hidden(folder: Store, gate: Gate) -> None:
    gate.error = StoreUnavailable("full")
    with pytest.raises(KeyError):
        train(folder, KeyError())
    with pytest.raises(StoreUnavailable):
        train(folder, None)


def test_old_snapshots_are_removed(folder: Store) -> None:
    saver = Saver(folder, keep=2, keep_every=40, grace_s=-60)
    for step in range(10, 101, 10):
        saver.save({"a": ArrayPart(array=np.full(10_000, step))}, step=step)
        saver.wait()
        assert folder.verify().is_sound
    assert [info.step for info in folder.snapshots()] == [40, 80, 90, 100]
    assert folder.sizes().unnamed_bytes == 0


def test_objects_of_a_failed_save_that_were_collected_are_written_again(
    folder: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.save({"a": Json(value=1)}, step=1)
    array = np.random.default_rng(0).normal(size=100_000)
    put = folder.space.put
    failing = lambda name, pieces: put(name, pieces) if "objects" in name else _full(name)  # noqa: E731
    monkeypatch.setattr(folder.space, "put", failing)
    with pytest.raises(StoreUnavailable):
        folder.save({"a": ArrayPart(array=array)}, step=2)
    monkeypatch.setattr(folder.space, "put", put)
    assert folder.collect(grace_s=-60).objects > 0
    folder.save({"a": ArrayPart(array=array)}, step=3)
    assert folder.verify().is_sound


def _full(name: str) -> Iterable[None]:
    raise StoreUnavailable(f"no room for {name}")

"""What every store does, whatever it lies on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rlmem.errors import SnapshotNotFound, StoreError, StoreLimitReached
from rlmem.store import ArrayPart, Json, Store, Tensors


def check_all(store: Store, contents: dict[str, Any], kit: SimpleNamespace) -> None:
    """Read a snapshot and compare it with what was saved."""
    snapshot = store.load()
    assert snapshot.paths() == sorted(contents)
    for name, tensor in contents["policy"].tensors.items():
        found = snapshot.tensors("policy")[name]
        assert (found.dtype, found.shape) == (tensor.dtype, tensor.shape)
        assert np.array_equal(found, tensor)
    for path in ("buffer/actions", "buffer/dones"):
        assert np.array_equal(snapshot.array(path), contents[path].array)
    column = contents["buffer/observations"].column
    again = snapshot.column("buffer/observations")
    assert np.array_equal(kit.everything(again, column.rows), kit.everything(column, column.rows))
    assert snapshot.json("rng") == contents["rng"].value
    assert snapshot.json("long") == contents["long"].value


def test_what_is_saved_is_loaded(place: Any, kit: SimpleNamespace) -> None:
    contents = kit.contents()
    info = place.open(create=True).save(contents, step=7, metadata={"run": "pong"})
    store = place.open()
    assert store.snapshots() == [info]
    assert (info.step, store.load().metadata) == (7, {"run": "pong"})
    check_all(store, contents, kit)
    assert store.verify().is_sound


def test_a_second_snapshot_writes_what_is_new(place: Any, kit: SimpleNamespace) -> None:
    store, contents = place.open(create=True), kit.contents()
    store.save(contents, step=1)
    first = store.last_written
    store.save(contents, step=2)
    assert store.last_written.objects == 0
    contents["buffer/actions"].array[10] += 1
    store.save(contents, step=3)
    assert store.last_written.objects == 1
    assert store.last_written.nbytes < first.nbytes / 3
    check_all(store, contents, kit)


def test_another_process_goes_on_where_one_stopped(place: Any, kit: SimpleNamespace) -> None:
    contents = kit.contents()
    place.open(create=True).save(contents, step=1)
    store = place.open()
    store.save(contents, step=2)
    assert store.last_written.objects == 0
    assert [info.step for info in store.snapshots()] == [1, 2]


def test_the_newest_is_the_one_committed_last(place: Any) -> None:
    store = place.open(create=True)
    for step in (100, 200, 150):
        store.save({"step": Json(value=step)}, step=step)
    assert store.load().json("step") == 150
    assert store.load(step=200).json("step") == 200
    with pytest.raises(SnapshotNotFound, match="no snapshot of step 300; steps: 150, 200, 100"):
        store.load(step=300)


def test_a_place_without_a_store_says_so(place: Any) -> None:
    with pytest.raises(SnapshotNotFound, match="there is no store here"):
        place.open()
    store = place.open(create=True)
    with pytest.raises(SnapshotNotFound, match="it is empty"):
        store.load()


def test_collecting_keeps_what_snapshots_name(place: Any, kit: SimpleNamespace) -> None:
    store = place.open(create=True)
    for step in range(1, 7):
        contents = kit.contents(seed=step, steps=100)
        store.save(contents, step=step * 10)
    before = store.sizes()
    collected = store.collect(keep=2, keep_every=30, grace_s=-60)
    assert [info.step for info in collected.snapshots] == [10, 20, 40]
    assert [info.step for info in store.snapshots()] == [30, 50, 60]
    assert store.verify().is_sound
    check_all(store, contents, kit)
    after = store.sizes()
    assert after.stored_bytes == before.stored_bytes - collected.nbytes < before.stored_bytes
    assert after.unnamed_bytes == 0


def test_what_is_young_is_not_collected(place: Any) -> None:
    store = place.open(create=True)
    store.space.put("objects/ab/" + "0" * 62, [b"of a snapshot in the making"])
    store.save({"a": Json(value=1)}, step=1)
    assert store.collect(keep=1).objects == 0
    assert store.collect(keep=1, grace_s=-60).objects == 1


def test_copying_brings_what_is_missing(place: Any, kit: SimpleNamespace, tmp_path: Any) -> None:
    source, target = Store.open(tmp_path / "source", create=True), place.open(create=True)
    contents = kit.contents()
    source.save(contents, step=1)
    told: list[tuple[int, int]] = []
    first = source.copy_to(target, progress=lambda done, total: told.append((done, total)))
    assert len(first.snapshots) == 1
    assert told[-1][0] == first.nbytes > 0
    assert source.copy_to(target) == type(first)(snapshots=(), objects=0, nbytes=0)
    contents["buffer/actions"].array[0] += 1
    source.save(contents, step=2)
    assert source.copy_to(target).objects == 1
    check_all(target, contents, kit)
    assert target.verify().is_sound


def test_sizes_tell_what_is_shared(place: Any) -> None:
    store = place.open(create=True)
    one, other = np.arange(100_000.0), -np.arange(100_000.0)
    store.save({"a": ArrayPart(array=one)}, step=1)
    store.save({"a": ArrayPart(array=one), "b": ArrayPart(array=other)}, step=2)
    sizes = store.sizes()
    assert sizes.logical_bytes == 3 * one.nbytes
    assert sizes.stored_bytes == 2 * one.nbytes
    assert sizes.shared_bytes == one.nbytes
    assert [size.own_bytes for size in sizes.snapshots] == [0, other.nbytes]


def test_a_snapshot_larger_than_allowed_is_refused(place: Any) -> None:
    store = place.open(create=True)
    store.save({"a": ArrayPart(array=np.zeros(10**6))}, step=1)
    with pytest.raises(StoreLimitReached, match=r"declares 7.63 MiB, and no more than 976.6 KiB may be read"):
        store.load(limit_bytes=10**6)
    assert store.load(limit_bytes=10**7).array("a").shape == (10**6,)


def test_asking_for_the_wrong_part(place: Any) -> None:
    store = place.open(create=True)
    store.save({"a": Json(value=1), "b": ArrayPart(array=np.zeros(3))}, step=1)
    snapshot = store.load()
    with pytest.raises(SnapshotNotFound, match=r"no part 'c', but a, b"):
        snapshot.json("c")
    with pytest.raises(StoreError, match=r"'a' must be array, but is json"):
        snapshot.array("a")
    with pytest.raises(StoreError, match="but `out` is"):
        snapshot.array("b", out=np.zeros(4))


def test_large_objects_are_sent_in_parts(place: Any) -> None:
    weight = np.random.default_rng(0).integers(0, 256, (5, 2**22), np.uint8)
    store = place.open(create=True)
    store.save({"policy": Tensors(tensors={"weight": weight})}, step=1)
    assert np.array_equal(store.load().tensors("policy")["weight"], weight)
    assert store.verify().is_sound

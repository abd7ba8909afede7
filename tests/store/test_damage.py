"""Stores that were damaged or made up: what is wrong is found, named, and harms nobody."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rlmem.errors import CorruptObjectError, RlmemError, StoreError, StoreLimitReached, StoreUnavailable
from rlmem.store import ArrayPart, Json, Saver, SaveWarning, Snapshot, Store
from rlmem.store.naming import digest_of, object_name, snapshot_in, snapshot_name

# --- bits that flip --------------------------------------------------------------------------------------------------


def first_chunk(snapshot: Snapshot, path: str) -> str:
    return snapshot.entry(path).chunks[0]


KINDS: dict[str, tuple[str, Callable[[Snapshot], str]]] = {
    "tensors": ("policy", lambda snapshot: snapshot.entry("policy").files[0][0].digest),
    "large tensor": ("policy", lambda snapshot: snapshot.entry("policy").files[1][0].digest),
    "chunk": ("buffer/actions", lambda snapshot: first_chunk(snapshot, "buffer/actions")),
    "compressed chunk": ("buffer/dones", lambda snapshot: first_chunk(snapshot, "buffer/dones")),
    "block": ("buffer/observations", lambda snapshot: snapshot.entry("buffer/observations").blocks[0][0].digest),
    "key": ("buffer/observations", lambda snapshot: snapshot.entry("buffer/observations").keys[0].digest),
    "tail": (
        "buffer/observations",
        lambda snapshot: snapshot.entry("buffer/observations").arrays["tails"].chunks[0],
    ),
    "json": ("long", lambda snapshot: snapshot.entry("long").ref.digest),
}


def read(snapshot: Snapshot, path: str) -> None:
    {
        "tensors": snapshot.tensors,
        "array": snapshot.array,
        "column": snapshot.column,
        "json": snapshot.json,
    }[snapshot.kind(path)](path)


def damage(path: Path, how: str) -> None:
    data = bytearray(path.read_bytes())
    if how == "a bit":
        data[len(data) // 2] ^= 16
    elif how == "cut":
        del data[-1:]
    path.unlink()
    if how != "gone":
        path.write_bytes(data)


@pytest.mark.parametrize("how", ["a bit", "cut", "gone"])
@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_found_named_and_an_older_snapshot_offered(
    folder: Store, kit: SimpleNamespace, kind: str, how: str
) -> None:
    folder.save({"a": Json(value=1)}, step=1)
    folder.save(kit.contents(), step=2)
    path, choose = KINDS[kind]
    name = object_name(choose(folder.load()))
    damage(Path(folder.url, name), how)
    with pytest.raises(CorruptObjectError) as caught:
        read(folder.load(), path)
    assert caught.value.name == name
    assert name in str(caught.value)
    assert folder.url in str(caught.value)
    assert "an older snapshot can be read instead: step 1 of" in str(caught.value)
    verification = folder.verify()
    assert [fault.name for fault in verification.faults] == [name]
    assert [info.step for info in verification.faults[0].snapshots] == [2]


@pytest.mark.parametrize("how", ["a bit", "cut"])
def test_a_damaged_manifest(folder: Store, how: str) -> None:
    folder.save({"a": Json(value=1)}, step=1)
    info = folder.save({"a": Json(value=2)}, step=2)
    damage(Path(folder.url, info.name), how)
    with pytest.raises(
        CorruptObjectError, match=r"its content does not match its name; an older .*: step 1 of"
    ) as caught:
        folder.load()
    assert caught.value.name == info.name
    assert folder.load(step=1).json("a") == 1
    assert [fault.name for fault in folder.verify().faults] == [info.name]
    with pytest.raises(CorruptObjectError):
        folder.collect(keep=5, grace_s=-60)
    folder.save({"a": Json(value=3)}, step=3)
    assert folder.load().json("a") == 3


def test_nothing_older_is_left(folder: Store) -> None:
    info = folder.save({"a": Json(value=1)}, step=1)
    damage(Path(folder.url, info.name), "a bit")
    with pytest.raises(CorruptObjectError, match="no older snapshot can be read instead"):
        folder.load()


# --- made up ---------------------------------------------------------------------------------------------------------


def plant(store: Store, document: Any) -> None:
    """Write a manifest that says what it likes, under its right name."""
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    name = snapshot_name(9, 9, digest_of([data]))
    assert snapshot_in(name)
    folder = Path(store.url, "snapshots")
    folder.mkdir(exist_ok=True)
    Path(store.url, name).write_bytes(data)


def manifest(parts: Any, **changes: Any) -> dict[str, Any]:
    plain = {"format": "rlmem-snapshot", "version": 1, "step": 9, "committed_ns": 9, "metadata": {}, "parts": parts}
    return plain | changes


def array(**changes: Any) -> dict[str, Any]:
    plain = {"kind": "array", "dtype": "<f4", "shape": [4], "chunk_bytes": 2**16, "chunks": ["ab" * 32]}
    return {"a": plain | changes}


HOSTILE: dict[str, Any] = {
    "a name that leads out": array(chunks=["../../../../etc/passwd"]),
    "a name with a slash": array(chunks=["/" * 64]),
    "a path that leads out": {"../../a": {"kind": "json", "value": 1}},
    "more than there can be": array(shape=[2**49, 2**49], chunks=[]),
    "fewer chunks than bytes": array(shape=[2**40]),
    "more chunks than bytes": array(chunks=["ab" * 32] * 9),
    "negative sides": array(shape=[-4]),
    "sides that are no numbers": array(shape=[True]),
    "chunks that are too large": array(chunk_bytes=2**40),
    "chunks of nothing": array(chunk_bytes=0),
    "objects": array(dtype="|O8"),
    "a dtype that is code": array(dtype="__import__('os')"),
    "an unknown compression": array(compression="pickle"),
    "an unknown kind": {"a": {"kind": "pickle", "object": ["ab" * 32, 5]}},
    "no kind": {"a": {}},
    "no object": {"a": 5},
    "parts that are a list": [1],
    "tensors without names": {"a": {"kind": "tensors", "files": [{"digest": "ab" * 32, "bytes": 9}]}},
    "a large text": {"a": {"kind": "json", "object": ["ab" * 32, 2**40]}},
    "blocks that are none": {"a": {"kind": "column", "head": {}, "arrays": {}, "blocks": [5], "keys": []}},
}


@pytest.mark.parametrize("parts", HOSTILE.values(), ids=HOSTILE)
def test_hostile_manifests_are_refused(folder: Store, parts: Any) -> None:
    plant(folder, manifest(parts))
    with pytest.raises(CorruptObjectError, match="no manifest that rlmem writes"):
        folder.load()
    assert folder.verify().faults


@pytest.mark.parametrize(
    "document",
    [
        b"[" * 200_000,
        b"[" * 200 + b"]" * 200,
        b"[" + b"[]," * 5_000_000 + b"1]",
        b"\xff\xfe",
        b"",
        b"1" * 10_000,
        b'{"format": "rlmem-snapshot"}',
        manifest({}, version=2),
        manifest({}, step=10),
        manifest({}, metadata=[]),
        [],
    ],
    ids=["deep", "quite deep", "many", "no text", "empty", "a number", "bare", "newer", "another step", "list", "none"],
)
def test_documents_that_are_no_manifests_are_refused(folder: Store, document: Any) -> None:
    plant(folder, document)
    with pytest.raises(CorruptObjectError, match="no manifest that rlmem writes"):
        folder.load()


def test_an_array_that_is_larger_than_the_machine_is_not_begun(folder: Store) -> None:
    chunk = bytes(2**26)
    digest = digest_of([chunk])
    folder.space.put(object_name(digest), [chunk])
    plant(folder, manifest(array(dtype="|u1", shape=[2**40], chunk_bytes=2**26, chunks=[digest] * 2**14)))
    with pytest.raises(StoreLimitReached, match=r"'a' declares 1.00 TiB, and no more than"):
        folder.load().array("a")


def test_links_are_not_followed(folder: Store, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(bytes(16))
    target = Path(folder.url, object_name(digest_of([bytes(16)])))
    target.parent.mkdir(parents=True)
    target.symlink_to(secret)
    plant(folder, manifest(array(chunks=[digest_of([bytes(16)])])))
    with pytest.raises(StoreUnavailable):
        folder.load().array("a")
    folder.collect(grace_s=-60)
    assert secret.exists()


@pytest.mark.parametrize("name", ["../x", "objects/../x", "objects/ab/" + "g" * 62, "snapshots/1.json", "/etc/passwd"])
def test_spaces_refuse_names_that_a_store_cannot_have(folder: Store, name: str) -> None:
    for act in (
        folder.space.size,
        lambda name: folder.space.put(name, [b""]),
        lambda name: folder.space.delete([name]),
    ):
        with pytest.raises(StoreError, match="no name that a store can have"):
            act(name)


def test_what_lies_about_in_a_store_is_left_alone(folder: Store) -> None:
    other = Path(folder.url, "objects", "ab", "notes.txt")
    other.parent.mkdir(parents=True)
    other.write_text("mine")
    Path(folder.url, "snapshots").mkdir()
    Path(folder.url, "snapshots", "notes.txt").write_text("mine")
    folder.save({"a": Json(value=1)}, step=1)
    folder.collect(grace_s=-60)
    assert other.read_text() == "mine"
    assert len(folder.snapshots()) == 1


def head_of(folder: Store, kit: SimpleNamespace) -> dict[str, Any]:
    folder.save(kit.contents(), step=1)
    document: dict[str, Any] = json.loads(Path(folder.url, folder.snapshots()[0].name).read_bytes())
    return document["parts"]["buffer/observations"]


LIES = [
    ("rows", 2**50),
    ("rows", -1),
    ("rows", 7),
    ("n_envs", 3),
    ("n_envs", 10**9),
    ("shape", [2**30, 2**30]),
    ("shape", [3]),
    ("shape", "abc"),
    ("dtype", "O"),
    ("dtype", "<f8"),
    ("follows", 1),
    ("shared", True),
    ("compact", True),
    ("written", None),
    ("length", 3),
    ("length", 2**40),
    ("group", 3),
    ("group", 0),
    ("sequences", []),
    ("recent", ["ff"]),
    ("layout", {"axis": 9, "count": 4, "shift": 1, "newest_first": False}),
    ("layout", {"axis": 0, "count": 2**40, "shift": 1, "newest_first": False}),
    ("packing", {"narrow": None, "values": [3, 2, 1]}),
    ("packing", {"narrow": "O", "values": []}),
    ("held", {"written": 1, "kept_from": 5, "begun_at": 0}),
    ("held", {}),
]


@pytest.mark.parametrize(("key", "value"), LIES)
def test_columns_that_lie_about_themselves_are_refused(
    folder: Store, kit: SimpleNamespace, key: str, value: object
) -> None:
    column = head_of(folder, kit)
    column["head"][key] = value
    plant(folder, manifest({"a": column}))
    with pytest.raises(CorruptObjectError, match=r"do not fit|whole numbers|true or false"):
        folder.load(step=9).column("a")


@pytest.mark.parametrize("key", ["opened", "used", "first", "plain_blocks", "plain", "key"])
def test_open_ends_that_lie_are_refused_or_read_safely(folder: Store, kit: SimpleNamespace, key: str) -> None:
    for value in (None, -1, 2**61, True, "zz", 1, 10**6):
        column = head_of(folder, kit)
        column["head"]["sequences"][0][key] = value
        plant(folder, manifest({"a": column}))
        try:
            again = folder.load(step=9).column("a")
            kit.everything(again, 300)
            again.put(0, np.zeros((2, 4, 32, 32), np.uint8))
        except (RlmemError, ValueError, OverflowError):
            pass
        for info in folder.snapshots():
            Path(folder.url, info.name).unlink()


# --- disks and permissions -------------------------------------------------------------------------------------------


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True)  # noqa: S607
    if done.returncode:
        pytest.skip("mounting is not permitted")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)  # noqa: S607


def test_a_full_disk(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    with small_disk(tmp_path / "disk", "8m") as disk:
        store = Store.open(disk / "store", create=True)
        saver = Saver(store, keep=2)
        small = random.normal(size=100_000)
        saver.save({"a": ArrayPart(array=small)}, step=1)
        saver.wait()
        for step in (2, 3):
            large = random.normal(size=2_000_000)
            with pytest.warns(SaveWarning, match="the disk is full: make room") if step == 3 else nothing():
                saver.save({"a": ArrayPart(array=large)}, step=step)
        with pytest.raises(StoreUnavailable, match=r"cannot write objects/../.* to .*store: No space left on device"):
            saver.wait()
        assert np.array_equal(store.load().array("a"), small)
        assert store.verify().is_sound
        assert store.collect(keep=1, grace_s=-60).objects > 0
        saver.save({"a": ArrayPart(array=small + 1)}, step=4)
        assert saver.wait().step == 4
        assert np.array_equal(store.load().array("a"), small + 1)


@contextmanager
def nothing() -> Iterator[None]:
    yield


@contextmanager
def as_nobody() -> Iterator[None]:
    """Root may write everywhere, so another has to try."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def test_permission_that_is_lost(folder: Store) -> None:
    folder.save({"a": Json(value=1)}, step=1)
    for path in [*Path(folder.url).rglob("*"), Path(folder.url)]:
        if path.is_dir():
            path.chmod(0o500)
    saver = Saver(folder)
    with as_nobody():
        with pytest.warns(SaveWarning, match=r"Permission denied: permission is missing: see who owns"):
            saver.save({"a": ArrayPart(array=np.arange(9), mutable=True)}, step=2)
        assert isinstance(saver.error, StoreUnavailable)
    for path in [Path(folder.url), *Path(folder.url).rglob("*")]:
        if path.is_dir():
            path.chmod(0o700)
    saver.save({"a": ArrayPart(array=np.arange(9), mutable=True)}, step=3)
    saver.close()
    assert [info.step for info in folder.snapshots()] == [1, 3]


def test_urls_that_are_none() -> None:
    with pytest.raises(StoreError, match=r"ftp://host/x: a store must be a folder, file://, s3://.*but got ftp://"):
        Store.open("ftp://user:password@host/x?token=1")
    with pytest.raises(StoreError, match="three slashes"):
        Store.open("file://host/x")


def test_a_file_url_is_a_folder(tmp_path: Path) -> None:
    Store.open(f"file://{tmp_path}/a%20b", create=True).save({"a": Json(value=1)}, step=1)
    assert Store.open(tmp_path / "a b").load().json("a") == 1


def test_a_store_of_another_format(folder: Store) -> None:
    marker = Path(folder.url, "rlmem-store.json")
    marker.write_text('{"format": "rlmem-store", "version": 2}')
    with pytest.raises(StoreError, match="of format 2, and this rlmem reads 1: update rlmem"):
        Store.open(folder.url)
    for content in ("[]", "{", '{"format": "zarr"}', "x" * 5000):
        marker.write_text(content)
        with pytest.raises(CorruptObjectError, match=r"rlmem-store.json"):
            Store.open(folder.url)

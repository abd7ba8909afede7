"""Parts of a snapshot, each as it was given."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rlmem.errors import StoreError
from rlmem.store import ArrayPart, ColumnPart, Json, Store, Tensors, chunk_bytes_for

DTYPES = ["bool", "u1", "i2", "f2", "<i4", ">i4", "f4", "f8", "c16"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0, 3), (7,), (300, 500)])
def test_arrays_of_every_kind(folder: Store, dtype: str, shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    folder.save({"a": ArrayPart(array=array), "z": ArrayPart(array=array, compress=True)}, step=1)
    for path in ("a", "z"):
        found = folder.load().array(path)
        assert (found.dtype, found.shape) == (array.dtype, array.shape)
        assert np.array_equal(found, array)


def test_arrays_in_any_order(folder: Store) -> None:
    array = np.arange(600_000.0).reshape(300, 2000)
    given = {"rows": array[::3], "turned": array.T, "fortran": np.asfortranarray(array)}
    folder.save({path: ArrayPart(array=value) for path, value in given.items()}, step=1)
    for path, value in given.items():
        assert np.array_equal(folder.load().array(path), value)


def test_an_array_is_read_into_place_and_in_chunks(folder: Store) -> None:
    array = np.random.default_rng(0).normal(size=(1000, 100))
    folder.save({"a": ArrayPart(array=array)}, step=1)
    out = np.empty_like(array)
    assert folder.load().array("a", out=out) is out
    assert np.array_equal(out, array)
    assert b"".join(chunk.tobytes() for chunk in folder.load().chunks("a")) == array.tobytes()


class Numbers:
    """An array that is never there as a whole."""

    dtype, shape = np.dtype("<i8"), (1000, 1000)

    def read(self, start: int, stop: int) -> memoryview:
        return memoryview(np.arange(start // 8, stop // 8).view(np.uint8))


def test_an_array_that_is_made_as_it_is_written(folder: Store) -> None:
    folder.save({"a": ArrayPart(array=Numbers())}, step=1)
    assert np.array_equal(folder.load().array("a"), np.arange(10**6).reshape(1000, 1000))


def test_a_ring_that_fills_shares_its_chunks(folder: Store) -> None:
    ring = np.random.default_rng(0).integers(0, 256, (4096, 1024), np.uint8)
    chunk = chunk_bytes_for(ring.nbytes)
    for filled in (1024, 2048):
        folder.save({"a": ArrayPart(array=ring[:filled], mutable=True, chunk_bytes=chunk)}, step=filled)
    assert folder.last_written.nbytes < 1.1 * 1024 * 1024


def test_chunks_are_a_small_share_of_their_array() -> None:
    assert [chunk_bytes_for(size) for size in (0, 10**6, 10**8, 10**9, 10**12)] == [2**16, 2**16, 2**17, 2**20, 2**22]


def test_arrays_of_objects_are_refused(folder: Store) -> None:
    with pytest.raises(StoreError, match="plain numbers"):
        folder.save({"a": ArrayPart(array=np.array([None]))}, step=1)
    assert folder.snapshots() == []


# --- tensors ---------------------------------------------------------------------------------------------------------


def test_other_tools_read_the_tensors(folder: Store) -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    tensors = {
        "layer.weight": np.random.default_rng(0).normal(size=(300, 100)).astype(np.float32),
        "layer.bias": np.arange(5, dtype=np.float64),
        "half": np.arange(4, dtype=np.float16),
        "flag": np.array([True, False]),
        "step": np.array(3, np.int64),
        "turned": np.arange(6, dtype=np.int32).reshape(2, 3).T,
    }
    folder.save({"policy": Tensors(tensors=tensors)}, step=1)
    found: dict[str, Any] = {}
    for ref, _ in folder.load().entry("policy").files:
        found |= safetensors.load_file(Path(folder.url, "objects", ref.digest[:2], ref.digest[2:]))
    assert set(found) == set(tensors)
    for name, tensor in folder.load().tensors("policy").items():
        assert np.array_equal(found[name], tensors[name])
        assert np.array_equal(tensor, tensors[name])
        assert (tensor.dtype, tensor.shape) == (tensors[name].dtype, tensors[name].shape)


def test_types_that_numpy_does_not_have(folder: Store) -> None:
    bits = np.arange(10, dtype=np.uint16)
    folder.save({"p": Tensors(tensors={"a": bits, "b": bits}, formats={"a": "BF16"})}, step=1)
    assert np.array_equal(folder.load().tensors("p")["a"], bits)
    assert folder.load().tensor_formats("p") == {"a": "BF16"}
    with pytest.raises(StoreError, match="safetensors has no F8_E4M3 for uint16"):
        folder.save({"p": Tensors(tensors={"a": bits}, formats={"a": "F8_E4M3"})}, step=1)


def test_agents_share_tensors(folder: Store) -> None:
    shared = np.random.default_rng(0).normal(size=(500, 500))
    agents = {
        f"agent/{number}": Tensors(tensors={"body": shared, "head": np.full(10_000, float(number))})
        for number in range(8)
    }
    folder.save(agents, step=1)
    assert folder.last_written.nbytes < shared.nbytes + 8 * 85_000


# --- JSON ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, True, 2**80, 0.1, "ü\n", [1, [2]], {"a": {"b": []}}])
def test_json_of_every_kind(folder: Store, value: object) -> None:
    folder.save({"a": Json(value=value)}, step=1)
    assert folder.load().json("a") == value


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, object(), b"bytes"])
def test_what_json_cannot_say_is_refused(folder: Store, value: object) -> None:
    with pytest.raises(StoreError, match="must be plain JSON"):
        folder.save({"a": Json(value=value)}, step=1)


def test_json_that_is_too_deep_is_refused_when_written(folder: Store) -> None:
    with pytest.raises(StoreError, match="no deeper than 64"):
        folder.save({"a": Json(value=json.loads("[" * 100 + "]" * 100))}, step=1)


@pytest.mark.parametrize("path", ["", "../a", "a/../b", "/a", "a//b", "a/", "a\nb", "x" * 600])
def test_paths_that_could_lead_elsewhere_are_refused(folder: Store, path: str) -> None:
    with pytest.raises(StoreError, match="a part's path"):
        folder.save({path: Json(value=1)}, step=1)


# --- columns ---------------------------------------------------------------------------------------------------------


def windows(steps: int) -> np.ndarray:
    """Return windows of thirty rows that slide over one table, from two places in it."""
    table = np.random.default_rng(0).normal(size=(steps + 60, 160)).astype(np.float32)
    return np.stack([[table[step % 40 : step % 40 + 30], table[step % 23 : step % 23 + 30]] for step in range(steps)])


def noise(steps: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(steps, 2, 8)).astype(np.float32)


CASES = {
    "frames": (300, {}),
    "frames and what follows": (300, {"follows": True}),
    "compact frames": (300, {"compact": True}),
    "a ring of frames": (700, {"rows": 250}),
    "few frames": (5, {"rows": 100}),
    "one row of frames": (60, {"rows": 1}),
    "windows": (200, {}),
    "a ring of windows": (300, {"rows": 120}),
    "vectors": (1500, {"rows": 600}),
    "vectors and what follows": (700, {"follows": True, "rows": 300}),
    "grids": (300, {}),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest, kit: SimpleNamespace) -> tuple[np.ndarray, dict[str, Any]]:
    steps, options = CASES[request.param]
    if "windows" in request.param:
        return windows(steps), options
    if "vectors" in request.param:
        return noise(steps), options
    if "grids" in request.param:
        return (kit.frames(steps)[:, :, 0] > 128).astype(np.float32), options
    return kit.frames(steps), options


@pytest.mark.parametrize("share", [0.3, 0.51, 0.9])
def test_a_column_goes_on_as_if_nothing_had_happened(
    folder: Store, kit: SimpleNamespace, case: tuple[np.ndarray, dict[str, Any]], share: float
) -> None:
    observations, options = case
    cut = int(share * len(observations))
    rows = options.get("rows", len(observations))
    options = {**options, "rows": rows}
    straight = kit.column_of(observations[:cut], **options)
    folder.save({"a": ColumnPart(column=straight)}, step=1)
    again = folder.load().column("a")
    written = min(cut, rows)
    assert np.array_equal(kit.everything(again, written), kit.everything(straight, written))
    for step in range(cut, len(observations)):
        for column in (straight, again):
            column.put(step % rows, observations[step], *([observations[step]] if column.follows else []))
    written = min(len(observations), rows)
    assert np.array_equal(kit.everything(again, written), kit.everything(straight, written))
    assert (again.layout, again.packing, again.shared) == (straight.layout, straight.packing, straight.shared)
    assert again.nbytes == pytest.approx(straight.nbytes, rel=0.05, abs=4096)
    if straight.follows:
        which, envs = np.arange(written), np.zeros(written, int)
        assert np.array_equal(again.get_next(which, envs), straight.get_next(which, envs))
    for path, column in (("straight", straight), ("again", again)):
        folder.save({path: ColumnPart(column=column)}, step=2)
    assert folder.last_written.objects <= 2  # what was gone on with has the same blocks to the last bit


def test_blocks_are_written_once_and_byte_for_byte(folder: Store, kit: SimpleNamespace) -> None:
    observations = kit.frames(2000)
    column = kit.column_of(observations[:1500], rows=2000)
    folder.save({"a": ColumnPart(column=column)}, step=1)
    first = folder.last_written.nbytes
    blocks = {block.data.tobytes() for pieces in column._held.sequences.pieces for block in pieces.blocks}
    there = {path.read_bytes() for path in Path(folder.url, "objects").rglob("*") if path.is_file()}
    assert blocks
    assert blocks <= there
    for step in range(1500, 1600):
        column.put(step, observations[step])
    folder.save({"a": ColumnPart(column=column)}, step=2)
    assert folder.last_written.nbytes < first / 3


def test_columns_of_another_block_length_go_on_as_they_were(
    folder: Store, kit: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    observations = kit.frames(400)
    column = kit.column_of(observations[:300], rows=400)
    folder.save({"a": ColumnPart(column=column)}, step=1)
    monkeypatch.setattr("rlmem.lean.sequences.block_length", lambda *_: 32)
    monkeypatch.setattr("rlmem.lean.sequences.GROUP", 4)
    again = folder.load().column("a")
    for step in range(300, 400):
        again.put(step, observations[step])
    assert np.array_equal(kit.everything(again, 400), observations.reshape(800, *observations.shape[2:]))

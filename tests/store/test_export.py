"""Exports: bit-equal, in little memory, and as episodes where a part is a replay buffer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rlmem.errors import CorruptObjectError, InputError, StoreError
from rlmem.lean.column import Column
from rlmem.store import ArrayPart, ColumnPart, Json, Store, Tensors
from rlmem.store.export import export

h5py = pytest.importorskip("h5py")

ROWS, ENVS, SHAPE = 40, 2, (4, 6, 6)


def _saved(folder: Path, contents):
    store = Store.open(folder, create=True)
    store.save(contents, step=7)
    return store.load()


@pytest.fixture(scope="module")
def arrays():
    random = np.random.default_rng(1)
    return {
        "bool": random.integers(0, 2, (5, 3)).astype(bool),
        "big_endian": random.integers(0, 9, 7).astype(">i4"),
        "double": random.standard_normal((3000, 40)),
        "half": random.standard_normal((4, 0, 2)).astype(np.float16),
        "complex": random.standard_normal(6).astype(np.complex64),
        "number": np.array(3.5, np.float32),
    }


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("ending", [".npz", ".h5"])
def test_arrays_and_tensors_come_back_bit_by_bit(tmp_path, arrays, ending, compress):
    weights = {"net.weight": np.arange(40_000, dtype=np.float32), "net.bias": np.ones(3, np.float32)}
    contents = {f"buffer/{name}": ArrayPart(array=array, compress=compress) for name, array in arrays.items()}
    contents |= {"buffer/policy": Tensors(tensors=weights), "buffer/said": Json(value={"n": [1, 2]})}
    snapshot = _saved(tmp_path / "store", contents)
    out = tmp_path / f"out{ending}"
    made = export(snapshot, "buffer", out, compress=compress)
    expected = arrays | {f"policy/{name}": tensor for name, tensor in weights.items()}
    assert {array.name for array in made.arrays} == set(expected)
    found = _read(out, expected)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype, name
        assert found[name].shape == array.shape, name
        assert found[name].tobytes() == array.tobytes(), name
    assert made.nbytes == out.stat().st_size


def _read(out: Path, names):
    if out.suffix == ".npz":
        with np.load(out, allow_pickle=False) as file:
            assert json.loads(file["said.json"]) == {"n": [1, 2]}
            return {name: file[name] for name in names}
    with h5py.File(out) as file:
        assert json.loads(file["said"][()]) == {"n": [1, 2]}
        return {name: np.asarray(file[name][()]) for name in names}


def test_bits_without_a_type_in_numpy_are_noted(tmp_path):
    bits = np.arange(4, dtype=np.uint16)
    snapshot = _saved(tmp_path / "store", {"policy": Tensors(tensors={"w": bits}, formats={"w": "BF16"})})
    made = export(snapshot, "policy", tmp_path / "policy.npz")
    assert made.notes == ("policy/w: BF16, which NumPy does not have, as its bits",)


# --- a replay buffer -------------------------------------------------------------------------------------------------


class Played:
    """Two environments played for a while; what a buffer of so many rows holds of it, and the episodes that were."""

    def __init__(self, steps: int, *, reset_unsaid_at: int | None = None) -> None:
        random = np.random.default_rng(steps)
        self.rows = {name: [] for name in ("observations", "next", "actions", "rewards", "dones", "timeouts")}
        now = self._fresh(random)
        for step in range(steps):
            if step == reset_unsaid_at:
                now = self._fresh(random)
            after = np.concatenate([now[:, 1:], self._fresh(random)[:, :1]], axis=1)
            done = np.array([step % 9 == 8, step % 13 == 12])
            timeout = done & (step % 2 == 0)
            values = (now, after, random.integers(0, 4, (ENVS, 1)), random.standard_normal(ENVS), done, timeout)
            for row, value in zip(self.rows.values(), values, strict=True):
                row.append(value)
            now = np.where(done[:, None, None, None], self._fresh(random), after)
        self.steps = steps

    @staticmethod
    def _fresh(random):
        return random.integers(0, 255, (ENVS, *SHAPE), dtype=np.uint8)

    def ring(self, name, dtype):
        first = self.rows[name][0]
        ring = np.zeros((ROWS, *np.shape(first)), dtype)
        for step, value in enumerate(self.rows[name]):
            ring[step % ROWS] = value
        return ring[: min(self.steps, ROWS)]

    def contents(self, *, lean: bool, path: str = "replay_buffer"):
        kept = {"actions": np.int64, "rewards": np.float32, "dones": np.float32, "timeouts": np.float32}
        parts = {f"{path}/{name}": ArrayPart(array=self.ring(name, dtype)) for name, dtype in kept.items()}
        counters = {"pos": self.steps % ROWS, "full": self.steps >= ROWS}
        parts[f"{path}.json"] = Json(value={"counters": counters})
        if lean:
            return parts | {f"{path}/columns/observations": ColumnPart(column=self._column())}
        stock = {"observations": "observations", "next_observations": "next"}
        return parts | {f"{path}/{name}": ArrayPart(array=self.ring(row, np.uint8)) for name, row in stock.items()}

    def _column(self):
        column = Column(rows=ROWS, n_envs=ENVS, shape=SHAPE, dtype=np.uint8, follows=True)
        for step in range(self.steps):
            column.put(step % ROWS, self.rows["observations"][step], self.rows["next"][step])
        return column

    def transitions(self, env: int, first: int):
        return [tuple(np.asarray(row[step][env]) for row in self.rows.values()) for step in range(first, self.steps)]


def _episodes(out: Path):
    with h5py.File(out) as file:
        for number in range(len(file)):
            group = file[f"episode_{number}"]
            assert group.attrs["id"] == number
            yield {name: group[name][()] for name in group} | {"cut": bool(group.attrs["rlmem_cut"])}


def _as_transitions(episode):
    steps = len(episode["rewards"])
    assert len(episode["observations"]) == steps + 1
    ended = episode["terminations"] | episode["truncations"]
    assert ended.tolist() == [False] * (steps - 1) + [True]
    for step in range(steps):
        cut = episode["cut"] and step == steps - 1
        yield (
            episode["observations"][step],
            episode["observations"][step + 1],
            episode["actions"][step],
            episode["rewards"][step],
            np.asarray(ended[step] and not cut),
            np.asarray(episode["truncations"][step] and not cut),
        )


@pytest.mark.parametrize("lean", [True, False])
@pytest.mark.parametrize("steps", [1, 27, 40, 95])
def test_a_replay_buffer_becomes_episodes(tmp_path, steps, lean):
    played = Played(steps)
    snapshot = _saved(tmp_path / "store", played.contents(lean=lean))
    made = export(snapshot, "replay_buffer", tmp_path / "buffer.hdf5")
    assert made.layout == "minari"
    assert made.steps == min(steps, ROWS) * ENVS
    found = [step for episode in _episodes(tmp_path / "buffer.hdf5") for step in _as_transitions(episode)]
    first = max(steps - ROWS, 0)
    expected = [step for env in range(ENVS) for step in played.transitions(env, first)]
    assert sorted(map(_bytes_of, found)) == sorted(map(_bytes_of, expected))


def _bytes_of(transition) -> bytes:
    kinds = (np.uint8, np.uint8, np.int64, np.float32, np.bool_, np.bool_)
    return b"".join(np.asarray(value, kind).tobytes() for value, kind in zip(transition, kinds, strict=True))


def test_windows_make_no_difference(tmp_path, monkeypatch):
    snapshot = _saved(tmp_path / "store", Played(95).contents(lean=True))
    export(snapshot, "replay_buffer", tmp_path / "one.h5")
    monkeypatch.setattr("rlmem.store.cells.WINDOW_BYTES", 2000)
    export(snapshot, "replay_buffer", tmp_path / "many.h5")

    def contents(out):
        return sorted(episode["observations"].tobytes() for episode in _episodes(out))

    assert contents(tmp_path / "one.h5") == contents(tmp_path / "many.h5")


def test_a_reset_that_nobody_noted_ends_an_episode(tmp_path):
    snapshot = _saved(tmp_path / "store", Played(29, reset_unsaid_at=4).contents(lean=False))
    export(snapshot, "replay_buffer", tmp_path / "buffer.h5")
    lengths = [len(episode["rewards"]) for episode in _episodes(tmp_path / "buffer.h5") if episode["cut"]]
    assert lengths.count(4) == ENVS


def test_under_minaris_own_name_the_metadata_comes_along(tmp_path):
    (tmp_path / "data").mkdir()
    snapshot = _saved(tmp_path / "store", Played(50).contents(lean=True))
    made = export(snapshot, "replay_buffer", tmp_path / "data/main_data.hdf5")
    metadata = json.loads((tmp_path / "data/metadata.json").read_text())
    assert [file.name for file in made.files] == ["main_data.hdf5", "metadata.json"]
    assert metadata["total_episodes"] == made.episodes
    assert metadata["total_steps"] == ROWS * ENVS
    space = json.loads(metadata["observation_space"])
    assert (space["type"], space["dtype"], space["shape"]) == ("Box", "uint8", [*SHAPE])
    assert np.shape(space["low"]) == SHAPE


def test_a_dict_observation_keeps_its_keys(tmp_path):
    contents = Played(50).contents(lean=False)
    for name in ("observations", "next_observations"):
        part = contents.pop(f"replay_buffer/{name}")
        contents |= {
            f"replay_buffer/{name}/image": part,
            f"replay_buffer/{name}/row": ArrayPart(array=part.array[..., 0]),
        }
    (tmp_path / "data").mkdir()
    export(_saved(tmp_path / "store", contents), "replay_buffer", tmp_path / "data/main_data.hdf5")
    with h5py.File(tmp_path / "data/main_data.hdf5") as file:
        found = file["episode_0/observations"]
        assert np.array_equal(found["image"][..., 0], found["row"][()])
    space = json.loads(json.loads((tmp_path / "data/metadata.json").read_text())["observation_space"])
    assert {key: each["shape"] for key, each in space["subspaces"].items()} == {"image": [4, 6, 6], "row": [4, 6]}


def test_without_next_observations_arrays_are_written_and_it_is_said(tmp_path):
    contents = Played(50).contents(lean=False)
    del contents["replay_buffer/next_observations"]
    made = export(_saved(tmp_path / "store", contents), "replay_buffer", tmp_path / "buffer.h5")
    assert made.layout == "hdf5"
    assert "no next observations" in made.notes[0]


def test_a_column_is_exported_row_by_row(tmp_path):
    played = Played(95)
    snapshot = _saved(tmp_path / "store", played.contents(lean=True))
    export(snapshot, "replay_buffer/columns/observations", tmp_path / "column.npz")
    export(snapshot, "replay_buffer", tmp_path / "buffer.npz")
    with np.load(tmp_path / "buffer.npz") as file:
        kept = {"observations", "next_observations", "actions", "rewards", "dones", "timeouts", "replay_buffer.json"}
        assert set(file.files) == kept
    with np.load(tmp_path / "column.npz") as file:
        assert np.array_equal(file["observations"], played.ring("observations", np.uint8))
        assert np.array_equal(file["next_observations"], played.ring("next", np.uint8))


# --- what goes wrong -------------------------------------------------------------------------------------------------


def test_forgotten_rows_cannot_stand_where_they_stood(tmp_path):
    played = Played(95)
    column = played._column()
    column.forget((95 - 10) % ROWS)
    contents = played.contents(lean=True) | {"replay_buffer/columns/observations": ColumnPart(column=column)}
    snapshot = _saved(tmp_path / "store", contents)
    with pytest.raises(StoreError, match="were forgotten"):
        export(snapshot, "replay_buffer", tmp_path / "buffer.npz")
    assert export(snapshot, "replay_buffer", tmp_path / "buffer.h5").steps == 10 * ENVS


def test_a_file_that_is_there_is_left_alone(tmp_path):
    snapshot = _saved(tmp_path / "store", {"a": ArrayPart(array=np.ones(3))})
    out = tmp_path / "a.npz"
    out.write_text("mine")
    with pytest.raises(InputError, match="without --force"):
        export(snapshot, "a", out)
    assert out.read_text() == "mine"
    export(snapshot, "a", out, overwrite=True)
    with np.load(out) as file:
        assert np.array_equal(file["a"], np.ones(3))


@pytest.mark.parametrize("ending", [".npz", ".h5"])
def test_a_corrupt_chunk_leaves_no_file(tmp_path, ending):
    snapshot = _saved(tmp_path / "store", {"a": ArrayPart(array=np.arange(100_000.0))})
    chunk = next(file for file in (tmp_path / "store/objects").rglob("*") if file.is_file())
    chunk.chmod(0o644)
    chunk.write_bytes(b"\0" * chunk.stat().st_size)
    with pytest.raises(CorruptObjectError):
        export(snapshot, "a", tmp_path / f"a{ending}")
    assert [file.name for file in tmp_path.iterdir()] == ["store"]


# --- memory ----------------------------------------------------------------------------------------------------------

_CHILD = """
import resource, sys
import h5py
from rlmem.store import Store
from rlmem.store.export import export
snapshot = Store.open(sys.argv[1]).load()
export(snapshot, "small", sys.argv[2] + "-small" + sys.argv[3])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
export(snapshot, "buffer", sys.argv[2] + sys.argv[3])
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


@pytest.mark.parametrize("ending", [".npz", ".h5"])
def test_a_large_array_goes_through_little_memory(tmp_path, ending):
    array = np.arange(12 * 2**20, dtype=np.int64).reshape(-1, 2, 8192)  # 96 MiB
    contents = {"buffer": ArrayPart(array=array), "small": ArrayPart(array=np.ones(8))}
    _saved(tmp_path / "store", contents)
    words = [sys.executable, "-c", _CHILD, str(tmp_path / "store"), str(tmp_path / "out"), ending]
    result = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True)
    assert int(result.stdout) < 24 * 2**20
    out = tmp_path / f"out{ending}"
    if ending == ".npz":
        with np.load(out) as file:
            assert np.array_equal(file["buffer"], array)
    else:
        with h5py.File(out) as file:
            assert np.array_equal(file["buffer"][()], array)


def test_a_lean_replay_buffer_goes_through_little_memory(tmp_path):
    rows, shape = 1500, (4, 84, 84)  # 81 MiB as plain arrays, 11 MiB lean
    random = np.random.default_rng(0)
    frames = random.integers(0, 255, (rows + 4, 1, *shape[1:]), dtype=np.uint8)
    column = Column(rows=rows, n_envs=1, shape=shape, dtype=np.uint8, follows=True)
    for row in range(rows):
        column.put(row, *(np.moveaxis(frames[start : start + 4], 0, 1) for start in (row, row + 1)))
    arrays = {name: np.zeros((rows, 1), np.float32) for name in ("actions", "rewards", "dones")}
    contents = {f"buffer/{name}": ArrayPart(array=array) for name, array in arrays.items()}
    contents |= {"buffer/observations": ColumnPart(column=column), "small": ArrayPart(array=np.ones(8))}
    _saved(tmp_path / "store", contents)
    words = [sys.executable, "-c", _CHILD, str(tmp_path / "store"), str(tmp_path / "out"), ".h5"]
    result = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True)
    assert int(result.stdout) < column.nbytes * 2 + 24 * 2**20
    with h5py.File(tmp_path / "out.h5") as file:
        observations = file["episode_0/observations"]
        assert observations.shape == (rows + 1, *shape)
        assert np.array_equal(observations[-1], frames[rows : rows + 4, 0])

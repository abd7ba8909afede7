"""`rlmem store`, on real stores: a folder, by path and by file://."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from rlmem.commands import main
from rlmem.lean.column import Column
from rlmem.store import ArrayPart, ColumnPart, Json, Store, Tensors

ROWS, ENVS, SHAPE = 48, 2, (4, 12, 12)


@pytest.fixture
def rlmem(capsys, monkeypatch) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The command line, called in this process: there are many calls, and each would import everything again."""

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        try:
            code = main(arguments)
        except SystemExit as ended:
            code = int(ended.code or 0)
        out, err = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, code, out, err)

    return run


def _contents(column, arrays, weight, step):
    return {
        "counters": Json(value={"num_timesteps": step}),
        "policy": Tensors(tensors={"net.weight": weight, "net.bias": np.ones(3, np.float32)}),
        "replay_buffer/observations": ColumnPart(column=column),
        **{f"replay_buffer/{name}": ArrayPart(array=array, mutable=True) for name, array in arrays.items()},
    }


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A store with three snapshots; the policy changes before the last, so the others share it."""
    folder = tmp_path_factory.mktemp("stores") / "pong"
    store, random = Store.open(folder, create=True), np.random.default_rng(0)
    column = Column(rows=ROWS, n_envs=ENVS, shape=SHAPE, dtype=np.uint8, follows=True)
    arrays = {"rewards": np.zeros((ROWS, ENVS), np.float32), "actions": np.zeros((ROWS, ENVS, 1), np.int64)}
    frames = random.integers(0, 255, (ROWS + 5, ENVS, *SHAPE[1:]), dtype=np.uint8)
    weight = random.standard_normal((200, 200)).astype(np.float32)
    for row in range(ROWS):
        stacks = [np.moveaxis(frames[start : start + 4], 0, 1) for start in (row, row + 1)]
        column.put(row, *stacks)
        arrays["rewards"][row] = row
        if row in (9, 29, ROWS - 1):
            weight = weight + (row == ROWS - 1)
            metadata = {"algorithm": "DQN", "versions": {"rlmem": "0.1.0", "numpy": np.__version__}}
            store.save(_contents(column, arrays, weight, row + 1), step=1000 * (row + 1), metadata=metadata)
    return folder


@pytest.fixture
def store(made, tmp_path) -> Path:
    """A copy that a test may hurt."""
    return Path(shutil.copytree(made, tmp_path / "pong"))


def _object_of(folder: Path, path: str, *, step: int) -> Path:
    """Return the file of an object that only a certain snapshot's part has."""
    opened = Store.open(folder)
    infos = opened.snapshots()
    of_others = {name for info in infos if info.step != step for name in opened.manifest(info).digests()}
    info = next(info for info in infos if info.step == step)
    digest = next(ref.digest for ref in opened.manifest(info).entries[path].refs() if ref.digest not in of_others)
    return folder / "objects" / digest[:2] / digest[2:]


def _flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.chmod(0o644)
    file.write_bytes(data)


# --- ls and show -----------------------------------------------------------------------------------------------------


def test_ls_lists_the_newest_first_under_a_total(rlmem, made):
    result = rlmem("store", "ls", str(made))
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0].startswith("3 snapshots, ")
    assert [line.split()[0] for line in lines[3:7]] == ["48,000", "30,000", "10,000", "total"]


def test_ls_json_adds_up_and_counts_what_is_shared(rlmem_json, made):
    listed = rlmem_json("store", "ls", f"file://{made}")
    on_disk = sum(file.stat().st_size for file in (made / "objects").rglob("*") if file.is_file())
    assert listed["schema"] == 1
    assert [each["step"] for each in listed["snapshots"]] == [48_000, 30_000, 10_000]
    assert listed["stored_bytes"] == on_disk
    assert listed["snapshots"][1]["shared_bytes"] >= 200 * 200 * 4
    assert sum(each["stored_bytes"] for each in listed["snapshots"]) - listed["shared_bytes"] == on_disk


def test_ls_of_an_empty_store(rlmem, tmp_path):
    Store.open(tmp_path / "empty", create=True)
    result = rlmem("store", "ls", str(tmp_path / "empty"))
    assert result.returncode == 0
    assert result.stdout.startswith("EMPTY")


def test_ls_lists_by_name_when_a_manifest_is_broken(rlmem, store):
    _flip(sorted((store / "snapshots").iterdir())[-1])
    result = rlmem("store", "ls", str(store))
    assert result.returncode == 1
    assert "rlmem store verify" in result.stdout
    assert "48,000" in result.stdout


@pytest.mark.parametrize("columns", ["80", "160", ""])
def test_show_fits_the_width_and_says_what_parts_are(rlmem, made, columns):
    result = rlmem("store", "show", str(made), "--step", "10000", COLUMNS=columns)
    assert result.returncode == 0, result.stderr
    table = result.stdout.splitlines()[2:]
    assert max(len(line) for line in table) <= int(columns or 120)
    words = " ".join(result.stdout.split())
    assert "policy tensors 2 tensors" in words
    assert "replay_buffer/observations column" in words
    assert "rlmem 0.1.0, numpy" in words


def test_show_json_has_shapes_sizes_and_metadata(rlmem_json, made):
    shown = rlmem_json("store", "show", str(made))
    parts = {part["path"]: part for part in shown["parts"]}
    column = parts["replay_buffer/observations"]
    assert shown["snapshot"]["step"] == 48_000
    assert column["shape"] == [ROWS, ENVS, *SHAPE]
    assert column["plain_bytes"] == 2 * ROWS * ENVS * 576
    assert column["stored_bytes"] < column["plain_bytes"] / 2
    assert parts["replay_buffer/rewards"]["dtype"] == "float32"
    assert parts["policy"]["tensors"] == 2
    assert shown["metadata"]["algorithm"] == "DQN"


# --- verify ----------------------------------------------------------------------------------------------------------


def test_verify_of_a_sound_store(rlmem, made):
    result = rlmem("store", "verify", str(made))
    assert result.returncode == 0
    assert result.stdout.startswith("SOUND")
    assert result.stderr == ""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("policy", "tensors"),
        ("replay_buffer/rewards", "chunk of array"),
        ("replay_buffer/observations", "of column"),
    ],
)
def test_verify_names_a_flipped_bit_and_the_newest_sound_snapshot(rlmem, rlmem_json, store, path, kind):
    broken = _object_of(store, path, step=48_000)
    _flip(broken)
    result = rlmem("store", "verify", str(store))
    assert result.returncode == 1
    assert result.stdout.startswith("1 FAULT ")
    assert str(broken.relative_to(store)) in result.stdout
    found = rlmem_json("store", "verify", str(store))
    (fault,) = found["faults"]
    assert kind in fault["kind"]
    assert fault["parts"] == [path]
    assert [info["step"] for info in fault["snapshots"]] == [48_000]
    assert found["newest_sound"]["step"] == 30_000


def test_verify_names_a_broken_manifest_and_a_missing_object(rlmem_json, store):
    newest = sorted((store / "snapshots").iterdir())[-1]
    missing = _object_of(store, "replay_buffer/rewards", step=10_000)
    missing.unlink()
    _flip(newest)
    found = rlmem_json("store", "verify", str(store))
    kinds = {fault["kind"]: fault for fault in found["faults"]}
    assert kinds["manifest"]["name"] == f"snapshots/{newest.name}"
    assert kinds["chunk of array"]["reason"] == "it is missing"
    assert found["newest_sound"]["step"] == 30_000


def test_progress_is_for_people_only(made):
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "rlmem", "store", "verify", str(made)]
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100"}
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, env=environment, timeout=60, check=False)
    os.close(theirs)
    assert result.stdout.startswith(b"SOUND")
    assert b"verifying" in os.read(ours, 65536)
    os.close(ours)


# --- gc --------------------------------------------------------------------------------------------------------------


def _age(store: Path) -> None:
    for file in (store / "objects").rglob("*"):
        os.utime(file, (1_600_000_000, 1_600_000_000))


def test_gc_removes_what_its_dry_run_says(rlmem_json, store):
    _age(store)
    before = rlmem_json("store", "ls", str(store))
    said = rlmem_json("store", "gc", str(store), "--keep", "1", "--dry-run")
    assert rlmem_json("store", "ls", str(store)) == before
    done = rlmem_json("store", "gc", str(store), "--keep", "1")
    assert [info["step"] for info in done["removed"]] == [10_000, 30_000]
    assert done | {"dry_run": True} == said
    after = rlmem_json("store", "ls", str(store))
    assert before["stored_bytes"] - after["stored_bytes"] == done["bytes"] > 0
    assert rlmem_json("store", "verify", str(store))["sound"]


def test_gc_says_what_is_too_young_to_go(rlmem, store):
    for file in (store / "objects").rglob("*"):
        os.utime(file)
    result = rlmem("store", "gc", str(store), "--keep", "1")
    assert result.returncode == 0
    assert result.stdout.startswith("removed 2 snapshots, 0 objects, 0 B")
    assert "stays until it is an hour old" in result.stdout


def test_gc_keeps_the_first_of_each_so_many_steps(rlmem_json, store):
    done = rlmem_json("store", "gc", str(store), "--keep", "1", "--keep-every", "30000")
    assert [info["step"] for info in done["removed"]] == [10_000]
    assert done["kept"] == 2


# --- copy ------------------------------------------------------------------------------------------------------------


def test_a_copy_that_was_interrupted_goes_on(rlmem_json, made, tmp_path):
    source, target = Store.open(made), Store.open(tmp_path / "there", create=True)
    calls = 0

    def stop_soon(_done: int, _total: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        source.copy_to(target, progress=stop_soon)
    there = sum(file.is_file() for file in (tmp_path / "there/objects").rglob("*"))
    assert there >= 5
    copied = rlmem_json("store", "copy", str(made), f"file://{tmp_path / 'there'}")
    every = sum(file.is_file() for file in (made / "objects").rglob("*"))
    assert copied["objects_present"] == there
    assert copied["objects"] == every - there > 0
    assert rlmem_json("store", "verify", str(tmp_path / "there"))["sound"]
    again = rlmem_json("store", "copy", str(made), str(tmp_path / "there"))
    assert (again["snapshots"], again["objects"], again["objects_present"]) == ([], 0, every)


def test_copy_of_one_step(rlmem, rlmem_json, made, tmp_path):
    result = rlmem("store", "copy", str(made), str(tmp_path / "one"), "--step", "30000")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("copied 1 snapshot, ")
    listed = rlmem_json("store", "ls", str(tmp_path / "one"))
    assert [info["step"] for info in listed["snapshots"]] == [30_000]


# --- export, and what cannot be done ---------------------------------------------------------------------------------


def test_export_says_what_it_wrote(rlmem, made, tmp_path):
    out = tmp_path / "buffer.npz"
    result = rlmem("store", "export", str(made), "replay_buffer", str(out), "--step", "48000")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("wrote ")
    with np.load(out) as arrays:
        assert sorted(arrays.files) == ["actions", "next_observations", "observations", "rewards"]
        assert np.array_equal(arrays["rewards"][:, 0], np.arange(ROWS, dtype=np.float32))
    again = rlmem("store", "export", str(made), "replay_buffer", str(out))
    assert again.returncode == 2
    assert "--force" in again.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["ls", "nowhere"], "there is no store here"),
        (["show", "STORE", "--step", "7"], "steps: 48000, 30000, 10000"),
        (["gc", "STORE", "--keep", "0"], "must be 1 or more"),
        (["copy", "STORE", "STORE"], "the same"),
        (["export", "STORE", "polcy", "OUT.npz"], "there is no part 'polcy'"),
        (["export", "STORE", "policy", "OUT.txt"], "must end in .npz"),
        (["export", "STORE", "policy", "OUT/no/such.npz"], "No such file or directory"),
        (["ls", "https://user:hunter2@host/store"], "a store must be a folder"),
    ],
)
def test_bad_input_ends_with_2_and_says_why(rlmem, made, tmp_path, arguments, words):
    places = {"STORE": str(made), "OUT": str(tmp_path / "out"), "nowhere": str(tmp_path / "nowhere")}
    given = [places.get(word, word.replace("OUT", places["OUT"])) for word in arguments]
    result = rlmem("store", *given)
    assert result.returncode == 2
    assert words in result.stderr
    assert "Traceback" not in result.stderr
    assert "hunter2" not in result.stderr
    assert not list(tmp_path.iterdir())


def test_a_corrupt_object_stops_an_export_and_leaves_nothing(rlmem, store, tmp_path):
    _flip(_object_of(store, "policy", step=48_000))
    result = rlmem("store", "export", str(store), "policy", str(tmp_path / "policy.npz"))
    assert result.returncode == 2
    assert "an older snapshot can be read instead: step 30000" in result.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["pong"]


@pytest.mark.parametrize("action", ["ls", "show", "verify", "gc", "copy", "export"])
def test_help_has_an_example(rlmem, action):
    result = rlmem("store", action, "--help")
    assert result.returncode == 0
    assert f"example: rlmem store {action} " in result.stdout
    assert "--json" in result.stdout

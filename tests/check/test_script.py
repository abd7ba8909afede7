"""Scripts are read within bounds, and what cannot be read says why."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rlmem.check import check_script, parse_script, read_script
from rlmem.errors import ScriptError


def _written(folder: Path, data: bytes) -> Path:
    path = folder / "train.py"
    path.write_bytes(data)
    return path


def test_a_script_is_read_and_not_run(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    path = _written(tmp_path, f"open({str(mark)!r}, 'w')\n".encode())
    assert check_script(read_script(path)) == ()
    assert not mark.exists()


def test_a_byte_order_mark_and_odd_escapes_are_no_trouble(tmp_path: Path) -> None:
    script = read_script(_written(tmp_path, b"\xef\xbb\xbfpattern = '\\d'\n"))
    assert len(script.tree.body) == 1


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"x = 1\ny = (\n", r"train\.py:2: not valid Python: '\(' was never closed"),
        (b"name = '\xff'\n", r"must be UTF-8 text, but invalid start byte at byte 8"),
        (b"x = 1\0\n", "not valid Python"),
        (b"(" * 100_000, "not valid Python"),
        (b"x = " + b"-" * 100_000 + b"1", "not valid Python"),
        (b"#" * (5 * 2**20 + 1), "at most 5 MiB"),
    ],
    ids=["syntax", "encoding", "null", "parentheses", "signs", "size"],
)
def test_what_is_no_script(tmp_path: Path, data: bytes, words: str) -> None:
    with pytest.raises(ScriptError, match=words):
        read_script(_written(tmp_path, data))


def test_the_largest_script_is_read(tmp_path: Path) -> None:
    assert read_script(_written(tmp_path, b"#" * (5 * 2**20))).tree.body == []


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match="no such file"):
        read_script(tmp_path / "train.py")
    with pytest.raises(ScriptError, match="this is a directory"):
        read_script(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ScriptError, match="must be a regular file"):
        read_script(tmp_path / "pipe")
    with pytest.raises(ScriptError, match="cannot be read"):
        read_script("train\0.py")


@pytest.mark.timeout(60)
def test_long_scripts_take_no_long_time() -> None:
    lines = ["model.learn(1)"]
    lines += [f"cb{i} = EvalCallback(env{i})\nenv{i} = gym.make('X')\nargs{i}.device" for i in range(5000)]
    found = check_script(parse_script("import gymnasium as gym\n" + "\n".join(lines)))
    assert sum(item.code == "RLM050" for item in found) == 5000

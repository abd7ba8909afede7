"""Hostile and broken files: always a RunFileError that says the file, and soon."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlmem.errors import RlmemError, RunFileError
from rlmem.run import read_run
from rlmem.run.document import MAX_DEPTH, MAX_FILE_BYTES, MAX_NODES, read_document

pytestmark = pytest.mark.timeout(20)

SOON_S = 2

VALID = """\
name: pong
framework: sb3
algorithm: PPO
env:
  observation: {shape: [84, 84, 4], dtype: uint8}
  action: {discrete: 6}
  n_envs: 8
training: {n_steps: 128, batch_size: 256, total_timesteps: 1e6, learning_rate: 2.5e-4}
policy: {class: CnnPolicy, net_arch: [64, 64]}
machine: {ram: 32GB}
"""

BILLION_LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]\n" for level in range(1, 12)
)

HOSTILE = {
    "python tag": "name: !!python/object/apply:os.system ['echo hacked']\n",
    "python name": "name: !!python/name:os.system\n",
    "own tag": "name: !mine x\n",
    "binary tag": "name: !!binary aGVsbG8=\n",
    "set": "name: !!set {a, b}\n",
    "ordered map": "name: !!omap [a: 1]\n",
    "timestamp": "name: 2001-01-01\n",
    "timestamp with time": "name: 2001-01-01T10:20:30Z\n",
    "impossible timestamp": "name: 2001-99-99\n",
    "tagged integer": "name: !!int twelve\n",
    "tagged float": "name: !!float abc\n",
    "tagged bool": "name: !!bool perhaps\n",
    "tagged empty integer": "name: !!int ''\n",
    "tag on a mapping": "name: !!int {a: 1}\n",
    "tag on a list": "name: !!str [a]\n",
    "billion laughs": BILLION_LAUGHS,
    "self-reference": "a: &a [*a]\n",
    "self-reference in a mapping": "&a {b: *a}\n",
    "unknown alias": "a: *nobody\n",
    "deep lists": "a: " + "[" * 10_000 + "]" * 10_000 + "\n",
    "deep lists, open": "[" * 10_000,
    "deep mappings": "{a: " * 10_000 + "1" + "}" * 10_000,
    "deep blocks": "".join(" " * level + "a:\n" for level in range(1200)),
    "deep questions": "? " * 5_000,
    "deep dashes": "- " * 10_000 + "x\n",
    "duplicate keys": "name: a\nframework: sb3\nname: b\n",
    "duplicate keys inside": "env: {n_envs: 1, n_envs: 2}\n",
    "merge key": "base: &base {n_envs: 1}\nenv:\n  <<: *base\n",
    "list as key": "? [a, b]\n: 1\n",
    "mapping as key": "? {a: b}\n: 1\n",
    "list": "- a\n- b\n",
    "scalar": "hello\n",
    "number": "3\n",
    "null": "~\n",
    "comment only": "# nothing\n",
    "empty": "",
    "blank": "  \n\n",
    "two documents": "name: a\n---\nname: b\n",
    "tab indent": "env:\n\tn_envs: 1\n",
    "unclosed": "env: {n_envs: 1\n",
    "unclosed quote": 'name: "abc\n',
    "colon soup": ": : : :\n",
    "percent": "%YAML 9.9\n---\na: 1\n",
    "unknown directive": "%FOO bar\n---\na: 1\n",
    "nul": "name: a\0b\n",
    "control": "name: a\x07b\n",
    "escape": 'name: "\\xZZ"\n',
    "surrogate escape": 'name: "\\ud800"\nframework: sb3\n',
    "huge codepoint": 'name: "\\UFFFFFFFF"\n',
    "5000 digits": "name: " + "9" * 5000 + "\n",
    "5000 digits, tagged": "name: !!int '" + "9" * 5000 + "'\n",
    "5000 hex digits": "name: 0x" + "f" * 5000 + "\n",
    "many binary digits": "name: 0b" + "1" * 100_000 + "\n",
    "many sexagesimals": "name: 1" + ":59" * 30_000 + "\n",
    "sexagesimal float": "name: 1" + ":59" * 30_000 + ".5\n",
    "many octal digits": "name: 0" + "7" * 100_000 + "\n",
    "exponent": "name: 1e999999999\n",
    "negative exponent": "name: -1e999999999\n",
    "many exponent digits": "name: 1e" + "9" * 5000 + "\n",
    "tagged 1e400": "name: !!float 1e400\nframework: 1\n",
    "many keys": "".join(f"k{index}: 1\n" for index in range(MAX_NODES + 10)),
    "wide list": "a: [" + "1," * (MAX_NODES + 10) + "]\n",
    "long line": "name: " + "x" * (MAX_FILE_BYTES - 100) + "\n",
    "many anchors": "".join(f"k{index}: &a{index} x\n" for index in range(20_000)),
    "as many newlines as fit": "\n" * MAX_FILE_BYTES,
    "as many spaces as fit": " " * MAX_FILE_BYTES,
    "as many comments as fit": "#\n" * (MAX_FILE_BYTES // 2),
    "as many items as fit": "[" + "1," * (MAX_FILE_BYTES // 2 - 1) + "]",
    "as many brackets as fit": "[" * MAX_FILE_BYTES,
    "as many directives as fit": "%A b\n" * (MAX_FILE_BYTES // 5),
    "as many documents as fit": "---\n" * (MAX_FILE_BYTES // 4),
    "as many colons as fit": ":" * MAX_FILE_BYTES,
    "as many questions as fit": "? " * (MAX_FILE_BYTES // 2),
    "as many digits as fit": "a: " + "1" * (MAX_FILE_BYTES - 3),
    "as many escapes as fit": 'a: "' + "\\n" * (MAX_FILE_BYTES // 2 - 3) + '"',
    "as many lines in one text as fit": "a: |\n" + " x\n" * (MAX_FILE_BYTES // 3 - 3),
    "as many plain lines as fit": "a: x\n" + " x\n" * (MAX_FILE_BYTES // 3 - 3),
    "as many quotes as fit": "'" * (MAX_FILE_BYTES - 1),
    "long key": "? " + "x" * 100_000 + "\n: 1\n",
}


@pytest.fixture
def run_file(tmp_path: Path) -> Callable[[bytes | str], Path]:
    def write(content: bytes | str) -> Path:
        path = tmp_path / "run.yaml"
        path.write_bytes(content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content)
        return path

    return write


def _refused(path: Path) -> RunFileError:
    """Return the complaint about a file, having seen that it came soon."""
    with pytest.raises(RunFileError) as caught:
        read_run(path)
    assert caught.value.file == str(path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 1000 + len(str(path)), "a complaint must not repeat the file"
    return caught.value


@pytest.mark.timeout(SOON_S * 5)
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_text(run_file: Callable[[bytes | str], Path], text: str) -> None:
    started = os.times()
    _refused(run_file(text))
    ended = os.times()
    assert (ended.user + ended.system) - (started.user + started.system) < SOON_S


@pytest.mark.parametrize(
    "content",
    [b"\xff\xfe\x00\x01", bytes(range(256)), b"\x80" * 100, b"name: \xc3\x28\n", os.urandom(4096), b"\x00" * 4096],
    ids=["utf-16 mark", "all bytes", "continuations", "bad pair", "random", "zeros"],
)
def test_binary_garbage(run_file: Callable[[bytes | str], Path], content: bytes) -> None:
    _refused(run_file(content))


def test_missing_file(tmp_path: Path) -> None:
    assert "no such file" in _refused(tmp_path / "nothing.yaml").reason


def test_directory(tmp_path: Path) -> None:
    assert "directory" in _refused(tmp_path).reason


def test_file_as_a_folder(run_file: Callable[[bytes | str], Path]) -> None:
    _refused(run_file(VALID) / "inner.yaml")


def test_nul_in_the_path() -> None:
    _refused(Path("a\0b.yaml"))


def test_very_long_path(tmp_path: Path) -> None:
    with pytest.raises(RunFileError):
        read_run(tmp_path / ("x" * 5000))


def test_empty_path() -> None:
    with pytest.raises(RunFileError):
        read_run("")


def test_large_file(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    with path.open("wb") as file:
        file.truncate(50 * 10**6)
    assert "at most 1 MiB" in _refused(path).reason


def test_endless_file() -> None:
    assert "1 MiB" in _refused(Path("/dev/zero")).reason


def test_unreadable_file(run_file: Callable[[bytes | str], Path]) -> None:
    path = run_file(VALID)
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read everything")
    _refused(path)


def test_depth_within_bounds_is_read(run_file: Callable[[bytes | str], Path]) -> None:
    depth = MAX_DEPTH - 2
    node = read_document(run_file("a: " + "[" * depth + "]" * depth))
    assert node.line == 1


def test_aliases_that_stay_small_are_read(run_file: Callable[[bytes | str], Path]) -> None:
    node = read_document(run_file("a: &a [1, 2]\nb: *a\n"))
    assert [item.value for item in node.value["b"].value] == [1, 2]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e6", 1_000_000),
        ("1E6", 1_000_000),
        ("1.5e3", 1500),
        ("2.5e-4", 2.5e-4),
        ("1e-3", 1e-3),
        ("-1e3", -1000),
        ("1_000_000", 1_000_000),
        ("1_0e3", 10_000),
        ("'1e6'", "1e6"),
        ("0x10", 16),
        ("yes", True),
        ("~", None),
        ("3.0", 3.0),
    ],
)
def test_scalars(run_file: Callable[[bytes | str], Path], text: str, value: object) -> None:
    read = read_document(run_file(f"a: {text}\n")).value["a"].value
    assert read == value
    assert type(read) is type(value)


def test_lines(run_file: Callable[[bytes | str], Path]) -> None:
    node = read_document(run_file("# a comment\nname: a\n\nenv:\n  n_envs: 3\n"))
    assert node.value["name"].line == 2
    assert node.value["env"].value["n_envs"].line == 5


@settings(max_examples=300, deadline=SOON_S * 1000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text())
def test_any_text(run_file: Callable[[bytes | str], Path], text: str) -> None:
    _only_our_errors(run_file(text))


@settings(max_examples=200, deadline=SOON_S * 1000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=200))
def test_any_bytes(run_file: Callable[[bytes | str], Path], content: bytes) -> None:
    _only_our_errors(run_file(content))


_PIECES = (
    "[",
    "]",
    "{",
    "}",
    ":",
    "-",
    "&a ",
    "*a",
    "!!",
    "null",
    "~",
    "-1",
    "1e30",
    ".nan",
    ".inf",
    "true",
    "''",
    "0",
    "\n",
    "  ",
)


@settings(max_examples=500, deadline=SOON_S * 1000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    edits=st.lists(
        st.tuples(st.integers(0, len(VALID)), st.integers(0, 12), st.sampled_from(_PIECES) | st.text(max_size=6)),
        min_size=1,
        max_size=4,
    )
)
def test_any_mutation_of_a_valid_file(
    run_file: Callable[[bytes | str], Path], edits: list[tuple[int, int, str]]
) -> None:
    text = VALID
    for start, length, piece in edits:
        text = text[:start] + piece + text[start + length :]
    _only_our_errors(run_file(text))


def _only_our_errors(path: Path) -> None:
    with suppress(RlmemError):
        assert read_run(path).name

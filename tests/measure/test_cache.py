"""What is remembered, by what, and what happens where nothing can be."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlmem.measure import cache
from rlmem.measure.cache import cache_folder, remembered

QUESTION = {"run": {"algorithm": "PPO"}, "rows": 64}


class Finder:
    """Finds an answer, and counts how often it was asked to."""

    def __init__(self, answer: dict[str, Any] | None = None) -> None:
        self.answer = answer or {"bytes": 7}
        self.calls = 0

    def __call__(self) -> dict[str, Any]:
        self.calls += 1
        return self.answer


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "some" / "cache"
    monkeypatch.setenv("RLMEM_CACHE", str(folder))
    return folder


def test_an_answer_is_found_once(folder: Path) -> None:
    find = Finder()
    assert [remembered("trace", QUESTION, find) for _ in range(3)] == [{"bytes": 7}] * 3
    assert find.calls == 1
    (entry,) = folder.iterdir()
    assert entry.name.startswith("trace-")
    assert json.loads(entry.read_text()) == {"bytes": 7}


def test_questions_and_kinds_are_kept_apart() -> None:
    find = Finder()
    for kind, question in (("trace", QUESTION), ("training", QUESTION), ("trace", QUESTION | {"rows": 65})):
        remembered(kind, question, find)
    assert find.calls == 3


def test_the_order_of_a_question_does_not_matter() -> None:
    find = Finder()
    remembered("trace", QUESTION, find)
    remembered("trace", dict(reversed(QUESTION.items())), find)
    assert find.calls == 1


@pytest.mark.parametrize("text", ["", "{", '{"bytes": ', "[1, 2]", "null", "7", "\x00\xff"], ids=repr)
def test_an_entry_that_cannot_be_read_is_made_anew(folder: Path, text: str) -> None:
    find = Finder()
    remembered("trace", QUESTION, find)
    (entry,) = folder.iterdir()
    entry.write_text(text)
    assert remembered("trace", QUESTION, find) == {"bytes": 7}
    assert find.calls == 2
    assert json.loads(entry.read_text()) == {"bytes": 7}


def test_bytes_that_are_no_text_are_made_anew(folder: Path) -> None:
    find = Finder()
    remembered("trace", QUESTION, find)
    next(folder.iterdir()).write_bytes(b"\xff\xfe\x80")
    remembered("trace", QUESTION, find)
    assert find.calls == 2


def test_a_file_where_the_folder_should_be_is_done_without(folder: Path) -> None:
    folder.parent.mkdir()
    folder.write_text("in the way")
    find = Finder()
    assert [remembered("trace", QUESTION, find) for _ in range(2)] == [{"bytes": 7}] * 2
    assert find.calls == 2
    assert folder.read_text() == "in the way"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_done_without(folder: Path) -> None:
    folder.mkdir(parents=True)
    folder.chmod(0o500)
    assert remembered("trace", QUESTION, Finder()) == {"bytes": 7}
    assert not list(folder.iterdir())


def test_a_failure_is_not_remembered(folder: Path) -> None:
    def fail() -> dict[str, Any]:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        remembered("trace", QUESTION, fail)
    assert not folder.exists()
    assert remembered("trace", QUESTION, Finder()) == {"bytes": 7}


@pytest.mark.parametrize("variable", ["OMP_NUM_THREADS", "MALLOC_ARENA_MAX", "GLIBC_TUNABLES", "LD_PRELOAD"])
def test_a_variable_that_changes_the_process_changes_the_key(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    find = Finder()
    monkeypatch.delenv(variable, raising=False)
    remembered("trace", QUESTION, find)
    monkeypatch.setenv(variable, "")
    remembered("trace", QUESTION, find)
    monkeypatch.setenv(variable, "3")
    remembered("trace", QUESTION, find)
    assert find.calls == 3
    monkeypatch.setenv("SOME_OTHER_VARIABLE", "3")
    remembered("trace", QUESTION, find)
    assert find.calls == 3


@pytest.mark.parametrize("library", ["rlmem", "torch", "numpy", "stable-baselines3", "sb3-contrib", "gymnasium"])
def test_a_version_changes_the_key(monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    find = Finder()
    remembered("trace", QUESTION, find)
    real = cache.version
    monkeypatch.setattr(cache, "version", lambda name: "0.0.0" if name == library else real(name))
    remembered("trace", QUESTION, find)
    assert find.calls == 2


class Installed:
    def __init__(self, name: str, number: str) -> None:
        self.metadata = {"Name": name, "Version": number}


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Let these distributions be all that is installed."""

    def install(**numbers: str) -> None:
        cache.installed_digest.cache_clear()
        monkeypatch.setattr(cache, "distributions", lambda: [Installed(*item) for item in numbers.items()])

    yield install
    cache.installed_digest.cache_clear()


@pytest.mark.parametrize("kind", ["training", "workers", "calibration"])
def test_whatever_is_installed_changes_the_key_of_what_was_metered(install: Callable[..., None], kind: str) -> None:
    find = Finder()
    install(torch="2.13.0", numpy="2.4.6")
    remembered(kind, QUESTION, find)
    install(numpy="2.4.6", torch="2.13.0")
    remembered(kind, QUESTION, find)
    assert find.calls == 1, "the order in which they are found does not matter"
    install(torch="2.13.0", numpy="2.4.6", opencv="4.13.0")
    remembered(kind, QUESTION, find)
    install(torch="2.13.0", numpy="2.4.6", opencv="4.14.0")
    remembered(kind, QUESTION, find)
    assert find.calls == 3


def test_a_trace_does_not_depend_on_what_else_is_installed(install: Callable[..., None]) -> None:
    find = Finder()
    install(torch="2.13.0")
    remembered("trace", QUESTION, find)
    install(torch="2.13.0", opencv="4.13.0")
    remembered("trace", QUESTION, find)
    assert find.calls == 1


def test_what_is_installed_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cache.installed_digest()
    monkeypatch.setattr(cache, "distributions", None)
    assert len(cache.installed_digest()) == 24


def test_a_library_that_is_not_there_has_a_key_too(monkeypatch: pytest.MonkeyPatch) -> None:
    find = Finder()
    monkeypatch.setattr(cache, "_LIBRARIES", ("no-such-library-anywhere",))
    assert remembered("trace", QUESTION, find) == {"bytes": 7}


def test_whoever_reads_while_others_write_gets_whole_entries() -> None:
    answer = {"words": ["x" * 50] * 2000}
    wrong: list[Any] = []

    def work() -> None:
        for index in range(20):
            if remembered("trace", {"index": index}, lambda: answer) != answer:
                wrong.append(index)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_nothing_but_entries_is_left(folder: Path) -> None:
    for index in range(5):
        remembered("trace", {"index": index}, Finder())
    assert len(list(folder.glob("trace-*.json"))) == len(list(folder.iterdir())) == 5


def test_the_folder_is_the_users_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("RLMEM_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "rlmem"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "rlmem"

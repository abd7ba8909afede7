"""One tree of exceptions, drawn at the top of its file as it is."""

from __future__ import annotations

import inspect
import re

import pytest

from rlmem import errors
from rlmem.errors import InputError, MissingExtra, RlmemError, RunFileError

CLASSES = {name: value for name, value in vars(errors).items() if inspect.isclass(value)}


def test_the_drawing_is_the_tree() -> None:
    lines = errors.__doc__.splitlines()[2:]
    matches = [re.match(r"([│├└─ ]*)(\w+) ", line) for line in lines]
    drawn = [(len(match[1]) // 4, match[2]) for match in matches if match]
    assert {name for _, name in drawn} == set(CLASSES)
    above: dict[int, str] = {}
    for depth, name in drawn:
        above[depth] = name
        if depth:
            assert CLASSES[name].__base__ is CLASSES[above[depth - 1]]


@pytest.mark.parametrize("error", CLASSES.values(), ids=CLASSES)
def test_everything_is_an_rlmem_error(error: type[Exception]) -> None:
    assert issubclass(error, RlmemError)
    assert error.__doc__


def test_run_file_errors_say_the_place() -> None:
    error = RunFileError("`n_envs` must be positive", file="run.yaml", line=3)
    assert str(error) == "run.yaml:3: `n_envs` must be positive"
    assert str(RunFileError("no such file", file="run.yaml")) == "run.yaml: no such file"
    assert isinstance(error, InputError)


def test_missing_extra_names_what_installs_it() -> None:
    error = MissingExtra(library="torch", extra="sb3", purpose="reading a network")
    assert str(error) == "reading a network needs torch, which is not installed: pip install 'rlmem[sb3]'"

"""`rlmem check --env`: an environment stepped in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., subprocess.CompletedProcess[str]]

FACTORY = """\
import gymnasium
from gymnasium.wrappers import FrameStackObservation

print("printed by user code")

def make():
    return FrameStackObservation(gymnasium.make("CartPole-v1"), 16)

def broken():
    raise RuntimeError("no such camera")
"""
RUN = """\
framework: sb3
algorithm: PPO
env: {id: CartPole-v1, frame_stack: 5}
"""


def test_an_id(rlmem: Command) -> None:
    result = rlmem("check", "--env", "CartPole-v1", "--steps", "100")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("16 B an observation, ")
    assert "100 steps of random play" in result.stdout


def test_json(rlmem_json: Callable[..., Any]) -> None:
    data = rlmem_json("check", "--env", "CartPole-v1", "--steps", "100")
    assert data["schema"] == 1
    assert data["observation_bytes"] == 16
    assert data["replay"]["stock_bytes"] == 32
    assert data["replay"]["ratio"] == pytest.approx(32 / data["replay"]["new_bytes"])
    assert [leaf["shape"] for leaf in data["leaves"]] == [[4]]


def test_a_factory_in_the_current_folder(tmp_path: Path) -> None:
    (tmp_path / "cameras.py").write_text(FACTORY)
    found = _run(tmp_path, "cameras:make")
    assert found.returncode == 0, found.stderr
    data = json.loads(found.stdout)
    assert data["leaves"][0]["shape"] == [16, 4]
    assert "frame stack along axis 0: 16 pieces, 1 new a step" in data["leaves"][0]["structure"]
    failed = _run(tmp_path, "cameras:broken")
    assert failed.returncode == 2
    assert "RuntimeError: no such camera" in failed.stderr


def test_a_run_file_with_what_stands_before_the_buffer(tmp_path: Path, rlmem_json: Callable[..., Any]) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(RUN)
    assert rlmem_json("check", "--env", str(path), "--steps", "64")["leaves"][0]["shape"] == [20]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--env", "NoSuch-v0"), "NoSuch"),
        (("--env", "no_such_module:make"), "no_such_module"),
        (("--env", "examples/trading/run.yaml"), "must name an environment by `id` or `make`"),
        (("--env", "nothere.yaml"), "no such file"),
        (("--env", "CartPole-v1", "--steps", "3"), "64 ≤ steps"),
        (("--env", "CartPole-v1", "examples/trading/run.yaml"), "--env is looked at by itself"),
        ((), "check takes a run file"),
    ],
)
def test_bad_input_is_said_in_one_line(rlmem: Command, arguments: tuple[str, ...], message: str) -> None:
    result = rlmem("check", *arguments)
    assert result.returncode == 2
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1


def _run(folder: Path, subject: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "rlmem", "check", "--env", subject, "--steps", "64", "--json"]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=120, check=False)

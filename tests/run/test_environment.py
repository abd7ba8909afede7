"""Spaces and extractors read from real environments and modules, in children that leave nothing behind."""

from __future__ import annotations

import os
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import rlmem
from rlmem.errors import EnvironmentReadError, MissingExtra, RunFileError
from rlmem.run import load_run
from rlmem.run.environment import read_environment
from rlmem.run.layers import Opaque
from rlmem.run.model import Env
from rlmem.run.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete

SOURCE = Path(rlmem.__file__).resolve().parents[1]

ENVIRONMENTS = """\
import os
import subprocess
import sys
import time

import gymnasium
import numpy as np
from gymnasium import spaces


class Plain(gymnasium.Env):
    observation_space = spaces.Box(-1, 1, (7, 3), np.float64)
    action_space = spaces.MultiDiscrete([3, 5])


class Mixed(gymnasium.Env):
    observation_space = spaces.Dict(
        image=spaces.Box(0, 255, (36, 40, 3), np.uint8),
        uneven=spaces.Box(np.array([0.0, -1.0]), np.array([1.0, 2.0]), dtype=np.float32),
        switches=spaces.MultiBinary(4),
    )
    action_space = spaces.Discrete(3)


class Words(Plain):
    observation_space = spaces.Text(10)


def prints():
    print("lots of words", flush=True)
    os.write(1, b"and bytes\\n")
    return Plain()


def raises():
    raise RuntimeError("the simulator is not licensed")


def exits():
    sys.exit(3)


def dies():
    os._exit(7)


def is_killed():
    os.kill(os.getpid(), 9)


def hangs():
    time.sleep(600)


def hangs_with_a_child():
    subprocess.Popen([sys.executable, "-c", MARK + "; import time; time.sleep(600)"])
    time.sleep(600)


def leaves_a_child():
    subprocess.Popen([sys.executable, "-c", MARK + "; import time; time.sleep(600)"])
    return Plain()


def daemonises():
    subprocess.Popen([sys.executable, "-c", MARK + "; import time; time.sleep(600)"], start_new_session=True)
    return Plain()


def reads_input():
    input("licence key? ")


def gives_nothing():
    return None


class Doubled(gymnasium.Wrapper):
    def __init__(self, env):
        super().__init__(env)
        self.observation_space = spaces.Box(-1, 1, (14, 3), np.float64)


def long_complaint():
    raise RuntimeError("x" * 1_000_000)
"""

NETS = """\
import torch
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import nn


class Cnn3D(BaseFeaturesExtractor):
    def __init__(self, observation_space, features_dim=32):
        super().__init__(observation_space, features_dim)
        channels = observation_space.shape[0]
        self.cnn = nn.Sequential(
            nn.Conv3d(channels, 8, 3, padding=1), nn.BatchNorm3d(8), nn.ReLU(), nn.MaxPool3d(2), nn.Flatten()
        )
        self.head = nn.Linear(8 * 4 * 4 * 4, features_dim)

    def forward(self, rows):
        return self.head(self.cnn(rows))


class Broken(BaseFeaturesExtractor):
    def __init__(self, observation_space):
        super().__init__(observation_space, 3)

    def forward(self, rows):
        raise ValueError("not today")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with two modules of the user's own; children started from it can be told by their mark."""
    mark = f"MARK = {str(tmp_path)!r}"
    (tmp_path / "my_envs.py").write_text(f"MARK = {mark!r}\n" + ENVIRONMENTS)
    (tmp_path / "my_nets.py").write_text(NETS)
    monkeypatch.setenv("PYTHONPATH", str(SOURCE))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def nothing_left(folder: Path) -> Iterator[None]:
    """Nothing that a test started may outlive it."""
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    yield
    deadline = time.monotonic() + 3
    while (left := _left(folder, before)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for process in left:
        process.kill()
    assert not left


def _left(folder: Path, before: set[int]) -> list[psutil.Process]:
    children = [child for child in psutil.Process().children(recursive=True) if child.pid not in before]
    return children + [process for process in psutil.process_iter() if _is_marked(process, folder)]


def _is_marked(process: psutil.Process, folder: Path) -> bool:
    try:
        return any(f"MARK = {str(folder)!r}" in word for word in process.cmdline())
    except psutil.Error:
        return False


def _make(name: str, **keywords: Any) -> Env:
    return read_environment(Env(make=f"my_envs:{name}"), **keywords)


def test_registered_environment() -> None:
    env = read_environment(Env(id="CartPole-v1"))
    assert env.observation == Box(shape=(4,), dtype="float32")
    assert env.action == Discrete(n=2)
    assert env.episode_length == 500


def test_atari_with_its_wrapper() -> None:
    pytest.importorskip("ale_py")
    wrapper = "stable_baselines3.common.atari_wrappers:AtariWrapper"
    env = read_environment(Env(id="ALE/Breakout-v5", wrappers=(wrapper,)))
    assert env.observation == Box(shape=(84, 84, 1), dtype="uint8", low=0, high=255)
    assert env.action == Discrete(n=4)


@pytest.mark.usefixtures("nothing_left")
def test_own_environment() -> None:
    env = _make("Plain")
    assert env.observation == Box(shape=(7, 3), dtype="float64", low=-1, high=1)
    assert env.action == MultiDiscrete(nvec=(3, 5))


@pytest.mark.usefixtures("folder")
def test_own_wrapper() -> None:
    env = read_environment(Env(make="my_envs:Plain", wrappers=("my_envs:Doubled",)))
    assert env.observation == Box(shape=(14, 3), dtype="float64", low=-1, high=1)


@pytest.mark.usefixtures("folder")
def test_dict_of_spaces() -> None:
    observation = _make("Mixed").observation
    assert isinstance(observation, Dict)
    assert dict(observation.items) == {
        "image": Box(shape=(36, 40, 3), dtype="uint8", low=0, high=255),
        "uneven": Box(shape=(2,), dtype="float32"),
        "switches": MultiBinary(shape=(4,)),
    }


def test_module_on_the_python_path(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), str(SOURCE)]))
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert _make("Plain").action == MultiDiscrete(nvec=(3, 5))


@pytest.mark.usefixtures("nothing_left")
def test_what_it_prints_does_not_disturb(capfd: pytest.CaptureFixture[str]) -> None:
    assert _make("prints").action == MultiDiscrete(nvec=(3, 5))
    assert capfd.readouterr().out == ""


FAILURES = {
    "raises": "RuntimeError: the simulator is not licensed",
    "exits": r"my_envs:exits.*\b3\b",
    "dies": r"died \(exit code 7\)",
    "is_killed": r"died \(exit code -9\)",
    "gives_nothing": "could not be read",
    "reads_input": "EOFError",
    "not_there": "has no attribute 'not_there'",
    "Words": "must be Box, Discrete",
}


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize(("name", "message"), FAILURES.items())
def test_failures_are_told(name: str, message: str) -> None:
    with pytest.raises(EnvironmentReadError, match=message) as caught:
        _make(name)
    assert f"my_envs:{name}" in str(caught.value)


@pytest.mark.usefixtures("nothing_left")
def test_a_long_complaint_is_shortened() -> None:
    with pytest.raises(EnvironmentReadError) as caught:
        _make("long_complaint")
    assert len(str(caught.value)) < 2000


@pytest.mark.usefixtures("folder")
def test_unknown_module() -> None:
    with pytest.raises(EnvironmentReadError, match="No module named 'no_such_module'"):
        read_environment(Env(make="no_such_module:make"))


@pytest.mark.parametrize("name", ["NoSuchGame-v0", "ALE/NoSuchGame-v5", "CartPole-v99"])
def test_unknown_id(name: str) -> None:
    with pytest.raises(EnvironmentReadError, match=name):
        read_environment(Env(id=name))


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("name", ["hangs", "hangs_with_a_child"])
def test_hanging_ends(name: str) -> None:
    started = time.monotonic()
    with pytest.raises(EnvironmentReadError, match="not read within 2 s"):
        _make(name, timeout_s=2)
    assert time.monotonic() - started < 4


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("name", ["leaves_a_child", "daemonises"])
def test_children_do_not_stay(name: str) -> None:
    started = time.monotonic()
    assert _make(name, timeout_s=20).action == MultiDiscrete(nvec=(3, 5))
    assert time.monotonic() - started < 10


def test_no_pipes_are_left_open(folder: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    _make("Plain")
    with pytest.raises(EnvironmentReadError):
        _make("raises")
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_missing_library(folder: Path) -> None:
    (folder / "lean.py").write_text("def make():\n    import sb3_contrib.nothing.of_the_sort\n")
    with pytest.raises(MissingExtra, match=r"rlmem\[sb3\]"):
        read_environment(Env(make="lean:make"))


def test_described_spaces_start_no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subprocess.Popen", None)
    env = Env(observation=Box(shape=(4,)), action=Discrete(n=2))
    assert read_environment(env) is env


@pytest.fixture
def run_file(folder: Path) -> Callable[[str], Path]:
    def write(policy: str) -> Path:
        path = folder / "run.yaml"
        path.write_text(
            textwrap.dedent(
                f"""\
                framework: sb3
                algorithm: PPO
                env: {{observation: {{shape: [2, 8, 8, 8]}}, action: {{discrete: 3}}}}
                policy: {policy}
                """
            )
        )
        return path

    return write


@pytest.mark.parametrize("features_dim", [None, 16])
@pytest.mark.usefixtures("nothing_left")
def test_own_extractor(run_file: Callable[[str], Path], features_dim: int | None) -> None:
    given = "" if features_dim is None else f", features_dim: {features_dim}"
    run = load_run(run_file("{class: CnnPolicy, features: my_nets:Cnn3D" + given + "}"))
    (features,) = run.policy.features
    assert isinstance(features, Opaque)
    width = features_dim or 32
    assert features.output == (width,)
    assert features.parameters == (2 * 27 * 8 + 8) + 2 * 8 + (512 * width + width)
    assert features.tensors == 6
    assert features.buffer_bytes == 2 * 8 * 4 + 8
    convolved, pooled = 8 * 8**3, 8 * 4**3
    # normalised input, rectified output, pooled output, and an int64 index for each maximum
    assert features.saved == pytest.approx(convolved + convolved + pooled + 2 * pooled, rel=0.10)


def test_extractor_that_fails(run_file: Callable[[str], Path]) -> None:
    with pytest.raises(EnvironmentReadError, match="ValueError: not today"):
        load_run(run_file("{class: CnnPolicy, features: my_nets:Broken}"))


def test_extractor_that_is_not_there(run_file: Callable[[str], Path]) -> None:
    with pytest.raises(EnvironmentReadError, match="Nothing"):
        load_run(run_file("{class: CnnPolicy, features: my_nets:Nothing}"))


def test_extractor_path_must_be_one(run_file: Callable[[str], Path]) -> None:
    with pytest.raises(RunFileError, match="of the form package"):
        load_run(run_file("{class: CnnPolicy, features: my_nets}"))

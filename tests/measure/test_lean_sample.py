"""Lean buffers sized by a sample of the real environment, against lean buffers that were really filled."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlmem
from rlmem.lean.random_play import play
from rlmem.machine import read_machine
from rlmem.measure import lean_sample
from rlmem.measure.captured import capture
from rlmem.measure.training import measure
from rlmem.plan.lean_buffers import LEFT_ALONE
from rlmem.run import FrameworkRun, complete_run, run_from_mapping
from rlmem.sb3.building import build_model, build_stored_env

TOLERANCE = 0.15
"""Of the bytes that a lean buffer holds, predicted from a sample of another random play."""

PROCESS_TOLERANCE = 0.06
ENVIRONMENT = """\
import gymnasium
import numpy as np
from gymnasium import spaces


class Camera(gymnasium.Env):
    '''A flickering square that wanders over a dark ground, for 150 steps.'''

    observation_space = spaces.Box(0, 255, (1, 36, 40), np.uint8)
    action_space = spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.steps = np.array([10, 10]), 0
        return self.seen(), {}

    def step(self, action):
        self.place = np.clip(self.place + [(0, 1), (1, 0), (0, -1), (-1, 0)][int(action)], 0, 30)
        self.steps += 1
        return self.seen(), 0.0, False, self.steps == 150, {}

    def seen(self):
        picture = np.zeros((1, 36, 40), np.uint8)
        y, x = self.place
        picture[0, y : y + 6, x : x + 6] = self.np_random.integers(1, 256, (6, 6), np.uint8)
        return picture

    def action_masks(self):
        return np.array([True, True, self.steps % 2 == 0, True])
"""
SCRIPT = """\
from stable_baselines3 import DQN
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack

from cameras import Camera
from rlmem.sb3 import LeanReplayBuffer

env = VecFrameStack(DummyVecEnv([Camera]), 4, channels_order="first")
DQN("CnnPolicy", env, buffer_size=6000, replay_buffer_class=LeanReplayBuffer, policy_kwargs={"normalize_images": True},
    learning_starts=100).learn(20_000)
"""


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "cameras.py").write_text(ENVIRONMENT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("RLMEM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return


def _run(algorithm: str, buffer: Any = "lean", **settings: Any) -> FrameworkRun:
    training = settings.pop("training", {})
    described = {
        "framework": "sb3",
        "algorithm": algorithm,
        "env": {"make": "cameras:Camera", "frame_stack": 4} | settings,
        "training": training,
        "buffer": buffer,
    }
    run = complete_run(run_from_mapping(described), source="test")
    assert isinstance(run, FrameworkRun)
    return run


def _observations(plan: Any) -> Any:
    return next(part for part in plan.phase("collect").components if part.path == "buffer/observations")


def _filled(run: FrameworkRun, rows: int) -> Any:
    """Return the run's own lean replay buffer, filled by random play from another seed."""
    env = build_stored_env(run.env)
    buffer = build_model(run, env).replay_buffer
    for step in islice(play(env, seed=11), rows):
        nothing = np.zeros(run.n_envs)
        infos = [{}] * run.n_envs
        buffer.add(step.observations[""], step.following[""], nothing[:, None], nothing, nothing, infos)
    return buffer


@pytest.mark.parametrize("compact", [False, True])
def test_what_is_predicted_is_what_a_lean_replay_buffer_really_holds(compact: bool) -> None:
    run = _run("DQN", {"kind": "lean", "compact": compact}, n_envs=2, training={"buffer_size": 16_000})
    predicted = _observations(rlmem.plan(run))
    assert predicted.basis == "measured"
    buffer = _filled(run, 8000)
    really = sum(column.nbytes for column in buffer.columns.values())
    assert predicted.bytes == pytest.approx(really, rel=TOLERANCE)
    assert predicted.bytes < 16_000 * 2 * 4 * 36 * 40 / 20


def test_a_short_rollout_is_sampled_as_a_whole() -> None:
    run = _run("A2C", training={"n_steps": 8})
    assert _observations(rlmem.plan(run)).bytes < 8 * 4 * 36 * 40


def test_masks_of_the_environment_are_sampled() -> None:
    run = _run("MaskablePPO", training={"n_steps": 256, "batch_size": 64})
    sample = lean_sample.sampled(run)
    assert {column.path for column in sample.columns} == {"buffer/observations", "buffer/action_masks"}
    assert sample.steps == 256


def test_a_sample_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    run = _run("DQN", training={"buffer_size": 500})
    first = lean_sample.sampled(run)
    monkeypatch.setattr(lean_sample, "ask", lambda *_, **__: pytest.fail("asked again"))
    assert lean_sample.sampled(run) == first


@pytest.mark.slow
def test_measuring_trains_on_the_real_environment_with_the_lean_buffer() -> None:
    run = _run("DQN", training={"buffer_size": 3000})
    measurement = measure(run, read_machine())
    assert abs(measurement.ram_error) <= PROCESS_TOLERANCE
    assert _observations(measurement.plan).basis == "measured"


def test_a_script_with_a_lean_buffer_is_sampled_where_it_would_have_learnt(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    captured = capture(tmp_path / "train.py", [], timeout_s=60)
    assert captured.run.buffer.is_lean
    arrays = {array.path: array for array in captured.parts.arrays}
    assert arrays["buffer/observations"].basis == "measured"
    assert arrays["buffer/observations"].rows == 6000
    assert set(arrays) == {"buffer/observations", "buffer/actions", "buffer/scalars"}
    assert LEFT_ALONE not in captured.notes


def test_the_environment_of_a_live_model_is_left_alone() -> None:
    run = _run("DQN", training={"buffer_size": 2000})
    model = build_model(run, build_stored_env(run.env))
    plan = rlmem.plan(model)
    assert plan.run.buffer.is_lean
    assert _observations(plan).bytes == 2000 * 2 * 4 * 36 * 40
    assert _observations(plan).basis == "assumed"
    assert LEFT_ALONE in plan.notes

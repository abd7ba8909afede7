"""Unmodified scripts that train for real under the meter, against their own captured plans."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from rlmem.errors import InputError, ScriptError
from rlmem.machine import read_machine
from rlmem.measure.captured import capture
from rlmem.measure.training import Measurement, ScriptCommand, _has_workers, measure_script
from rlmem.sb3 import capture as children
from rlmem.sb3.script_training import ShortTraining, train_script

TOLERANCE = 0.06
WORKERS_TOLERANCE = 0.08
"""Nine measurements were off by 0.2 to 3.8 %: a program that starts or ends between the capture and the training, and
has the same libraries mapped, changes what share of them is counted."""
MIB = 2**20

WIDE = """\
import gymnasium
import numpy as np


class Wide(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2500,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, seed=None, options=None):
        return self.observation_space.sample(), {}

    def step(self, action):
        return np.full(2500, 0.5, np.float32), 1.0, np.random.rand() < 0.02, False, {}
"""

ROLLOUTS = """\
import sys
from pathlib import Path

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback, CheckpointCallback
from stable_baselines3.common.env_util import make_vec_env

from wide import Wide


class Save(BaseCallback):
    def _on_step(self):
        if self.n_calls % 50 == 0:
            torch.save(self.model.policy.state_dict(), "policy.pt")
            Path("steps.txt").write_text(str(self.num_timesteps))
        return True


Path("out").mkdir()
model = PPO("MlpPolicy", make_vec_env(Wide, n_envs=2), n_steps=int(sys.argv[1]), batch_size=64, n_epochs=1000)
model.learn(10**9, callback=[CheckpointCallback(100, "checkpoints"), Save()])
model.save("model")
"""

REPLAY = """\
from stable_baselines3 import DQN

from wide import Wide

DQN("MlpPolicy", Wide(), buffer_size=50_000).learn(10**9)
"""

WORKERS = """\
from stable_baselines3 import A2C
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import SubprocVecEnv

if __name__ == "__main__":
    A2C("MlpPolicy", make_vec_env("CartPole-v1", n_envs=2, vec_env_cls=SubprocVecEnv)).learn(10**9)
"""

EVALUATION = """\
from stable_baselines3 import A2C
from stable_baselines3.common.callbacks import EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import SubprocVecEnv

if __name__ == "__main__":
    apart = make_vec_env("CartPole-v1", n_envs=4, vec_env_cls=SubprocVecEnv)
    A2C("MlpPolicy", "CartPole-v1").learn(10**9, callback=EvalCallback(apart))
"""

CARTPOLE = """\
from stable_baselines3 import PPO

def callback(found, _):
    {callback}

PPO("MlpPolicy", "CartPole-v1", n_steps=128).learn(10**9, callback=callback)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    (tmp_path / "wide.py").write_text(WIDE)
    return tmp_path


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sessions that were started: each child is the leader of its own."""
    started: list[int] = []

    class Popen(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            started.append(self.pid)

    monkeypatch.setattr(children.subprocess, "Popen", Popen)
    return started


def _measured(text: str, *arguments: str, most: int | None = None, progress: Any = None) -> Measurement:
    Path("train.py").write_text(text)
    command = ScriptCommand(script=Path("train.py"), arguments=arguments)
    captured = capture(command.script, list(arguments), timeout_s=60)
    return measure_script(command, captured, read_machine(), most_timesteps=most, progress=progress)


def _listing(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


def _in_session(process: psutil.Process, sessions: list[int]) -> bool:
    try:
        return os.getsid(process.pid) in sessions and process.status() != psutil.STATUS_ZOMBIE
    except (ProcessLookupError, PermissionError, psutil.Error):
        return False


def _left_over(sessions: list[int]) -> list[psutil.Process]:
    """Return what still runs of the sessions, having given the kernel a moment."""
    for _ in range(60):
        alive = [process for process in psutil.process_iter() if _in_session(process, sessions)]
        if not alive:
            break
        time.sleep(0.05)
    return alive


def test_two_rollouts_with_callbacks_that_save_and_leave_no_trace(folder: Path) -> None:
    seen: list[tuple[int, int]] = []
    Path("train.py").touch()
    before = _listing(folder)
    measurement = _measured(ROLLOUTS, "1024", progress=lambda done, total: seen.append((done, total)))
    assert _listing(folder) == before
    assert measurement.timesteps == 2 * 2 * 1024
    assert measurement.run.training.n_steps == 1024
    assert abs(measurement.ram_error) <= TOLERANCE
    assert (measurement.meter, measurement.reduced) == ("VmHWM", None)
    assert measurement.ram_phase in ("collect", "flatten", "update")
    assert measurement.phase_bytes is not None
    assert max(measurement.phase_bytes.values()) == measurement.ram_bytes
    assert set(measurement.phase_bytes) == {"startup", "collect", "flatten", "update"}
    (kept_out,) = measurement.notes
    assert all(name in kept_out for name in ("out", "checkpoints", "policy.pt", "steps.txt"))
    assert all(done <= total == measurement.timesteps for done, total in seen)


def test_a_replay_buffer_is_filled_as_far_as_it_may() -> None:
    measurement = _measured(REPLAY, most=4000)
    assert measurement.timesteps == 4010
    assert abs(measurement.ram_error) <= TOLERANCE
    assert measurement.reduced is not None
    assert "4,000 of the 50,000 transitions" in measurement.reduced
    assert "GiB, not measured" in measurement.reduced
    filled = {part.path: part.bytes for part in measurement.plan.phases[-1].components}
    assert filled["buffer/observations"] == 4000 * 2500 * 4


def test_a_process_that_comes_and_goes_does_not_change_the_meter() -> None:
    callback = """\
import subprocess, sys
    subprocess.run([sys.executable, "-c", "bytearray(2**28)"]) if found["self"].num_timesteps == 300 else None
"""
    measurement = _measured(CARTPOLE.format(callback=callback))
    assert measurement.meter == "VmHWM"
    assert abs(measurement.ram_error) <= TOLERANCE


@pytest.mark.slow
def test_workers_of_an_evaluation_are_not_counted_with_the_main_process() -> None:
    Path("train.py").write_text(EVALUATION)
    captured = capture(Path("train.py"), [], timeout_s=60)
    assert _has_workers(captured.run)
    assert captured.parts.calibration.floor_bytes is not None
    assert captured.parts.calibration.worker_bytes is not None
    assert 100 * MIB < captured.parts.calibration.floor_bytes < 450 * MIB


def test_workers_are_metered_with_the_rest_and_ended(sessions: list[int]) -> None:
    measurement = _measured(WORKERS)
    assert "summed PSS" in measurement.meter
    assert abs(measurement.ram_error) <= WORKERS_TOLERANCE
    assert measurement.ram_bytes > 300 * MIB
    assert len(sessions) == 2
    assert _left_over(sessions) == []


def test_a_training_that_the_script_ends_itself_is_said_to_be_shorter() -> None:
    measurement = _measured(CARTPOLE.format(callback="return found['self'].num_timesteps < 50"))
    assert measurement.timesteps == 50
    assert measurement.reduced is not None
    assert "after 50 of 640 timesteps" in measurement.reduced


@pytest.mark.parametrize(
    ("callback", "message"),
    [
        ("raise ValueError('too late')", r"train\.py:4: the script raised ValueError: too late while it trained"),
        ("input('go on? ')", r"train\.py:4: the script asks for input while it trained"),
        ("raise SystemExit(3)", r"train\.py:4: the script ended with exit code 3 while it trained"),
        ("import os; os.kill(os.getpid(), 9)", r"its process was killed \(SIGKILL\) while it was measured"),
    ],
)
def test_what_keeps_a_training_from_its_end_is_said(callback: str, message: str) -> None:
    Path("train.py").write_text(CARTPOLE.format(callback=callback))
    with pytest.raises(ScriptError, match=message):
        train_script(Path("train.py"), [], ShortTraining(timesteps=256, settings={}), timeout_s=60)


@pytest.mark.slow
def test_a_training_that_takes_too_long_is_ended(sessions: list[int]) -> None:
    Path("train.py").write_text(CARTPOLE.format(callback="print('on and on', flush=True)\n    while True: pass"))
    with pytest.raises(ScriptError, match=r"for 256 timesteps was not over within 8 s; .*its last words: on and on"):
        train_script(Path("train.py"), [], ShortTraining(timesteps=256, settings={}), timeout_s=8)
    assert _left_over(sessions) == []


def test_a_script_on_a_gpu_is_refused() -> None:
    Path("train.py").write_text(CARTPOLE.format(callback="return True"))
    captured = capture(Path("train.py"), [], timeout_s=60)
    on_gpu = replace(captured, run=replace(captured.run, device="cuda"))
    with pytest.raises(InputError, match=r"trains on cuda; CUDA_VISIBLE_DEVICES= .* hides the card"):
        measure_script(ScriptCommand(script=Path("train.py")), on_gpu, read_machine())

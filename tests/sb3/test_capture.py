"""Unmodified scripts, run in real children up to their first learn(), and nothing left of them."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import psutil
import pytest

from rlmem.errors import MissingExtra, ScriptError
from rlmem.run.spaces import Discrete
from rlmem.sb3 import capture
from rlmem.sb3.capture import capture_script, reading_from

Writer = Callable[[str], Path]

CARTPOLE = """\
import argparse
import os
import shutil
from pathlib import Path

import gymnasium
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import CheckpointCallback, EvalCallback, EveryNTimesteps
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.monitor import Monitor

import settings

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, required=True)
arguments = parser.parse_args()

os.makedirs("logs/new")
Path("logs/new/config.txt").write_text("written")
assert os.path.isdir("logs/new") and Path("logs/new/config.txt").read_text() == "written"
with open("results.csv", "a") as file:
    file.write("more\\n")
assert open("results.csv").read() == "precious\\nmore\\n"
os.remove("results.csv")
shutil.rmtree("old", ignore_errors=True)

env = make_vec_env("CartPole-v1", n_envs=2)
callbacks = [
    EvalCallback(make_vec_env("CartPole-v1", n_envs=3), eval_freq=77, n_eval_episodes=4, best_model_save_path="best"),
    EveryNTimesteps(10, CheckpointCallback(500, "checkpoints", save_replay_buffer=True)),
]
model = PPO("MlpPolicy", env, n_steps=settings.N_STEPS, tensorboard_log="tensorboard")
try:
    model.learn(arguments.steps, callback=callbacks)
finally:
    model.save("model")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def write(folder: Path) -> Writer:
    def write(text: str) -> Path:
        path = folder / "train.py"
        path.write_text(dedent(text))
        return path

    return write


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sessions that captures have started: each child is the leader of its own."""
    started: list[int] = []

    class Popen(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            started.append(self.pid)

    monkeypatch.setattr(capture.subprocess, "Popen", Popen)
    return started


def left_over(sessions: list[int]) -> list[psutil.Process]:
    """Return what still runs of the sessions, having given the kernel a moment."""
    deadline = time.monotonic() + 3
    while (alive := [process for process in psutil.process_iter() if _belongs(process, sessions)]) and (
        time.monotonic() < deadline
    ):
        time.sleep(0.05)
    return alive


def _belongs(process: psutil.Process, sessions: list[int]) -> bool:
    try:
        return os.getsid(process.pid) in sessions and process.status() != psutil.STATUS_ZOMBIE
    except (ProcessLookupError, PermissionError, psutil.Error):
        return False


def listing(folder: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


def test_a_script_is_read_with_its_callbacks_and_leaves_no_trace(folder: Path, write: Writer) -> None:
    script = write(CARTPOLE)
    (folder / "settings.py").write_text("N_STEPS = 64")
    (folder / "results.csv").write_text("precious\n")
    (folder / "old").mkdir()
    (folder / "old" / "file.txt").write_text("precious, too")
    before = listing(folder)
    answer = capture_script(script, ["--steps", "4321"])
    assert listing(folder) == before
    reading = reading_from(answer)
    run = reading.run
    assert (run.name, run.algorithm, run.n_envs) == ("train.py", "PPO", 2)
    assert (run.training.n_steps, run.training.total_timesteps) == (64, 4321)
    assert run.evaluation is not None
    assert (run.evaluation.n_envs, run.evaluation.eval_freq, run.evaluation.n_eval_episodes) == (3, 77, 4)
    assert run.checkpoint is not None
    assert (run.checkpoint.save_freq, run.checkpoint.save_replay_buffer) == (500, True)
    assert answer["callbacks"] == ["EvalCallback", "EveryNTimesteps", "CheckpointCallback"]
    assert sum(array.bytes for array in reading.arrays) == 128 * (16 + 8 + 24)
    assert reading.cost.parameters == reading.cost.optimized == 9155
    assert answer["workers"] == 0
    assert 0 < answer["rss_bytes"] < 2 * 2**30
    assert any("results.csv" in note for note in answer["notes"])


MINE = """\
import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from sb3_contrib import MaskablePPO
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import DummyVecEnv


class Mine(gymnasium.Env):
    observation_space = spaces.Box(0, 1, (17, 49, 71, 58), np.float32)
    action_space = spaces.Discrete(3479)

    def action_masks(self):
        return np.ones(3479, dtype=bool)


class Small(BaseFeaturesExtractor):
    def __init__(self, space):
        super().__init__(space, features_dim=8)
        self.pool = torch.nn.AdaptiveAvgPool3d(1)
        self.head = torch.nn.Linear(17, 8)

    def forward(self, rows):
        return self.head(self.pool(rows).flatten(1))


class Ours(MaskablePPO):
    def _setup_model(self):
        super()._setup_model()
        self.shadow = np.zeros_like(self.rollout_buffer.observations)


env = DummyVecEnv([Mine] * 4)
model = Ours("MlpPolicy", env, n_steps=4096, policy_kwargs={"features_extractor_class": Small})
model.learn(1_000_000)
"""


def test_a_rollout_of_209_gib_is_captured_without_memory(write: Writer) -> None:
    started = time.monotonic()
    answer = capture_script(write(MINE), [])
    assert time.monotonic() - started < 20
    assert answer["rss_bytes"] < 2 * 2**30
    rows = {array.path: array for array in reading_from(answer).arrays}
    assert rows["buffer/observations"].bytes == 4096 * 4 * 17 * 49 * 71 * 58 * 4  # 209 GiB
    assert rows["buffer/observations"].lazy
    assert rows["buffer/action_masks"].bytes == 4096 * 4 * 3479 * 4
    assert not rows["buffer/action_masks"].lazy


WORKERS = """\
import sys

import gymnasium
from stable_baselines3 import A2C
from stable_baselines3.common.vec_env import SubprocVecEnv


class Limited(gymnasium.Wrapper):
    pass


def make():
    return Limited(gymnasium.make("CartPole-v1"))


if __name__ == "__main__":
    assert sys.modules["__main__"].make is make
    env = SubprocVecEnv([make, make], start_method=sys.argv[1])
    A2C("MlpPolicy", env).learn(1000)
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_of_the_script_start_and_are_ended(write: Writer, sessions: list[int], method: str) -> None:
    answer = capture_script(write(WORKERS), [method])
    assert left_over(sessions) == []
    run = reading_from(answer).run
    assert (run.env.workers, run.env.start_method, run.n_envs) == ("subprocess", method, 2)
    assert answer["workers"] == len(answer["worker_pss_bytes"]) == 2
    assert all(size > 10 * 2**20 for size in answer["worker_pss_bytes"])
    assert answer["evaluation_worker_pss_bytes"] == []
    main = answer["pss_tree_bytes"] - sum(answer["worker_pss_bytes"])
    assert 0 < main < answer["rss_bytes"], "pages shared with the workers are counted with them"


def test_learn_is_found_in_classes_and_buffers_of_the_scripts_own(write: Writer) -> None:
    script = write("""\
        import gymnasium
        import numpy as np
        from stable_baselines3 import DQN
        from stable_baselines3.common.buffers import ReplayBuffer

        class Own(ReplayBuffer):
            def __init__(self, *args, **kwargs):
                super().__init__(*args, **kwargs)
                self.extra = np.ones((self.buffer_size, self.n_envs, 1000))

        class Ours(DQN):
            def learn(self, total_timesteps, callback=None, **kwargs):
                return super().learn(total_timesteps, callback=callback, **kwargs)

        env = gymnasium.make("CartPole-v1")
        beside = Own(10**7, env.observation_space, env.action_space)
        model = Ours("MlpPolicy", "CartPole-v1", buffer_size=10**7, replay_buffer_class=Own)
        try:
            model.learn(total_timesteps=2e5)
        except BaseException:
            raise SystemExit(3)
        """)
    answer = capture_script(script, [])
    reading = reading_from(answer)
    extra = next(array for array in reading.arrays if array.path == "buffer/extra")
    assert (extra.bytes, extra.lazy) == (10**7 * 8000, False)
    assert answer["rss_bytes"] < 2 * 2**30
    assert reading.run.training.total_timesteps == 200_000
    assert reading.run.env.action == Discrete(n=2)


def test_ars_is_captured_too(write: Writer) -> None:
    script = write("""\
        from sb3_contrib import ARS
        ARS("LinearPolicy", "CartPole-v1", n_delta=3).learn(1000)
        """)
    reading = reading_from(capture_script(script, []))
    assert (reading.run.algorithm, reading.run.policy.class_name, reading.arrays) == ("ARS", "LinearPolicy", ())
    assert reading.run.training.n_delta == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("print('nothing')", "without calling learn() of a Stable-Baselines3 model.*framework: generic"),
        (
            "from stable_baselines3 import PPO\nPPO('MlpPolicy', 'CartPole-v1')",
            r"without calling learn\(\); it builds PPO but does not train",
        ),
        ("import sys\n\n\nraise ValueError('too wide')", r"train\.py:4: the script raised ValueError: too wide"),
        ("name = input('who? ')", r"train\.py:1: the script asks for input"),
        ("import sys\nsys.exit(0)", r"train\.py:2: the script ended with exit code 0 before any learn\(\)"),
        ("import os\nos._exit(3)", "its process ended with exit code 3"),
        ("import os\nos.kill(os.getpid(), 9)", r"its process was killed \(SIGKILL\)"),
        ("x = 1\nimport no_such_thing.inside", r"train\.py:2: the module no_such_thing is not installed"),
        ("def broken(:\n", r"train\.py:1: the script raised SyntaxError"),
        (
            "import argparse\np = argparse.ArgumentParser()\np.add_argument('--data', required=True)\np.parse_args()",
            r"exit code 2 .* after --; its last words: .*--data",
        ),
    ],
)
def test_what_keeps_a_script_from_learning_is_said(write: Writer, text: str, message: str) -> None:
    with pytest.raises(ScriptError, match="(?s)" + message.replace("learn() of", r"learn\(\) of")):
        capture_script(write(text), [])


def test_a_script_that_takes_too_long_is_ended(write: Writer, sessions: list[int]) -> None:
    script = write(
        "import subprocess\nsubprocess.Popen(['sleep', '60'])\nprint('on and on', flush=True)\nwhile True: pass"
    )
    started = time.monotonic()
    with pytest.raises(
        ScriptError, match=r"not reached within 6 s; --timeout gives it longer; its last words: on and on"
    ):
        capture_script(script, [], timeout_s=6)
    assert time.monotonic() - started < 12
    assert left_over(sessions) == []


def test_a_missing_library_of_the_framework_names_the_extra(write: Writer) -> None:
    with pytest.raises(MissingExtra, match=r"sb3_contrib.*rlmem"):
        capture_script(write("raise ModuleNotFoundError(name='sb3_contrib.ppo_mask')"), [])


def test_a_script_that_is_not_there(folder: Path) -> None:
    with pytest.raises(ScriptError, match="no such script"):
        capture_script(folder / "train.py", [])

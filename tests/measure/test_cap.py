"""A prediction that the kernel enforces: the training lives just above it and dies well below it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlmem.errors import InputError
from rlmem.machine import read_machine
from rlmem.machine.memory_group import memory_group
from rlmem.measure.captured import capture
from rlmem.measure.training import ScriptCommand, capped, measure, measure_script
from rlmem.run import run_from_mapping

RUN = {
    "framework": "sb3",
    "algorithm": "DQN",
    "env": {"observation": {"shape": [40_000]}, "action": {"discrete": 4}},
    "training": {"buffer_size": 1500, "batch_size": 8},
}


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RLMEM_CACHE", str(tmp_path))


@pytest.fixture
def writable_groups() -> None:
    try:
        with memory_group(2**30):
            pass
    except InputError as error:
        pytest.skip(str(error))


@pytest.mark.usefixtures("writable_groups")
def test_a_training_lives_at_its_prediction_and_dies_below_it():
    measurement = measure(run_from_mapping(RUN), read_machine())
    assert measurement.ram_phase in ("collect", "update")
    assert capped(measurement, share=1.02).lived
    assert not capped(measurement, share=0.90).lived


SCRIPT = """
import gymnasium
import numpy as np
from stable_baselines3 import DQN


class Wide(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (40_000,), np.float32)
    action_space = gymnasium.spaces.Discrete(4)

    def reset(self, seed=None, options=None):
        return np.ones(40_000, np.float32), {}

    def step(self, action):
        return np.ones(40_000, np.float32), 1.0, False, False, {}


DQN("MlpPolicy", Wide(), buffer_size=1500, batch_size=8).learn(10**9)
"""


@pytest.mark.slow
@pytest.mark.usefixtures("writable_groups")
def test_a_script_lives_at_its_prediction_and_dies_below_it(tmp_path: Path):
    command = ScriptCommand(script=tmp_path / "train.py")
    command.script.write_text(SCRIPT)
    measurement = measure_script(command, capture(command.script, [], timeout_s=60), read_machine())
    assert capped(measurement, share=1.02).lived
    assert not capped(measurement, share=0.90).lived


@pytest.mark.usefixtures("writable_groups")
def test_a_group_is_gone_after_use():
    with memory_group(2**30) as group:
        assert group.directory.is_dir()
        assert group.peak_bytes() is not None
    assert not group.directory.exists()


def test_without_writable_groups_the_words_are_clear(tmp_path: Path):
    with pytest.raises(InputError, match="cgroup"), memory_group(2**30, proc=tmp_path):
        pass

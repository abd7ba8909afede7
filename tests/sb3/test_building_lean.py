"""Runs with lean buffers built as real models: the lean class in the place of each stock one, and read back."""

from __future__ import annotations

from typing import Any

import pytest

import rlmem.sb3
from rlmem.run import FrameworkRun, run_from_mapping
from rlmem.run.model import Buffer
from rlmem.sb3.building import build_model, build_vec_env
from rlmem.sb3.reading import read_model

GOALS = {"dict": {name: {"shape": [3]} for name in ("observation", "achieved_goal", "desired_goal")}}
MIXED = {"dict": {"camera": {"shape": [36, 40, 1], "dtype": "uint8"}, "speed": {"shape": [2]}}}
VECTOR: dict[str, Any] = {"shape": [5]}
OPTIONS = {"kind": "lean", "compact": True, "memory_limit": "1GB"}

CASES = [
    ("PPO", VECTOR, {"n_steps": 8, "batch_size": 8}, "LeanRolloutBuffer"),
    ("A2C", VECTOR, {}, "LeanRolloutBuffer"),
    ("TRPO", VECTOR, {"n_steps": 8, "batch_size": 8}, "LeanRolloutBuffer"),
    ("MaskablePPO", VECTOR, {"n_steps": 8, "batch_size": 8}, "LeanMaskableRolloutBuffer"),
    ("RecurrentPPO", VECTOR, {"n_steps": 8, "batch_size": 8}, "LeanRecurrentRolloutBuffer"),
    ("PPO", MIXED, {"n_steps": 8, "batch_size": 8}, "LeanDictRolloutBuffer"),
    ("DQN", VECTOR, {"buffer_size": 40}, "LeanReplayBuffer"),
    ("DQN", MIXED, {"buffer_size": 40}, "LeanDictReplayBuffer"),
    ("DQN", VECTOR, {"buffer_size": 40, "n_steps": 3}, "LeanNStepReplayBuffer"),
    ("DQN", GOALS, {"buffer_size": 400, "replay_buffer_class": "HerReplayBuffer"}, "LeanHerReplayBuffer"),
    ("SAC", VECTOR, {"buffer_size": 40}, "LeanReplayBuffer"),
]

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*mini-batch.*:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*is ignored because a custom.*:UserWarning"),
]


@pytest.mark.parametrize(("algorithm", "observation", "training", "name"), CASES)
def test_the_lean_class_is_built_and_read_back(
    algorithm: str, observation: dict[str, Any], training: dict[str, Any], name: str
) -> None:
    head = "MultiInput" if "dict" in observation else "Mlp"
    run = run_from_mapping(
        {
            "framework": "sb3",
            "algorithm": algorithm,
            "env": {
                "observation": observation,
                "action": {"shape": [2], "low": -1, "high": 1} if algorithm == "SAC" else {"discrete": 3},
                "n_envs": 2,
            },
            "training": training,
            "policy": {"class": f"{head}{'Lstm' if algorithm == 'RecurrentPPO' else ''}Policy"},
            "buffer": OPTIONS,
        }
    )
    assert isinstance(run, FrameworkRun)
    model: Any = build_model(run, build_vec_env(run.env))
    buffer = model.replay_buffer if run.spec.off_policy else model.rollout_buffer
    assert type(buffer) is getattr(rlmem.sb3, name)
    reading = read_model(model)
    assert reading.run.buffer == Buffer(kind="lean", compact=True, memory_limit=10**9)
    described = {array.path: array.rows for array in reading.arrays}
    assert described["buffer/observations"] == buffer.buffer_size * 2
    assert "buffer/next_observations" not in described
    assert "buffer/accesses" not in described

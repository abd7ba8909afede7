"""What buffers hold twice, too wide or never; what the framework refuses is refused by the real one too."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.buffers import NStepReplayBuffer
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer

IMAGE = {"shape": [84, 84, 1], "dtype": "uint8"}
CNN = {"class": "CnnPolicy"}
PIXELS = {"shape": [100, 100], "dtype": "float32", "low": 0, "high": 255}
GOAL = {"dict": {key: {"shape": [3]} for key in ("observation", "achieved_goal", "desired_goal")}}
MULTI = {"class": "MultiInputPolicy"}
MIB = 2**20


def test_stacked_frames(find: Any) -> None:
    env = {"observation": IMAGE, "frame_stack": 4, "n_envs": 4}
    (finding,) = find("RLM010", env=env, policy=CNN, training={"n_steps": 2048})
    assert finding.bytes == 2048 * 4 * 84 * 84 * 3
    assert not find("RLM010", env=env | {"frame_stack": 1}, policy=CNN, training={"n_steps": 2048})
    assert not find("RLM010", env=env, policy=CNN, training={"n_steps": 8})


def test_stacked_frames_of_replay_count_the_next_observations_and_only_what_is_filled(find: Any) -> None:
    env = {"observation": IMAGE, "frame_stack": 4}
    (finding,) = find("RLM010", "DQN", env=env, policy=CNN, training={"buffer_size": 10**6, "total_timesteps": 50_000})
    assert finding.bytes == 50_000 * 84 * 84 * 3 * 2


def test_next_observations_twice(find: Any) -> None:
    replay = {"env": {"observation": IMAGE}, "policy": CNN}
    (finding,) = find("RLM011", "DQN", **replay, training={"buffer_size": 20_000})
    assert finding.bytes == 20_000 * 84 * 84
    assert "handle_timeout_termination" in finding.advice
    once = {"optimize_memory_usage": True, "replay_buffer_kwargs": {"handle_timeout_termination": False}}
    assert not find("RLM011", "DQN", **replay, training={"buffer_size": 20_000} | once)
    assert not find("RLM011", "DQN", **replay, training={"buffer_size": 1000})
    assert not find("RLM011", **replay, training={"n_steps": 20_000})


@pytest.mark.parametrize(
    "training", [{"n_steps": 3}, {"replay_buffer_class": "NStepReplayBuffer"}], ids=["n_steps", "class"]
)
def test_sharing_is_not_advised_where_the_framework_refuses_it(find: Any, training: dict[str, Any]) -> None:
    (finding,) = find("RLM011", "DQN", env={"observation": IMAGE}, policy=CNN, training=training)
    assert "has no optimize_memory_usage" in finding.advice


@pytest.mark.parametrize(
    ("low", "high", "dtype", "severity", "share"),
    [
        (0, 255, "float32", "warning", 0.75),
        (-128, 127, "float64", "warning", 0.875),
        (0, 1, "float32", "info", 0.75),
        (-10, 10, "float16", "info", 0.5),
    ],
)
def test_floats_that_may_fit_in_a_byte(find: Any, low: int, high: int, dtype: str, severity: str, share: float) -> None:
    box = PIXELS | {"low": low, "high": high, "dtype": dtype}
    (finding,) = find("RLM012", env={"observation": box}, training={"n_steps": 20_000})
    assert finding.severity == severity
    width = {"float16": 2, "float32": 4, "float64": 8}[dtype]
    assert finding.bytes == 20_000 * 100 * 100 * width * share


@pytest.mark.parametrize(
    "box",
    [
        PIXELS | {"low": 0, "high": 256},
        PIXELS | {"low": -1, "high": 200},
        PIXELS | {"low": 0, "high": 0.5},
        {"shape": [100, 100]},
        PIXELS | {"dtype": "uint8"},
        PIXELS | {"shape": [4]},
    ],
)
def test_floats_that_need_their_width_or_are_few(find: Any, box: dict[str, Any]) -> None:
    assert not find("RLM012", env={"observation": box}, training={"n_steps": 20_000})


def test_normalised_or_widened_floats_are_no_bytes(find: Any) -> None:
    training = {"n_steps": 20_000}
    assert not find("RLM012", env={"observation": PIXELS, "normalize": True}, training=training)
    assert not find("RLM012", env={"observation": PIXELS}, training=training, framework_version="2.3.2")
    assert find(
        "RLM012", "DQN", env={"observation": PIXELS}, training={"buffer_size": 20_000}, framework_version="2.3.2"
    )


def test_buffer_that_is_never_filled(find: Any) -> None:
    training = {"buffer_size": 1000, "total_timesteps": 600}
    (finding,) = find("RLM013", "DQN", training=training)
    assert finding.bytes == 400 * (2 * 16 + 8 + 12)
    assert "buffer_size 600" in finding.advice
    assert not find("RLM013", "DQN", training=training | {"total_timesteps": 1000})
    assert not find("RLM013", "DQN", training={"buffer_size": 1000})
    assert not find("RLM013", training={"n_steps": 1000, "total_timesteps": 600})


@pytest.mark.parametrize(("total", "missing"), [(25, 200_000 - 58_000), (90, None), (None, None)])
def test_growth_that_never_reaches_its_size(find: Any, total: int | None, missing: int | None) -> None:
    growth = {"size": "transitions", "by": 2320, "per": "generation"} | ({"total": total} if total else {})
    arrays = [{"path": "replay", "shape": ["transitions", 100], "dtype": "float32"}]
    findings = find("RLM013", "generic", sizes={"transitions": 200_000}, arrays=arrays, growth=growth)
    assert [item.bytes for item in findings] == ([] if missing is None else [missing * 400])


class _Vectors(gym.Env[Any, Any]):
    """A small environment with whatever observations it is told."""

    action_space = spaces.Discrete(2)

    def __init__(self, observation: spaces.Space[Any]) -> None:
        self.observation_space = observation

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.observation_space.sample(), 1.0, False, False, {}

    def compute_reward(self, *_: Any) -> float:
        return 0.0


VECTOR = spaces.Box(-1, 1, (4,))
GOALS = spaces.Dict({key: spaces.Box(-1, 1, (3,)) for key in ("observation", "achieved_goal", "desired_goal")})
UNTIMED = {"handle_timeout_termination": False}
CLASSES = {"NStepReplayBuffer": NStepReplayBuffer, "HerReplayBuffer": HerReplayBuffer}


@pytest.mark.parametrize(
    ("goal", "training", "error"),
    [
        (False, {}, ValueError),
        (False, {"n_steps": 3}, ValueError),
        (False, {"n_steps": 3, "replay_buffer_kwargs": UNTIMED}, NotImplementedError),
        (False, {"replay_buffer_class": "NStepReplayBuffer", "replay_buffer_kwargs": UNTIMED}, NotImplementedError),
        (True, {"replay_buffer_kwargs": UNTIMED}, AssertionError),
        (True, {"replay_buffer_class": "HerReplayBuffer", "replay_buffer_kwargs": UNTIMED}, AssertionError),
        (False, {"replay_buffer_kwargs": UNTIMED}, None),
    ],
)
def test_what_sharing_conflicts_with_is_what_the_framework_refuses(
    find: Any, goal: bool, training: dict[str, Any], error: type[Exception] | None
) -> None:
    settings = {"buffer_size": 100, "optimize_memory_usage": True} | training
    described = {"env": {"observation": GOAL}, "policy": MULTI} if goal else {}
    findings = find("RLM014", "DQN", **described, training=settings)
    assert [item.severity for item in findings] == (["error"] if error else [])

    real = copy.deepcopy(settings) | {"replay_buffer_class": CLASSES.get(str(settings.get("replay_buffer_class")))}

    def build() -> DQN:
        env = _Vectors(GOALS if goal else VECTOR)
        return DQN("MultiInputPolicy" if goal else "MlpPolicy", env, device="cpu", **real)

    if error is None:
        assert build().replay_buffer is not None
        return
    with pytest.raises(error):
        build()
    assert error.__name__ in findings[0].message


def test_no_conflict_without_sharing(find: Any) -> None:
    assert not find("RLM014", "DQN", training={"n_steps": 3})
    assert not find("RLM014", training={"optimize_memory_usage": True})  # PPO: does nothing, which is another rule


def test_flatten_copy_at_the_peak(find: Any) -> None:
    env = {"observation": {"shape": [10_000]}, "n_envs": 4}
    (finding,) = find("RLM015", env=env, training={"n_steps": 2048})
    assert finding.bytes == 2048 * 4 * 10_000 * 4
    assert "rollout_buffer_class" in finding.advice
    assert not find("RLM015", env=env | {"n_envs": 1}, training={"n_steps": 4 * 2048})
    assert not find("RLM015", env={"n_envs": 4}, training={"n_steps": 2048})
    (recurrent,) = find("RLM015", "RecurrentPPO", env=env, training={"n_steps": 2048})
    assert "use_lean_rollout" in recurrent.advice


@pytest.mark.parametrize(("version", "fires"), [("2.3.2", True), ("2.7.0", True), ("2.7.1", False), ("2.9.2", False)])
def test_widened_rollouts(find: Any, version: str, fires: bool) -> None:
    run = {"env": {"observation": IMAGE, "n_envs": 2}, "policy": CNN, "training": {"n_steps": 2048}}
    findings = find("RLM016", **run, framework_version=version)
    assert [item.bytes for item in findings] == ([2 * 2048 * 84 * 84 * 3] if fires else [])


def test_floats_are_not_widened(find: Any) -> None:
    env = {"observation": {"shape": [10_000]}}
    assert not find("RLM016", env=env, training={"n_steps": 2048}, framework_version="2.3.2")


def test_normalised_into_integers(find: Any) -> None:
    counts = {"shape": [3], "dtype": "uint8", "low": 0, "high": 200}
    (finding,) = find("RLM017", env={"observation": counts, "normalize": True})
    assert "uint8" in finding.message
    assert not find("RLM017", env={"observation": counts})
    assert not find("RLM017", env={"observation": {"shape": [3]}, "normalize": True})
    assert not find("RLM017", env={"observation": IMAGE, "normalize": True})
    assert not find("RLM017", env={"observation": counts, "normalize": True}, framework_version="2.3.2")
    assert not find("RLM017", "DQN", env={"observation": counts, "normalize": True})


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_real_rollouts_lose_what_the_rule_says(dtype: Any) -> None:
    """The observations that the policy acted on are not those that the buffer holds, if the space is of integers."""
    env = VecNormalize(DummyVecEnv([lambda: _Vectors(spaces.Box(0, 200, (3,), dtype))]))
    model = PPO("MlpPolicy", env, n_steps=16, batch_size=16, n_epochs=1, device="cpu", seed=0)
    seen: list[Any] = []
    act = model.policy.forward

    def acting(observation: Any, *rest: Any, **options: Any) -> Any:
        seen.append(observation.numpy().copy())
        return act(observation, *rest, **options)

    model.policy.forward = acting  # type: ignore[method-assign]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        model.learn(16)
    stored = model.rollout_buffer.observations.reshape(16, 3).astype(np.float32)
    assert np.array_equal(stored, np.concatenate(seen)) == (dtype is np.float32)

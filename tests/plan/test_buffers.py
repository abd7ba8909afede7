"""The plan's buffer arrays against every array found in the framework's live buffers."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import pytest
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize, VecTransposeImage

from rlmem.plan.buffers import flatten_copy_bytes, replay_arrays, rollout_arrays
from rlmem.plan.versions import rollouts_are_float32
from rlmem.run.arrays import ArraySpec
from rlmem.run.gymnasium_spaces import describe
from rlmem.run.spaces import Space, leaves, sample_spec
from rlmem.run.wrappers import stored_observation

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*on the GPU, but it is primarily intended.*:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*maskable environment.*:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*mini-batch.*:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*precision lowered by casting.*:UserWarning"),
]

IMAGE = {"shape": [36, 40, 3], "dtype": "uint8"}
IMAGE_FIRST = {"shape": [3, 36, 40], "dtype": "uint8"}
VECTOR = {"shape": [5]}
MIXED = {"dict": {"image": IMAGE, "speed": {"shape": [3]}, "gear": {"discrete": 4}}}
BOXES = {"dict": {"image": IMAGE, "speed": {"shape": [3]}}}
GOAL = {"dict": {"observation": {"shape": [6]}, "achieved_goal": {"shape": [2]}, "desired_goal": {"shape": [2]}}}

OBSERVATIONS = {
    "image": IMAGE,
    "image-first": IMAGE_FIRST,
    "grayscale": {"shape": [36, 40, 1], "dtype": "uint8"},
    "float32": VECTOR,
    "float64": {"shape": [5], "dtype": "float64"},
    "uint8": {"shape": [7], "dtype": "uint8"},
    "matrix": {"shape": [2, 3], "dtype": "float32"},
    "volume": {"shape": [2, 4, 4, 4], "dtype": "float32"},
    "scalar": {"shape": [], "dtype": "float32"},
    "int16": {"shape": [3], "dtype": "int16"},
    "bounded-uint8": {"shape": [36, 40, 3], "dtype": "uint8", "low": 0, "high": 1},
    "discrete": {"discrete": 6},
    "multi-discrete": {"multi_discrete": [3, 5]},
    "multi-binary": {"multi_binary": 8},
    "multi-binary-2d": {"multi_binary": [2, 3]},
    "dict": MIXED,
}
ACTIONS = {
    "box": {"shape": [2]},
    "box-matrix": {"shape": [2, 3]},
    "box64": {"shape": [2], "dtype": "float64"},
    "discrete": {"discrete": 6},
    "multi-discrete": {"multi_discrete": [3, 5]},
    "multi-binary": {"multi_binary": 4},
}
_PATHS = {
    "observations": "buffer/observations",
    "next_observations": "buffer/next_observations",
    "actions": "buffer/actions",
    "action_masks": "buffer/action_masks",
    "ep_start": "buffer/episodes",
    "ep_length": "buffer/episodes",
    "infos": "buffer/infos",
}
_PER_ENV = ("_current_ep_start",)


def live_bytes(buffer: Any) -> dict[str, int]:
    """Return the bytes of every array that the buffer holds, by the path that a plan gives it."""
    found: dict[str, int] = {}
    for name, value in vars(buffer).items():
        arrays = [
            item for item in (value.values() if isinstance(value, dict) else [value]) if isinstance(item, np.ndarray)
        ]
        if name in _PER_ENV or not arrays:
            continue
        path = _PATHS.get(name, "buffer/lstm_states" if "_states_" in name else "buffer/scalars")
        found[path] = found.get(path, 0) + sum(_array_bytes(array) for array in arrays)
    return found


def _array_bytes(array: np.ndarray) -> int:
    if array.dtype != object:
        return array.nbytes
    return array.nbytes + sum(sys.getsizeof(item) for item in array.ravel())


def planned_bytes(arrays: tuple[Any, ...]) -> dict[str, int]:
    return {array.path: array.bytes for array in arrays}


def shapes(space: Space) -> dict[str, ArraySpec]:
    return {key: sample_spec(leaf) for key, leaf in leaves(space)}


def _rollout(make_model: Any, run: Any) -> None:
    model = make_model(run)
    buffer = model.rollout_buffer
    assert shapes(stored_observation(run.env)) == shapes(describe(model.observation_space))
    assert planned_bytes(rollout_arrays(run)) == live_bytes(buffer)


def _replay(make_model: Any, run: Any) -> str:
    model = make_model(run)
    buffer = model.replay_buffer
    assert shapes(stored_observation(run.env)) == shapes(describe(model.observation_space))
    assert planned_bytes(replay_arrays(run)) == live_bytes(buffer)
    return type(buffer).__name__


def _policy(observation: dict[str, Any], suffix: str = "Policy") -> dict[str, Any]:
    return {"class": f"{'MultiInput' if 'dict' in observation else 'Mlp'}{suffix}", "net_arch": [2]}


@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize("observation", OBSERVATIONS.values(), ids=OBSERVATIONS)
def test_rollout_of_every_observation(make_run: Any, make_model: Any, observation: dict[str, Any], n_envs: int) -> None:
    run = make_run("A2C", observation, {"shape": [2]}, env={"n_envs": n_envs}, policy=_policy(observation))
    _rollout(make_model, run)


@pytest.mark.parametrize("action", ACTIONS.values(), ids=ACTIONS)
def test_rollout_of_every_action(make_run: Any, make_model: Any, action: dict[str, Any]) -> None:
    _rollout(make_model, make_run("PPO", VECTOR, action, env={"n_envs": 2}, policy=_policy(VECTOR)))


@pytest.mark.parametrize("n_envs", [1, 2])
@pytest.mark.parametrize("action", ["discrete", "multi-discrete", "multi-binary"])
@pytest.mark.parametrize("observation", ["image", "float32", "dict"])
def test_maskable_rollout(make_run: Any, make_model: Any, observation: str, action: str, n_envs: int) -> None:
    space = OBSERVATIONS[observation]
    run = make_run("MaskablePPO", space, ACTIONS[action], env={"n_envs": n_envs}, policy=_policy(space))
    _rollout(make_model, run)


@pytest.mark.parametrize(
    "options", [{}, {"n_lstm_layers": 2}, {"enable_critic_lstm": False, "shared_lstm": True}], ids=str
)
@pytest.mark.parametrize("observation", ["float32", "dict"])
def test_recurrent_rollout(make_run: Any, make_model: Any, observation: str, options: dict[str, Any]) -> None:
    space = OBSERVATIONS[observation]
    policy = _policy(space, "LstmPolicy") | {"lstm_hidden_size": 8} | options
    _rollout(make_model, make_run("RecurrentPPO", space, {"discrete": 3}, env={"n_envs": 3}, policy=policy))


@pytest.mark.parametrize("n_envs", [1, 2, 3, 30])
@pytest.mark.parametrize("observation", OBSERVATIONS.values(), ids=OBSERVATIONS)
def test_replay_of_every_observation(make_run: Any, make_model: Any, observation: dict[str, Any], n_envs: int) -> None:
    run = make_run("DQN", observation, {"discrete": 4}, env={"n_envs": n_envs}, policy=_policy(observation))
    expected = "DictReplayBuffer" if "dict" in observation else "ReplayBuffer"
    assert _replay(make_model, run) == expected


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16"])
def test_replay_of_box_actions(make_run: Any, make_model: Any, dtype: str) -> None:
    action = {"shape": [2, 3], "dtype": dtype}
    _replay(make_model, make_run("TD3", VECTOR, action, policy=_policy(VECTOR)))


def test_replay_without_next_observations(make_run: Any, make_model: Any) -> None:
    training = {"optimize_memory_usage": True, "replay_buffer_kwargs": {"handle_timeout_termination": False}}
    run = make_run("SAC", VECTOR, {"shape": [2]}, env={"n_envs": 3}, training=training, policy=_policy(VECTOR))
    assert _replay(make_model, run) == "ReplayBuffer"


def test_replay_without_timeouts(make_run: Any, make_model: Any) -> None:
    training = {"replay_buffer_kwargs": {"handle_timeout_termination": False}}
    _replay(make_model, make_run("SAC", VECTOR, {"shape": [2]}, training=training, policy=_policy(VECTOR)))


@pytest.mark.parametrize("n_envs", [1, 3])
def test_replay_of_n_steps(make_run: Any, make_model: Any, n_envs: int) -> None:
    training = {"n_steps": 3}
    run = make_run("DQN", VECTOR, {"discrete": 3}, env={"n_envs": n_envs}, training=training, policy=_policy(VECTOR))
    assert _replay(make_model, run) == "NStepReplayBuffer"


@pytest.mark.parametrize("n_envs", [1, 3])
def test_hindsight_replay(make_run: Any, make_model: Any, n_envs: int) -> None:
    training = {"replay_buffer_class": "HerReplayBuffer"}
    run = make_run("SAC", GOAL, {"shape": [2]}, env={"n_envs": n_envs}, training=training, policy=_policy(GOAL))
    assert _replay(make_model, run) == "HerReplayBuffer"


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("frame_stack", [1, 4])
@pytest.mark.parametrize(
    "observation",
    [IMAGE, IMAGE_FIRST, VECTOR, OBSERVATIONS["float64"], OBSERVATIONS["uint8"], BOXES],
    ids=str,
)
def test_wrappers(
    make_run: Any, make_model: Any, observation: dict[str, Any], frame_stack: int, normalize: bool
) -> None:
    env = {"n_envs": 2, "frame_stack": frame_stack, "normalize": normalize}
    policy = _policy(observation)
    _rollout(make_model, make_run("A2C", observation, {"discrete": 3}, env=env, policy=policy))
    _replay(make_model, make_run("DQN", observation, {"discrete": 3}, env=env, policy=policy))


@pytest.mark.parametrize("normalize", [False, True])
def test_wrapper_of_the_users_own_transposes_before_normalising(make_run: Any, normalize: bool) -> None:
    env = {"normalize": normalize, "transpose_images": True}
    stored = stored_observation(make_run("A2C", IMAGE, {"discrete": 3}, env=env).env)
    inner = DummyVecEnv([lambda: _Images()])
    live = VecNormalize(VecTransposeImage(inner)) if normalize else VecTransposeImage(inner)
    assert shapes(stored) == shapes(describe(live.observation_space))


class _Images(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 255, (36, 40, 3), np.uint8)
    action_space = gymnasium.spaces.Discrete(3)


@pytest.mark.filterwarnings("ignore:Treating image space as channels-last:UserWarning")
@pytest.mark.parametrize("frame_stack", [2, 4, 16])
def test_stacked_small_images_change_their_smallest_axis(make_run: Any, make_model: Any, frame_stack: int) -> None:
    """Stacked far enough, the channels are no longer the smallest axis, and the framework does not transpose."""
    env = {"frame_stack": frame_stack}
    for shape in ([8, 40, 3], [3, 8, 40], [12, 12, 3]):
        observation = {"shape": shape, "dtype": "uint8"}
        run = make_run("DQN", observation, {"discrete": 3}, env=env, policy=_policy(observation))
        model = make_model(run)
        assert stored_observation(run.env).shape == model.observation_space.shape


@pytest.mark.parametrize(("n_envs", "n_steps"), [(1, 4), (3, 4), (3, 1), (2, 8)])
@pytest.mark.parametrize("algorithm", ["PPO", "MaskablePPO", "RecurrentPPO"])
def test_flatten_copy(make_run: Any, make_model: Any, algorithm: str, n_envs: int, n_steps: int) -> None:
    policy = _policy(IMAGE, "LstmPolicy" if algorithm == "RecurrentPPO" else "Policy")
    training = {"n_steps": n_steps, "batch_size": n_steps * n_envs}
    run = make_run(algorithm, IMAGE, {"discrete": 3}, env={"n_envs": n_envs}, training=training, policy=policy)
    model = make_model(run)
    model._setup_learn(1)
    model.rollout_buffer.reset()
    before = model.rollout_buffer.observations
    model.rollout_buffer.full = True
    next(iter(model.rollout_buffer.get(n_steps * n_envs)))
    after = model.rollout_buffer.observations
    copied = not np.shares_memory(before, after)
    planned = flatten_copy_bytes(run, rollout_arrays(run))
    assert planned == (after.nbytes if copied else 0)


@pytest.mark.parametrize(
    ("version", "as_float32"),
    [
        ("2.3.2", True),
        ("2.7.0", True),
        ("2.7.1", False),
        ("2.9.2", False),
        ("2.10", False),
        ("2.7.1a0", False),
        ("1.8", True),
    ],
)
def test_old_versions_store_float32(make_run: Any, version: str, as_float32: bool) -> None:
    run = make_run("PPO", IMAGE, {"discrete": 3}, framework_version=version)
    assert rollouts_are_float32(run) is as_float32
    sizes = planned_bytes(rollout_arrays(run))
    rows, pixels = 4, 36 * 40 * 3
    assert sizes["buffer/observations"] == rows * pixels * (4 if as_float32 else 1)
    assert sizes["buffer/actions"] == rows * (4 if as_float32 else 8)


def test_old_versions_keep_replay_dtypes(make_run: Any) -> None:
    run = make_run("DQN", IMAGE, {"discrete": 3})
    assert replay_arrays(replace(run, framework_version="2.3.2")) == replay_arrays(
        replace(run, framework_version="2.9.2")
    )

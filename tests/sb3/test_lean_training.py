"""Lean buffers change nothing about what is learnt: the same seed gives the same weights to the last bit."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
import torch
from gymnasium import spaces
from sb3_contrib import TRPO, MaskablePPO, RecurrentPPO
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3, HerReplayBuffer
from stable_baselines3.common.buffers import NStepReplayBuffer
from stable_baselines3.common.envs import BitFlippingEnv
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack, VecNormalize, VecTransposeImage

from rlmem.errors import LeanBufferError
from rlmem.sb3 import (
    LeanDictReplayBuffer,
    LeanDictRolloutBuffer,
    LeanHerReplayBuffer,
    LeanMaskableRolloutBuffer,
    LeanNStepReplayBuffer,
    LeanRecurrentRolloutBuffer,
    LeanReplayBuffer,
    LeanRolloutBuffer,
    use_lean_rollout,
)

pytestmark = pytest.mark.filterwarnings("ignore:You have specified a mini-batch size")

COMPACT = {"compact": True, "memory_limit": "1GB"}
SMALL = {"net_arch": [16]}
SMALL_CNN = {"net_arch": [16], "features_extractor_kwargs": {"features_dim": 16}}
SMALL_DICT = {"net_arch": [16], "features_extractor_kwargs": {"cnn_output_dim": 16}}
ROLLOUT = {"n_steps": 20, "batch_size": 12, "n_epochs": 2}
REPLAY = {"buffer_size": 90, "learning_starts": 20, "batch_size": 16, "train_freq": 8, "gradient_steps": 4}


@pytest.fixture(autouse=True)
def _one_thread():
    """Tiny networks are faster on one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def _trained(algorithm, policy, env, *, steps, lean=None, **kwargs):
    model = algorithm(policy, env, seed=3, device="cpu", **deepcopy(kwargs))  # algorithms write into policy_kwargs
    if lean is not None:
        use_lean_rollout(model, **lean)
    return model.learn(steps)


def _view(env, kind):
    return VecFrameStack(env, 4) if kind == "image" else env


POLICIES = {
    "image": ("CnnPolicy", SMALL_CNN),
    "window": ("MlpPolicy", SMALL),
    "dict": ("MultiInputPolicy", SMALL_DICT),
}


@pytest.mark.parametrize(
    ("algorithm", "kind", "n_envs", "kwargs", "options"),
    [
        (PPO, "image", 1, ROLLOUT, {}),
        (PPO, "image", 3, ROLLOUT, {}),
        (PPO, "image", 3, ROLLOUT, COMPACT),
        (PPO, "window", 1, ROLLOUT, {}),
        (PPO, "window", 4, ROLLOUT, COMPACT),
        (PPO, "dict", 3, ROLLOUT, {}),
        (A2C, "image", 3, {"n_steps": 9}, {}),
        (A2C, "window", 1, {}, {}),
        (A2C, "dict", 3, {}, COMPACT),
        (TRPO, "window", 3, {"n_steps": 20, "batch_size": 12}, {}),
    ],
)
def test_rollouts(wanderers, same, algorithm, kind, n_envs, kwargs, options):
    policy, policy_kwargs = POLICIES[kind]
    stock, lean = (
        _trained(
            algorithm,
            policy,
            _view(wanderers(kind, n_envs), kind),
            steps=45 * n_envs,
            policy_kwargs=policy_kwargs,
            **kwargs,
            **more,
        )
        for more in ({}, {"rollout_buffer_class": LeanRolloutBuffer, "rollout_buffer_kwargs": options})
    )
    assert type(lean.rollout_buffer) is (LeanDictRolloutBuffer if kind == "dict" else LeanRolloutBuffer)
    assert isinstance(lean.rollout_buffer, LeanRolloutBuffer)
    assert isinstance(lean.rollout_buffer, type(stock.rollout_buffer))
    assert same(stock.policy.state_dict(), lean.policy.state_dict())


@pytest.mark.parametrize(
    ("algorithm", "kind", "n_envs", "options"),
    [
        (DQN, "image", 1, {}),
        (DQN, "image", 3, {}),
        (DQN, "image", 3, COMPACT),
        (DQN, "window", 4, {}),
        (DQN, "dict", 3, {}),
        (SAC, "window", 1, {}),
        (SAC, "window", 3, COMPACT),
        (SAC, "image", 3, {}),
        (SAC, "dict", 1, {}),
        (TD3, "window", 1, {}),
        (TD3, "window", 3, {}),
        (TD3, "dict", 3, COMPACT),
    ],
)
def test_replay(wanderers, same, algorithm, kind, n_envs, options):
    policy, policy_kwargs = POLICIES[kind]
    stock, lean = (
        _trained(
            algorithm,
            policy,
            _view(wanderers(kind, n_envs, continuous=algorithm is not DQN), kind),
            steps=130,
            policy_kwargs=policy_kwargs,
            **REPLAY,
            **more,
        )
        for more in ({}, {"replay_buffer_class": LeanReplayBuffer, "replay_buffer_kwargs": options})
    )
    assert type(lean.replay_buffer) is (LeanDictReplayBuffer if kind == "dict" else LeanReplayBuffer)
    assert isinstance(lean.replay_buffer, LeanReplayBuffer)
    assert isinstance(lean.replay_buffer, type(stock.replay_buffer))
    assert lean.replay_buffer.full
    assert same(stock.policy.state_dict(), lean.policy.state_dict())


@pytest.mark.parametrize("kind", ["window", "dict"])
def test_replay_and_rollouts_with_normalized_observations_and_rewards(wanderers, same, kind):
    policy, policy_kwargs = POLICIES[kind]
    for algorithm, common, more in (
        (SAC, REPLAY, {"replay_buffer_class": LeanReplayBuffer}),
        (PPO, ROLLOUT, {"rollout_buffer_class": LeanRolloutBuffer}),
    ):
        states = []
        for extra in ({}, more):
            keys = ["window"] if kind == "dict" else None
            env = wanderers(kind, 3, continuous=True)
            env = VecNormalize(VecTransposeImage(env) if kind == "dict" else env, norm_obs_keys=keys)
            model = _trained(algorithm, policy, env, steps=130, policy_kwargs=policy_kwargs, **common, **extra)
            states.append(model.policy.state_dict())
        assert same(*states)


@pytest.mark.parametrize("n_envs", [1, 3])
def test_n_step_returns(wanderers, same, n_envs):
    stock, lean = (
        _trained(
            DQN,
            "MlpPolicy",
            wanderers("window", n_envs),
            steps=130,
            policy_kwargs=SMALL,
            replay_buffer_class=buffer,
            replay_buffer_kwargs={"n_steps": 3, "gamma": 0.97},
            **REPLAY,
        )
        for buffer in (NStepReplayBuffer, LeanNStepReplayBuffer)
    )
    assert same(stock.policy.state_dict(), lean.policy.state_dict())


@pytest.mark.parametrize("goals", ["future", "final", "episode"])
@pytest.mark.parametrize("n_envs", [1, 3])
def test_hindsight(same, goals, n_envs):
    states = []
    for buffer in (HerReplayBuffer, LeanHerReplayBuffer):
        env = DummyVecEnv([lambda: BitFlippingEnv(n_bits=5, continuous=True)] * n_envs)
        model = _trained(
            SAC,
            "MultiInputPolicy",
            env,
            steps=130,
            policy_kwargs=SMALL,
            replay_buffer_class=buffer,
            replay_buffer_kwargs={"goal_selection_strategy": goals, "copy_info_dict": goals == "final"},
            **REPLAY,
        )
        states.append(model.policy.state_dict())
    assert same(*states)


class _FloatBits(BitFlippingEnv):
    """Bits as floats, which can be normalized."""

    def _make_observation_space(self, *args):
        bits = super()._make_observation_space(*args)
        return spaces.Dict({key: spaces.Box(0, 1, space.shape, np.float32) for key, space in bits.items()})

    def _get_obs(self):
        return {key: value.astype(np.float32) for key, value in super()._get_obs().items()}


def test_hindsight_with_normalized_observations(same):
    states = []
    for buffer in (HerReplayBuffer, LeanHerReplayBuffer):
        env = VecNormalize(DummyVecEnv([lambda: _FloatBits(n_bits=5, continuous=True)] * 2))
        kwargs = {"policy_kwargs": SMALL, "replay_buffer_class": buffer, **REPLAY}
        states.append(_trained(SAC, "MultiInputPolicy", env, steps=100, **kwargs).policy.state_dict())
    assert same(*states)


@pytest.mark.parametrize(("kind", "n_envs"), [("image", 1), ("window", 4), ("dict", 3)])
def test_masked_actions(wanderers, same, kind, n_envs):
    policy, policy_kwargs = POLICIES[kind]
    stock, lean = (
        _trained(
            MaskablePPO,
            policy,
            _view(wanderers(kind, n_envs, masked=True), kind),
            steps=45 * n_envs,
            policy_kwargs=policy_kwargs,
            rollout_buffer_class=buffer,
            **ROLLOUT,
        )
        for buffer in (None, LeanMaskableRolloutBuffer)
    )
    assert isinstance(lean.rollout_buffer, LeanMaskableRolloutBuffer)
    assert isinstance(lean.rollout_buffer, type(stock.rollout_buffer))
    assert same(stock.policy.state_dict(), lean.policy.state_dict())


@pytest.mark.parametrize(("kind", "n_envs"), [("image", 1), ("window", 1), ("window", 4), ("dict", 3)])
def test_recurrent_policies(wanderers, same, kind, n_envs):
    policy, policy_kwargs = POLICIES[kind]
    stock, lean = (
        _trained(
            RecurrentPPO,
            policy.replace("Policy", "LstmPolicy"),
            _view(wanderers(kind, n_envs), kind),
            steps=45 * n_envs,
            policy_kwargs={**policy_kwargs, "lstm_hidden_size": 8},
            lean=options,
            **ROLLOUT,
        )
        for options in (None, {"memory_limit": "1GB"})
    )
    assert isinstance(lean.rollout_buffer, LeanRecurrentRolloutBuffer)
    assert isinstance(lean.rollout_buffer, type(stock.rollout_buffer))
    assert same(stock.policy.state_dict(), lean.policy.state_dict())


def test_use_lean_rollout_names_the_argument_that_other_algorithms_take(wanderers):
    with pytest.raises(LeanBufferError, match="rollout_buffer_class"):
        use_lean_rollout(PPO("MlpPolicy", wanderers("window"), n_steps=8, batch_size=8, device="cpu"))


def test_a_saved_model_comes_back_with_its_lean_buffer(wanderers, same, tmp_path):
    env = wanderers("window", 2)
    kwargs = {"rollout_buffer_class": LeanRolloutBuffer, "rollout_buffer_kwargs": {"compact": True}}
    model = _trained(PPO, "MlpPolicy", env, steps=80, policy_kwargs=SMALL, **ROLLOUT, **kwargs)
    model.save(tmp_path / "model")
    loaded = PPO.load(tmp_path / "model", env=env, device="cpu")
    assert type(loaded.rollout_buffer) is LeanRolloutBuffer
    assert loaded.rollout_buffer.compact
    loaded.learn(40)


@pytest.mark.parametrize("kind", ["window", "dict"])
def test_a_saved_replay_buffer_goes_on_as_the_stock_one_does(wanderers, same, tmp_path, kind):
    policy, policy_kwargs = POLICIES[kind]
    states = []
    for name, buffer in (("stock", None), ("lean", LeanReplayBuffer)):
        env = wanderers(kind, 2)
        kwargs = {"policy_kwargs": policy_kwargs, "replay_buffer_class": buffer, **REPLAY}
        model = _trained(DQN, policy, env, steps=60, **kwargs)
        model.save(tmp_path / name)
        model.save_replay_buffer(tmp_path / f"{name}_buffer")
        loaded = DQN.load(tmp_path / name, env=env, device="cpu")
        loaded.load_replay_buffer(tmp_path / f"{name}_buffer")
        loaded.set_random_seed(5)
        states.append(loaded.learn(100, reset_num_timesteps=False).policy.state_dict())
    assert same(*states)


def test_a_saved_hindsight_buffer_goes_on_with_its_environment(tmp_path):
    env = DummyVecEnv([lambda: BitFlippingEnv(n_bits=4, continuous=True)])
    kwargs = {"policy_kwargs": SMALL, "replay_buffer_class": LeanHerReplayBuffer, **REPLAY}
    model = _trained(SAC, "MultiInputPolicy", env, steps=50, **kwargs)
    model.save_replay_buffer(tmp_path / "buffer")
    with pytest.warns(UserWarning, match="last trajectory"):
        model.load_replay_buffer(tmp_path / "buffer")
    assert isinstance(model.replay_buffer, LeanHerReplayBuffer)
    assert np.all(model.replay_buffer._current_ep_start == model.replay_buffer.pos)
    model.learn(60, reset_num_timesteps=False)

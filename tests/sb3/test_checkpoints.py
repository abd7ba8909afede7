"""Checkpoints of Stable-Baselines3 models: what is saved, what is refused, and what is said about it."""

from __future__ import annotations

import tracemalloc
from functools import partial

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.torch_layers import FlattenExtractor
from stable_baselines3.common.vec_env import VecNormalize

from rlmem.errors import InputError, StoreError, StoreUnavailable
from rlmem.sb3 import Checkpoints, plain_tree, remaining, restore, restore_population, save_population
from rlmem.sb3.training_state import contents_of, episode_of
from rlmem.store import Saver, SaveWarning, Store

pytestmark = pytest.mark.filterwarnings("ignore:You have specified a mini-batch size")

SMALL = {"n_steps": 8, "batch_size": 8, "n_epochs": 1, "seed": 3, "device": "cpu"}


class OwnExtractor(FlattenExtractor):
    """A part of a policy that only the user's program has."""


class Opaque(gymnasium.Env):
    """An environment that says nothing about where it is."""

    def __init__(self):
        self.observation_space, self.action_space = spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 1.0, False, False, {}


class StopAt(BaseCallback):
    def __init__(self, step):
        super().__init__()
        self.step = step

    def _on_step(self):
        return self.num_timesteps < self.step


@pytest.fixture(name="cartpole")
def _cartpole():
    return partial(make_vec_env, "CartPole-v1")


def _same(one, other):
    states = one.policy.state_dict(), other.policy.state_dict()
    return all(torch.equal(states[0][name], states[1][name]) for name in states[0])


# --- values ----------------------------------------------------------------------------------------------------------


def test_nested_values_come_back_as_they_were():
    value = {
        "numbers": [1, -2.5, True, None, 2**100, float("inf")],
        "tuple": (1, ("a", b"bytes")),
        3: np.arange(6, dtype=np.int16).reshape(2, 3),
        "$odd": {"tensor": torch.tensor([1.5, 2.5], dtype=torch.bfloat16), "scalar": np.float32(0.1)},
    }
    packed = plain_tree.pack(value)
    back = plain_tree.unpack(packed.value, packed.tensors, packed.formats)
    assert back["numbers"] == value["numbers"]
    assert back["tuple"] == value["tuple"]
    np.testing.assert_array_equal(back[3], value[3])
    assert torch.equal(back["$odd"]["tensor"], value["$odd"]["tensor"])
    assert back["$odd"]["tensor"].dtype == torch.bfloat16
    assert back["$odd"]["scalar"] == np.float32(0.1)
    assert isinstance(back["$odd"]["scalar"], np.float32)


def test_what_has_no_plain_form_is_named_with_its_place():
    with pytest.raises(plain_tree.Unsayable, match=r"^a\.1 must be numbers, .* but is a builtins\.object$"):
        plain_tree.pack({"a": [1, object()]})


# --- saving ----------------------------------------------------------------------------------------------------------


def test_as_many_snapshots_are_kept_as_asked_for(tmp_path, cartpole):
    PPO("MlpPolicy", cartpole(), **SMALL).learn(80, callback=Checkpoints(tmp_path, every=16, keep=2))
    assert [info.step for info in Store.open(tmp_path).snapshots()] == [64, 80]


def test_a_run_without_saves_in_between_is_saved_at_its_end(tmp_path, cartpole):
    model = PPO("MlpPolicy", cartpole(), **SMALL).learn(16, callback=Checkpoints(tmp_path, metadata={"run": "pole"}))
    snapshot = Store.open(tmp_path).load()
    assert snapshot.step == 16
    assert snapshot.metadata["run"] == "pole"
    assert _same(restore(tmp_path, cartpole()), model)


def test_what_is_left_of_a_run_is_known(tmp_path, cartpole):
    PPO("MlpPolicy", cartpole(), **SMALL).learn(64, callback=Checkpoints(tmp_path, every=24, keep=None))
    assert remaining(restore(tmp_path, cartpole(), step=24)) == 40


def test_training_stopped_inside_a_rollout_begins_a_new_episode(tmp_path, cartpole):
    model = PPO("MlpPolicy", cartpole(), **SMALL).learn(64, callback=[Checkpoints(tmp_path), StopAt(20)])
    metadata = Store.open(tmp_path).load().metadata
    assert metadata["resume"] == "new episode"
    assert "stopped inside a rollout" in metadata["why"]
    back = restore(tmp_path, cartpole())
    assert _same(back, model)
    assert back._last_episode_starts.all()
    back.learn(8, reset_num_timesteps=False)


def test_an_environment_that_cannot_be_put_back_is_named(tmp_path):
    PPO("MlpPolicy", Opaque(), **SMALL).learn(16, callback=Checkpoints(tmp_path))
    metadata = Store.open(tmp_path).load().metadata
    assert metadata["resume"] == "new episode"
    assert "Opaque has no get_state() and set_state(state)" in metadata["why"]
    restore(tmp_path, Opaque()).learn(8, reset_num_timesteps=False)


def test_a_store_that_cannot_be_opened_is_known_before_training(tmp_path, cartpole):
    (tmp_path / "file").write_text("not a folder")
    model = PPO("MlpPolicy", cartpole(), **SMALL)
    with pytest.raises(StoreError):
        model.learn(16, callback=Checkpoints(tmp_path / "file"))
    assert model.num_timesteps == 0


def test_a_store_that_fails_does_not_take_the_trained_model_with_it(tmp_path, cartpole, monkeypatch):
    def commit(*args, **kwargs):
        raise StoreUnavailable("no space left on the device")

    monkeypatch.setattr(Store, "commit", commit)
    with pytest.warns(SaveWarning, match="the last snapshot was not written: no space left"):
        model = PPO("MlpPolicy", cartpole(), **SMALL).learn(16, callback=Checkpoints(tmp_path))
    assert model.num_timesteps == 16


def test_another_error_of_the_writer_is_raised_at_the_next_save(tmp_path, cartpole, monkeypatch):
    def commit(*args, **kwargs):
        raise ValueError("a defect")

    monkeypatch.setattr(Store, "commit", commit)
    model = PPO("MlpPolicy", cartpole(), **SMALL)
    with pytest.raises(StoreError, match="a defect"):
        model.learn(800, callback=Checkpoints(tmp_path, every=8))
    assert model.num_timesteps < 800


def test_saving_a_stock_buffer_takes_a_fraction_of_it(tmp_path, cartpole):
    env = make_vec_env("CartPole-v1", vec_env_kwargs={})
    model = DQN("MlpPolicy", env, buffer_size=1_500_000, device="cpu")
    buffer = model.replay_buffer
    buffer.observations[:] = np.random.default_rng(0).normal(size=buffer.observations.shape)
    buffer.full = True
    model._last_obs = env.reset()
    saver = Saver(Store.open(tmp_path, create=True))
    tracemalloc.start()
    try:
        saver.save(contents_of(model, episode_of(model)), step=0)
        saver.wait()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert buffer.observations.nbytes > 20e6
    assert peak < 8e6


# --- restoring -------------------------------------------------------------------------------------------------------


def test_code_is_not_in_a_snapshot_and_has_to_be_given(tmp_path, cartpole):
    policy_kwargs = {"features_extractor_class": OwnExtractor}
    made = partial(PPO, "MlpPolicy", policy_kwargs=policy_kwargs, learning_rate=lambda left: 1e-3 * left, **SMALL)
    model = made(cartpole()).learn(16, callback=Checkpoints(tmp_path))
    with pytest.raises(
        InputError, match=r"learning_rate \(builtins\.function\), policy_kwargs\.features_extractor_class"
    ):
        restore(tmp_path, cartpole())
    given = restore(tmp_path, cartpole(), policy_kwargs=policy_kwargs, learning_rate=1e-3, device="cpu")
    assert _same(given, model)
    assert _same(restore(tmp_path, model=made(cartpole())), model)


def test_a_model_of_another_shape_is_refused(tmp_path, cartpole):
    PPO("MlpPolicy", cartpole(), **SMALL).learn(16, callback=Checkpoints(tmp_path))
    with pytest.raises(InputError, match="does not fit this model"):
        restore(tmp_path, model=PPO("MlpPolicy", cartpole(), policy_kwargs={"net_arch": [5]}, **SMALL))
    with pytest.raises(InputError, match="the snapshot is of PPO, but the model is a DQN"):
        restore(tmp_path, model=DQN("MlpPolicy", cartpole(), buffer_size=10))


def test_statistics_need_the_wrapper_that_they_belong_to(tmp_path, cartpole):
    PPO("MlpPolicy", VecNormalize(cartpole()), **SMALL).learn(16, callback=Checkpoints(tmp_path, new_episode=True))
    with pytest.raises(InputError, match="must be wrapped in VecNormalize"):
        restore(tmp_path, cartpole())


def test_environments_wrapped_otherwise_are_refused(tmp_path, cartpole):
    PPO("MlpPolicy", cartpole(), **SMALL).learn(16, callback=Checkpoints(tmp_path))
    with pytest.raises(InputError, match="must be wrapped as it was"):
        restore(tmp_path, cartpole(wrapper_class=gymnasium.wrappers.ClipReward, wrapper_kwargs={"max_reward": 2}))


def test_a_buffer_of_another_size_is_refused(tmp_path, cartpole):
    DQN("MlpPolicy", cartpole(), buffer_size=30, device="cpu").learn(20, callback=Checkpoints(tmp_path))
    with pytest.raises(InputError, match="buffer_size=30, as when it was saved, but the model's has 40"):
        restore(tmp_path, cartpole(), buffer_size=40, device="cpu")


def test_a_model_that_has_been_trained_forgets_it(tmp_path, cartpole):
    made = partial(DQN, "MlpPolicy", buffer_size=50, learning_starts=10, device="cpu", seed=3)
    saved = made(cartpole()).learn(32, callback=Checkpoints(tmp_path))
    used = made(cartpole()).learn(80)
    restore(tmp_path, model=used)
    assert _same(used, saved)
    assert (used.replay_buffer.pos, used.replay_buffer.full) == (32, False)
    for name in ("observations", "next_observations", "actions", "rewards", "dones"):
        np.testing.assert_array_equal(getattr(used.replay_buffer, name), getattr(saved.replay_buffer, name))
    np.testing.assert_array_equal(used._last_obs, saved._last_obs)


def test_without_its_buffer_a_snapshot_is_small_and_says_so(tmp_path, cartpole):
    saving = Checkpoints(tmp_path, save_buffer=False)
    model = DQN("MlpPolicy", cartpole(), buffer_size=30, device="cpu").learn(20, callback=saving)
    snapshot = Store.open(tmp_path).load()
    assert snapshot.metadata["why"] == "the replay buffer is not saved"
    assert not [path for path in snapshot.paths() if path.startswith("replay_buffer")]
    back = restore(tmp_path, cartpole(), device="cpu")
    assert _same(back, model)
    assert back.replay_buffer.pos == 0


# --- populations -----------------------------------------------------------------------------------------------------


def test_agents_that_did_not_change_are_not_written_again(tmp_path, cartpole):
    policy_kwargs = {"net_arch": [256, 256]}
    agents = {
        name: PPO("MlpPolicy", cartpole(), policy_kwargs=policy_kwargs, **SMALL | {"seed": seed}).learn(8)
        for seed, name in enumerate(("ann", "bob", "cat"))
    }
    first = save_population(tmp_path, agents, step=1)
    again = save_population(tmp_path, agents, step=2)
    agents["bob"].learn(8, reset_num_timesteps=False)
    third = save_population(tmp_path, agents, step=3)
    assert again.nbytes < first.nbytes / 50
    assert first.nbytes / 4 < third.nbytes < first.nbytes / 2
    agents["cat"].set_parameters(agents["bob"].get_parameters())
    assert save_population(tmp_path, agents, step=4).nbytes < first.nbytes / 20
    back = restore_population(tmp_path, lambda _: cartpole(), step=3, device="cpu")
    assert _same(back["bob"], agents["bob"])
    assert _same(back["ann"], agents["ann"])


def test_models_of_a_population_are_matched_by_name(tmp_path, cartpole):
    agent = PPO("MlpPolicy", cartpole(), **SMALL).learn(8)
    save_population(tmp_path, {"ann": agent}, step=1)
    with pytest.raises(InputError, match="those of the snapshot: ann; but got bob"):
        restore_population(tmp_path, models={"bob": agent})
    with pytest.raises(InputError, match="must be of kind 'rlmem-sb3-training', but is of 'rlmem-sb3-population'"):
        restore(tmp_path, cartpole())

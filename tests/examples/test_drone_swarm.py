"""The drone swarm flies, ends and begins again as it says, and PPO can learn in it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

_FILE = Path(__file__).parents[2] / "examples" / "drone_swarm" / "environment.py"


@pytest.fixture(name="drones", scope="module")
def _drones() -> ModuleType:
    spec = importlib.util.spec_from_file_location("drone_swarm_environment", _FILE)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(name="swarm")
def _swarm(drones):
    def make(n_agents=5, seed=0, **flight):
        return drones.DroneSwarm(n_agents, flight=drones.Flight(**flight), seed=seed)

    return make


def _actions(n_agents, steps, spread=0.2, seed=1):
    return np.random.default_rng(seed).uniform(-spread, spread, (steps, n_agents, 4)).astype(np.float32)


def test_an_observation_has_the_documented_size(swarm):
    swarm = swarm()
    observation = swarm.reset()
    assert observation["imu"].shape == (5, 300, 6)
    assert observation["targets"].shape == (5, 4)
    assert sum(array[0].nbytes for array in observation.values()) == 7_216
    for agent in range(5):
        assert swarm.observation_space.contains({name: array[agent] for name, array in observation.items()})


def test_the_environment_holds_little_more_than_the_history(swarm):
    assert 7_200 < swarm(n_agents=100).nbytes / 100 < 7_400


def test_a_history_begins_with_the_resting_reading(swarm):
    imu = swarm().reset()["imu"]
    assert (imu == imu[:, :1]).all()
    np.testing.assert_allclose(imu[:, 0, 2], 9.81, atol=0.3)
    np.testing.assert_allclose(imu[:, 0, [0, 1, 3, 4, 5]], 0, atol=0.3)


def test_each_step_adds_ten_readings_and_moves_the_others_on(swarm):
    swarm = swarm(history=50)
    before = swarm.reset()["imu"]
    for action in _actions(5, 12):
        after = swarm.step(action)[0]["imu"]
        assert after[:, :-10].tobytes() == before[:, 10:].tobytes()
        assert (after[:, -10:] != before[:, -10:]).any(axis=(1, 2)).all()
        before = after


def test_an_observation_is_not_written_to_later(swarm):
    swarm = swarm()
    observation = swarm.reset()
    kept = {name: array.copy() for name, array in observation.items()}
    swarm.step(np.ones((5, 4), np.float32))
    assert all(np.array_equal(observation[name], kept[name]) for name in kept)


def test_the_same_seed_flies_the_same_way(swarm):
    one, other, third = swarm(), swarm(), swarm(seed=1)
    seen = [drone.reset()["imu"] for drone in (one, other, third)]
    assert np.array_equal(seen[0], seen[1])
    assert not np.array_equal(seen[0], seen[2])
    for action in _actions(5, 30, spread=1):
        steps = [drone.step(action) for drone in (one, other)]
        for a, b in zip(*(step[:4] for step in steps), strict=True):
            assert all(np.array_equal(a[key], b[key]) for key in a) if isinstance(a, dict) else np.array_equal(a, b)
    assert np.array_equal(one.reset(seed=7)["imu"], third.reset(seed=7)["imu"])


def test_hovering_stays_where_it_is(swarm):
    swarm = swarm()
    swarm.reset()
    for _ in range(50):
        _, _, terminated, _, _ = swarm.step(np.zeros((5, 4)))
    assert not terminated.any()
    np.testing.assert_allclose(swarm.position[2], 5, atol=0.01)


def test_thrust_climbs_and_is_felt(swarm):
    swarm = swarm(accelerometer_noise=0, accelerometer_bias=0)
    swarm.reset()
    imu = swarm.step(np.tile(np.float32([0.5, 0, 0, 0]), (5, 1)))[0]["imu"]
    assert (swarm.velocity[2] > 0.1).all()
    assert (imu[:, -1, 2] > 12).all()


def test_rates_turn_the_drone_and_rotations_undo_each_other(drones, swarm):
    swarm = swarm()
    swarm.reset()
    swarm.step(np.tile(np.float32([0, 0.3, -0.2, 0.5]), (5, 1)))
    vector = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
    there = drones.rotated(swarm.attitude, vector)
    assert not np.allclose(there, vector, atol=0.01)
    np.testing.assert_allclose(np.linalg.norm(swarm.attitude, axis=0), 1, atol=1e-6)
    np.testing.assert_allclose(drones.rotated_back(swarm.attitude, there), vector, atol=1e-5)


def test_an_episode_is_truncated_and_the_next_begins(swarm):
    swarm = swarm(episode_steps=4, history=50)
    first = swarm.reset()["targets"]
    for step, action in enumerate(_actions(5, 4)):
        before, (observation, rewards, terminated, truncated, infos) = swarm.observe(), swarm.step(action)
        assert not terminated.any()
        assert truncated.all() == (step == 3)
        assert bool(infos) == (step == 3)
    assert infos["agents"].tolist() == [0, 1, 2, 3, 4]
    assert infos["episode_length"].tolist() == [4] * 5
    assert (infos["episode_return"] > rewards).all()
    final = infos["final_observation"]
    assert np.array_equal(final["imu"][:, :-10], before["imu"][:, 10:])
    assert (observation["imu"] == observation["imu"][:, :1]).all()
    assert not np.array_equal(observation["targets"], first)


def test_agents_end_each_for_itself(swarm):
    swarm = swarm()
    swarm.reset()
    actions = np.zeros((5, 4), np.float32)
    actions[2, 0] = -1  # no thrust: falls five metres in about a second
    ended = None
    for _ in range(20):
        before = swarm.observe()
        observation, rewards, terminated, truncated, infos = swarm.step(actions)
        if infos:
            ended = infos
            break
    assert ended is not None
    assert terminated.tolist() == [False, False, True, False, False]
    assert not truncated.any()
    assert rewards[2] < -5 < rewards[[0, 1, 3, 4]].min()
    assert ended["final_observation"]["imu"].shape == (1, 300, 6)
    assert np.array_equal(ended["final_observation"]["imu"][0, :-10], before["imu"][2, 10:])
    assert (observation["imu"][2] == observation["imu"][2, 0]).all()
    assert np.array_equal(observation["imu"][0, :-10], before["imu"][0, 10:])
    assert swarm.age.tolist() == [swarm.age[0], swarm.age[0], 0, swarm.age[0], swarm.age[0]]


@pytest.mark.parametrize("actions", [np.zeros((4, 4)), np.full((5, 4), np.nan)])
def test_actions_that_cannot_be_flown_are_refused(swarm, actions):
    swarm = swarm()
    swarm.reset()
    with pytest.raises(ValueError, match=r"actions must be finite and of shape \(5, 4\)"):
        swarm.step(actions)


def test_a_history_that_steps_do_not_fill_evenly_is_refused(drones):
    with pytest.raises(ValueError, match="history must be a multiple of samples_per_step, but got 45 and 10"):
        drones.Flight(history=45)


def test_sb3_finds_final_observations_where_it_looks(drones, swarm):
    env = drones.DroneSwarmVecEnv(swarm(episode_steps=3, history=50))
    env.seed(3)
    first = env.reset()
    for _ in range(3):
        observation, rewards, dones, infos = env.step(np.zeros((5, 4), np.float32))
    assert dones.all()
    assert rewards.shape == (5,)
    for agent, info in enumerate(infos):
        final = info["terminal_observation"]
        assert env.observation_space.contains(final)
        assert not np.array_equal(final["imu"], observation["imu"][agent])
        assert info["TimeLimit.truncated"]
        assert info["episode"]["l"] == 3
    env.seed(3)
    assert np.array_equal(env.reset()["imu"], first["imu"])
    assert env.get_attr("n_agents", indices=[0, 1]) == [5, 5]
    assert env.env_method("observe", indices=0)[0]["imu"].shape == (5, 50, 6)
    with pytest.raises(AttributeError, match="must be set on the swarm"):
        env.set_attr("n_agents", 3)


def test_ppo_learns_in_it(drones, swarm):
    from stable_baselines3 import PPO

    env = drones.DroneSwarmVecEnv(swarm(n_agents=4, episode_steps=6, history=30))
    model = PPO("MultiInputPolicy", env, n_steps=8, batch_size=16, n_epochs=1, device="cpu", seed=0)
    model.learn(64)
    assert model.num_timesteps == 64
    assert len(model.ep_info_buffer) == 4 * (16 // 6)

"""Rollouts and minibatches; the counts are held against real training."""

from __future__ import annotations

from typing import Any

import pytest
from stable_baselines3 import A2C, DQN, PPO, SAC

from rlmem.check.schedule import schedule

GAME_BOY = {"n_steps": 8192, "batch_size": 2048, "n_epochs": 10, "total_timesteps": 10_000_000}


def test_uneven_minibatches_name_the_last_one(find: Any) -> None:
    (finding,) = find("RLM001", env={"n_envs": 3}, training={"n_steps": 100, "batch_size": 64})
    assert "300 samples" in finding.message
    assert "one of 44 samples" in finding.message
    assert "60 or 75" in finding.advice


@pytest.mark.parametrize(
    ("algorithm", "n_steps", "batch_size"),
    [("PPO", 128, 64), ("PPO", 32, 64), ("A2C", 5, None), ("SAC", 1, 7), ("RecurrentPPO", 128, 128)],
)
def test_even_minibatches_are_fine(find: Any, algorithm: str, n_steps: int, batch_size: int | None) -> None:
    training = {"n_steps": n_steps} | ({"batch_size": batch_size} if batch_size else {})
    assert not find("RLM001", algorithm, training=training)


def test_trpo_batches_for_its_critic(find: Any) -> None:
    assert find("RLM001", "TRPO", training={"n_steps": 2048, "batch_size": 100})


def test_huge_numbers_are_not_searched_forever(find: Any) -> None:
    (finding,) = find("RLM001", env={"n_envs": 7}, training={"n_steps": 10**9 + 7, "batch_size": 10**9})
    assert "take a batch_size that divides" in finding.advice


def test_batch_beyond_the_rollout(find: Any) -> None:
    (finding,) = find("RLM002", env={"n_envs": 2}, training={"n_steps": 100, "batch_size": 256})
    assert "one batch of 200" in finding.message
    assert "n_steps ≥ 128" in finding.advice
    assert not find("RLM002", env={"n_envs": 2}, training={"n_steps": 128, "batch_size": 256})
    assert not find("RLM002", "SAC", training={"batch_size": 100_000})


def test_long_rollout_of_short_episodes(find: Any, plan_of: Any) -> None:
    env = {"observation": {"shape": [1000]}, "n_envs": 2, "episode_length": 500}
    (finding,) = find("RLM003", env=env, training={"n_steps": 4096})
    assert "about 8 episodes" in finding.message
    long, short = (plan_of(env=env, training={"n_steps": n}).peak.ram_bytes for n in (4096, 500))
    assert finding.bytes == long - short > 10 * 2**20


@pytest.mark.parametrize("env", [{"episode_length": 1025}, {}])
def test_rollout_of_few_or_unknown_episodes_is_fine(find: Any, env: dict[str, Any]) -> None:
    assert not find("RLM003", env={"observation": {"shape": [1000]}} | env, training={"n_steps": 4096})


def test_orientation_counts_the_game_boy_run(find: Any) -> None:
    (finding,) = find("RLM004", env={"n_envs": 2}, training=GAME_BOY)
    for words in ("16,384 samples", "8 minibatches an epoch", "80 gradient updates an iteration", "611 iterations"):
        assert words in finding.message
    assert "610 × 16,384 < 10,000,000" in finding.message


def test_orientation_counts_replay_updates(find: Any) -> None:
    training = {"train_freq": 4, "gradient_steps": -1, "total_timesteps": 1000, "learning_starts": 100}
    (finding,) = find("RLM004", "SAC", env={"n_envs": 2}, training=training)
    assert "4 × 2 envs = 8 timesteps" in finding.message
    assert "904 updates in all" in finding.message  # 125 cycles of 8, of which the first 12 end by timestep 100
    assert not find("RLM004", "ARS")


def test_orientation_admits_what_episodes_decide(find: Any) -> None:
    (finding,) = find("RLM004", "TD3", training={"train_freq": [1, "episode"], "total_timesteps": 1000})
    assert "depends on how long the episodes are" in finding.message


@pytest.mark.parametrize(
    ("algorithm", "settings", "n_envs"),
    [
        (PPO, {"n_steps": 20, "batch_size": 16, "n_epochs": 3}, 2),
        (PPO, {"n_steps": 20, "batch_size": 64, "n_epochs": 3}, 1),
        (A2C, {"n_steps": 7}, 3),
        (DQN, {"train_freq": 4, "learning_starts": 30, "buffer_size": 500, "gradient_steps": 2}, 3),
        (SAC, {"train_freq": 3, "learning_starts": 24, "buffer_size": 500, "gradient_steps": -1}, 2),
        (SAC, {"learning_starts": 0, "buffer_size": 500}, 1),
    ],
)
@pytest.mark.filterwarnings("ignore:You have specified a mini-batch size")
def test_counts_are_those_of_real_training(plan_of: Any, algorithm: Any, settings: dict[str, int], n_envs: int) -> None:
    from stable_baselines3.common.env_util import make_vec_env

    env = make_vec_env("Pendulum-v1" if algorithm is SAC else "CartPole-v1", n_envs=n_envs)
    model = algorithm("MlpPolicy", env, device="cpu", seed=0, policy_kwargs={"net_arch": [4]}, **settings)
    optimizer = model.critic.optimizer if algorithm is SAC else model.policy.optimizer
    calls: list[int] = []
    steps: list[int] = []
    optimizer.register_step_post_hook(lambda *_: steps.append(1))
    model.learn(100, callback=lambda *_: calls.append(1) is None)
    env.close()

    plan = plan_of(algorithm.__name__, env={"n_envs": n_envs}, training=settings | {"total_timesteps": 100})
    planned = schedule(plan.run)
    assert (planned.calls, planned.updates) == (len(calls), len(steps))
    assert planned.cycles is not None
    assert planned.cycle_timesteps is not None
    assert planned.cycles * planned.cycle_timesteps == model.num_timesteps

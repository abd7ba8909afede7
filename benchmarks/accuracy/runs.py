"""The runs of the accuracy benchmark: small and large, every algorithm, every kind of policy, the five cases.

Each is a run file's mapping. Half of them (every second by name) may be looked at while the model is tuned; the
other half is held out and reported apart.
"""

from __future__ import annotations

from typing import Any

ATARI = {"shape": [84, 84, 4], "dtype": "uint8"}
GAME_BOY = {"shape": [144, 160, 12], "dtype": "uint8"}
BIG_IMAGE = {"shape": [128, 128, 3], "dtype": "uint8"}
VECTOR = {"shape": [17]}
WIDE = {"shape": [1000]}
MIXED = {"dict": {"camera": {"shape": [64, 64, 3], "dtype": "uint8"}, "joints": {"shape": [24]}}}
GOAL = {
    "dict": {name: {"shape": [size]} for name, size in (("observation", 25), ("achieved_goal", 3), ("desired_goal", 3))}
}
CHOICE = {"discrete": 6}
TORQUE = {"shape": [6], "low": -1.0, "high": 1.0}
CNN_3D = [
    {"conv3d": {"out": 8, "kernel": 3, "padding": 1}}, "relu", {"maxpool3d": 2},
    {"conv3d": {"out": 16, "kernel": 3, "padding": 1}}, "relu", {"maxpool3d": 2},
    "flatten", {"linear": 128}, "relu",
]  # fmt: skip


def _run(
    algorithm: str,
    observation: dict[str, Any] | str,
    action: dict[str, Any] | None,
    *,
    policy: dict[str, Any] | str = "MlpPolicy",
    env: dict[str, Any] | None = None,
    **training: Any,
) -> dict[str, Any]:
    spaces = {"id": observation} if isinstance(observation, str) else {"observation": observation, "action": action}
    described = policy if isinstance(policy, dict) else {"class": policy}
    return {
        "framework": "sb3",
        "algorithm": algorithm,
        "env": spaces | (env or {}),
        "training": training,
        "policy": described,
    }


def _envs(count: int, workers: str = "in-process", **more: Any) -> dict[str, Any]:
    return {"n_envs": count, "workers": workers, **more}


def _net(kind: str, *hidden: int, **more: Any) -> dict[str, Any]:
    return {"class": kind, "net_arch": list(hidden), **more}


RUNS: dict[str, dict[str, Any]] = {
    # On-policy, vectors
    "ppo cartpole": _run("PPO", "CartPole-v1", None, n_steps=2048, batch_size=64),
    "ppo cartpole 8 envs": _run("PPO", "CartPole-v1", None, env=_envs(8), n_steps=256, batch_size=256),
    "ppo pendulum sde": _run("PPO", "Pendulum-v1", None, n_steps=1024, batch_size=64, use_sde=True),
    "ppo acrobot 4 workers": _run("PPO", "Acrobot-v1", None, env=_envs(4, "subprocess"), n_steps=256, batch_size=64),
    "ppo vector 256x256": _run("PPO", VECTOR, TORQUE, policy=_net("MlpPolicy", 256, 256), n_steps=2048, batch_size=512),
    "ppo vector 4096 rows": _run(
        "PPO", VECTOR, TORQUE, policy=_net("MlpPolicy", 256, 256), n_steps=8192, batch_size=4096
    ),
    "ppo wide 512x512": _run("PPO", WIDE, CHOICE, policy=_net("MlpPolicy", 512, 512), n_steps=8192, batch_size=2048),
    "ppo wide 4 envs": _run("PPO", WIDE, CHOICE, env=_envs(4), n_steps=8192, batch_size=256),
    "ppo wide 100k rollout": _run("PPO", WIDE, CHOICE, env=_envs(8), n_steps=16384, batch_size=1024),
    "ppo vector 2 workers": _run("PPO", VECTOR, CHOICE, env=_envs(2, "subprocess"), n_steps=1024, batch_size=128),
    "ppo vector 8 workers": _run("PPO", VECTOR, CHOICE, env=_envs(8, "subprocess"), n_steps=256, batch_size=128),
    "ppo vector 4 forks": _run(
        "PPO", VECTOR, CHOICE, env=_envs(4, "subprocess", start_method="fork"), n_steps=256, batch_size=128
    ),
    "a2c cartpole": _run("A2C", "CartPole-v1", None, env=_envs(4), n_steps=5),
    "a2c vector 2000 steps": _run("A2C", VECTOR, TORQUE, policy=_net("MlpPolicy", 256, 256), n_steps=2000),
    "trpo vector": _run("TRPO", VECTOR, TORQUE, n_steps=2048, batch_size=128),
    "trpo 256x256": _run("TRPO", VECTOR, TORQUE, policy=_net("MlpPolicy", 256, 256), n_steps=1024, batch_size=128),
    "masked ppo vector": _run("MaskablePPO", VECTOR, {"discrete": 500}, n_steps=2048, batch_size=64),
    "masked ppo many actions": _run(
        "MaskablePPO", VECTOR, {"discrete": 5000}, env=_envs(2), n_steps=4096, batch_size=256
    ),
    "recurrent ppo cartpole": _run(
        "RecurrentPPO", "CartPole-v1", None, policy="MlpLstmPolicy", n_steps=128, batch_size=64
    ),
    "recurrent ppo vector": _run(
        "RecurrentPPO",
        VECTOR,
        CHOICE,
        policy="MlpLstmPolicy",
        env=_envs(2, episode_length=50),
        n_steps=128,
        batch_size=128,
    ),
    "ars pendulum": _run("ARS", "Pendulum-v1", None, n_delta=1),
    # On-policy, images
    "ppo atari": _run("PPO", ATARI, CHOICE, policy="CnnPolicy", env=_envs(8), n_steps=128, batch_size=256),
    "ppo atari 32 rows": _run("PPO", ATARI, CHOICE, policy="CnnPolicy", n_steps=512, batch_size=32),
    "ppo atari 1024 rows": _run("PPO", ATARI, CHOICE, policy="CnnPolicy", env=_envs(2), n_steps=2048, batch_size=1024),
    "ppo atari 4 workers": _run(
        "PPO", ATARI, CHOICE, policy="CnnPolicy", env=_envs(4, "subprocess"), n_steps=256, batch_size=128
    ),
    "ppo atari long rollout": _run(
        "PPO", ATARI, CHOICE, policy="CnnPolicy", env=_envs(4), n_steps=8192, batch_size=512
    ),
    "ppo image stack": _run(
        "PPO", BIG_IMAGE, CHOICE, policy="CnnPolicy", env=_envs(2, frame_stack=4), n_steps=512, batch_size=64
    ),
    "ppo game boy 64 rows": _run("PPO", GAME_BOY, CHOICE, policy="CnnPolicy", env=_envs(2), n_steps=512, batch_size=64),
    "ppo game boy 256 rows": _run(
        "PPO", GAME_BOY, CHOICE, policy="CnnPolicy", env=_envs(2), n_steps=1024, batch_size=256
    ),
    "ppo game boy 2 workers": _run(
        "PPO", GAME_BOY, CHOICE, policy="CnnPolicy", env=_envs(2, "subprocess"), n_steps=1024, batch_size=128
    ),
    "ppo separate extractors": _run(
        "PPO",
        ATARI,
        CHOICE,
        policy={"class": "CnnPolicy", "share_features_extractor": False},
        n_steps=512,
        batch_size=128,
    ),
    "ppo mixed": _run("PPO", MIXED, CHOICE, policy="MultiInputPolicy", env=_envs(2), n_steps=1024, batch_size=128),
    "ppo mixed 4 envs": _run(
        "PPO", MIXED, TORQUE, policy="MultiInputPolicy", env=_envs(4), n_steps=4096, batch_size=256
    ),
    "a2c atari": _run("A2C", ATARI, CHOICE, policy="CnnPolicy", env=_envs(8), n_steps=16),
    "masked ppo atari": _run(
        "MaskablePPO", ATARI, CHOICE, policy="CnnPolicy", env=_envs(2), n_steps=512, batch_size=64
    ),
    "recurrent ppo atari": _run("RecurrentPPO", ATARI, CHOICE, policy="CnnLstmPolicy", n_steps=128, batch_size=64),
    "ppo 3d cnn": _run(
        "PPO",
        {"shape": [4, 24, 35, 29]},
        CHOICE,
        policy={"class": "CnnPolicy", "features": CNN_3D, "net_arch": [64, 64]},
        n_steps=256,
        batch_size=16,
    ),
    "masked ppo 3d cnn": _run(
        "MaskablePPO",
        {"shape": [8, 24, 35, 29]},
        {"discrete": 840},
        policy={"class": "CnnPolicy", "features": CNN_3D, "net_arch": [64, 64]},
        env=_envs(2),
        n_steps=512,
        batch_size=32,
    ),
    # Replay, vectors
    "dqn cartpole": _run("DQN", "CartPole-v1", None, buffer_size=50_000),
    "dqn wide 256x256": _run(
        "DQN", WIDE, CHOICE, policy=_net("MlpPolicy", 256, 256), buffer_size=20_000, batch_size=512
    ),
    "sac pendulum": _run("SAC", "Pendulum-v1", None, buffer_size=20_000),
    "sac 1024 rows": _run(
        "SAC", VECTOR, TORQUE, policy=_net("MlpPolicy", 512, 512), buffer_size=20_000, batch_size=1024
    ),
    "sac 4096 rows": _run(
        "SAC", VECTOR, TORQUE, policy=_net("MlpPolicy", 256, 256), buffer_size=20_000, batch_size=4096
    ),
    "sac wide": _run("SAC", WIDE, TORQUE, buffer_size=50_000, batch_size=256),
    "td3 mountain car": _run("TD3", "MountainCarContinuous-v0", None, buffer_size=20_000),
    "td3 vector": _run("TD3", VECTOR, TORQUE, buffer_size=50_000, batch_size=256),
    "ddpg vector 1024 rows": _run("DDPG", VECTOR, TORQUE, buffer_size=20_000, batch_size=1024),
    "tqc vector": _run("TQC", VECTOR, TORQUE, buffer_size=20_000, batch_size=256),
    "crossq vector": _run("CrossQ", VECTOR, TORQUE, buffer_size=20_000, batch_size=256),
    "qrdqn vector": _run("QRDQN", VECTOR, CHOICE, buffer_size=20_000, batch_size=256),
    "sac hindsight": _run(
        "SAC",
        GOAL,
        TORQUE,
        policy="MultiInputPolicy",
        env={"episode_length": 50},
        buffer_size=20_000,
        replay_buffer_class="HerReplayBuffer",
    ),
    "dqn three steps": _run("DQN", WIDE, CHOICE, buffer_size=20_000, n_steps=3),
    # Replay, images
    "dqn atari 5k": _run("DQN", ATARI, CHOICE, policy="CnnPolicy", buffer_size=5_000),
    "dqn atari 40k": _run("DQN", ATARI, CHOICE, policy="CnnPolicy", buffer_size=40_000),
    "dqn atari 40k optimised": _run(
        "DQN",
        ATARI,
        CHOICE,
        policy="CnnPolicy",
        buffer_size=40_000,
        optimize_memory_usage=True,
        replay_buffer_kwargs={"handle_timeout_termination": False},
    ),
    "dqn atari 256 rows": _run(
        "DQN", ATARI, CHOICE, policy="CnnPolicy", env=_envs(4), buffer_size=10_000, batch_size=256
    ),
    "dqn game boy 8 GB": _run("DQN", GAME_BOY, CHOICE, policy="CnnPolicy", buffer_size=14_500),
    "qrdqn atari": _run("QRDQN", ATARI, CHOICE, policy="CnnPolicy", buffer_size=10_000),
    "sac image": _run("SAC", ATARI, TORQUE, policy="CnnPolicy", buffer_size=5_000, batch_size=64),
    "td3 image": _run("TD3", ATARI, TORQUE, policy="CnnPolicy", buffer_size=5_000, batch_size=64),
    "sac mixed": _run("SAC", MIXED, TORQUE, policy="MultiInputPolicy", buffer_size=10_000, batch_size=128),
    "dqn atari 4 workers": _run(
        "DQN", ATARI, CHOICE, policy="CnnPolicy", env=_envs(4, "subprocess"), buffer_size=10_000
    ),
    # The five cases, at a size that fits
    "case game boy": _run(
        "PPO",
        {"shape": [144, 160, 3], "dtype": "uint8"},
        CHOICE,
        policy="CnnPolicy",
        env=_envs(2, "subprocess", frame_stack=4),
        n_steps=2048,
        batch_size=128,
    ),
    "case drone swarm": _run(
        "PPO",
        {"shape": [1804]},
        {"shape": [4]},
        policy=_net("MlpPolicy", 128, 128),
        env=_envs(8),
        n_steps=4096,
        batch_size=2048,
    ),
    "case trading": _run(
        "PPO", {"shape": [71]}, {"shape": [7]}, policy=_net("MlpPolicy", 768, 768), n_steps=4096, batch_size=2048
    ),
    "case evolution": _run(
        "DDPG", {"shape": [504, 67, 9]}, {"shape": [108, 2], "low": -1.0, "high": 1.0}, buffer_size=1500, batch_size=4
    ),
    "case open pit": _run(
        "MaskablePPO",
        {"shape": [12, 49, 71, 58]},
        {"discrete": 3479},
        policy={"class": "CnnPolicy", "features": CNN_3D, "net_arch": [64, 64]},
        n_steps=64,
        batch_size=4,
    ),
}

REPEATED = tuple(sorted(RUNS)[::3])
"""A third of the runs, measured again so that the meter's own noise is known."""


_LOOKED_AT = ("ars pendulum", "ppo vector 4 forks")
"""Runs of the other half whose error led to a change of a default: they count as tuned on."""


def is_held_out(name: str) -> bool:
    """Whether a run belongs to the half that the model was not tuned on."""
    return sorted(RUNS).index(name) % 2 == 1 and name not in _LOOKED_AT

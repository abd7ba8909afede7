"""The runs of the accuracy benchmark on a GPU. VRAM does not depend on the buffer, so buffers are as small as can be."""

from __future__ import annotations

from typing import Any

from runs import ATARI, CHOICE, CNN_3D, GAME_BOY, MIXED, TORQUE, VECTOR, WIDE, _net, _run


def _rollout(algorithm: str, observation: Any, action: Any, policy: Any, rows: int) -> dict[str, Any]:
    sizes = {"n_steps": rows} if algorithm == "A2C" else {"n_steps": rows, "batch_size": rows}
    return _run(algorithm, observation, action, policy=policy, **sizes) | {"device": "cuda"}


def _replay(algorithm: str, observation: Any, action: Any, policy: Any, rows: int) -> dict[str, Any]:
    return _run(algorithm, observation, action, policy=policy, buffer_size=max(rows, 100), batch_size=rows) | {
        "device": "cuda"
    }


_PIT = {"class": "CnnPolicy", "features": CNN_3D, "net_arch": [64, 64]}

CUDA_RUNS: dict[str, dict[str, Any]] = {
    **{
        f"ppo game boy {rows}": _rollout("PPO", GAME_BOY, CHOICE, "CnnPolicy", rows) for rows in (256, 1024, 2048, 4096)
    },
    **{f"ppo atari {rows}": _rollout("PPO", ATARI, CHOICE, "CnnPolicy", rows) for rows in (32, 256, 1024, 4096)},
    "ppo vector 64": _rollout("PPO", VECTOR, TORQUE, "MlpPolicy", 64),
    "ppo wide 4096": _rollout("PPO", WIDE, TORQUE, _net("MlpPolicy", 1024, 1024), 4096),
    "ppo mixed 512": _rollout("PPO", MIXED, CHOICE, "MultiInputPolicy", 512),
    "a2c atari 256": _rollout("A2C", ATARI, CHOICE, "CnnPolicy", 256),
    "masked ppo 3d cnn 4": _rollout("MaskablePPO", {"shape": [12, 49, 71, 58]}, {"discrete": 3479}, _PIT, 4),
    "masked ppo 3d cnn 16": _rollout("MaskablePPO", {"shape": [12, 49, 71, 58]}, {"discrete": 3479}, _PIT, 16),
    "recurrent ppo 128": _rollout("RecurrentPPO", VECTOR, CHOICE, "MlpLstmPolicy", 128),
    "trpo vector 2048": _rollout("TRPO", VECTOR, TORQUE, "MlpPolicy", 2048),
    **{f"dqn atari {rows}": _replay("DQN", ATARI, CHOICE, "CnnPolicy", rows) for rows in (32, 512)},
    "qrdqn atari 64": _replay("QRDQN", ATARI, CHOICE, "CnnPolicy", 64),
    "sac vector 256": _replay("SAC", VECTOR, TORQUE, "MlpPolicy", 256),
    "sac vector 4096": _replay("SAC", VECTOR, TORQUE, _net("MlpPolicy", 1024, 1024), 4096),
    "sac image 256": _replay("SAC", ATARI, TORQUE, "CnnPolicy", 256),
    "td3 vector 1024": _replay("TD3", VECTOR, TORQUE, "MlpPolicy", 1024),
    "tqc vector 256": _replay("TQC", VECTOR, TORQUE, "MlpPolicy", 256),
    "crossq vector 1024": _replay("CrossQ", VECTOR, TORQUE, "MlpPolicy", 1024),
}

"""Wall time of whole trainings, with the stock buffers and with the lean ones.

Both models have the same seed and learn by turns in one process, a piece at a time, so that what else the machine does
falls on both. On a CPU their weights must come out alike to the last bit, and the benchmark fails if they do not.

Bias: the games are played by the policy that is being trained, from scratch. `--recorded` plays frames back from a file
that `--record` made, for machines without the emulator: the environment then costs next to nothing, so that a buffer's
time weighs more than it would.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import random
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

RESULTS = Path(__file__).parents[1] / "results" / "lean"
SETTINGS: dict[str, dict[str, Any]] = {
    "PPO": {"n_steps": 128, "batch_size": 256, "n_epochs": 4},
    "DQN": {"buffer_size": 50_000, "learning_starts": 1_000, "train_freq": 4, "batch_size": 32},
}
N_ENVS = {"PPO": 8, "DQN": 1}
BUFFERS = ("stock", "lean")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("algorithms", nargs="*", default=list(SETTINGS), metavar="ALGORITHM")
    parser.add_argument("--game", default="MsPacman")
    parser.add_argument("--recorded", type=Path, metavar="FILE", help="play these frames back instead")
    parser.add_argument("--record", type=Path, metavar="FILE", help="write frames for --recorded, and end")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=1_024, help="timesteps of a turn")
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER")
    arguments = parser.parse_args()
    if arguments.record:
        _record(arguments)
        return
    arguments.results.mkdir(parents=True, exist_ok=True)
    for algorithm in arguments.algorithms:
        result = _compare(algorithm, arguments)
        name = f"training-{algorithm.lower()}-{arguments.device.split(':')[0]}.json"
        (arguments.results / name).write_text(json.dumps(result, indent=1) + "\n")
        ratio = result["wall_time_ratio"]
        print(f"{algorithm} on {arguments.device}: lean takes {ratio:.3f} × the time of stock", flush=True)


def _compare(algorithm: str, arguments: argparse.Namespace) -> dict[str, Any]:
    models = {name: _model(algorithm, name, arguments) for name in BUFFERS}
    states = {name: _random_state() for name in BUFFERS}
    seconds: dict[str, list[float]] = {name: [] for name in BUFFERS}
    for turn in range(arguments.turns + 1):
        for name in BUFFERS if turn % 2 == 0 else BUFFERS[::-1]:
            _set_random_state(states[name])
            spent = _learn(models[name], arguments.steps)
            states[name] = _random_state()
            if turn:  # in the first, libraries load and allocators settle
                seconds[name].append(spent)
    weights = {name: _digest(model.policy.state_dict()) for name, model in models.items()}
    if arguments.device == "cpu":
        assert len(set(weights.values())) == 1, f"{algorithm}: the weights differ: {weights}"
    return {
        "algorithm": algorithm,
        "device": arguments.device,
        "environment": "recorded frames" if arguments.recorded else arguments.game,
        "settings": SETTINGS[algorithm] | {"n_envs": N_ENVS[algorithm], "timesteps": arguments.steps * arguments.turns},
        "machine": platform.platform(),
        "seconds": seconds,
        "buffer_bytes": {name: _buffer_bytes(model) for name, model in models.items()},
        "wall_time_ratio": median(seconds["lean"]) / median(seconds["stock"]),
        "same_weights": len(set(weights.values())) == 1,
    }


def _model(algorithm: str, name: str, arguments: argparse.Namespace) -> Any:
    import stable_baselines3

    from rlmem.sb3 import LeanReplayBuffer, LeanRolloutBuffer

    key = "rollout_buffer_class" if algorithm == "PPO" else "replay_buffer_class"
    lean = LeanRolloutBuffer if algorithm == "PPO" else LeanReplayBuffer
    extra = {key: lean} if name == "lean" else {}
    make = getattr(stable_baselines3, algorithm)
    env = _environment(N_ENVS[algorithm], arguments)
    return make("CnnPolicy", env, device=arguments.device, seed=0, **SETTINGS[algorithm], **extra)


def _learn(model: Any, steps: int) -> float:
    import torch

    started = time.perf_counter()
    model.learn(steps, reset_num_timesteps=False)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - started


def _random_state() -> Any:
    """Return the state of the generators that both models draw from."""
    import torch

    return random.getstate(), np.random.get_state(), torch.get_rng_state()


def _set_random_state(state: Any) -> None:
    import torch

    random.setstate(state[0])
    np.random.set_state(state[1])
    torch.set_rng_state(state[2])


def _buffer_bytes(model: Any) -> int:
    buffer = getattr(model, "replay_buffer", None) or model.rollout_buffer
    own = getattr(buffer, "nbytes", None)
    return own if own is not None else _array_bytes(buffer)


def _array_bytes(buffer: Any) -> int:
    return sum(value.nbytes for value in vars(buffer).values() if isinstance(value, np.ndarray))


def _digest(state: dict[str, Any]) -> str:
    whole = hashlib.sha256()
    for value in state.values():
        whole.update(value.detach().cpu().numpy().tobytes())
    return whole.hexdigest()[:16]


def _environment(n_envs: int, arguments: argparse.Namespace) -> Any:
    from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack

    if arguments.recorded is None:
        from games import make_env

        return make_env(arguments.game, n_envs=n_envs, channels_first=False)
    recorded = np.load(arguments.recorded)
    return VecFrameStack(DummyVecEnv([lambda: _playback(recorded)] * n_envs), 4)


def _playback(recorded: Any) -> Any:
    """Return an environment that shows recorded frames, whatever is done, from a random one on."""
    import gymnasium

    frames, ends, actions = recorded["frames"], recorded["ends"], int(recorded["actions"])

    class Playback(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(0, 255, (84, 84, 1), np.uint8)
        action_space = gymnasium.spaces.Discrete(actions)

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
            super().reset(seed=seed)
            self.at = int(self.np_random.integers(len(frames) - 2))
            return frames[self.at], {}

        def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
            self.at += 1
            last = self.at == len(frames) - 1
            return frames[self.at], float(action == self.at % actions), bool(ends[self.at]), last, {}

    return Playback()


def _record(arguments: argparse.Namespace) -> None:
    from games import play

    steps = list(play(arguments.game, "random", arguments.steps, 0, channels_first=False))
    frames = np.stack([step.obs[0, :, :, -1:] for step in steps])
    ends = np.array([step.done[0] for step in steps])
    actions = 1 + max(int(step.action[0]) for step in steps)
    np.savez_compressed(arguments.record, frames=frames, ends=ends, actions=actions)


if __name__ == "__main__":
    main()

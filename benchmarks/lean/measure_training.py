"""Wall time and memory of whole trainings, with the stock buffers and with the lean ones.

Each training runs in a process of its own, stock and lean by turns, with the same seed. On a CPU the weights must come
out alike to the last bit, and the benchmark fails if they do not.

Bias: the games are played by the policy that is being trained, from scratch. `--recorded` plays frames back from a file
that `--record` made, for machines without the emulator: the environment then costs next to nothing, so that a buffer's
time weighs more than it would.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import resource
import subprocess
import sys
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
    parser.add_argument("--steps", type=int, default=6_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.record:
        _record(arguments)
    elif arguments.one:
        print(json.dumps(_train(*arguments.one, arguments)))
    else:
        _compare(arguments)


def _compare(arguments: argparse.Namespace) -> None:
    arguments.results.mkdir(parents=True, exist_ok=True)
    for algorithm in arguments.algorithms:
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in BUFFERS}
        for repeat in range(arguments.repeats):
            for name in BUFFERS if repeat % 2 == 0 else BUFFERS[::-1]:
                found[name].append(_in_child(algorithm, name))
                print(algorithm, name, found[name][-1], flush=True)
        result = _result(algorithm, found, arguments)
        name = f"training-{algorithm.lower()}-{arguments.device.split(':')[0]}.json"
        (arguments.results / name).write_text(json.dumps(result, indent=1) + "\n")
        print(
            f"{algorithm} on {arguments.device}: lean takes {result['wall_time_ratio']:.3f} × the time of stock",
            flush=True,
        )


def _result(algorithm: str, found: dict[str, list[dict[str, Any]]], arguments: argparse.Namespace) -> dict[str, Any]:
    weights = {run["weights"] for runs in found.values() for run in runs}
    if arguments.device == "cpu":
        assert len(weights) == 1, f"{algorithm}: the weights differ: {weights}"
    seconds = {name: median(run["seconds"] for run in runs) for name, runs in found.items()}
    return {
        "algorithm": algorithm,
        "device": arguments.device,
        "environment": "recorded frames" if arguments.recorded else arguments.game,
        "settings": SETTINGS[algorithm] | {"n_envs": N_ENVS[algorithm], "timesteps": arguments.steps},
        "machine": platform.platform(),
        "runs": found,
        "wall_time_ratio": seconds["lean"] / seconds["stock"],
        "same_weights": len(weights) == 1,
    }


def _in_child(algorithm: str, name: str) -> dict[str, Any]:
    command = [sys.executable, *sys.argv, "--one", algorithm, name]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def _train(algorithm: str, name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    import stable_baselines3
    import torch

    from rlmem.sb3 import LeanReplayBuffer, LeanRolloutBuffer

    key = "rollout_buffer_class" if algorithm == "PPO" else "replay_buffer_class"
    lean = LeanRolloutBuffer if algorithm == "PPO" else LeanReplayBuffer
    extra = {key: lean} if name == "lean" else {}
    env = _environment(N_ENVS[algorithm], arguments)
    make = getattr(stable_baselines3, algorithm)
    model = make("CnnPolicy", env, device=arguments.device, seed=0, **SETTINGS[algorithm], **extra)
    model.learn(2 * SETTINGS["PPO"]["n_steps"] * N_ENVS["PPO"])  # libraries load, allocators settle
    started = time.perf_counter()
    model.learn(arguments.steps, reset_num_timesteps=False)
    if arguments.device != "cpu":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - started
    buffer = model.rollout_buffer if algorithm == "PPO" else model.replay_buffer
    return {
        "seconds": seconds,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "buffer_bytes": buffer.nbytes if name == "lean" else _array_bytes(buffer),
        "weights": _digest(model.policy.state_dict()),
    }


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

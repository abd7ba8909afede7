"""The shape of the documented training script, kept for `rlmem check`: it is read here, never run.

Its fault: `--device` is parsed and never reaches the algorithm.
"""

import argparse

from sb3_contrib import MaskablePPO
from stable_baselines3.common.vec_env import SubprocVecEnv


def make_env(data):
    from open_pit_mine import OpenPitEnv  # the project's own environment

    return lambda: OpenPitEnv(data)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--timesteps", type=int, default=1_000_000)
    parser.add_argument("--device", default="auto")
    args = parser.parse_args()

    envs = SubprocVecEnv([make_env(args.data) for _ in range(4)])
    model = MaskablePPO("CnnPolicy", envs, n_steps=2048, batch_size=64, learning_rate=3e-4)
    model.learn(total_timesteps=args.timesteps)
    envs.close()


if __name__ == "__main__":
    main()

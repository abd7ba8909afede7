"""The shape of the documented training script, kept for `rlmem check`: it is read here, never run.

Its fault is in the last lines: the evaluation callback is made and never handed to `learn`.
"""

from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import CallbackList, CheckpointCallback, EvalCallback
from stable_baselines3.common.vec_env import SubprocVecEnv, VecFrameStack, VecTransposeImage

NUM_ENVS = 2
EP_LENGTH = 8192
FRAME_STACK = 4
BATCH_SIZE = 2048
N_EPOCHS = 10
TOTAL_TIMESTEPS = 10_000_000
SAVE_FREQ = EP_LENGTH * 10
SAVE_REPLAY_BUFFER = True


def make_env(rank):
    from fighting_game import FightingGameEnv  # the project's own emulator environment

    return lambda: FightingGameEnv(rank)


def main():
    envs = SubprocVecEnv([make_env(rank) for rank in range(NUM_ENVS)])
    envs = VecTransposeImage(VecFrameStack(envs, n_stack=FRAME_STACK))
    eval_env = VecTransposeImage(VecFrameStack(SubprocVecEnv([make_env(NUM_ENVS)]), n_stack=FRAME_STACK))

    checkpoints = CheckpointCallback(
        save_freq=SAVE_FREQ, save_path="checkpoints", save_replay_buffer=SAVE_REPLAY_BUFFER
    )
    evaluation = EvalCallback(eval_env, eval_freq=EP_LENGTH, n_eval_episodes=5)
    callbacks = CallbackList([checkpoints])

    model = PPO("CnnPolicy", envs, n_steps=EP_LENGTH, batch_size=BATCH_SIZE, n_epochs=N_EPOCHS, device="cuda")
    model.learn(total_timesteps=TOTAL_TIMESTEPS, callback=callbacks)
    envs.close()
    eval_env.close()


if __name__ == "__main__":
    main()

"""What one child process does and meters: `python scenarios.py NAME` writes {figure: bytes} as JSON.

Heavy imports stand inside the functions: the stages of the main process are what is being measured, and
spawned workers import this file again.
"""

import json
import os
import sys

import process_meter as meter

MIB = 1 << 20


def flat(prefix: str, figures: dict) -> dict:
    return {f"{prefix}.{name}": value for name, value in figures.items()}


# --- environments -----------------------------------------------------------------------------------------


def box_env(shape: tuple[int, ...], dtype: str):
    """An environment that costs nothing: constant observations of the asked shape, two actions."""
    import gymnasium
    import numpy as np

    class Constant(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(0, 255, shape, np.dtype(dtype))
        action_space = gymnasium.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            return np.zeros(shape, dtype), {}

        def step(self, action):
            return np.zeros(shape, dtype), 0.0, False, False, {}

    return Constant()


def make_env(name: str):
    import gymnasium

    if name.startswith("ALE/"):
        import ale_py

        gymnasium.register_envs(ale_py)
    return gymnasium.make(name)


def atari_env():
    """SB3's AtariWrapper around Breakout, frame skip its own, as `make_atari_env` builds it."""
    import ale_py
    import gymnasium
    from stable_baselines3.common.atari_wrappers import AtariWrapper

    gymnasium.register_envs(ale_py)
    return AtariWrapper(gymnasium.make("BreakoutNoFrameskip-v4"))


def play(env, steps: int = 200) -> None:
    env.reset(seed=0)
    for _ in range(steps):
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            env.reset()


# --- 1: the main process ----------------------------------------------------------------------------------


def known_bytes(model) -> dict[str, int]:
    """Bytes of what a planner counts by itself: weights, gradients, optimizer state, buffer arrays."""
    buffer = getattr(model, "rollout_buffer", None) or model.replay_buffer
    return {"known_tensor_bytes": _tensor_bytes(model), "known_buffer_bytes": _array_bytes(vars(buffer))}


def _tensor_bytes(model) -> int:
    """Weights, targets and optimizer state as SB3 itself would save them, and the gradients, each once.

    A shared features extractor stands in the state dict three times, under three names.
    """
    gradients = [p.grad for p in model.policy.parameters() if p.grad is not None]
    found = [*_tensors(model.get_parameters()), *gradients]
    return sum({tensor.data_ptr(): tensor.nbytes for tensor in found}.values())


def _tensors(tree) -> list:
    import torch

    if isinstance(tree, torch.Tensor):
        return [tree]
    return [leaf for branch in tree.values() for leaf in _tensors(branch)] if isinstance(tree, dict) else []


def _array_bytes(holder: dict) -> int:
    import numpy as np

    return sum(value.nbytes for value in holder.values() if isinstance(value, np.ndarray))


def stages() -> dict:
    """Import by import, then one PPO on CartPole: built, and after one rollout and update."""
    found = flat("bare", meter.read())
    import numpy  # noqa: F401

    found |= flat("numpy", meter.read())
    import gymnasium  # noqa: F401

    found |= flat("gymnasium", meter.read())
    import torch  # noqa: F401

    found |= flat("torch", meter.read())
    from stable_baselines3 import PPO

    found |= flat("stable_baselines3", meter.read())
    model = PPO("MlpPolicy", "CartPole-v1", n_steps=64, batch_size=64, device="cpu")
    found |= flat("built", meter.read())
    model.learn(128)
    return found | flat("learned", meter.read())


def end_value(build, steps: int) -> dict:
    """A model from nothing to after its first updates; known arrays taken away when they pass 1 MiB."""
    model = build()
    found = flat("built", meter.read())
    model.learn(steps)
    end, known = meter.read(), known_bytes(model)
    taken = sum(known.values()) if sum(known.values()) > MIB else 0
    floor = {"floor_rss_bytes": end["rss_bytes"] - taken, "floor_hwm_bytes": end["hwm_bytes"] - taken}
    return found | flat("learned", end | known | floor)


def build_ppo():
    from stable_baselines3 import PPO

    return PPO("MlpPolicy", "CartPole-v1", n_steps=64, batch_size=64, device="cpu")


def build_dqn():
    from stable_baselines3 import DQN

    return DQN("MlpPolicy", "CartPole-v1", buffer_size=200, learning_starts=10, device="cpu")


def build_sac():
    from stable_baselines3 import SAC

    return SAC("MlpPolicy", "Pendulum-v1", buffer_size=200, learning_starts=10, device="cpu")


def build_ppo_cnn(batch: int = 4):
    from stable_baselines3 import PPO

    return PPO("CnnPolicy", box_env((84, 84, 4), "uint8"), n_steps=2 * batch, batch_size=batch, device="cpu")


def build_dqn_cnn():
    from stable_baselines3 import DQN

    env = box_env((84, 84, 4), "uint8")
    return DQN("CnnPolicy", env, buffer_size=32, batch_size=4, learning_starts=8, device="cpu")


def build_recurrent():
    from sb3_contrib import RecurrentPPO

    return RecurrentPPO("MlpLstmPolicy", "CartPole-v1", n_steps=64, batch_size=64, device="cpu")


def build_maskable():
    import numpy as np
    from sb3_contrib import MaskablePPO
    from sb3_contrib.common.wrappers import ActionMasker

    env = ActionMasker(make_env("CartPole-v1"), lambda _: np.ones(2, dtype=bool))
    return MaskablePPO("MlpPolicy", env, n_steps=64, batch_size=64, device="cpu")


# --- 2: workers -------------------------------------------------------------------------------------------


def preloaded_workers() -> dict:
    """Workers of a fork server that was told to import SB3 once, for all of them."""
    import multiprocessing

    multiprocessing.set_forkserver_preload(["stable_baselines3.common.vec_env.subproc_vec_env"])
    return workers("forkserver", "CartPole-v1")


def workers(method: str, name: str) -> dict:
    """Grow from 0 to 1, 2 and 4 SubprocVecEnv workers in one live main process."""
    import stable_baselines3
    from stable_baselines3.common.vec_env import SubprocVecEnv

    assert stable_baselines3.PPO
    found, envs = flat("n0.main", meter.read()), []
    for total, added in ((1, 1), (2, 1), (4, 2)):
        envs.append(SubprocVecEnv([lambda: make_env(name)] * added, start_method=method))
        _step_all(envs)
        found |= flat(f"n{total}", _family([p.pid for vec in envs for p in vec.processes]))
    for vec in envs:
        vec.close()
    return found


def _step_all(envs: list, steps: int = 200) -> None:
    import numpy as np

    for vec in envs:
        vec.reset()
        for _ in range(steps):
            vec.step(np.array([vec.action_space.sample() for _ in range(vec.num_envs)]))


def _family(pids: list[int]) -> dict:
    """Main, workers (means) and helper processes, read as near to one moment as can be."""
    main = os.getpid()
    helpers = [pid for pid in meter.children(main) if pid not in pids]
    workers_now, helpers_now = [meter.read(pid) for pid in pids], [meter.read(pid) for pid in helpers]
    own = meter.read()
    mean = {key: sum(one[key] for one in workers_now) // len(pids) for key in own}
    together = {key: sum(one[key] for one in helpers_now) for key in own} if helpers else {}
    return (
        flat("main", own)
        | flat("worker", mean)
        | flat("helpers", together)
        | {"helpers.count": len(helpers)}
        | {"group.pss_bytes": own["pss_bytes"] + sum(one["pss_bytes"] for one in workers_now + helpers_now)}
        | {"strangers.count": meter.strangers_mapping("libtorch_cpu", {main, *pids, *helpers})}
    )


# --- 3: environments in the main process ------------------------------------------------------------------


def in_process(build, extra: int) -> dict:
    """Resident growth for each environment after the first."""
    envs = [build()]
    play(envs[0])
    first = meter.read()
    for _ in range(extra):
        envs.append(build())
        play(envs[-1])
    last = meter.read()
    return {key: (last[key] - first[key]) // extra for key in ("rss_bytes", "rss_anon_bytes")}


# --- 4: saving --------------------------------------------------------------------------------------------


def big_mlp():
    """A PPO with two separate 2048×2048 towers, after an update, so that Adam's state exists."""
    from stable_baselines3 import PPO

    layers = {"net_arch": [2048, 2048]}
    model = PPO("MlpPolicy", "CartPole-v1", n_steps=64, batch_size=64, policy_kwargs=layers, device="cpu")
    return model.learn(64)


def save_model() -> dict:
    model = big_mlp()
    path = _scratch("model.zip")
    known = {"weights_bytes": sum(p.nbytes for p in model.policy.parameters())}
    found = known | flat("save", meter.extra_peak(lambda: model.save(path)))
    found |= {"file_bytes": os.path.getsize(path)}  # noqa: PTH202
    return found | flat("load", meter.extra_peak(lambda: type(model).load(path, device="cpu")))


def dump_model() -> dict:
    import pickle

    model = big_mlp()
    return flat("dumps", meter.extra_peak(lambda: pickle.dumps(model.get_parameters(), protocol=5)))


def filled_dqn(total_bytes: int, random: bool = False):
    """A DQN whose replay buffer has `total_bytes` of observations, both arrays written."""
    import numpy as np
    from stable_baselines3 import DQN

    size = total_bytes // (2 * 4096)
    model = DQN("MlpPolicy", box_env((1024,), "float32"), buffer_size=size, device="cpu")
    for array in (model.replay_buffer.observations, model.replay_buffer.next_observations):
        for row in range(size):
            array[row] = np.random.random(1024) if random else row
    model.replay_buffer.full = True
    return model


def save_buffer() -> dict:
    model, path = filled_dqn(10**9), _scratch("buffer.pkl")
    found = {"buffer_bytes": _array_bytes(vars(model.replay_buffer))}
    found |= {"largest_array_bytes": model.replay_buffer.observations.nbytes}
    found |= flat("save", meter.extra_peak(lambda: model.save_replay_buffer(path)))
    return found | flat("load", meter.extra_peak(lambda: model.load_replay_buffer(path)))


def load_buffer_fresh() -> dict:
    """Load 1 GB into a model whose own buffer was never written (the resume of a run)."""
    import subprocess

    path = _scratch("buffer.pkl")
    program = f"import scenarios as s; s.filled_dqn(10**9).save_replay_buffer({path!r})"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=sys.path[0])
    from stable_baselines3 import DQN

    env = box_env((1024,), "float32")
    model = DQN("MlpPolicy", env, buffer_size=10**9 // 8192, device="cpu")
    return flat("load", meter.extra_peak(lambda: model.load_replay_buffer(path)))


def save_buffer_protocol_4() -> dict:
    """The same to a file with the older protocol, which turns each array into a bytes object first."""
    import pickle

    model = filled_dqn(10**9)
    with open(_scratch("buffer.pkl"), "wb") as file:  # noqa: PTH123
        return flat("save", meter.extra_peak(lambda: pickle.dump(model.replay_buffer, file, protocol=4)))


def dump_buffer() -> dict:
    import pickle

    model = filled_dqn(10**9)
    found = {"buffer_bytes": _array_bytes(vars(model.replay_buffer))}
    return found | flat("dumps", meter.extra_peak(lambda: pickle.dumps(model.replay_buffer, protocol=5)))


def gzip_buffer(total_bytes: int, random: bool) -> dict:
    import gzip
    import pickle

    model, path = filled_dqn(total_bytes, random), _scratch("buffer.pkl.gz")

    def save() -> None:
        with gzip.open(path, "wb", compresslevel=1) as file:
            pickle.dump(model.replay_buffer, file, protocol=5)

    found = {"buffer_bytes": _array_bytes(vars(model.replay_buffer))}
    found |= flat("gzip", meter.extra_peak(save))
    return found | {"file_bytes": os.path.getsize(path)}  # noqa: PTH202


def _scratch(name: str) -> str:
    return f"{os.environ['RLMEM_SCRATCH']}/{name}"


# --- 5, 6, 7 ----------------------------------------------------------------------------------------------


def threads() -> dict:
    """What 53 threads that only wait add."""
    import threading

    before, done = meter.read(), threading.Event()
    started = [threading.Thread(target=done.wait) for _ in range(53)]
    for thread in started:
        thread.start()
    after = meter.read()
    done.set()
    return {key: after[key] - before[key] for key in ("virtual_bytes", "rss_bytes")}


def lazy_zeros() -> dict:
    import numpy as np

    before = meter.read()
    array = np.zeros(10**9, np.uint8)
    reserved = meter.read()
    array[:] = 1
    written = meter.read()
    return {
        "reserved_rss_bytes": reserved["rss_bytes"] - before["rss_bytes"],
        "reserved_virtual_bytes": reserved["virtual_bytes"] - before["virtual_bytes"],
        "written_rss_bytes": written["rss_bytes"] - before["rss_bytes"],
    }


def flatten(n_envs: int) -> dict:
    """The first minibatch of a real RolloutBuffer that holds 400 MB of observations."""
    import numpy as np
    from gymnasium import spaces
    from stable_baselines3.common.buffers import RolloutBuffer

    space = spaces.Box(-1, 1, (1024,), np.float32)
    steps = 400 * 10**6 // (4096 * n_envs)
    buffer = RolloutBuffer(steps, space, spaces.Discrete(2), "cpu", n_envs=n_envs)
    for name in ("observations", "actions", "values", "log_probs", "advantages", "returns"):
        getattr(buffer, name)[:] = 1
    buffer.full = True
    sizes = {"observations_bytes": buffer.observations.nbytes, "all_bytes": _array_bytes(vars(buffer))}
    return sizes | meter.extra_peak(lambda: next(buffer.get(64)))


ATARI = "ALE/Breakout-v5"
SCENARIOS = {
    "main.stages": stages,
    "main.ppo_mlp": lambda: end_value(build_ppo, 128),
    "main.dqn_mlp": lambda: end_value(build_dqn, 128),
    "main.sac_mlp": lambda: end_value(build_sac, 64),
    "main.ppo_cnn": lambda: end_value(build_ppo_cnn, 16),
    "main.ppo_cnn_batch_256": lambda: end_value(lambda: build_ppo_cnn(256), 512),
    "main.dqn_cnn": lambda: end_value(build_dqn_cnn, 32),
    "main.recurrent_ppo": lambda: end_value(build_recurrent, 128),
    "main.maskable_ppo": lambda: end_value(build_maskable, 128),
    **{
        f"workers.{method}.{short}": lambda method=method, name=name: workers(method, name)
        for method in ("fork", "forkserver", "spawn")
        for short, name in (("cartpole", "CartPole-v1"), ("breakout", ATARI))
    },
    "workers.forkserver_preload.cartpole": preloaded_workers,
    "env.cartpole.8": lambda: in_process(lambda: make_env("CartPole-v1"), 8),
    "env.cartpole.64": lambda: in_process(lambda: make_env("CartPole-v1"), 64),
    "env.pendulum.8": lambda: in_process(lambda: make_env("Pendulum-v1"), 8),
    "env.pendulum.64": lambda: in_process(lambda: make_env("Pendulum-v1"), 64),
    "env.breakout.8": lambda: in_process(lambda: make_env(ATARI), 8),
    "env.breakout_atari_wrapper.8": lambda: in_process(atari_env, 8),
    "save.model": save_model,
    "save.model_dumps": dump_model,
    "save.replay_buffer": save_buffer,
    "save.replay_buffer_load_fresh": load_buffer_fresh,
    "save.replay_buffer_protocol_4": save_buffer_protocol_4,
    "save.replay_buffer_dumps": dump_buffer,
    "save.replay_buffer_gzip": lambda: gzip_buffer(10**9, random=False),
    "save.replay_buffer_gzip_random": lambda: gzip_buffer(2 * 10**8, random=True),
    "threads.53": threads,
    "numpy.zeros": lazy_zeros,
    "flatten.n_envs_4": lambda: flatten(4),
    "flatten.n_envs_1": lambda: flatten(1),
}


if __name__ == "__main__":
    # The figures go to a file of their own: libraries print to stdout.
    figures = SCENARIOS[sys.argv[1]]()
    with open(os.environ["RLMEM_SCRATCH"] + "/figures.json", "w") as file:  # noqa: PTH123
        json.dump(figures, file)

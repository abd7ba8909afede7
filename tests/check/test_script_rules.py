"""Script rules: what they find, and the normal code that they must leave alone."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import pytest

GAME_BOY = """\
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import CheckpointCallback, EvalCallback
from stable_baselines3.common.vec_env import SubprocVecEnv, VecFrameStack, VecTransposeImage

def main():
    env = VecTransposeImage(VecFrameStack(SubprocVecEnv([make_env(i) for i in range(2)]), 4))
    eval_env = VecTransposeImage(VecFrameStack(SubprocVecEnv([make_env(9)]), 4))
    checkpoint_callback = CheckpointCallback(save_freq=81920, save_path="out", save_replay_buffer=True)
    eval_callback = EvalCallback(eval_env, eval_freq=10000)
    callbacks = [checkpoint_callback]
    model = PPO("CnnPolicy", env, n_steps=8192, batch_size=2048)
    model.learn(total_timesteps=10_000_000, callback=callbacks)
    env.close()

main()
"""
IMPORTS = """\
import gymnasium as gym
import stable_baselines3.common.callbacks as cbs
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import *
from stable_baselines3.common.callbacks import EvalCallback, StopTrainingOnRewardThreshold
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack, VecNormalize
"""


def script(body: str) -> str:
    return IMPORTS + dedent(body)


def test_the_game_boy_script_forgets_its_evaluation(find_in_script: Any) -> None:
    (finding,) = find_in_script("RLM050", GAME_BOY)
    assert finding.message.startswith("`eval_callback` (EvalCallback) is created and then passed to nothing")
    assert finding.line == 9


@pytest.mark.parametrize(
    "body",
    [
        "cb = EvalCallback(e)\nmodel.learn(1)",
        "cb: object = EvalCallback(e)\nmodel.learn(1)",
        "cb = cbs.EvalCallback(e)\nmodel.learn(1)",
        "cb = StopTrainingOnRewardThreshold(1)\nmodel.learn(1)",
        "cb = MyOwnCallback()\nprint(cb)\nmodel.learn(1)",
        "cb = EvalCallback(e)\ncb.verbose = 2\nmodel.learn(1)",
        "cb = EvalCallback(e)\nmodel.learn(1)\nprint(cb.best_mean_reward)",
        "cb = EvalCallback(e) if full else None\nif cb is not None:\n    print(f'{cb}')\nmodel.learn(1)",
        "a, b = EvalCallback(e), MyCallback()\nmodel.learn(1, b)",
        "def train(model):\n    cb = EvalCallback(e)\n    model.learn(1)",
        "def a(m):\n    cb = EvalCallback(e)\n    m.learn(1)\ndef b(m):\n    cb = EvalCallback(e)\n    m.learn(1, cb)",
        "cb = cbs.CallbackList([x])\nmodel.learn(1)",
    ],
)
def test_forgotten_callbacks(find_in_script: Any, body: str) -> None:
    assert len(find_in_script("RLM050", script(body))) == 1


@pytest.mark.parametrize(
    "body",
    [
        "cb = EvalCallback(e)\nmodel.learn(1, cb)",
        "cb = EvalCallback(e)\nmodel.learn(1, callback=cb)",
        "cb = EvalCallback(e)\nmodel.learn(1, callback=[a, cb])",
        "cb = EvalCallback(e)\nmodel.learn(1, callback=CallbackList([a, cb]))",
        "cb = EvalCallback(e)\ncallbacks = [cb]\nmodel.learn(1, callbacks)",
        "cb = EvalCallback(e)\ncallbacks.append(cb)\nmodel.learn(1, callbacks)",
        "cb = EvalCallback(e)\ncallbacks += [cb]\nmodel.learn(1, callbacks)",
        "cb = EvalCallback(e)\noptions = {'callback': cb}\nmodel.learn(1, **options)",
        "cb = None\nif full:\n    cb = EvalCallback(e)\nmodel.learn(1, callback=cb)",
        "cb = EvalCallback(e) if full else None\nmodel.learn(1, callback=cb or None)",
        "cb = StopTrainingOnRewardThreshold(1)\nmodel.learn(1, EvalCallback(e, callback_on_new_best=cb))",
        "cb = EvalCallback(e)\nother = cb\nmodel.learn(1, other)",
        "a = b = EvalCallback(e)\nmodel.learn(1, b)",
        "def make():\n    cb = EvalCallback(e)\n    return cb\nmodel.learn(1, make())",
        "def make():\n    cb = EvalCallback(e)\n    yield cb\nmodel.learn(1, *make())",
        "class T:\n    def __init__(self):\n        self.cb = EvalCallback(e)\n        self.model.learn(1)",
        "class T:\n    cb = EvalCallback(e)\n    def go(self):\n        self.model.learn(1, self.cb)",
        "class T:\n    def __init__(self):\n        cb = EvalCallback(e)\n        self.cb = cb\n        model.learn(1)",
        "cb = EvalCallback(e)\ndef go(model):\n    model.learn(1, cb)",
        "cb = None\ndef make():\n    global cb\n    cb = EvalCallback(e)\ndef go(model):\n    model.learn(1, cb)",
        "def outer(model):\n    cb = EvalCallback(e)\n    def inner():\n        model.learn(1, cb)\n    inner()",
        "cb = EvalCallback(e)\nrun = lambda model: model.learn(1, cb)",
        "cb = EvalCallback(e)\ncb.init_callback(model)\nmodel.learn(1)",
        "cb = EvalCallback(e)\nmodel.learn(1, **locals())",
        "cb = EvalCallback(e)",  # a module of callbacks for others to import
        "cb = make_eval_callback(e)\nmodel.learn(1)",
        "callback = Thread()\nmodel.learn(1)",
        "self.cb = EvalCallback(e)\nmodel.learn(1)",
        "cbs['eval'] = EvalCallback(e)\nmodel.learn(1)",
        "model.learn(1, EvalCallback(e))",
    ],
)
def test_registered_callbacks(find_in_script: Any, body: str) -> None:
    assert not find_in_script("RLM050", script(body))


PARSER = "import argparse, torch\nparser = argparse.ArgumentParser()\nparser.add_argument('--device', default='auto')\n"
CLICK = "import click\n@click.command()\n@click.option('--device', default='auto')\n"


@pytest.mark.parametrize(
    "body",
    [
        "args = parser.parse_args()\nmodel = PPO('MlpPolicy', env)",
        "args, rest = parser.parse_known_args()\nmodel = PPO('MlpPolicy', env, lr=args.lr)",
        "args = parser.parse_args()\nprint(args.device)\nprint(args)\nlogger.info('on %s', args.device)",
        "args = parser.parse_args()\nprint(f'on {args.device}')\nx = torch.device('cpu')\ny = model.device",
        "args = parser.parse_args()\ndevice = args.device\nPPO('MlpPolicy', env)",
        "def main(args):\n    PPO('MlpPolicy', env, n_steps=args.n)\nmain(parser.parse_args())",
        "def main(x):\n    train(x)\ndef train(o):\n    PPO(env, o.lr)\nargs = parser.parse_args()\nmain(x=args)",
        "def parse():\n    return parser.parse_args()\nargs = parse()\nPPO('MlpPolicy', env)",
    ],
)
def test_a_device_that_goes_nowhere(find_in_script: Any, body: str) -> None:
    (finding,) = find_in_script("RLM051", PARSER + body)
    assert finding.line == 3
    assert ".device" in finding.message


@pytest.mark.parametrize(
    "body",
    [
        "args = parser.parse_args()\nPPO('MlpPolicy', env, device=args.device)",
        "args = parser.parse_args()\ndevice = torch.device(args.device)\nPPO('MlpPolicy', env, device=device)",
        "args = parser.parse_args()\ndevice = args.device\nPPO('MlpPolicy', env, device=device)",
        "args = parser.parse_args()\nif args.device == 'cpu':\n    hide_gpus()",
        "args = parser.parse_args()\nconfig['device'] = args.device",
        "args = parser.parse_args()\noptions = {'device': args.device}\nPPO(**options)",
        "args = parser.parse_args()\nPPO(**vars(args))",
        "args = parser.parse_args()\nconfig.update(args.__dict__)",
        "args = parser.parse_args()\nother.train(args)",
        "args = parser.parse_args()\nbox = [args]",
        "args = parser.parse_args()\nx = getattr(args, 'device')",
        "args = parser.parse_args()\nself.args = args\nPPO(device=self.args.device)",
        "def main(args):\n    PPO('MlpPolicy', env, device=args.device)\nmain(parser.parse_args())",
        "def parse():\n    return parser.parse_args()\nPPO(device=parse().device)",
        "def main(o):\n    train(o)\ndef train(o):\n    PPO(device=o.device)\nmain(parser.parse_args())",
        "def get_parser():\n    return parser",  # parsed elsewhere
        "train(**vars(parser.parse_args()))",
    ],
)
def test_a_device_that_is_passed_on(find_in_script: Any, body: str) -> None:
    assert not find_in_script("RLM051", PARSER + body)


def test_options_are_known_by_their_destination(find_in_script: Any) -> None:
    other = PARSER.replace("'--device', ", "'-d', '--device', dest='where', ")
    assert not find_in_script("RLM051", other + "args = parser.parse_args()\nPPO(env, device=args.where)")
    assert find_in_script("RLM051", other + "args = parser.parse_args()\nPPO(env, device=args.device)")
    assert not find_in_script("RLM051", PARSER.replace("device", "lr") + "args = parser.parse_args()")


@pytest.mark.parametrize(
    ("body", "fires"),
    [
        ("def main(device):\n    PPO('MlpPolicy', env)", True),
        ("def main(device):\n    click.echo('x')\n    print(device)", True),
        ("def main(device):\n    PPO('MlpPolicy', env, device=device)", False),
        ("def main(**options):\n    PPO('MlpPolicy', env, **options)", False),
    ],
)
def test_click_options(find_in_script: Any, body: str, fires: bool) -> None:
    assert len(find_in_script("RLM051", CLICK + body)) == fires


@pytest.mark.parametrize(
    ("body", "workers"),
    [
        ("env = SubprocVecEnv([f])\nmodel = PPO('MlpPolicy', env)\nmodel.learn(1)", True),
        ("env = make_vec_env('X', vec_env_cls=SubprocVecEnv)\nPPO('MlpPolicy', env).learn(1)", True),
        (
            "env = make_vec_env('X')\nenv = VecFrameStack(env, 4)\nmodel = PPO('CnnPolicy', env=env)\nmodel.learn(1)",
            False,
        ),
        ("def go():\n    env = gym.make('X')\n    obs = env.reset()\n    PPO('MlpPolicy', env).learn(1)", False),
        ("env = VecFrameStack(SubprocVecEnv([f]), 4)\nPPO('CnnPolicy', env).learn(1)", True),
        ("env = gym.make('X')\nvenv = VecNormalize(env)\nPPO('P', venv).learn(1)\nprint(venv)", False),
        ("env = gym.make('X')\ncb = EvalCallback(env)\nPPO('P', 'X').learn(1, cb)", False),
    ],
)
def test_unclosed_environments(find_in_script: Any, body: str, workers: bool) -> None:
    (finding,) = find_in_script("RLM052", script(body))
    assert ("worker processes" in finding.message) == workers


def test_the_game_boy_script_leaves_its_evaluation_workers(find_in_script: Any) -> None:
    (finding,) = find_in_script("RLM052", GAME_BOY)
    assert finding.message.startswith("`eval_env` is created by SubprocVecEnv and never closed")


@pytest.mark.parametrize(
    "body",
    [
        "env = SubprocVecEnv([f])\nPPO('P', env).learn(1)\nenv.close()",
        "env = SubprocVecEnv([f])\nvenv = VecFrameStack(env, 4)\nPPO('P', venv).learn(1)\nvenv.close()",
        "e = SubprocVecEnv([f])\nv = VecFrameStack(e, 4)\ntry:\n    PPO('P', v).learn(1)\nfinally:\n    e.close()",
        "env = SubprocVecEnv([f])\nmodel = PPO('P', env)\nmodel.learn(1)\nmodel.get_env().close()",
        "with gym.make('X') as env:\n    PPO('P', env).learn(1)",
        "env = gym.make('X')\nwith closing(env):\n    PPO('P', env).learn(1)",
        "env = gym.make('X')\nwith env:\n    PPO('P', env).learn(1)",
        "env = gym.make('X')\natexit.register(env.close)\nPPO('P', env).learn(1)",
        "def make():\n    env = gym.make('X')\n    return env\nPPO('P', make()).learn(1)",
        "def make():\n    env = gym.make('X')\n    env = Wrapped(env)\n    return env\nPPO('P', make()).learn(1)",
        "env = DummyVecEnv([lambda: gym.make('X')])\ntrain(env)\nmodel.learn(1)",
        "env, other = gym.make('X'), gym.make('Y')\nfor e in (env, other):\n    e.close()\nmodel.learn(1)",
        "class T:\n    def __init__(self):\n        self.env = gym.make('X')\n        model.learn(1)",
        "env = gym.make('X')",  # no training here: another program's environment
        "PPO('P', gym.make('X')).learn(1)",
    ],
)
def test_environments_that_are_closed_or_out_of_sight(find_in_script: Any, body: str) -> None:
    assert not find_in_script("RLM052", script(body))


@pytest.mark.parametrize(
    "body",
    [
        "model = PPO('P', env)\nfor i in range(10):\n    model.learn(1000)\n    model.save(f'{i}')",
        "while True:\n    model.learn(total_timesteps=1000, reset_num_timesteps=True)",
        "for i in range(10):\n    if i:\n        with timer():\n            self.model.learn(1000)",
        "model = PPO.load('x')\nfor i in range(10):\n    model.learn(1000, None, 1, 'run', True)",
        "def go(model):\n    for i in range(3):\n        model.learn(1)",
    ],
)
def test_learning_in_a_loop(find_in_script: Any, body: str) -> None:
    (finding,) = find_in_script("RLM053", script(body))
    assert "reset_num_timesteps=False" in finding.advice


@pytest.mark.parametrize(
    "body",
    [
        "for i in range(10):\n    model.learn(1000, reset_num_timesteps=False)",
        "for i in range(10):\n    model.learn(1000, reset_num_timesteps=i == 0)",
        "for i in range(10):\n    model.learn(1000, None, 1, 'run', False)",
        "for i in range(10):\n    model.learn(1000, **options)",
        "for i in range(10):\n    model.learn(*options)",
        "for seed in range(10):\n    model = PPO('P', env, seed=seed)\n    model.learn(1000)",
        "for seed in range(10):\n    PPO('P', env, seed=seed).learn(1000)",
        "for name, model in models.items():\n    model.learn(1000)",
        "for seed in range(3):\n    self.model = PPO('P', env)\n    self.model.learn(1)",
        "for i in range(3):\n    def objective(model):\n        model.learn(1)",
        "for i in range(3):\n    prepare()\nelse:\n    model.learn(1)",
        "model.learn(1000)",
        "class Agent: pass\nagent = Agent()\nfor batch in data:\n    agent.learn(batch)",
        "for batch in data:\n    agent.learn()",
    ],
)
def test_learning_once_or_on_purpose(find_in_script: Any, body: str) -> None:
    assert not find_in_script("RLM053", script(body))


def test_learning_loops_of_other_libraries_are_left_alone(find_in_script: Any) -> None:
    assert not find_in_script("RLM053", "import mylib\nfor i in range(10):\n    agent.learn(batch)")

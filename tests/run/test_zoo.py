"""Hyperparameter files in the zoo's form, read as runs; what they hold as Python is never evaluated."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlmem.errors import InputError, RunFileError
from rlmem.run.environment import read_environment
from rlmem.run.model import FrameworkRun, NetArch
from rlmem.run.python_literal import Dotted, read_literal
from rlmem.run.spaces import Box, Discrete
from rlmem.run.zoo import read_zoo, read_zoo_name

DQN = """\
default:
  n_timesteps: !!float 1e6
  policy: 'MlpPolicy'

atari:
  env_wrapper:
    - stable_baselines3.common.atari_wrappers.AtariWrapper
  frame_stack: 4
  policy: 'CnnPolicy'
  n_timesteps: !!float 1e7
  buffer_size: 100000
  learning_rate: lin_1e-4
  batch_size: 32
  learning_starts: 100000
  target_update_interval: 1000
  train_freq: 4
  gradient_steps: 1
  optimize_memory_usage: True
  replay_buffer_kwargs: "dict(handle_timeout_termination=False)"

CartPole-v1: &cartpole
  n_timesteps: !!float 5e4
  policy: 'MlpPolicy'
  batch_size: 64
  buffer_size: 20_000
  train_freq: 256
  gradient_steps: 128
  policy_kwargs: "dict(net_arch=[256, 256], activation_fn=nn.ReLU)"

Acrobot-v1:
  <<: *cartpole
  batch_size: 128
"""

SAC = """\
Reach-v2:
  env_wrapper:
    - sb3_contrib.common.wrappers.TimeFeatureWrapper
    - my_package.wrappers.History:
        horizon: 2
  vec_env_wrapper:
    - stable_baselines3.common.vec_env.VecFrameStack:
        n_stack: 3
  n_envs: 2
  n_timesteps: 20000
  policy: 'MultiInputPolicy'
  normalize: "{'norm_obs': False, 'norm_reward': True}"
  buffer_size: 1000000
  ent_coef: 'auto'
  train_freq: [1, "episode"]
  gradient_steps: -1
  noise_type: 'normal'
  noise_std: 0.1
  use_sde: True
  replay_buffer_class: HerReplayBuffer
  replay_buffer_kwargs: "dict(online_sampling=True, goal_selection_strategy='future', n_sampled_goal=4)"
  policy_kwargs: "dict(log_std_init=-3, net_arch=dict(pi=[64], qf=(400, 300)), n_critics=2,
    optimizer_class=th.optim.SGD, optimizer_kwargs=dict(momentum=0.9),
    features_extractor_class=MyExtractor, features_extractor_kwargs=dict(cnn_output_dim=32, depth=3))"
  callback: my_package.Callback
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "dqn.yml").write_text(DQN)
    (tmp_path / "sac.yml").write_text(SAC)
    return tmp_path


def read(folder: Path, name: str, key: str) -> tuple[FrameworkRun, tuple[str, ...]]:
    return read_zoo(folder / name, key)


def test_an_atari_game_takes_the_entry_of_all_of_them(folder: Path) -> None:
    run, notes = read(folder, "dqn.yml", "BreakoutNoFrameskip-v4")
    training = run.training
    assert (run.algorithm, run.framework, run.policy.class_name) == ("DQN", "sb3", "CnnPolicy")
    assert (training.total_timesteps, training.buffer_size, training.learning_starts) == (10**7, 100_000, 100_000)
    assert (training.optimize_memory_usage, training.handle_timeout_termination) == (True, False)
    assert dict(training.other)["learning_rate"] == "lin_1e-4"
    assert run.env.frame_stack == 4
    assert notes == ()
    env = read_environment(run.env)
    assert env.observation == Box(shape=(84, 84, 1), dtype="uint8", low=0.0, high=255.0)
    assert env.action == Discrete(n=4)


def test_merge_keys_and_python_text_are_followed(folder: Path) -> None:
    run, notes = read(folder, "dqn.yml", "Acrobot-v1")
    assert (run.env.id, run.training.batch_size, run.training.buffer_size) == ("Acrobot-v1", 128, 20_000)
    assert run.policy.net_arch == NetArch(policy=(256, 256), value=(256, 256))
    assert dict(run.policy.other) == {"activation_fn": "nn.ReLU"}
    assert notes == ()


def test_what_cannot_be_said_in_a_run_is_said_in_notes(folder: Path) -> None:
    run, notes = read(folder, "sac.yml", "Reach-v2")
    training, policy = run.training, run.policy
    assert (run.n_envs, run.env.frame_stack, run.env.normalize) == (2, 3, False)
    assert run.env.wrappers == (
        "sb3_contrib.common.wrappers:TimeFeatureWrapper",
        "my_package.wrappers:History",
    )
    assert (training.train_freq, training.train_freq_unit, training.gradient_steps) == (1, "episode", -1)
    assert (training.replay_buffer_class, training.use_sde) == ("HerReplayBuffer", True)
    assert policy.net_arch == NetArch(policy=(64,), value=(400, 300))
    assert (policy.optimizer, policy.n_critics, policy.features_dim) == ("sgd+momentum", 2, 32)
    said = "\n".join(notes)
    for word in ("History", "horizon", "online_sampling", "MyExtractor", "depth", "`callback`"):
        assert word in said
    assert "noise" not in said


def test_default_is_taken_and_said(folder: Path) -> None:
    run, notes = read(folder, "dqn.yml", "MountainCar-v0")
    assert (run.env.id, run.training.total_timesteps) == ("MountainCar-v0", 10**6)
    assert "default" in notes[0]


def test_the_algorithm_is_the_files_name_or_is_given(folder: Path) -> None:
    path = folder / "mine.yml"
    path.write_text("CartPole-v1: {n_timesteps: 100, policy: MlpLstmPolicy}")
    with pytest.raises(RunFileError, match=r"'mine'.*needs to be told"):
        read_zoo(path, "CartPole-v1")
    assert read_zoo(path, "CartPole-v1", "ppo_lstm")[0].algorithm == "RecurrentPPO"
    assert read_zoo(path, "CartPole-v1", "RecurrentPPO")[0].framework == "sb3-contrib"


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("Reach-v1", r"no entry for Reach-v1; did you mean `Reach-v2`\?"),
        ("atari", "`atari` is no environment"),
    ],
)
def test_an_entry_that_is_not_there(folder: Path, key: str, message: str) -> None:
    with pytest.raises(RunFileError, match=message):
        read(folder, "sac.yml", key)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('touch {place}')",
        "dict(net_arch=[open('{place}', 'w')])",
        "dict(a=(lambda: 1)())",
        "[x for x in (1, 2)]",
        "dict(**dict(a=1))",
        "dict(a=().__class__)",
        "dict(a=f'{{1}}')",
        "dict(a=1 if 1 else 2)",
        "9**9**9",
        "dict(",
        "[" * 5000,
        "-" * 9000 + "1",
    ],
)
def test_code_is_refused_and_not_run(tmp_path: Path, text: str) -> None:
    place = tmp_path / "made"
    file = tmp_path / "ppo.yml"
    quoted = text.format(place=place).replace("'", "''")
    for key in ("policy_kwargs", "normalize"):
        file.write_text(f"CartPole-v1:\n  policy: MlpPolicy\n  {key}: '{quoted}'\n")
        with pytest.raises(RunFileError, match=key):
            read_zoo(file, "CartPole-v1")
    assert not place.exists()


@pytest.mark.parametrize(
    "text",
    [
        "CartPole-v1: !!python/object/apply:os.getcwd []",
        "CartPole-v1: [1, 2]",
        "- CartPole-v1",
        "CartPole-v1: {train_freq: &a [*a]}",
        "CartPole-v1: {n_steps: -3}",
        "CartPole-v1: {policy_kwargs: 3}",
        "a: &a {k0: 1, k1: 1}\n"
        + "\n".join(f"b{n}: &b{n} {{<<: [{', '.join([f'*b{n - 1}' if n else '*a'] * 9)}]}}" for n in range(9)),
    ],
)
def test_hostile_files_are_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "ppo.yml"
    file.write_text(text)
    with pytest.raises(RunFileError, match=r"ppo\.yml"):
        read_zoo(file, "CartPole-v1")


def test_the_short_form_finds_the_files_that_the_user_names(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLMEM_ZOO", str(folder))
    assert read_zoo_name("zoo:dqn/CartPole-v1")[0].training.batch_size == 64
    assert read_zoo_name("zoo:dqn/ALE/Pong-v5")[0].env.id == "ALE/Pong-v5"
    with pytest.raises(InputError, match=r"no file dqm\.yml; did you mean `dqn`"):
        read_zoo_name("zoo:dqm/CartPole-v1")


@pytest.mark.parametrize("text", ["zoo:dqn", "zoo:", "zoo:../dqn/CartPole-v1", "zoo:dqn/"])
def test_a_short_form_that_is_none(text: str) -> None:
    with pytest.raises(InputError, match="must look like zoo:dqn/BreakoutNoFrameskip-v4"):
        read_zoo_name(text)


def test_without_the_zoos_files_it_says_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RLMEM_ZOO", raising=False)
    monkeypatch.setattr("rlmem.run.zoo.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install rl_zoo3.*RLMEM_ZOO"):
        read_zoo_name("zoo:dqn/CartPole-v1")


def test_plain_values_are_read_as_python_would() -> None:
    assert read_literal("dict(a=-1.5, b=(1, 'x'), c={'d': [True, None]})") == {
        "a": -1.5,
        "b": [1, "x"],
        "c": {"d": [True, None]},
    }
    assert read_literal("dict(f=nn.ReLU)") == {"f": Dotted("nn.ReLU")}

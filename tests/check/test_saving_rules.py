"""Frequencies, files, and settings that do nothing."""

from __future__ import annotations

from typing import Any

import pytest
from stable_baselines3 import DQN, PPO

GAME_BOY = {"n_steps": 8192, "batch_size": 2048, "total_timesteps": 10_000_000}


def test_game_boy_saves_every_ten_iterations(find: Any) -> None:
    (finding,) = find("RLM020", env={"n_envs": 2}, training=GAME_BOY, checkpoint={"save_freq": 81_920})
    assert "81,920 calls × 2 envs is a checkpoint every 163,840 timesteps, every 10 iterations" in finding.message
    assert "40,960" in finding.advice


def test_replay_runs_have_no_iterations_to_speak_of(find: Any) -> None:
    (finding,) = find("RLM020", "SAC", env={"n_envs": 4}, checkpoint={"save_freq": 1000})
    assert "every 4,000 timesteps" in finding.message
    assert "iteration" not in finding.message


@pytest.mark.parametrize(
    "code_and_section", [("RLM020", "checkpoint", "save_freq"), ("RLM021", "evaluation", "eval_freq")]
)
def test_frequencies_that_never_come(find: Any, code_and_section: tuple[str, str, str]) -> None:
    code, section, setting = code_and_section
    training = {"n_steps": 100, "batch_size": 100, "total_timesteps": 1000}
    (finding,) = find(code, training=training, **{section: {setting: 1001}})
    assert "there is never" in finding.message
    assert not find(code, training=training, **{section: {setting: 1000}})
    assert not find(code, training=training, **{section: {}})
    assert not find(code, "ARS", env={"n_envs": 2}, **{section: {setting: 1000}})


def test_eval_freq_counts_calls(find: Any) -> None:
    (finding,) = find("RLM021", env={"n_envs": 8}, training=GAME_BOY, evaluation={"eval_freq": 10_000})
    assert "every 80,000 timesteps" in finding.message


@pytest.mark.parametrize(
    ("algorithm", "sections", "names"),
    [
        ("PPO", {"training": {"buffer_size": 100, "tau": 0.1}}, ["`training.buffer_size`", "`training.tau`"]),
        ("A2C", {"training": {"n_epochs": 3}}, ["`training.n_epochs`"]),
        ("PPO", {"checkpoint": {"save_replay_buffer": True}}, ["`checkpoint.save_replay_buffer`"]),
        ("PPO", {"checkpoint": {"save_vecnormalize": True}}, ["`checkpoint.save_vecnormalize`"]),
        ("PPO", {"policy": {"n_critics": 3}}, ["`policy.n_critics`"]),
        ("SAC", {"policy": {"n_quantiles": 3}}, ["`policy.n_quantiles`"]),
        ("DQN", {"policy": {"share_features_extractor": True}}, ["`policy.share_features_extractor`"]),
        ("PPO", {"policy": {"lstm_hidden_size": 64, "enable_critic_lstm": False}}, ["lstm_hidden_size", "critic_lstm"]),
        ("PPO", {"env": {"start_method": "fork"}}, ["`env.start_method`"]),
        ("PPO", {"processes": {"workers": 3}}, ["`processes.workers`"]),
        ("DQN", {"training": {"n_steps": 3, "replay_buffer_class": "ReplayBuffer"}}, ["`training.n_steps`"]),
    ],
)
def test_settings_that_do_nothing(find: Any, algorithm: str, sections: dict[str, Any], names: list[str]) -> None:
    findings = find("RLM022", algorithm, **sections)
    assert len(findings) == len(names)
    for finding, name in zip(findings, names, strict=True):
        assert name in finding.message


@pytest.mark.parametrize(
    ("algorithm", "sections"),
    [
        ("PPO", {"training": {"n_steps": 64, "gamma": 0.9, "learning_rate": 0.1}}),
        ("SAC", {"checkpoint": {"save_replay_buffer": True}, "training": {"buffer_size": 100, "tau": 0.1}}),
        ("PPO", {"env": {"normalize": True}, "checkpoint": {"save_vecnormalize": True}}),
        ("TQC", {"policy": {"n_critics": 3, "n_quantiles": 30, "share_features_extractor": True}}),
        ("RecurrentPPO", {"policy": {"lstm_hidden_size": 64, "enable_critic_lstm": False, "shared_lstm": True}}),
        ("PPO", {"env": {"start_method": "fork", "workers": "subprocess"}}),
        ("PPO", {"env": {"start_method": "fork"}, "evaluation": {"workers": "subprocess"}}),
        ("DQN", {"training": {"n_steps": 3}}),
    ],
)
def test_settings_that_do_something(find: Any, algorithm: str, sections: dict[str, Any]) -> None:
    assert not find("RLM022", algorithm, **sections)


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        (PPO, {"buffer_size": 10}),
        (PPO, {"policy_kwargs": {"n_critics": 2}}),
        (PPO, {"policy_kwargs": {"lstm_hidden_size": 2}}),
        (DQN, {"policy_kwargs": {"share_features_extractor": True}}),
    ],
)
def test_the_framework_raises_as_the_findings_say(algorithm: Any, options: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="unexpected keyword"):
        algorithm("MlpPolicy", "CartPole-v1", device="cpu", **options)


REPLAY = {"buffer_size": 100_000, "total_timesteps": 100_000, "train_freq": 1}


def test_replay_buffer_in_every_checkpoint(find: Any) -> None:
    run = {"env": {"observation": {"shape": [1000]}}, "training": REPLAY}
    (finding,) = find("RLM023", "SAC", **run, checkpoint={"save_freq": 10_000, "save_replay_buffer": True})
    assert finding.bytes == 10 * 100_000 * (2 * 4000 + 8 + 12)
    assert finding.severity == "warning"
    assert "10 checkpoints" in finding.message
    assert not find("RLM023", "SAC", **run, checkpoint={"save_freq": 10_000})
    assert not find("RLM023", "SAC", **run, checkpoint={"save_freq": 100_001, "save_replay_buffer": True})
    assert not find("RLM023", checkpoint={"save_freq": 10, "save_replay_buffer": True})


def test_small_replay_files_are_only_mentioned(find: Any) -> None:
    (finding,) = find("RLM023", "SAC", training=REPLAY, checkpoint={"save_replay_buffer": True})
    assert finding.severity == "info"
    assert "in all" not in finding.message  # how often is not known


@pytest.mark.parametrize(
    ("files", "severity"),
    [
        ({"total": 25}, "warning"),
        ({}, "warning"),  # as often as the growth says
        ({"total": 25, "keep": 10}, "info"),
        ({"total": 25, "keep": 1}, None),
        ({"total": 1}, None),
        ({"per": "day"}, None),
    ],
)
def test_files_of_an_evolution(find: Any, files: dict[str, Any], severity: str | None) -> None:
    described = {"per": "generation", "files": 17, "size": "31.5MB"} | files
    growth = {"size": "n", "by": 1, "per": "generation", "total": 25}
    findings = find("RLM024", "generic", sizes={"n": 25}, growth=growth, files=described)
    assert [item.severity for item in findings] == ([severity] if severity else [])
    if severity == "warning":
        assert findings[0].bytes == 17 * 31_500_000 * 25


def test_checkpoints_pile_up(find: Any, plan_of: Any) -> None:
    run = {"policy": {"net_arch": [2000, 2000]}, "training": {"n_steps": 100, "total_timesteps": 100_000}}
    save = plan_of(**run, checkpoint={"save_freq": 100}).phase("save")
    model = next(part.bytes for part in save.components if part.path == "save/model_file")
    (finding,) = find("RLM024", **run, checkpoint={"save_freq": 100})
    assert (finding.bytes, finding.severity) == (1000 * model, "warning")
    (kept,) = find("RLM024", **run, checkpoint={"save_freq": 100, "keep": 20})
    assert (kept.bytes, kept.severity) == (20 * model, "info")
    assert not find("RLM024", **run, checkpoint={"save_freq": 100, "keep": 1})
    assert not find("RLM024", **run)

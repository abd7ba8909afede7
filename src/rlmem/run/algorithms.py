"""The algorithms rlmem knows: their family, the settings each one takes, and its defaults.

Read from the constructors of Stable-Baselines3 2.9 and sb3-contrib 2.9; a test holds this table against
the installed classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_COMMON: Final = frozenset(
    {"learning_rate", "seed", "verbose", "tensorboard_log", "stats_window_size", "total_timesteps"}
)
_SDE: Final = frozenset({"use_sde", "sde_sample_freq"})
_ROLLOUT: Final = _COMMON | {
    "n_steps",
    "gamma",
    "gae_lambda",
    "rollout_buffer_class",
    "rollout_buffer_kwargs",
}
_LOSSES: Final = frozenset({"ent_coef", "vf_coef", "max_grad_norm"})
_PPO: Final = (
    _ROLLOUT | _LOSSES | {"batch_size", "n_epochs", "clip_range", "clip_range_vf", "normalize_advantage", "target_kl"}
)
_REPLAY: Final = _COMMON | {
    "buffer_size",
    "learning_starts",
    "batch_size",
    "gamma",
    "train_freq",
    "gradient_steps",
    "replay_buffer_class",
    "replay_buffer_kwargs",
    "optimize_memory_usage",
    "n_steps",
}
_TARGET: Final = frozenset({"tau", "target_update_interval"})
_EXPLORATION: Final = frozenset(
    {"exploration_fraction", "exploration_initial_eps", "exploration_final_eps", "max_grad_norm"}
)
_ENTROPY: Final = frozenset({"ent_coef", "target_entropy", "action_noise", "use_sde_at_warmup"}) | _SDE
_DELAYED: Final = frozenset({"tau", "action_noise", "policy_delay", "target_policy_noise", "target_noise_clip"})
_DELAYED_FIXED: Final = frozenset({"tau", "action_noise"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """One algorithm of a framework: what it is told, and what it takes when it is not told."""

    name: str
    framework: str
    family: str
    settings: frozenset[str]
    batch_size: int | None = None
    n_steps: int = 1
    n_epochs: int = 1
    buffer_size: int | None = None
    train_freq: int = 1
    optimizer: str = "adam"

    @property
    def on_policy(self) -> bool:
        return self.family == "on-policy"

    @property
    def off_policy(self) -> bool:
        return self.family == "off-policy"


def _on_policy(name: str, framework: str, settings: frozenset[str], **defaults: int | str | None) -> Algorithm:
    return Algorithm(name=name, framework=framework, family="on-policy", settings=settings, **defaults)  # type: ignore[arg-type]


def _off_policy(name: str, framework: str, settings: frozenset[str], **defaults: int) -> Algorithm:
    values = {"buffer_size": 1_000_000, "batch_size": 256} | defaults
    return Algorithm(name=name, framework=framework, family="off-policy", settings=settings, **values)  # type: ignore[arg-type]


_ALL: Final = (
    _on_policy("PPO", "sb3", _PPO | _SDE, n_steps=2048, batch_size=64, n_epochs=10),
    _on_policy(
        "A2C",
        "sb3",
        _ROLLOUT | _LOSSES | _SDE | {"rms_prop_eps", "use_rms_prop", "normalize_advantage"},
        n_steps=5,
        optimizer="rmsprop",
    ),
    _on_policy("MaskablePPO", "sb3-contrib", _PPO, n_steps=2048, batch_size=64, n_epochs=10),
    _on_policy(
        "RecurrentPPO",
        "sb3-contrib",
        (_PPO | _SDE) - {"rollout_buffer_class", "rollout_buffer_kwargs"},
        n_steps=128,
        batch_size=128,
        n_epochs=10,
    ),
    _on_policy(
        "TRPO",
        "sb3-contrib",
        _ROLLOUT
        | _SDE
        | {"batch_size", "normalize_advantage", "target_kl", "sub_sampling_factor", "n_critic_updates"}
        | {"cg_max_steps", "cg_damping", "line_search_shrinking_factor", "line_search_max_iter"},
        n_steps=2048,
        batch_size=128,
        n_epochs=1,
    ),
    _off_policy("DQN", "sb3", _REPLAY | _TARGET | _EXPLORATION, batch_size=32, train_freq=4),
    _off_policy("QRDQN", "sb3-contrib", _REPLAY | _TARGET | _EXPLORATION, batch_size=32, train_freq=4),
    _off_policy("SAC", "sb3", _REPLAY | _TARGET | _ENTROPY),
    _off_policy("TQC", "sb3-contrib", _REPLAY | _TARGET | _ENTROPY | {"top_quantiles_to_drop_per_net"}),
    _off_policy("CrossQ", "sb3-contrib", _REPLAY | _ENTROPY | {"policy_delay"}),
    _off_policy("TD3", "sb3", _REPLAY | _DELAYED),
    _off_policy("DDPG", "sb3", (_REPLAY | _DELAYED_FIXED) - {"stats_window_size"}),
    Algorithm(
        name="ARS",
        framework="sb3-contrib",
        family="search",
        settings=_COMMON | {"n_delta", "n_top", "delta_std", "zero_policy", "alive_bonus_offset", "n_eval_episodes"},
    ),
)

ALGORITHMS: Final[dict[str, Algorithm]] = {algorithm.name: algorithm for algorithm in _ALL}

KNOWN_SETTINGS: Final = frozenset().union(*(algorithm.settings for algorithm in _ALL))
"""Every setting that some algorithm takes: another one's setting is not a typing mistake, but does nothing."""

GOAL_REPLAY: Final = "HerReplayBuffer"
N_STEP_REPLAY: Final = "NStepReplayBuffer"
REPLAY_CLASSES: Final = ("ReplayBuffer", "DictReplayBuffer", N_STEP_REPLAY, GOAL_REPLAY)

"""A live model read as it is: its run, the arrays of its buffers, and what its policy has.

Any subclass of a Stable-Baselines3 or sb3-contrib algorithm can be read, with a policy, features extractor,
optimizer or buffer of the user's own. Nothing is copied and no array is touched, so a buffer may be larger than
the machine (see `rlmem.sb3.weightless`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any, Final

from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import SubprocVecEnv, VecEnv, VecFrameStack, VecNormalize

from rlmem.errors import InputError
from rlmem.plan.buffers import BufferArray
from rlmem.plan.policies import PolicyCost
from rlmem.run.algorithms import ALGORITHMS, REPLAY_CLASSES, Algorithm
from rlmem.run.gymnasium_spaces import describe
from rlmem.run.model import Buffer, Env, FrameworkRun, Training
from rlmem.run.spaces import Dict, Discrete
from rlmem.run.validation import complaint
from rlmem.sb3.buffer_reading import buffer_arrays, lean_buffer
from rlmem.sb3.policy_reading import read_cost, read_policy

_SETTINGS: Final = ("n_steps", "batch_size", "n_epochs", "buffer_size", "learning_starts", "gradient_steps", "n_delta")
_DEVICES: Final = ("cpu", "cuda")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReading:
    """A live model: its run as a run file would describe it, and what was read off it in its place.

    ``arrays`` and ``cost`` are the model's own and go before what would be computed from ``run``.
    """

    run: FrameworkRun
    arrays: tuple[BufferArray, ...]
    cost: PolicyCost
    notes: tuple[str, ...]


def read_model(model: BaseAlgorithm, *, total_timesteps: int | None = None) -> ModelReading:
    """Return the reading of a live model; ``total_timesteps`` is how long it will learn, where that is known."""
    spec, algorithm_notes = _algorithm(model)
    run, run_notes = _run(model, spec, total_timesteps)
    arrays, array_notes = buffer_arrays(model)
    cost, cost_notes = read_cost(model, spec.name)
    return ModelReading(
        run=run,
        arrays=arrays,
        cost=cost,
        notes=(*algorithm_notes, *run_notes, *array_notes, *cost_notes),
    )


def _algorithm(model: BaseAlgorithm) -> tuple[Algorithm, tuple[str, ...]]:
    """Return the nearest algorithm that rlmem knows."""
    own = type(model).__name__
    for kind in type(model).__mro__:
        if kind.__name__ in ALGORITHMS:
            notes = () if kind is type(model) else (f"{own} is described as {kind.__name__}, which it derives from",)
            return ALGORITHMS[kind.__name__], notes
    name = _nearest_family(model)
    if name is None:
        raise InputError(f"{own} is neither an on-policy nor an off-policy algorithm of Stable-Baselines3")
    return ALGORITHMS[name], (f"{own} derives from no algorithm that rlmem knows and is described as {name}",)


def _nearest_family(model: BaseAlgorithm) -> str | None:
    if isinstance(model, OnPolicyAlgorithm):
        return "PPO" if hasattr(model, "n_epochs") else "A2C"
    if isinstance(model, OffPolicyAlgorithm):
        return "DQN" if isinstance(describe(model.action_space), Discrete) else "SAC"
    return None


def _run(model: BaseAlgorithm, spec: Algorithm, total_timesteps: int | None) -> tuple[FrameworkRun, tuple[str, ...]]:
    env, env_notes = _env(model)
    assert env.observation is not None  # noqa: S101 - `_env` has read it
    policy, policy_notes = read_policy(model, env.observation, spec.name)
    device = str(model.device)
    known = device.split(":")[0] in _DEVICES
    run = FrameworkRun(
        name=type(model).__name__,
        framework=spec.framework,
        framework_version=version("stable_baselines3"),
        algorithm=spec.name,
        env=env,
        training=_training(model, spec, total_timesteps),
        policy=policy,
        buffer=_buffer(model),
        device=device if known else "cpu",
    )
    notes = env_notes + policy_notes
    if not known:
        notes += (f"the device {device} is planned as the CPU",)
    fitting, complaints = _acceptable(run)
    return fitting, notes + complaints


def _acceptable(run: FrameworkRun) -> tuple[FrameworkRun, tuple[str, ...]]:
    """Return the run, or the nearest one that a run file could hold: models of one's own may go beyond it."""
    problem = complaint(run)
    if problem is None:
        return run, ()
    simpler = replace(run, training=replace(run.training, replay_buffer_class=None))
    head = "MultiInput" if isinstance(run.env.observation, Dict) else "Mlp"
    plain = replace(simpler, policy=replace(run.policy, class_name=f"{head}Policy"))
    found = next((variant for variant in (simpler, plain) if complaint(variant) is None), run)
    return found, (f"a run file could not say this exactly: {problem}",)


def _training(model: Any, spec: Algorithm, total_timesteps: int | None) -> Training:
    settings: dict[str, Any] = {name: _whole(getattr(model, name, None)) for name in _SETTINGS if name in spec.settings}
    if spec.off_policy:
        settings |= _replay_settings(model)
    if "use_sde" in spec.settings:
        settings["use_sde"] = bool(getattr(model, "use_sde", False))
    settings["total_timesteps"] = _whole(total_timesteps) or None
    given = {name: value for name, value in settings.items() if value is not None}
    names = frozenset(given) - {"train_freq_unit", "handle_timeout_termination"}
    timeouts = {"replay_buffer_kwargs"} if given.get("handle_timeout_termination") is False else set()
    return Training(**(_defaults(spec) | given), given=names | timeouts)


def _defaults(spec: Algorithm) -> dict[str, Any]:
    return {
        "n_steps": spec.n_steps,
        "batch_size": spec.batch_size,
        "n_epochs": spec.n_epochs,
        "buffer_size": spec.buffer_size,
        "train_freq": spec.train_freq,
    }


def _replay_settings(model: Any) -> dict[str, Any]:
    frequency = getattr(model, "train_freq", 1)
    amount, unit = frequency if isinstance(frequency, tuple) else (frequency, "step")
    buffer = getattr(model, "replay_buffer", None)
    return {
        "train_freq": _whole(amount),
        "train_freq_unit": str(getattr(unit, "value", unit)),
        "optimize_memory_usage": bool(getattr(model, "optimize_memory_usage", False)),
        "handle_timeout_termination": bool(getattr(buffer, "handle_timeout_termination", True)),
        "replay_buffer_class": _replay_class(buffer),
    }


def _buffer(model: BaseAlgorithm) -> Buffer:
    lean = lean_buffer(model)
    if lean is None:
        return Buffer()
    return Buffer(
        kind="lean",
        compact=bool(lean.compact),
        memory_limit=lean.memory_limit,
        when_full=getattr(lean, "when_full", "error"),
        lossy=lean.lossy,
    )


def _replay_class(buffer: Any) -> str | None:
    return next((kind.__name__ for kind in type(buffer).__mro__ if kind.__name__ in REPLAY_CLASSES), None)


def _whole(value: Any) -> int | None:
    """Return a number as a plain int: settings come as NumPy scalars and as 1e6, too."""
    try:
        return None if value is None or isinstance(value, bool) else int(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _env(model: BaseAlgorithm) -> tuple[Env, tuple[str, ...]]:
    """Return the environment by its spaces as they are stored: frame stacks and transposition are already in them."""
    layers = tuple(vec_env_layers(model.env))
    worker = layers[-1] if layers else None
    workers, start_method, notes = _workers(worker)
    for layer in layers:
        if isinstance(layer, VecFrameStack):
            notes += (f"observations are stacks of {layer.stacked_obs.n_stack} frames (VecFrameStack), as stored",)
        if isinstance(layer, VecNormalize):
            notes += ("VecNormalize stands before the model; its observations are as stored",)
    env = Env(
        observation=describe(model.observation_space),
        action=describe(model.action_space),
        n_envs=int(model.env.num_envs if model.env is not None else model.n_envs or 1),
        workers=workers,
        start_method=start_method,
        transpose_images=False,
        episode_length=_episode_length(worker),
    )
    return env, notes


def vec_env_layers(env: Any) -> Iterator[VecEnv]:
    """Give a vector environment and what it wraps, from the outside in."""
    while isinstance(env, VecEnv):
        yield env
        env = getattr(env, "venv", None)


def _workers(env: VecEnv | None) -> tuple[str, str | None, tuple[str, ...]]:
    processes = getattr(env, "processes", None) or ()
    if not isinstance(env, SubprocVecEnv) and not processes:
        return "in-process", None, ()
    method = getattr(processes[0], "_start_method", None) if processes else None
    notes = () if isinstance(env, SubprocVecEnv) else (f"{type(env).__name__} is taken for a SubprocVecEnv",)
    return "subprocess", method, notes


def _episode_length(env: Any) -> int | None:
    """Return the time limit of environments in this process; workers are not asked."""
    try:
        return _whole(env.envs[0].spec.max_episode_steps)
    except (AttributeError, IndexError):
        return None

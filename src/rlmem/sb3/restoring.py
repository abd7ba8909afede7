"""A training that goes on where a snapshot was taken."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from rlmem.errors import InputError
from rlmem.sb3.model_settings import build
from rlmem.sb3.training_state import KIND, apply
from rlmem.store import Snapshot, Store


def restore(
    url: str | os.PathLike[str],
    env: Any = None,
    *,
    step: int | None = None,
    model: Any = None,
    algorithm: Any = None,
    device: Any = "auto",
    options: Mapping[str, str] | None = None,
    **model_kwargs: Any,
) -> Any:
    """Return a model as it was at the newest snapshot, or at that of ``step``; `learn(remaining(model))` goes on.

    With ``model``, made by your own code, that one is overwritten. Without, it is made from the settings in the
    snapshot: what those cannot say, such as a schedule or a policy in code, is given as in the algorithm's constructor.
    """
    snapshot = Store.open(url, options=options).load(step)
    check_kind(snapshot)
    if model is None:
        model = _built(snapshot, env, algorithm=algorithm, device=device, **model_kwargs)
    elif model_kwargs or algorithm is not None:
        raise InputError("settings are given to the model's constructor, or to restore(), but not to both")
    elif env is not None and env is not model.env:
        model.set_env(env, force_reset=False)
    check_algorithm(snapshot.json("settings"), model)
    apply(snapshot, model)
    return model


def remaining(model: Any) -> int:
    """Return how many timesteps are left of what `learn` was asked for when the snapshot was taken.

    Given to `learn` with ``reset_num_timesteps=False``, schedules go on as they would have.
    """
    return max(int(model._total_timesteps) - int(model.num_timesteps), 0)


def _built(snapshot: Snapshot, env: Any, **kwargs: Any) -> Any:
    if env is None:
        raise InputError("restore needs an environment, or a model that has one")
    return build(snapshot.json("settings"), env, **kwargs)


def check_kind(snapshot: Snapshot, kind: str = KIND) -> None:
    """Raise InputError unless a snapshot is of the kind that is asked for."""
    found = snapshot.metadata.get("kind")
    if found != kind:
        raise InputError(f"snapshot {snapshot.info.label} must be of kind {kind!r}, but is of {found!r}")


def check_algorithm(settings: Mapping[str, Any], model: Any) -> None:
    """Raise InputError unless a model is of the snapshot's algorithm."""
    stored, here = settings["algorithm"], type(model).__name__
    if stored is not None and stored not in {cls.__name__ for cls in type(model).__mro__}:
        raise InputError(f"the snapshot is of {stored}, but the model is a {here}")

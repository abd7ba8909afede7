"""Populations of agents in one snapshot: what did not change since the last, or two agents share, is held once."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Final

from rlmem.errors import InputError
from rlmem.sb3 import plain_tree
from rlmem.sb3.model_settings import build
from rlmem.sb3.restoring import check_algorithm, check_kind
from rlmem.sb3.rng_state import rng_state, set_rng_state
from rlmem.sb3.training_state import apply, contents_of, episode_of, versions
from rlmem.store import Json, Part, Store, Written

KIND: Final = "rlmem-sb3-population"


def save_population(
    url: str | os.PathLike[str],
    models: Mapping[str, Any],
    *,
    step: int,
    save_buffers: bool = False,
    keep: int | None = None,
    metadata: Mapping[str, Any] | None = None,
    options: Mapping[str, str] | None = None,
) -> Written:
    """Save all agents as of now in one snapshot, and return how much had to be written.

    To be called when none of them is training. Their replay buffers are saved only on request.
    """
    store = Store.open(url, create=True, options=options)
    parts: dict[str, Part] = {"agents": Json(value=sorted(models))}
    parts |= plain_tree.parts("rng", rng_state())
    for name, model in models.items():
        parts |= contents_of(model, episode_of(model), save_buffer=save_buffers, prefix=f"agents/{name}/")
    store.save(parts, step=step, metadata={"kind": KIND, "versions": versions(), **(metadata or {})})
    written = store.last_written
    if keep is not None:
        store.collect(keep=keep)
    return written


def restore_population(
    url: str | os.PathLike[str],
    make_env: Callable[[str], Any] | None = None,
    *,
    models: Mapping[str, Any] | None = None,
    step: int | None = None,
    options: Mapping[str, str] | None = None,
    **model_kwargs: Any,
) -> dict[str, Any]:
    """Return the agents of a snapshot by name: ``models`` overwritten, or new ones, each with ``make_env(name)``."""
    snapshot = Store.open(url, options=options).load(step)
    check_kind(snapshot, KIND)
    names = list(snapshot.json("agents"))
    if models is None and make_env is None:
        raise InputError("restore_population needs `models`, or `make_env` to make them with")
    if models is not None and set(models) != set(names):
        raise InputError(
            f"models must be those of the snapshot: {', '.join(names)}; but got {', '.join(sorted(models))}"
        )
    restored = {}
    for name in names:
        settings = snapshot.json(f"agents/{name}/settings")
        made = models[name] if models is not None else build(settings, make_env(name), **model_kwargs)  # type: ignore[misc]
        check_algorithm(settings, made)
        apply(snapshot, made, prefix=f"agents/{name}/", rng=False)
        restored[name] = made
    set_rng_state(plain_tree.read(snapshot, "rng"))
    return restored

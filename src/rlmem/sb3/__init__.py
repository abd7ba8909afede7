"""Everything that imports Stable-Baselines3; what users take from here is imported when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from rlmem.errors import MissingExtra

_HOMES: Final = {
    "Checkpoints": "checkpoints",
    "LeanDictReplayBuffer": "lean_replay",
    "LeanDictRolloutBuffer": "lean_rollout",
    "LeanHerReplayBuffer": "lean_her",
    "LeanMaskableDictRolloutBuffer": "lean_maskable",
    "LeanMaskableRolloutBuffer": "lean_maskable",
    "LeanNStepReplayBuffer": "lean_n_step",
    "LeanRecurrentDictRolloutBuffer": "lean_recurrent",
    "LeanRecurrentRolloutBuffer": "lean_recurrent",
    "LeanReplayBuffer": "lean_replay",
    "LeanRolloutBuffer": "lean_rollout",
    "Restorable": "env_state",
    "remaining": "restoring",
    "restore": "restoring",
    "restore_population": "population",
    "save_population": "population",
    "use_lean_rollout": "lean_recurrent",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        home = import_module(f"{__name__}.{_HOMES[name]}")
    except ModuleNotFoundError as error:
        raise MissingExtra(library=error.name or "a library", extra="sb3", purpose=name) from error
    return getattr(home, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})

"""Which version of Stable-Baselines3 a run uses, and what depends on it."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from rlmem.run.model import FrameworkRun

NEWEST_READ: Final = "2.9.2"
"""The version whose source this model was read from; taken when none is named or installed."""

_NATIVE_DTYPE: Final = (2, 7, 1)
"""From this version on a rollout buffer stores at the space's dtype; before it, at float32."""


def framework_version(run: FrameworkRun) -> tuple[str, str]:
    """Return the version that the plan is for, and how it is known."""
    if run.framework_version is not None:
        return run.framework_version, "named in the run file"
    try:
        return version("stable_baselines3"), "installed here"
    except PackageNotFoundError:
        return NEWEST_READ, "assumed: none is named or installed"


def rollouts_are_float32(run: FrameworkRun) -> bool:
    """Whether the rollout buffer stores every observation and action as float32, whatever the space."""
    name, _ = framework_version(run)
    return _numbers(name) < _NATIVE_DTYPE


def _numbers(name: str) -> tuple[int, ...]:
    digits = [int(part) for part in re.findall(r"\d+", name)[:3]]
    return tuple(digits + [0] * (3 - len(digits)))

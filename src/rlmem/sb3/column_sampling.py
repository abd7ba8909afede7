"""The child that steps a run's real environment with random actions and says how a lean buffer's columns grow."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np

from rlmem.lean.inspection import Growth, Probe
from rlmem.lean.random_play import count_of, leaves_of, play
from rlmem.plan.lean_buffers import LeanColumn, LeanSample, sample_to_dict
from rlmem.run import run_from_mapping
from rlmem.run.child import answer
from rlmem.run.model import FrameworkRun

_MOST_STEPS: Final = 4096
_MOST_SECONDS: Final = 20.0
_FEWEST_STEPS: Final = 64
"""A slow environment is stepped until the time is up, but so often at least."""

_ENVS: Final = 2
_SEED: Final = 0
_MASKS: Final = "action_masks"


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnKind:
    """How a buffer has its columns: their rows, whether next observations are in them, and whether masks are kept."""

    rows: int
    follows: bool
    compact: bool
    masks: bool
    lossy: str | None = None

    @classmethod
    def of(cls, run: FrameworkRun) -> ColumnKind:
        training = run.training
        rows = max((training.buffer_size or 1) // run.n_envs, 1) if run.spec.off_policy else training.n_steps
        masks = run.algorithm == "MaskablePPO"
        return cls(
            rows=rows,
            follows=run.spec.off_policy,
            compact=run.buffer.compact,
            masks=masks,
            lossy=run.buffer.lossy,
        )


def sample_columns(env: Any, kind: ColumnKind, *, most_seconds: float = _MOST_SECONDS) -> LeanSample:
    """Return how the columns of a buffer grow while a vector environment is stepped, which is of no use after that."""
    probes: dict[str, Probe] = {}
    steps = min(kind.rows, _MOST_STEPS)
    begun = time.monotonic()
    for step, transition in enumerate(play(env, seed=_SEED)):
        if step >= steps or (step >= _FEWEST_STEPS and time.monotonic() - begun > most_seconds):
            break
        if not step:
            probes = _probes(env, kind, transition.masks)
        for key, values in transition.observations.items():
            probes[f"observations/{key}"].put(values, transition.following[key])
        if _MASKS in probes and transition.masks is not None:
            probes[_MASKS].put(transition.masks, transition.masks)
    grown = {key: probe.growth() for key, probe in probes.items()}
    return LeanSample(columns=tuple(_column(*item) for item in grown.items()), steps=_steps(grown))


def _probes(env: Any, kind: ColumnKind, masks: Any) -> dict[str, Probe]:
    common: dict[str, Any] = {"rows": kind.rows, "n_envs": count_of(env), "compact": kind.compact}
    probes = {
        f"observations/{leaf.key}": Probe(
            shape=leaf.shape, dtype=leaf.dtype, follows=kind.follows, lossy=kind.lossy, **common
        )
        for leaf in leaves_of(env)
    }
    if kind.masks and masks is not None:
        probes[_MASKS] = Probe(shape=masks.shape[1:], dtype=np.bool_, follows=False, **common)
    return probes


def _column(key: str, growth: Growth) -> LeanColumn:
    return LeanColumn(
        path=f"buffer/{key.partition('/')[0]}",
        row_bytes=growth.row_bytes,
        fixed_bytes=growth.fixed_bytes,
        words=growth.words,
    )


def _steps(grown: Mapping[str, Growth]) -> int:
    return max((growth.rows for growth in grown.values()), default=0)


def question(run: FrameworkRun) -> dict[str, Any]:
    """Return what determines the sample of a run's environment: the environment, and the kind of columns."""
    env = run.env
    named = {"id": env.id, "make": env.make, "wrappers": list(env.wrappers), "frame_stack": env.frame_stack}
    # What a replay buffer stores has not been normalised yet.
    shown = {"normalize": env.normalize and run.spec.on_policy, "n_envs": min(run.n_envs, _ENVS)}
    return {"env": named | shown, "kind": asdict(ColumnKind.of(run))}


def _reply(asked: dict[str, Any]) -> dict[str, Any]:
    """Build the environment as a model would see it, and sample it; runs in the child."""
    from rlmem.sb3.building import build_stored_env

    described = {"framework": "sb3", "algorithm": "PPO", "env": _without_nothing(asked["env"])}
    run = run_from_mapping(described)
    assert isinstance(run, FrameworkRun)  # noqa: S101 - it is described so
    env = build_stored_env(replace(run.env, workers="in-process"))
    return sample_to_dict(sample_columns(env, ColumnKind(**asked["kind"])))


def _without_nothing(mapping: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in mapping.items() if value not in (None, [])}


if __name__ == "__main__":
    answer(_reply, sys.argv[1:])

"""What is trained: the Run, how it is read, and how it is written back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rlmem.errors import InputError
from rlmem.run.environment import read_environment
from rlmem.run.features import read_features
from rlmem.run.model import FrameworkRun, GenericRun, Run
from rlmem.run.run_file import read_run, run_from_mapping
from rlmem.run.run_writer import write_run
from rlmem.run.validation import complaint
from rlmem.run.wrappers import stored_observation


def load_run(path: str | Path) -> Run:
    """Return the run of a run file, what it names by import path or id read from the real thing."""
    return complete_run(read_run(path), source=str(path))


def complete_run(run: Run, *, source: str) -> Run:
    """Return the run with what it names by import path or id read from the real thing."""
    if isinstance(run, GenericRun):
        return run
    run = replace(run, env=read_environment(run.env))
    if problem := complaint(run):
        raise InputError(f"{source}: {problem}")
    return _with_features(run)


def _with_features(run: FrameworkRun) -> FrameworkRun:
    """Return the run with a features extractor that it names by import path read as it is."""
    path = run.policy.features
    if not isinstance(path, str):
        return run
    opaque = read_features(path, stored_observation(run.env), run.policy.features_dim)
    return replace(run, policy=replace(run.policy, features=(opaque,)))


__all__ = ["FrameworkRun", "GenericRun", "Run", "complete_run", "load_run", "read_run", "run_from_mapping", "write_run"]

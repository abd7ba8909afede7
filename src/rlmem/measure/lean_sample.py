"""Lean buffers sized by a sample: the run's own environment, stepped in a child, and remembered."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from rlmem.measure.cache import remembered
from rlmem.plan.lean_buffers import LeanSample, lean_sampled, sample_from_dict
from rlmem.plan.parts import Parts
from rlmem.run.child import ask
from rlmem.run.model import FrameworkRun
from rlmem.run.space_reader import write_space

_TIMEOUT_S: Final = 300.0


def with_sample(run: FrameworkRun, parts: Parts) -> Parts:
    """Return the parts of a run with its lean buffer as the environment fills it; unchanged where there is none."""
    if not run.buffer.is_lean or not (run.env.id or run.env.make):
        return parts
    arrays, notes = lean_sampled(run, parts.arrays, sampled(run))
    return replace(parts, arrays=arrays, notes=notes)


def sampled(run: FrameworkRun) -> LeanSample:
    """Return how the columns of the run's buffer grow, from memory where it was found before."""
    from rlmem.sb3.column_sampling import question

    asked = question(run)
    # The spaces were read just now: an environment that has changed them is another one.
    spaces = write_space(run.env.observation) if run.env.observation is not None else None
    subject = f"the environment {run.env.id or run.env.make}"
    return sample_from_dict(
        remembered(
            "lean",
            asked | {"observation": spaces},
            lambda: ask("rlmem.sb3.column_sampling", asked, subject=subject, timeout_s=_TIMEOUT_S),
        )
    )

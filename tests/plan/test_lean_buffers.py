"""Runs with lean buffers whose environment nobody has stepped: bounds that say so, and the limit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rlmem.check import check_plan
from rlmem.machine import read_machine
from rlmem.plan import Plan, make_plan
from rlmem.plan.lean_buffers import NO_SAMPLE, LeanColumn, LeanSample, lean_sampled, sample_from_dict, sample_to_dict
from rlmem.plan.parts import described_parts
from rlmem.run import FrameworkRun, run_from_mapping

IMAGE = {"shape": [84, 84, 1], "dtype": "uint8"}
SAMPLE = LeanSample(
    columns=(
        LeanColumn(path="buffer/observations", row_bytes=90.5, fixed_bytes=1000, words="frame stack"),
        LeanColumn(path="buffer/action_masks", row_bytes=3.2, fixed_bytes=0, words="2 distinct values"),
    ),
    steps=500,
)


def _run(algorithm: str, buffer: Any = "lean", **training: Any) -> FrameworkRun:
    run = run_from_mapping(
        {
            "framework": "sb3",
            "algorithm": algorithm,
            "env": {"observation": IMAGE, "action": {"discrete": 64}, "n_envs": 2, "frame_stack": 4},
            "training": training,
            "buffer": buffer,
        }
    )
    assert isinstance(run, FrameworkRun)
    return run


def _plan(run: FrameworkRun, sample: LeanSample | None = None) -> Plan:
    parts = described_parts(run)
    if sample is not None:
        arrays, notes = lean_sampled(run, parts.arrays, sample)
        parts = replace(parts, arrays=arrays, notes=notes)
    return make_plan(run, read_machine(), parts)


def _component(plan: Plan, path: str, phase: str = "collect") -> Any:
    found = plan.phase(phase)
    assert found is not None
    return next((part for part in found.components if part.path == path), None)


@pytest.mark.parametrize("algorithm", ["PPO", "A2C", "TRPO", "MaskablePPO", "DQN", "QRDQN"])
def test_without_a_sample_plain_arrays_are_the_bound_and_the_plan_says_so(algorithm: str) -> None:
    stock, lean = _plan(_run(algorithm, "stock")), _plan(_run(algorithm))
    held = [_component(stock, path) for path in ("buffer/observations", "buffer/next_observations")]
    observations = _component(lean, "buffer/observations")
    assert observations.bytes == sum(part.bytes for part in held if part)
    assert observations.basis == "assumed"
    assert "at most" in observations.formula
    assert NO_SAMPLE in lean.notes
    paths = {part.path for phase in lean.phases for part in phase.components}
    assert not paths & {"buffer/next_observations", "buffer/flatten_copy"}
    assert lean.phase("flatten") is None


def test_recurrent_states_are_still_copied() -> None:
    run = run_from_mapping(
        {
            "framework": "sb3-contrib",
            "algorithm": "RecurrentPPO",
            "env": {"observation": {"shape": [4]}, "action": {"discrete": 2}, "n_envs": 4},
            "buffer": "lean",
        }
    )
    assert isinstance(run, FrameworkRun)
    plan = _plan(run)
    assert _component(plan, "buffer/flatten_copy", "flatten").bytes == 128 * 4 * 256 * 4


def test_a_sample_is_what_the_plan_is_made_from() -> None:
    plan = _plan(_run("DQN", buffer_size=10_000), SAMPLE)
    observations = _component(plan, "buffer/observations")
    assert observations.bytes == 10_000 * 91 + 2 * 1000
    assert observations.basis == "measured"
    assert "500 steps of the real environment (frame stack)" in observations.formula
    assert NO_SAMPLE not in plan.notes
    assert plan.growth is not None
    assert plan.growth.bytes_per == 91 + 3 * 4 + 8


def test_only_what_is_reserved_is_shown_as_reserved() -> None:
    plan = _plan(_run("DQN", buffer_size=10_000, total_timesteps=1000), SAMPLE)
    assert _component(plan, "buffer/observations").bytes == 1000 * 91 + 2 * 1000
    assert _component(plan, "buffer/never_filled").bytes == 9000 * (3 * 4 + 8)
    assert _component(plan, "buffer/reserved", "startup").bytes == 10_000 * (3 * 4 + 8)


def test_masks_are_columns_too() -> None:
    bound, sampled = _plan(_run("MaskablePPO")), _plan(_run("MaskablePPO"), SAMPLE)
    assert _component(bound, "buffer/action_masks").bytes == 2048 * 2 * 64
    assert _component(bound, "buffer/action_masks", "startup") is None
    assert _component(sampled, "buffer/action_masks").bytes == 2048 * 2 * 4


@pytest.mark.parametrize(("when_full", "words"), [("error", "raises MemoryLimitReached"), ("forget", "its oldest")])
def test_a_limit_is_never_passed_and_said_to_be_reached(when_full: str, words: str) -> None:
    buffer = {"kind": "lean", "memory_limit": "500kB", "when_full": when_full}
    plan = _plan(_run("DQN", buffer, buffer_size=10_000), SAMPLE)
    paths = ("buffer/observations", "buffer/actions", "buffer/scalars")
    assert sum(_component(plan, path).bytes for path in paths) == 500_000
    assert any("would take" in note and words in note for note in plan.notes)


def test_a_limit_that_is_not_reached_changes_nothing() -> None:
    limited = _run("DQN", {"kind": "lean", "memory_limit": "2GB"}, buffer_size=10_000)
    assert _plan(limited, SAMPLE).peak == _plan(_run("DQN", buffer_size=10_000), SAMPLE).peak


def test_rules_about_plain_arrays_are_silent() -> None:
    codes = {finding.code for finding in check_plan(_plan(_run("DQN", "stock", buffer_size=100_000)))}
    lean = {finding.code for finding in check_plan(_plan(_run("DQN", buffer_size=100_000), SAMPLE))}
    assert {"RLM010", "RLM011"} <= codes
    assert not lean & {"RLM010", "RLM011", "RLM012"}


def test_a_sample_survives_json() -> None:
    assert sample_from_dict(sample_to_dict(SAMPLE)) == SAMPLE

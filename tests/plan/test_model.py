"""What must hold of every plan, whatever the run."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rlmem.errors import RlmemError
from rlmem.machine import Machine
from rlmem.plan import Plan, make_plan
from rlmem.plan.model import BASES, PLACES
from rlmem.run import FrameworkRun, run_from_mapping
from rlmem.run.algorithms import ALGORITHMS

MACHINE = Machine(
    ram_total_bytes=64 * 2**30,
    ram_available_bytes=None,
    ram_limit_bytes=64 * 2**30,
    ram_limit_source="given",
    cgroup_usage_bytes=None,
    swap_total_bytes=0,
    swap_free_bytes=0,
    cores=8,
    cores_total=8,
    gpus=(),
)
VECTOR = {"shape": [11]}
IMAGE = {"shape": [84, 84, 1], "dtype": "uint8"}
MIXED = {"dict": {"camera": {"shape": [64, 64, 3], "dtype": "uint8"}, "speed": {"shape": [3]}}}
OBSERVATIONS = {"Mlp": VECTOR, "Cnn": IMAGE, "MultiInput": MIXED}
MLP_ONLY = ("ARS", "CrossQ")


@st.composite
def mappings(draw: Any) -> dict[str, Any]:
    """A run file's mapping: any algorithm, on vectors, images or both, in any layout of processes."""
    algorithm = draw(st.sampled_from(sorted(ALGORITHMS)))
    spec = ALGORITHMS[algorithm]
    head = "Mlp" if algorithm in MLP_ONLY else draw(st.sampled_from(sorted(OBSERVATIONS)))
    action = {"discrete": 4} if algorithm in ("DQN", "QRDQN", "MaskablePPO") else {"shape": [3]}
    training = draw(st.fixed_dictionaries({}, optional={"total_timesteps": st.integers(1, 10**7)}))
    for key, values in (
        ("n_steps", st.integers(2, 4096) if spec.on_policy else st.just(1)),
        ("batch_size", st.integers(2, 4096)),
        ("buffer_size", st.integers(1, 10**6)),
    ):
        if key in spec.settings:
            training[key] = draw(values)
    mapping = {
        "framework": spec.framework,
        "algorithm": algorithm,
        "env": {"observation": OBSERVATIONS[head], "action": action, "n_envs": draw(st.integers(1, 64))},
        "training": training,
        "policy": {"class": head + ("LstmPolicy" if algorithm == "RecurrentPPO" else "Policy")},
        "device": draw(st.sampled_from(["cpu", "cuda"])),
    }
    mapping["env"] |= draw(
        st.fixed_dictionaries(
            {},
            optional={
                "workers": st.sampled_from(["in-process", "subprocess"]),
                "start_method": st.sampled_from(["fork", "forkserver", "spawn"]),
                "frame_stack": st.integers(1, 8),
            },
        )
    )
    return mapping | draw(
        st.fixed_dictionaries(
            {},
            optional={
                "evaluation": st.fixed_dictionaries({}, optional={"n_envs": st.integers(1, 8)}),
                "checkpoint": st.fixed_dictionaries({}, optional={"save_replay_buffer": st.booleans()}),
                "processes": st.fixed_dictionaries(
                    {}, optional={"threads": st.integers(1, 64), "env": st.integers(0, 2**30)}
                ),
                "framework_version": st.sampled_from(["2.3.2", "2.9.2"]),
            },
        )
    )


def plan_of(mapping: dict[str, Any]) -> Plan:
    run = run_from_mapping(mapping)
    assert isinstance(run, FrameworkRun)
    return make_plan(run, MACHINE)


@settings(max_examples=300, deadline=None)
@given(mapping=mappings())
def test_every_plan(mapping: dict[str, Any]) -> None:
    plan = plan_of(mapping)
    for phase in plan.phases:
        assert all(component.bytes >= 0 for component in phase.components)
        assert all(component.where in PLACES and component.basis in BASES for component in phase.components)
        assert all(component.formula for component in phase.components)
        paths = Counter(component.path for component in phase.components)
        assert max(paths.values()) == 1, paths.most_common(1)
        assert phase.ram_bytes == sum(component.bytes for component in phase.components if component.where == "ram")
    assert len({phase.name for phase in plan.phases}) == len(plan.phases)
    peak, steady = plan.peak, plan.steady
    assert peak.ram_bytes == max(phase.ram_bytes for phase in plan.phases)
    assert peak.vram_bytes == max(phase.vram_bytes for phase in plan.phases)
    assert plan.phase(peak.ram_phase).ram_bytes == peak.ram_bytes
    assert steady.ram_bytes <= peak.ram_bytes
    assert steady.vram_bytes <= peak.vram_bytes
    assert steady.ram_bytes <= min(phase.ram_bytes for phase in plan.phases[1:])
    assert (peak.vram_bytes > 0) == (mapping["device"] == "cuda")
    assert plan.fits.ram == (peak.ram_bytes <= MACHINE.ram_limit_bytes)
    assert plan.parameters > 0


@settings(max_examples=300, deadline=None)
@given(
    mapping=mappings(),
    key=st.sampled_from(
        ["env/n_envs", "env/frame_stack", "training/n_steps", "training/batch_size", "training/buffer_size"]
    ),
    factor=st.integers(2, 5),
)
def test_more_never_takes_less(mapping: dict[str, Any], key: str, factor: int) -> None:
    """A replay buffer is shared out evenly, so that more environments can hold less than one row each fewer."""
    section, name = key.split("/")
    assume(name in mapping[section])
    assume(not (name == "n_steps" and not ALGORITHMS[mapping["algorithm"]].on_policy))
    larger = mapping | {section: mapping[section] | {name: mapping[section][name] * factor}}
    slack = _rounding(mapping, larger) if name == "n_envs" else 0
    before, after = plan_of(mapping).peak, plan_of(larger).peak
    assert after.ram_bytes >= before.ram_bytes - slack
    assert after.vram_bytes >= before.vram_bytes


def _rounding(mapping: dict[str, Any], larger: dict[str, Any]) -> int:
    """Return what the even share of a replay buffer loses at most: a row for each environment."""
    if not ALGORITHMS[mapping["algorithm"]].off_policy:
        return 0
    update = plan_of(larger).phase("update")
    rows = larger["env"]["n_envs"]
    buffer = sum(part.bytes for part in update.components if part.path.startswith("buffer/"))
    return (
        buffer
        if mapping["training"]["buffer_size"] < rows
        else rows * buffer // (mapping["training"]["buffer_size"] - rows + 1)
    )


@pytest.mark.parametrize("algorithm", ["PPO", "DQN", "SAC"])
def test_unread_spaces_are_not_planned(algorithm: str) -> None:
    run = run_from_mapping({"framework": "sb3", "algorithm": algorithm, "env": {"id": "CartPole-v1"}})
    with pytest.raises(RlmemError, match="have not been read"):
        make_plan(run, MACHINE)


def test_a_buffer_that_never_fills_is_reserved_and_not_resident() -> None:
    mapping = {
        "framework": "sb3",
        "algorithm": "DQN",
        "env": {"observation": IMAGE, "action": {"discrete": 4}},
        "training": {"buffer_size": 1_000_000, "total_timesteps": 1000},
    }
    plan = plan_of(mapping)
    update = {part.path: part for part in plan.phase("update").components}
    assert update["buffer/observations"].bytes == 1000 * 84 * 84
    assert update["buffer/never_filled"].where == "virtual"
    whole = sum(part.bytes for path, part in update.items() if path.startswith("buffer/"))
    assert whole == 1_000_000 * (2 * 84 * 84 + 8 + 3 * 4)
    assert plan.peak.ram_bytes < 10**9


def test_vram_limit_is_the_named_card() -> None:
    run = run_from_mapping(
        {
            "framework": "sb3",
            "algorithm": "PPO",
            "env": {"observation": VECTOR, "action": {"discrete": 4}},
            "device": "cuda:3",
        }
    )
    assert make_plan(run, MACHINE).fits.vram is None

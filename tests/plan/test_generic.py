"""Generic runs: growth and capacity against plans made directly at several sizes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlmem.machine import Machine
from rlmem.plan import make_plan
from rlmem.run import GenericRun, run_from_mapping

GIB = 2**30


def swarm(agents: int = 1000, **parts: Any) -> GenericRun:
    """Many agents in one process: a rollout of 100 steps of each, and all its rows in one graph."""
    run = run_from_mapping(
        {
            "framework": "generic",
            "sizes": {"agents": agents, "steps": 100},
            "arrays": [
                {"path": "buffer/observations", "shape": ["steps", "agents", 1804], "phases": ["collect", "update"]},
                {"path": "buffer/actions", "shape": [4], "count": ["steps", "agents"], "phases": ["collect", "update"]},
                {"path": "process/states", "shape": [17], "count": "agents", "dtype": "float64"},
            ],
            "networks": [
                {
                    "name": "policy",
                    "input": [1804],
                    "layers": [{"linear": 128}, "tanh", {"linear": 128}, "tanh", {"linear": 4}],
                    "rows": ["steps", "agents"],
                }
            ],
            **parts,
        }
    )
    assert isinstance(run, GenericRun)
    return run


def filling(capacity: int = 50_000, by: int = 2320, **parts: Any) -> GenericRun:
    """A replay buffer that fills by so many transitions a generation."""
    run = run_from_mapping(
        {
            "framework": "generic",
            "sizes": {"transitions": capacity},
            "arrays": [
                {"path": "buffer/observations", "shape": ["transitions", 504, 669, 9]},
                {"path": "buffer/next", "shape": [504, 669, 9], "count": "transitions", "every": 145},
                {"path": "buffer/actions", "shape": ["transitions", 108, 2]},
            ],
            "networks": [{"name": "actor", "parameters": 990_402, "copies": 16}],
            "growth": {"size": "transitions", "by": by, "per": "generation"},
            **parts,
        }
    )
    assert isinstance(run, GenericRun)
    return run


def with_size(run: GenericRun, **sizes: int) -> GenericRun:
    return replace(run, sizes=tuple((name, sizes.get(name, size)) for name, size in run.sizes))


def with_ram(machine: Machine, size: int) -> Machine:
    return replace(machine, ram_total_bytes=size, ram_limit_bytes=size)


def peak(run: GenericRun, machine: Machine) -> int:
    return make_plan(run, machine).peak.ram_bytes


def test_arrays_are_what_numpy_would_allocate(machine: Machine) -> None:
    parts = {part.path: part.bytes for part in make_plan(swarm(), machine).phase("update").components}
    assert parts["buffer/observations"] == torch.empty(100, 1000, 1804, device="meta").nbytes
    assert parts["buffer/actions"] == torch.empty(100, 1000, 4, device="meta").nbytes
    assert parts["process/states"] == torch.empty(1000, 17, dtype=torch.float64, device="meta").nbytes


def test_network_is_what_torch_would_allocate(machine: Machine) -> None:
    plan = make_plan(swarm(), machine)
    network = torch.nn.Sequential(
        torch.nn.Linear(1804, 128), torch.nn.Tanh(), torch.nn.Linear(128, 128), torch.nn.Tanh(), torch.nn.Linear(128, 4)
    )
    optimizer = torch.optim.Adam(network.parameters())
    network(torch.rand(2, 1804)).sum().backward()
    optimizer.step()
    state = [value for group in optimizer.state.values() for value in group.values()]
    parts = {part.path: part.bytes for part in plan.phase("update").components}
    assert plan.parameters == sum(parameter.numel() for parameter in network.parameters())
    assert parts["network/parameters/policy"] == sum(parameter.nbytes for parameter in network.parameters())
    assert parts["network/gradients/policy"] == sum(parameter.grad.nbytes for parameter in network.parameters())
    assert parts["network/optimizer/policy"] == sum(tensor.nbytes for tensor in state)


def test_arrays_live_in_their_phases_only(machine: Machine) -> None:
    plan = make_plan(swarm(), machine)
    paths = {phase.name: {part.path for part in phase.components} for phase in plan.phases}
    assert "buffer/observations" not in paths["startup"]
    assert "buffer/observations" in paths["collect"]
    assert "update/activations/policy" not in paths["collect"]
    assert "process/states" in paths["startup"]


@pytest.mark.parametrize("agents", [1, 100, 1000, 20_000])
def test_capacity_is_a_line_through_the_plans(machine: Machine, agents: int) -> None:
    capacity = make_plan(swarm(capacity="agents"), machine).capacity
    assert capacity.fixed_bytes + agents * capacity.per_unit_bytes == peak(swarm(agents), machine)


@pytest.mark.parametrize("ram", [1, 2, 16, 128])
def test_capacity_is_the_largest_that_fits(machine: Machine, ram: int) -> None:
    small = with_ram(machine, ram * GIB)
    largest = make_plan(swarm(capacity="agents"), small).capacity.largest_that_fits
    assert largest >= 1
    assert make_plan(swarm(largest), small).fits.ram
    assert not make_plan(swarm(largest + 1), small).fits.ram


def test_capacity_is_none_at_all_on_a_tiny_machine(machine: Machine) -> None:
    assert make_plan(swarm(capacity="agents"), with_ram(machine, 2**20)).capacity.largest_that_fits == 0


def test_capacity_without_a_slope_has_no_end(machine: Machine) -> None:
    run = run_from_mapping({"framework": "generic", "sizes": {"n": 3}, "capacity": "n"})
    assert make_plan(run, machine).capacity.largest_that_fits is None


def test_slopes_add_up_to_the_whole(machine: Machine) -> None:
    capacity = make_plan(swarm(capacity="agents"), machine).capacity
    assert sum(slope.per_unit_bytes for slope in capacity.slopes) == capacity.per_unit_bytes
    assert sum(slope.fixed_bytes for slope in capacity.slopes) == capacity.fixed_bytes


@settings(max_examples=60, deadline=None)
@given(capacity=st.integers(1, 10**6), by=st.integers(1, 10**5), ram=st.integers(1, 4096))
def test_growth_against_plans_at_each_size(machine: Machine, capacity: int, by: int, ram: int) -> None:
    limited = with_ram(machine, ram * GIB)
    run = filling(capacity, by)
    growth = make_plan(run, limited).growth
    assert growth.full_bytes == peak(run, limited)
    assert (growth.full_at - 1) * by < capacity <= growth.full_at * by
    if growth.limit_at is None:
        assert make_plan(run, limited).fits.ram
        return
    assert 1 <= growth.limit_at <= growth.full_at
    assert peak(with_size(run, transitions=min(growth.limit_at * by, capacity)), limited) > limited.ram_limit_bytes
    if growth.limit_at > 1:
        assert peak(with_size(run, transitions=(growth.limit_at - 1) * by), limited) <= limited.ram_limit_bytes


def test_growth_per_unit_is_the_difference_of_two_plans(machine: Machine) -> None:
    run = filling(capacity=145 * 1000, by=145)
    growth = make_plan(run, machine).growth
    sizes = [peak(with_size(run, transitions=count), machine) for count in (145, 290, 435)]
    assert growth.bytes_per == sizes[1] - sizes[0] == sizes[2] - sizes[1]


def test_growth_that_fills_in_one_unit(machine: Machine) -> None:
    run = filling(capacity=100, by=1000)
    growth = make_plan(run, machine).growth
    assert growth.full_at == 1
    assert growth.bytes_per == growth.full_bytes - peak(filling(capacity=1, by=1), machine) + _one_transition()


def _one_transition() -> int:
    return 504 * 669 * 9 * 4 * 2 + 108 * 2 * 4


@settings(max_examples=60, deadline=None)
@given(
    total=st.integers(1, 2 * 10**6) | st.none(),
    n_envs=st.integers(1, 16),
    buffer_size=st.integers(1, 10**6),
    ram=st.sampled_from([2, 8, 64]),
)
def test_replay_growth_against_plans(
    machine: Machine, make_run: Any, total: int | None, n_envs: int, buffer_size: int, ram: int
) -> None:
    """A run that stops where the limit is reached fits until then, and not after."""
    limited = with_ram(machine, ram * GIB)
    observation = {"shape": [84, 84, 4], "dtype": "uint8"}

    def run(steps: int | None) -> Any:
        training = {"buffer_size": buffer_size} | ({} if steps is None else {"total_timesteps": steps})
        return make_run("DQN", observation, {"discrete": 4}, env={"n_envs": n_envs}, training=training)

    plan = make_plan(run(total), limited)
    growth = plan.growth
    assert growth.full_bytes == plan.peak.ram_bytes
    assert (growth.limit_at is None) == plan.fits.ram
    if growth.limit_at is not None:
        reached = -(-growth.limit_at // n_envs) * n_envs
        assert not make_plan(run(reached), limited).fits.ram
        if growth.limit_at > n_envs:
            assert make_plan(run(growth.limit_at - n_envs), limited).fits.ram


def test_copies_and_targets(machine: Machine) -> None:
    network = {"name": "q", "parameters": 1000, "copies": 3, "targets": 1, "active": 2, "optimizer": "sgd+momentum"}
    run = run_from_mapping({"framework": "generic", "networks": [network]})
    parts = {part.path: part.bytes for part in make_plan(run, machine).phase("update").components}
    assert parts["network/parameters/q"] == 3 * 2 * 1000 * 4
    assert parts["network/gradients/q"] == 2 * 1000 * 4
    assert parts["network/optimizer/q"] == 2 * 1000 * 4


def test_virtual_and_disk_count_towards_no_limit(machine: Machine) -> None:
    arrays = [{"path": f"other/{where}", "shape": [2**40], "where": where} for where in ("virtual", "disk")]
    run = run_from_mapping(
        {"framework": "generic", "arrays": arrays, "processes": {"threads": 1000, "thread_stack": "1GiB"}}
    )
    assert make_plan(run, machine).fits.ram

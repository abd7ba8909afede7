"""Runs from a few words, and what one rule has to say about them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rlmem.check import Finding, check_plan, check_script, parse_script
from rlmem.machine import Gpu, Machine, budget_machine
from rlmem.plan import Plan, make_plan
from rlmem.run import run_from_mapping

GB = 10**9
IMAGE = {"shape": [84, 84, 1], "dtype": "uint8"}
DISCRETE_ONLY = ("DQN", "QRDQN", "MaskablePPO")
BIG = Machine(
    ram_total_bytes=1000 * GB,
    ram_available_bytes=None,
    ram_limit_bytes=1000 * GB,
    ram_limit_source="physical RAM",
    cgroup_usage_bytes=None,
    swap_total_bytes=0,
    swap_free_bytes=0,
    cores=8,
    cores_total=8,
    gpus=(Gpu(index=0, name="card", vram_total_bytes=1000 * GB, vram_free_bytes=None, driver=None),),
)

PlanMaker = Callable[..., Plan]
Finder = Callable[..., tuple[Finding, ...]]


def _mapping(algorithm: str, env: dict[str, Any], sections: dict[str, Any]) -> dict[str, Any]:
    action = {"discrete": 2} if algorithm in ("PPO", "A2C", "TRPO", "RecurrentPPO", *DISCRETE_ONLY) else {"shape": [2]}
    spaces = {"observation": {"shape": [4]}, "action": action}
    return {"framework": "sb3", "algorithm": algorithm, "env": spaces | env, **sections}


@pytest.fixture
def plan_of() -> PlanMaker:
    """Make a plan of a run that is only described where it matters, on a machine that is large unless told."""

    def make(
        algorithm: str = "PPO",
        *,
        env: dict[str, Any] | None = None,
        ram: int | None = None,
        vram: int | None = None,
        cores: int = 8,
        **sections: Any,
    ) -> Plan:
        mapping = sections if algorithm == "generic" else _mapping(algorithm, env or {}, sections)
        run = run_from_mapping({"framework": "generic"} | mapping)
        machine = budget_machine(BIG, ram_bytes=ram, vram_bytes=vram)
        return make_plan(run, type(machine)(**{**_fields(machine), "cores": cores}))

    return make


def _fields(machine: Machine) -> dict[str, Any]:
    return {name: getattr(machine, name) for name in machine.__dataclass_fields__}


@pytest.fixture
def find(plan_of: PlanMaker) -> Finder:
    """Return the findings of one rule about a run."""

    def findings(code: str, *run: Any, **sections: Any) -> tuple[Finding, ...]:
        return tuple(item for item in check_plan(plan_of(*run, **sections)) if item.code == code)

    return findings


@pytest.fixture
def find_in_script() -> Finder:
    """Return the findings of one rule about a script's text."""

    def findings(code: str, source: str) -> tuple[Finding, ...]:
        return tuple(item for item in check_script(parse_script(source)) if item.code == code)

    return findings

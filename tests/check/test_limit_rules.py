"""The peak against the limits, and what decides it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rlmem.check import check_plan

BUFFER = {"env": {"observation": {"shape": [10_000]}, "n_envs": 4}, "training": {"n_steps": 2048}}
CNN = {"env": {"observation": {"shape": [84, 84, 4], "dtype": "uint8"}}, "policy": {"class": "CnnPolicy"}}


def _codes(plan: Any, *codes: str) -> list[tuple[str, str]]:
    return [(item.code, item.severity) for item in check_plan(plan) if item.code in codes]


@pytest.mark.parametrize(
    ("percent", "expected"),
    [
        (89, []),
        (91, [("RLM032", "warning")]),
        (100, [("RLM032", "warning")]),
        (101, [("RLM033", "error")]),
    ],
)
def test_ram_against_the_limit(plan_of: Any, percent: int, expected: list[tuple[str, str]]) -> None:
    peak = plan_of(**BUFFER).peak.ram_bytes
    assert _codes(plan_of(**BUFFER, ram=peak * 100 // percent), "RLM032", "RLM033") == expected


def test_exactly_the_limit_fits(plan_of: Any) -> None:
    peak = plan_of(**BUFFER).peak.ram_bytes
    assert _codes(plan_of(**BUFFER, ram=peak), "RLM032", "RLM033") == [("RLM032", "warning")]
    assert _codes(plan_of(**BUFFER, ram=peak - 1), "RLM032", "RLM033") == [("RLM033", "error")]


def test_over_the_limit_says_what_decides_and_who_limits(plan_of: Any) -> None:
    plan = plan_of(**BUFFER, ram=10**9)
    (finding,) = (item for item in check_plan(plan) if item.code == "RLM033")
    assert finding.bytes == plan.peak.ram_bytes - 10**9
    assert "(flatten)" in finding.message
    assert "buffer/observations decides with 312.5 MiB" in finding.message
    assert "cgroup" not in finding.message
    limited = replace(plan, machine=replace(plan.machine, ram_limit_source="cgroup v2 job/memory.max"))
    (finding,) = (item for item in check_plan(limited) if item.code == "RLM033")
    assert "that cgroup v2 job/memory.max sets" in finding.message


def test_a_filling_buffer_says_when(plan_of: Any) -> None:
    plan = plan_of("DQN", env={"observation": {"shape": [10_000]}}, training={"buffer_size": 100_000}, ram=2 * 10**9)
    (finding,) = (item for item in check_plan(plan) if item.code == "RLM033")
    assert f"reached at timestep {plan.growth.limit_at:,}" in finding.message
    assert "smaller buffer_size" in finding.advice


@pytest.mark.parametrize(
    ("sections", "advice"),
    [
        ({"env": {"n_envs": 20, "workers": "subprocess"}}, "fewer worker processes"),
        ({"policy": {"net_arch": [20_000, 20_000]}, "training": {"n_steps": 8, "batch_size": 8}}, "a smaller network"),
    ],
)
def test_the_advice_goes_to_what_decides(find: Any, sections: dict[str, Any], advice: str) -> None:
    (finding,) = find("RLM033", **sections, ram=10**9)
    assert advice in finding.advice


@pytest.mark.parametrize(("percent", "severity"), [(89, None), (95, "warning"), (101, "error")])
def test_vram_against_the_card(plan_of: Any, percent: int, severity: str | None) -> None:
    peak = plan_of(**CNN, device="cuda").peak.vram_bytes
    plan = plan_of(**CNN, device="cuda", vram=peak * 100 // percent)
    assert _codes(plan, "RLM034") == ([("RLM034", severity)] if severity else [])


def test_no_card_no_verdict(plan_of: Any) -> None:
    plan = plan_of(**CNN, device="cuda")
    assert not _codes(replace(plan, machine=replace(plan.machine, gpus=())), "RLM034")
    assert not _codes(plan_of(**CNN, vram=1), "RLM034")


def test_activations_dominate(find: Any, plan_of: Any) -> None:
    run = {"training": {"n_steps": 32_768, "batch_size": 32_768}, "policy": {"net_arch": [4096, 4096]}}
    update = plan_of(**run).phase("update")
    size = next(part.bytes for part in update.components if part.path == "update/activations")
    (finding,) = find("RLM035", **run)
    assert finding.bytes == size > update.ram_bytes / 2
    assert "for each of 32,768 rows" in finding.message
    assert not find("RLM035", **run | {"training": {"n_steps": 32_768, "batch_size": 64}})
    assert not find("RLM035", **CNN, device="cuda")


def test_activations_of_generic_networks(find: Any) -> None:
    network = {"name": "encoder", "parameters": 1000, "activations_per_row": 25_000, "rows": ["drones", 100]}
    (finding,) = find("RLM035", "generic", sizes={"drones": 200}, networks=[network])
    assert "encoder: 97.7 KiB for each of 20,000 rows" in finding.message
    assert not find("RLM035", "generic", sizes={"drones": 10}, networks=[network])

"""Workers, threads and the GPU against the machine."""

from __future__ import annotations

from typing import Any

import pytest

WORKERS = {"workers": "subprocess"}
FORKED = WORKERS | {"start_method": "fork"}  # which starts no helper processes beside the workers


@pytest.mark.parametrize(
    ("n_envs", "evaluation", "fires"),
    [(17, 0, True), (16, 0, False), (10, 7, True), (10, 6, False)],
)
def test_more_workers_than_cores_can_feed(find: Any, n_envs: int, evaluation: int, fires: bool) -> None:
    beside = {"evaluation": {"n_envs": evaluation, **WORKERS}} if evaluation else {}
    findings = find("RLM030", env={"n_envs": n_envs, **WORKERS}, **beside)
    assert len(findings) == fires
    if fires:
        assert "17 worker processes share 8 cores" in findings[0].message


def test_workers_in_the_main_process_and_generic_ones(find: Any) -> None:
    assert not find("RLM030", env={"n_envs": 100})
    assert find("RLM030", "generic", processes={"workers": 100})
    assert not find("RLM030", "generic", processes={"workers": 3})


def test_workers_that_take_most_of_the_ram(find: Any) -> None:
    run = {"env": {"n_envs": 8, **FORKED}, "processes": {"worker": "1GB"}}
    (finding,) = find("RLM030", **run, ram=15 * 10**9)
    assert finding.bytes == 8 * 10**9
    assert "53 % of" in finding.message
    assert not find("RLM030", **run, ram=17 * 10**9)


def test_idle_cores(find: Any) -> None:
    run = {"training": {"n_steps": 800, "batch_size": 100}}
    (finding,) = find("RLM031", env={"n_envs": 3, **WORKERS}, **run)
    assert "n_envs 8 with n_steps 300" in finding.advice
    assert not find("RLM031", env={"n_envs": 4, **WORKERS}, **run)
    assert not find("RLM031", env={"n_envs": 3}, **run)
    (replay,) = find("RLM031", "SAC", env={"n_envs": 3, **WORKERS})
    assert "gradient_steps -1" in replay.advice


def test_more_envs_are_not_advised_where_they_do_not_fit(find: Any) -> None:
    run = {"env": {"n_envs": 3, **WORKERS}, "processes": {"worker": "1GB"}}
    assert find("RLM031", **run, ram=9 * 10**9)
    assert not find("RLM031", **run, ram=8 * 10**9)


@pytest.mark.parametrize(
    ("threads", "n_envs", "fires"), [(16, 0, False), (17, 0, True), (5, 3, True), (4, 3, False), (None, 3, False)]
)
def test_more_threads_than_cores(find: Any, threads: int | None, n_envs: int, fires: bool) -> None:
    env = {"n_envs": n_envs, **WORKERS} if n_envs else {}
    assert len(find("RLM036", env=env, processes={"threads": threads})) == fires


def test_generic_threads(find: Any) -> None:
    (finding,) = find("RLM036", "generic", processes={"threads": 53}, cores=12)
    assert "53 threads × 1 process = 53 threads on 12 cores" in finding.message


@pytest.mark.parametrize(
    ("algorithm", "device", "net_arch", "fires"),
    [
        ("PPO", "cuda", [64], True),
        ("A2C", "cuda:0", [64], True),
        ("PPO", "cpu", [64], False),
        ("PPO", "cuda", [1000, 1000], False),
        ("SAC", "cuda", [64], False),
    ],
)
def test_small_policy_on_a_gpu(find: Any, algorithm: str, device: str, net_arch: list[int], fires: bool) -> None:
    findings = find("RLM037", algorithm, device=device, policy={"net_arch": net_arch})
    assert len(findings) == fires
    if fires:
        assert findings[0].bytes > 500 * 2**20


def test_an_image_policy_belongs_on_a_gpu(find: Any) -> None:
    env = {"observation": {"shape": [36, 36, 1], "dtype": "uint8"}}
    assert not find("RLM037", device="cuda", env=env, policy={"class": "CnnPolicy", "features_dim": 16})


@pytest.mark.parametrize(
    ("n_envs", "evaluation", "fires"),
    [
        (4, {"n_envs": 4, **WORKERS}, True),
        (4, {"n_envs": 3, **WORKERS}, False),
        (4, {"n_envs": 4}, False),
        (1, WORKERS, False),
    ],
)
def test_evaluation_that_doubles_the_workers(find: Any, n_envs: int, evaluation: dict[str, Any], fires: bool) -> None:
    run = {"env": {"n_envs": n_envs, **FORKED}, "processes": {"worker": "1GB"}}
    findings = find("RLM038", **run, evaluation=evaluation)
    assert [item.bytes for item in findings] == ([4 * 10**9] if fires else [])
    assert not find("RLM038", **run)

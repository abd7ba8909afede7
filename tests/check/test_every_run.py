"""No rule breaks on any run, and every finding is fit to be read."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from rlmem.check import RULES, Finding, check_plan
from rlmem.check.model import SEVERITIES
from rlmem.errors import InputError
from rlmem.run.algorithms import ALGORITHMS

BOXES = ({"shape": [4]}, {"shape": [200, 200], "low": 0, "high": 255}, {"shape": [7], "dtype": "int16"})
IMAGE = {"shape": [84, 84, 3], "dtype": "uint8"}
WORKERS = ("in-process", "subprocess")


def _maybe(**values: Any) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional={name: _strategy(value) for name, value in values.items()})


def _strategy(value: Any) -> Any:
    return value if isinstance(value, st.SearchStrategy) else st.sampled_from(value)


ENVS = _maybe(
    n_envs=(1, 2, 3, 64),
    workers=WORKERS,
    start_method=("fork", "spawn"),
    frame_stack=(1, 4),
    normalize=(True, False),
    episode_length=(1, 10, 1000),
)
TRAINING = _maybe(
    total_timesteps=(1, 1000, 10_000_000),
    n_steps=(1, 5, 2048, 100_000),
    batch_size=(1, 64, 100, 4096),
    buffer_size=(1, 1000, 1_000_000),
    learning_starts=(0, 100, 10**9),
    train_freq=(1, 7, [1, "episode"]),
    gradient_steps=(-1, 1, 50),
    optimize_memory_usage=(True, False),
    n_epochs=(1, 10),
    target_kl=(0.1,),
)
SECTIONS = _maybe(
    training=TRAINING,
    checkpoint=_maybe(save_freq=(1, 500, 10**9), save_replay_buffer=(True,), save_vecnormalize=(True,), keep=(1, 3)),
    evaluation=_maybe(n_envs=(1, 64), workers=WORKERS, eval_freq=(1, 10**9)),
    processes=_maybe(threads=(1, 53), workers=(0, 3), worker=("1GB",)),
    framework_version=("2.3.2", "2.9.2"),
    device=("cpu", "cuda", "cuda:5"),
)
OBSERVATIONS = st.sampled_from([*BOXES, IMAGE, {"discrete": 5}, {"dict": {"image": IMAGE, "speed": {"shape": [3]}}}])


def _require_readable(findings: tuple[Finding, ...]) -> None:
    codes = {rule.code for rule in RULES}
    for finding in findings:
        assert finding.code in codes
        assert finding.severity in SEVERITIES
        assert finding.bytes is None or finding.bytes >= 0
        assert finding.advice
        assert finding.page == f"docs/rules/{finding.code}.md"
        assert not re.search(r"None|\d{5}| -\d", finding.message), finding.message
    assert [SEVERITIES.index(item.severity) for item in findings] == sorted(
        SEVERITIES.index(item.severity) for item in findings
    )


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    algorithm=st.sampled_from(sorted(ALGORITHMS)),
    observation=OBSERVATIONS,
    env=ENVS,
    sections=SECTIONS,
    ram=st.sampled_from([1, 10**9, 10**12]),
    cores=st.sampled_from([1, 8, 128]),
)
def test_no_rule_breaks_on_a_framework_run(
    plan_of: Any, algorithm: str, observation: Any, env: Any, sections: Any, ram: int, cores: int
) -> None:
    policy = {"policy": {"class": "MultiInputPolicy"}} if "dict" in observation and algorithm != "RecurrentPPO" else {}
    try:
        plan = plan_of(algorithm, env={"observation": observation, **env}, ram=ram, cores=cores, **policy, **sections)
    except InputError:
        assume(False)
    _require_readable(check_plan(plan))


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    count=st.sampled_from([1, 1000, 10**6]),
    sections=_maybe(
        arrays=([{"path": "state", "shape": ["n", 7]}], [{"path": "x", "shape": [3], "where": "vram"}]),
        networks=([{"name": "net", "parameters": 10, "activations_per_row": 10**6, "rows": ["n"]}],),
        growth=_maybe(total=(1, 10**9)).map(lambda more: {"size": "n", "by": 10, "per": "day"} | more),
        files=_maybe(total=(1, 10**6), keep=(2,)).map(lambda more: {"size": "1GB", "per": "day"} | more),
        processes=_maybe(workers=(1, 500), threads=(1, 500)),
        device=("cpu", "cuda"),
    ),
    ram=st.sampled_from([1, 10**9, 10**12]),
)
def test_no_rule_breaks_on_a_generic_run(plan_of: Any, count: int, sections: Any, ram: int) -> None:
    _require_readable(check_plan(plan_of("generic", sizes={"n": count}, ram=ram, **sections)))


@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
def test_a_plain_run_has_nothing_against_it(plan_of: Any, algorithm: str) -> None:
    """Defaults of the framework, a small environment, a large machine: nothing but orientation."""
    assert {item.code for item in check_plan(plan_of(algorithm))} <= {"RLM004"}

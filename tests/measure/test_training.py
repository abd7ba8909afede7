"""Small real trainings under the meter, against their own traced plans."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlmem.errors import EnvironmentReadError, InputError
from rlmem.machine import read_machine
from rlmem.measure import parts, training
from rlmem.measure.parts import traced_parts
from rlmem.measure.training import measure
from rlmem.plan import make_plan
from rlmem.plan.trace import trace_from_dict
from rlmem.run import complete_run, load_run, run_from_mapping

TOLERANCE = 0.06
MIB = 2**20
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RLMEM_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("OMP_NUM_THREADS", "1")
        yield


def _run(algorithm: str, env: dict[str, Any], **settings: Any) -> Any:
    return run_from_mapping({"framework": "sb3", "algorithm": algorithm, "env": env, "training": settings})


WIDE = _run("DQN", {"observation": {"shape": [1000]}, "action": {"discrete": 4}}, buffer_size=5000)


@pytest.fixture(scope="module")
def cartpole() -> Any:
    run = _run("PPO", {"id": "CartPole-v1"}, n_steps=128, batch_size=64)
    return complete_run(run, source="test")


def test_a_rollout_of_cartpole(cartpole: Any) -> None:
    seen: list[tuple[int, int]] = []
    measurement = measure(cartpole, read_machine(), progress=lambda done, total: seen.append((done, total)))
    assert abs(measurement.ram_error) <= TOLERANCE
    assert measurement.meter == "VmHWM"
    assert measurement.ram_bytes > 100 * MIB
    assert measurement.timesteps >= 2 * 128
    assert measurement.reduced is None
    assert all(done <= total == measurement.timesteps for done, total in seen)


def test_a_replay_buffer_of_forty_megabytes() -> None:
    measurement = measure(WIDE, read_machine())
    assert abs(measurement.ram_error) <= TOLERANCE
    assert measurement.timesteps >= 5000
    bases = {part.basis for phase in measurement.plan.phases for part in phase.components}
    assert {"exact", "traced", "measured"} <= bases
    buffer = sum(part.bytes for part in measurement.plan.phases[-1].components if part.path.startswith("buffer/"))
    assert buffer == pytest.approx(40e6, rel=0.02)


def test_a_buffer_that_takes_too_long_to_fill_is_made_smaller(cartpole: Any) -> None:
    smaller, words = training._reduced(WIDE, 500)
    assert smaller.training.buffer_size == 500
    assert "buffer_size" in smaller.training.given
    assert words is not None
    assert "500 transitions instead of 5,000" in words
    assert training._reduced(WIDE, 10_000) == (WIDE, None)
    assert training._reduced(cartpole, 10) == (cartpole, None), "a rollout is never made smaller"


def test_what_was_traced_is_not_traced_again(monkeypatch: pytest.MonkeyPatch) -> None:
    first = make_plan(WIDE, read_machine(), traced_parts(WIDE))

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a child was started")

    monkeypatch.setattr(parts, "ask", refuse)
    renamed = replace(WIDE, name="another")
    assert make_plan(renamed, read_machine(), traced_parts(renamed)).peak == first.peak
    with pytest.raises(AssertionError, match="a child was started"):
        traced_parts(replace(WIDE, training=replace(WIDE.training, batch_size=33)))


GOALS = {"dict": {name: {"shape": [300]} for name in ("observation", "achieved_goal", "desired_goal")}}
HINDSIGHT = {
    "framework": "sb3",
    "algorithm": "SAC",
    "env": {"observation": GOALS, "action": {"shape": [4], "low": -1, "high": 1}, "n_envs": 2},
    "training": {"buffer_size": 3000, "replay_buffer_class": "HerReplayBuffer"},
    "policy": {"class": "MultiInputPolicy"},
}
TRACED = [
    replace(WIDE, env=replace(WIDE.env, n_envs=4, workers="subprocess", start_method="spawn")),
    run_from_mapping(HINDSIGHT),
    _run("PPO", {"observation": {"shape": [300]}, "action": {"discrete": 4}, "n_envs": 8}, n_steps=64),
]


@pytest.mark.slow
@pytest.mark.parametrize("run", TRACED, ids=lambda run: run.algorithm)
def test_a_trace_is_the_same_without_what_its_key_leaves_out(run: Any) -> None:
    assert parts._as_traced(run) != run
    own, other = (
        trace_from_dict(parts.ask("rlmem.sb3.tracing", question, subject="the update", timeout_s=120))
        for question in (
            {"run": parts._determining(each), "rows": 32, "updates": 3} for each in (run, parts._as_traced(run))
        )
    )
    assert own.allocations == other.allocations


def test_the_key_of_a_trace_has_what_bears_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(parts, "trace_from_dict", lambda entry: entry)
    monkeypatch.setattr(parts, "remembered", lambda kind, question, find: asked.append(question))
    longer = replace(WIDE.training, buffer_size=9000)
    for run in (*TRACED[:1], WIDE, replace(WIDE, training=longer), replace(WIDE, device="cuda")):
        parts._trace(run, 32, 3)
    assert asked[0] == asked[1] == asked[2] != asked[3]
    parts._trace(replace(WIDE, policy=replace(WIDE.policy, features_dim=64)), 32, 3)
    parts._trace(WIDE, 64, 3)
    assert all(other != asked[0] for other in asked[3:])


def test_an_update_that_cannot_be_traced_is_metered(cartpole: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def untraceable(*_: Any) -> Any:
        raise EnvironmentReadError("the update could not be read: no such operator")

    monkeypatch.setattr(parts, "_trace", untraceable)
    found = traced_parts(cartpole)
    assert found.update is None
    assert found.step is not None
    assert 0 <= found.step.bytes < 50 * MIB
    assert found.calibration.floor_bytes is not None
    assert 100 * MIB < found.calibration.floor_bytes < 1000 * MIB
    paths = {part.path: part.basis for part in make_plan(cartpole, read_machine(), found).phases[-1].components}
    assert paths["update/step"] == "measured"


def test_only_framework_runs_on_the_cpu_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "ask", None)
    with pytest.raises(InputError, match="generic run describes a program"):
        measure(load_run(ROOT / "examples/evolution/run.yaml"), read_machine())
    with pytest.raises(InputError, match="device: cpu"):
        measure(replace(WIDE, device="cuda:0"), read_machine())

"""Commands that run something: measure, plan --trace, a captured script, a live model."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import rlmem as library
from rlmem.commands import parse
from rlmem.report.json import plan_from_dict

RUN = """\
framework: sb3
algorithm: PPO
env: {observation: {shape: [6]}, action: {discrete: 3}}
training: {n_steps: 128, batch_size: 64}
"""

SCRIPT = """\
import sys
from pathlib import Path

from stable_baselines3 import PPO

Path("out").mkdir()
Path("out/log.txt").write_text("begun")
model = PPO("MlpPolicy", "CartPole-v1", n_steps=int(sys.argv[1]) if len(sys.argv) > 1 else 100, batch_size=64)
model.learn(10_000)
model.save("model")
"""

TRAINED_MIB = 100
"""What Python with torch has resident at the very least."""


@pytest.fixture(scope="module", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RLMEM_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("OMP_NUM_THREADS", "1")
        yield


@pytest.fixture
def run_file(tmp_path: Path) -> str:
    path = tmp_path / "small.yaml"
    path.write_text(RUN)
    return str(path)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "folder" / "train.py"
    path.parent.mkdir()
    path.write_text(SCRIPT)
    return path


def _bases(plan: Any) -> set[str]:
    return {part.basis for phase in plan.phases for part in phase.components}


def test_a_traced_plan_says_so_and_is_remembered(rlmem: Any, run_file: str) -> None:
    plain = plan_from_dict(json.loads(rlmem("plan", run_file, "--json").stdout))
    assert not {"traced", "measured"} & _bases(plain)
    first = rlmem("plan", run_file, "--trace", "--json")
    assert first.returncode == 0, first.stderr
    started = time.perf_counter()
    second = rlmem("plan", run_file, "--trace", "--json")
    seconds = time.perf_counter() - started
    assert seconds < 2
    traced = plan_from_dict(json.loads(first.stdout))
    assert plan_from_dict(json.loads(second.stdout)).phases == traced.phases
    assert {"traced", "measured", "exact"} <= _bases(traced)
    shown = rlmem("plan", run_file, "--trace", "--phase", "update", COLUMNS="160").stdout
    assert "metered by a short real training" in shown


def test_measure_holds_the_plan_against_a_real_training(rlmem: Any, run_file: str) -> None:
    result = rlmem("measure", run_file, "--json")
    assert result.returncode == 0, result.stderr
    data = json.loads(result.stdout)
    assert data["measured"]["meter"] == "VmHWM"
    assert data["measured"]["ram_bytes"] > TRAINED_MIB * 2**20
    assert data["error"]["ram"] == pytest.approx(
        data["predicted"]["ram_bytes"] / data["measured"]["ram_bytes"] - 1, abs=1e-9
    )
    assert abs(data["error"]["ram"]) < 0.06
    assert data["predicted"]["ram_phase"] in data["phases"]


def test_measure_refuses_what_it_cannot_train(rlmem: Any) -> None:
    result = rlmem("measure", "examples/evolution/run.yaml")
    assert result.returncode == 2
    assert "only framework runs can be measured" in result.stderr
    assert "Traceback" not in result.stderr


def test_measure_takes_a_script_with_its_arguments(rlmem: Any, script: Path) -> None:
    result = rlmem("measure", "--json", str(script), "--", "192")
    assert result.returncode == 0, result.stderr
    data = json.loads(result.stdout)
    assert (data["run"], data["timesteps"], data["reduced"]) == ("train.py", 4 * 192, None)
    assert data["measured"]["ram_bytes"] > TRAINED_MIB * 2**20
    assert abs(data["error"]["ram"]) < 0.06
    assert data["notes"] == ["kept out of your folders: out, out/log.txt"]
    assert list(script.parent.iterdir()) == [script]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("print('nothing to see')", "without calling learn()"),
        ("input()", "train.py:1: the script asks for input"),
        ("raise ValueError('too wide')", "train.py:1: the script raised ValueError: too wide before any learn()"),
        ("while True: pass", "learn() was not reached within 4 s; --timeout gives it longer"),
    ],
)
def test_measure_says_what_keeps_a_script_from_training(rlmem: Any, script: Path, text: str, message: str) -> None:
    script.write_text(text)
    result = rlmem("measure", "--timeout", "4", str(script))
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_machine_shows_what_was_calibrated(rlmem: Any, tmp_path: Path) -> None:
    own = {"RLMEM_CACHE": str(tmp_path / "cache")}
    assert "`rlmem machine --calibrate` meters one" in rlmem("machine", COLUMNS="120", **own).stdout
    assert json.loads(rlmem("machine", "--json", **own).stdout)["calibration"] is None
    result = rlmem("machine", "--calibrate", "--json", **own)
    assert result.returncode == 0, result.stderr
    (made,) = json.loads(result.stdout)["calibration"]
    assert made["run"] == "PPO MlpPolicy, CartPole-v1"
    assert made["start_method"] == "forkserver"
    assert 100 * 2**20 < made["floor_bytes"] < 1000 * 2**20
    assert made["worker_bytes"] > 10 * 2**20
    assert made["versions"]["torch"]
    shown = rlmem("machine", COLUMNS="80", **own).stdout
    assert "Calibration" in shown
    assert "(forkserver)" in shown
    assert max(map(len, shown.splitlines())) <= 80


def _listing(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_a_script_is_planned_as_it_is(rlmem: Any, script: Path) -> None:
    before = _listing(script.parent)
    result = rlmem("plan", "--json", "--ram", "150MB", str(script), "--", "192")
    assert result.returncode == 1, result.stderr
    plan = plan_from_dict(json.loads(result.stdout))
    assert plan.run.training.n_steps == 192
    assert plan.run.name == "train.py"
    assert plan.fits.ram is False
    assert {"traced", "measured"} <= _bases(plan)
    assert plan.peak.ram_bytes > TRAINED_MIB * 2**20
    assert _listing(script.parent) == before
    assert list(script.parent.iterdir()) == [script]


@pytest.mark.parametrize(
    "words",
    [
        ("--json", "train.py", "--", "--rate", "3"),
        ("train.py", "--", "--rate", "3"),
        ("train.py", "--json", "--", "--rate", "3"),
    ],
    ids=" ".join,
)
def test_the_scripts_own_arguments_go_behind_two_dashes(words: tuple[str, ...]) -> None:
    parsed = parse(["plan", *words])
    assert (parsed.run, parsed.arguments) == ("train.py", ["--rate", "3"])


def test_a_script_that_trains_nothing(rlmem: Any, script: Path) -> None:
    script.write_text("print('nothing to see')")
    result = rlmem("plan", str(script))
    assert result.returncode == 2
    assert "without calling learn()" in result.stderr
    assert "Traceback" not in result.stderr


def test_check_may_run_the_script_too(rlmem: Any, script: Path) -> None:
    """That the last minibatch is a short one (100 = 64 + 36) is known from the model, not from the text."""
    read = json.loads(rlmem("check", str(script), "--json").stdout)
    result = rlmem("check", str(script), "--capture", "--json")
    assert result.returncode == 0, result.stderr
    captured = json.loads(result.stdout)
    codes = [{finding["code"] for finding in data["findings"]} for data in (read, captured)]
    assert codes[0] < codes[1]
    assert list(script.parent.iterdir()) == [script]


def test_a_live_model_is_planned_and_left_alone() -> None:
    from stable_baselines3 import PPO

    model = PPO("MlpPolicy", "CartPole-v1", n_steps=128, batch_size=64, device="cpu", seed=0)
    weights = {name: tensor.clone() for name, tensor in model.policy.state_dict().items()}
    plan = library.plan(model)
    assert plan.run.training.n_steps == 128
    assert plan.parameters == sum(item.numel() for item in model.policy.parameters())
    assert {"traced", "measured"} <= _bases(plan)
    assert str(plan).lstrip().startswith("FITS")
    assert all(torch.equal(tensor, weights[name]) for name, tensor in model.policy.state_dict().items())
    model.learn(128)


def test_a_live_model_in_a_process_that_has_done_much_is_planned_alike() -> None:
    """Holes that earlier work left in the heap must not swallow the update."""
    from stable_baselines3 import PPO

    model = PPO(
        "MlpPolicy", "CartPole-v1", n_steps=512, batch_size=512, device="cpu", policy_kwargs={"net_arch": [256, 256]}
    )
    clutter = [torch.ones(15_000) for _ in range(3000)]
    pins = clutter[::40]
    del clutter
    update = library.plan(model).phase("update")
    del pins
    sizes = {part.path: part.bytes for part in update.components}
    assert sizes["network/parameters"] == sum(item.nbytes for item in model.policy.parameters())
    assert sizes["update/activations"] > 512 * 4 * 256 * 4

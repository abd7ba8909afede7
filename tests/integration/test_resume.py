"""Training that is resumed in another process ends with the weights of training without a break, to the last bit."""

from __future__ import annotations

import importlib.util
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rlmem.store import Store

_PROGRAM = Path(__file__).with_name("resuming.py")
KILLED = ("ppo-lean", "sac-lean")


def _cases():
    spec = importlib.util.spec_from_file_location("resuming", _PROGRAM)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return program.CASES


CASES = _cases()
QUICK = (
    "ppo-cartpole",
    "ppo-lean",
    "a2c",
    "maskable-ppo",
    "recurrent-ppo",
    "dqn",
    "dqn-lean",
    "sac",
    "sac-lean",
    "td3",
    "sac-her-lean",
)


def _each(names=CASES):
    """Every case; those that are not quick, among the slow tests."""
    return [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in names]


@pytest.fixture(scope="module", name="folder")
def _folder(tmp_path_factory, request):
    """The cases that are asked for, trained in one process and resumed in another."""
    asked = {item.callspec.params["name"] for item in request.session.items if _is_a_case(item, request.module)}
    folder = tmp_path_factory.mktemp("resume")
    for mode in ("train", "resume"):
        subprocess.run([sys.executable, _PROGRAM, mode, folder, *sorted(asked | set(KILLED))], check=True)
    return folder


def _is_a_case(item, module):
    return item.module is module and "name" in getattr(getattr(item, "callspec", None), "params", {})


def _weights(folder, name, way):
    for mode in ("train", "resume"):
        error = folder / f"{name}.{mode}.error"
        assert not error.exists(), error.read_text()
    return dict(np.load(folder / f"{name}.{way}.npz"))


def _assert_same(found, wanted):
    assert found.keys() == wanted.keys()
    for name, values in wanted.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", _each())
def test_resumed_training_ends_with_the_same_weights(folder, name):
    _assert_same(_weights(folder, name, "resumed"), _weights(folder, name, "whole"))


@pytest.mark.parametrize(
    "name", _each([name for name, case in CASES.items() if not case[4] and not case[3].get("use_sde")])
)
def test_saving_changes_nothing_about_training(folder, name):
    _assert_same(_weights(folder, name, "whole"), _weights(folder, name, "plain"))


@pytest.mark.parametrize("name", _each())
def test_the_snapshot_says_that_a_resume_is_exact(folder, name):
    store = Store.open(folder / name)
    said = [store.load(info=info).metadata["resume"] for info in store.snapshots()]
    assert said == ["exact, new episode" if CASES[name][4] else "exact"] * len(said)
    assert len(said) >= 3


@pytest.mark.parametrize("name", ["ppo-cartpole", "dqn-lean", "sac"])
def test_the_last_snapshots_of_both_trainings_have_the_same_weights(folder, name):
    whole, again = (Store.open(folder / each).load() for each in (name, f"{name}-again"))
    assert whole.step == again.step
    _assert_same(again.tensors("torch/policy"), whole.tensors("torch/policy"))


@pytest.mark.timeout(900)
def test_training_that_was_killed_ends_with_the_same_weights(folder, tmp_path):
    for name in KILLED:
        died = subprocess.run([sys.executable, _PROGRAM, "die", tmp_path, name], check=False)
        assert died.returncode == -signal.SIGKILL
    subprocess.run([sys.executable, _PROGRAM, "resume", tmp_path, *KILLED], check=True)
    for name in KILLED:
        _assert_same(_weights(tmp_path, name, "resumed"), _weights(folder, name, "whole"))

"""The table of algorithms against the constructors of the installed classes."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import sb3_contrib
import stable_baselines3

from rlmem.run.algorithms import ALGORITHMS, Algorithm

NOT_SETTINGS = {"self", "policy", "env", "policy_kwargs", "device", "_init_setup_model"}
FAMILIES = {
    "on-policy": stable_baselines3.common.on_policy_algorithm.OnPolicyAlgorithm,
    "off-policy": stable_baselines3.common.off_policy_algorithm.OffPolicyAlgorithm,
}

each_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)


def _class(algorithm: Algorithm) -> Any:
    library = {"sb3": stable_baselines3, "sb3-contrib": sb3_contrib}[algorithm.framework]
    return getattr(library, algorithm.name)


def _signature(algorithm: Algorithm) -> dict[str, Any]:
    parameters = inspect.signature(_class(algorithm).__init__).parameters
    return {name: parameter.default for name, parameter in parameters.items() if name not in NOT_SETTINGS}


def test_every_algorithm_of_both_libraries_is_there() -> None:
    names = {
        name
        for library in (stable_baselines3, sb3_contrib)
        for name, value in vars(library).items()
        if inspect.isclass(value) and hasattr(value, "learn")
    }
    assert names == set(ALGORITHMS)


@each_algorithm
def test_settings(algorithm: Algorithm) -> None:
    assert algorithm.settings == set(_signature(algorithm)) | {"total_timesteps"}


@each_algorithm
def test_defaults(algorithm: Algorithm) -> None:
    signature = _signature(algorithm)
    for name in ("batch_size", "n_steps", "n_epochs", "buffer_size", "train_freq"):
        if name in signature:
            assert getattr(algorithm, name) == signature[name], name


@each_algorithm
def test_absent_settings_have_neutral_defaults(algorithm: Algorithm) -> None:
    signature = _signature(algorithm)
    neutral = {"batch_size": None, "n_steps": 1, "n_epochs": 1, "buffer_size": None, "train_freq": 1}
    for name, value in neutral.items():
        if name not in signature:
            assert getattr(algorithm, name) == value, name


@each_algorithm
def test_family(algorithm: Algorithm) -> None:
    expected = FAMILIES.get(algorithm.family)
    real = _class(algorithm)
    assert issubclass(real, expected) if expected else not issubclass(real, tuple(FAMILIES.values()))


def test_random_search_defaults() -> None:
    assert inspect.signature(sb3_contrib.ARS.__init__).parameters["n_delta"].default == 8

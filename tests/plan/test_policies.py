"""The plan's parameters, gradients and optimizer state against the framework's real modules."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rlmem.plan import make_plan
from rlmem.plan.policies import policy_cost

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*on the GPU, but it is primarily intended.*:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*mini-batch.*:UserWarning"),
]

VECTOR = {"shape": [5]}
IMAGE = {"shape": [36, 40, 3], "dtype": "uint8"}
MIXED = {
    "dict": {
        "camera": IMAGE,
        "depth": {"shape": [36, 36, 1], "dtype": "uint8"},
        "speed": {"shape": [3]},
        "gear": {"discrete": 4},
        "switches": {"multi_binary": 3},
    }
}
BOX, DISCRETE = {"shape": [2]}, {"discrete": 4}
OBSERVATIONS = {"Mlp": VECTOR, "Cnn": IMAGE, "MultiInput": MIXED}

ROLLOUT = ("PPO", "A2C", "TRPO", "MaskablePPO")
CRITICS = ("SAC", "TQC", "CrossQ", "TD3", "DDPG")
QUALITY = ("DQN", "QRDQN")


def _action(algorithm: str) -> dict[str, Any]:
    return DISCRETE if algorithm in ("MaskablePPO", *QUALITY) else BOX


def _suffix(algorithm: str) -> str:
    return "LstmPolicy" if algorithm == "RecurrentPPO" else "Policy"


def _check(make_model: Any, run: Any) -> None:
    policy = make_model(run).policy
    cost = policy_cost(run)
    assert cost.parameters == sum(parameter.numel() for parameter in policy.parameters())
    state = sum(buffer.numel() * buffer.element_size() for buffer in policy.buffers())
    assert cost.online.buffer_bytes + cost.targets.buffer_bytes == state


def _options() -> list[Any]:
    common = [{}, {"net_arch": [7]}, {"net_arch": []}]
    shared = [{"share_features_extractor": True}, {"share_features_extractor": False}]
    cases: list[tuple[str, str, dict[str, Any]]] = []
    for algorithm in ROLLOUT:
        arch = [
            {"net_arch": {"pi": [8, 4], "vf": [6]}},
            {"net_arch": {"pi": [], "vf": [6]}},
            {"net_arch": {"pi": [8]}},
        ]
        cases += [(algorithm, head, option) for head in OBSERVATIONS for option in (*common, *shared)]
        cases += [(algorithm, "Mlp", option) for option in arch]
    for algorithm in QUALITY:
        cases += [(algorithm, head, option) for head in OBSERVATIONS for option in common]
    cases += [("QRDQN", "Mlp", {"n_quantiles": 11})]
    for algorithm in CRITICS:
        arch = [
            {"net_arch": {"pi": [8, 4], "qf": [6]}},
            {"net_arch": {"pi": [], "qf": [6]}},
            {"net_arch": {"pi": [8], "qf": []}},
        ]
        critics = [{"n_critics": 1}, {"n_critics": 3}]
        cases += [(algorithm, "Mlp", option) for option in (*common, *arch, *critics)]
        heads = () if algorithm == "CrossQ" else ("Cnn", "MultiInput")
        cases += [(algorithm, head, option) for head in heads for option in ({}, *shared)]
    cases += [("TQC", "Mlp", {"n_quantiles": 5}), ("CrossQ", "Mlp", {"batch_norm": False})]
    lstms = [
        {"lstm_hidden_size": 8},
        {"lstm_hidden_size": 8, "n_lstm_layers": 2},
        {"lstm_hidden_size": 8, "enable_critic_lstm": False},
        {"lstm_hidden_size": 8, "enable_critic_lstm": False, "shared_lstm": True},
        {"lstm_hidden_size": 8, "net_arch": []},
        {"lstm_hidden_size": 8, "share_features_extractor": False},
    ]
    cases += [("RecurrentPPO", head, option) for head in OBSERVATIONS for option in lstms]
    cases += [(algorithm, "Cnn", {"features_dim": 32}) for algorithm in ("PPO", "RecurrentPPO", "DQN", "SAC", "TD3")]
    cases += [("PPO", "MultiInput", {"features_dim": 16})]
    return [pytest.param(*case, id="-".join(map(str, case))) for case in cases]


@pytest.mark.parametrize(("algorithm", "head", "options"), _options())
def test_parameters(make_run: Any, make_model: Any, algorithm: str, head: str, options: dict[str, Any]) -> None:
    policy = {"class": head + _suffix(algorithm)} | options
    _check(make_model, make_run(algorithm, OBSERVATIONS[head], _action(algorithm), policy=policy))


@pytest.mark.parametrize(
    "observation",
    [
        {"discrete": 6},
        {"multi_discrete": [3, 5]},
        {"multi_binary": [2, 3]},
        {"shape": [2, 3, 4]},
        {"shape": []},
    ],
    ids=str,
)
@pytest.mark.parametrize("algorithm", ["PPO", "DQN", "SAC", "TD3", "ARS"])
def test_parameters_of_flattened_observations(
    make_run: Any, make_model: Any, algorithm: str, observation: dict[str, Any]
) -> None:
    _check(make_model, make_run(algorithm, observation, _action(algorithm)))


@pytest.mark.parametrize(
    "action", [BOX, {"shape": [2, 3]}, DISCRETE, {"multi_discrete": [3, 5]}, {"multi_binary": 4}], ids=str
)
@pytest.mark.parametrize("algorithm", ["PPO", "RecurrentPPO", "MaskablePPO"])
def test_parameters_of_every_action(make_run: Any, make_model: Any, algorithm: str, action: dict[str, Any]) -> None:
    if algorithm == "MaskablePPO" and "shape" in action:
        pytest.skip("MaskablePPO takes no Box actions")
    _check(make_model, make_run(algorithm, VECTOR, action, policy={"class": "Mlp" + _suffix(algorithm)}))


@pytest.mark.parametrize("algorithm", ["PPO", "RecurrentPPO"])
def test_parameters_with_one_deviation_for_all_actions(make_run: Any, make_model: Any, algorithm: str) -> None:
    policy = {"class": "Mlp" + _suffix(algorithm), "full_std": False}
    _check(make_model, make_run(algorithm, VECTOR, BOX, training={"use_sde": True}, policy=policy))


@pytest.mark.parametrize("policy", [{}, {"net_arch": []}], ids=str)
@pytest.mark.parametrize("algorithm", ["PPO", "A2C", "TRPO", "RecurrentPPO", "SAC", "TQC", "CrossQ"])
def test_parameters_with_state_dependent_exploration(
    make_run: Any, make_model: Any, algorithm: str, policy: dict[str, Any]
) -> None:
    policy = {"class": "Mlp" + _suffix(algorithm)} | policy
    _check(make_model, make_run(algorithm, VECTOR, BOX, training={"use_sde": True}, policy=policy))


@pytest.mark.parametrize("action", [BOX, DISCRETE], ids=str)
@pytest.mark.parametrize(
    "policy",
    [{"class": "MlpPolicy"}, {"class": "MlpPolicy", "net_arch": [3]}, {"class": "LinearPolicy"}],
    ids=str,
)
def test_parameters_of_random_search(
    make_run: Any, make_model: Any, policy: dict[str, Any], action: dict[str, Any]
) -> None:
    _check(make_model, make_run("ARS", VECTOR, action, policy=policy))


@pytest.mark.parametrize("frame_stack", [1, 4])
@pytest.mark.parametrize("algorithm", ["PPO", "DQN"])
def test_parameters_behind_a_frame_stack(make_run: Any, make_model: Any, algorithm: str, frame_stack: int) -> None:
    for head, observation in (("Mlp", VECTOR), ("Cnn", IMAGE)):
        env = {"frame_stack": frame_stack}
        run = make_run(algorithm, observation, DISCRETE, env=env, policy={"class": f"{head}Policy"})
        _check(make_model, run)


@pytest.mark.parametrize("head", ["Cnn", "MultiInput"])
def test_parameters_on_images_that_are_normalised_already(make_run: Any, make_model: Any, head: str) -> None:
    """With `normalize_images: false` every Box of three axes is an image to the framework."""
    image = {"shape": [3, 36, 40], "dtype": "uint8"}
    observation = image if head == "Cnn" else {"dict": {"camera": image, "speed": {"shape": [3]}}}
    policy = {"class": f"{head}Policy", "normalize_images": False}
    _check(make_model, make_run("PPO", observation, DISCRETE, env={"normalize": True}, policy=policy))


def test_parameters_on_float_images(make_run: Any, make_model: Any) -> None:
    policy = {"class": "CnnPolicy", "normalize_images": False}
    _check(make_model, make_run("PPO", {"shape": [3, 36, 40]}, DISCRETE, policy=policy))


TRAINED = [
    ("PPO", "Mlp", {}),
    ("PPO", "Cnn", {}),
    ("PPO", "Cnn", {"share_features_extractor": False}),
    ("PPO", "Mlp", {"optimizer": "adamw"}),
    ("PPO", "Mlp", {"optimizer": "rmsprop"}),
    ("PPO", "Mlp", {"optimizer": "sgd"}),
    ("PPO", "Mlp", {"optimizer": "sgd+momentum"}),
    ("A2C", "Mlp", {}),
    ("A2C", "Mlp", {"optimizer": "adam"}),
    ("A2C", "Mlp", {"optimizer": "rmsprop"}),
    ("MaskablePPO", "Mlp", {}),
    ("RecurrentPPO", "Mlp", {"lstm_hidden_size": 8}),
    ("RecurrentPPO", "Mlp", {"lstm_hidden_size": 8, "enable_critic_lstm": False, "shared_lstm": True}),
    ("TRPO", "Mlp", {}),
    ("TRPO", "Mlp", {"optimizer": "sgd+momentum"}),
    ("TRPO", "Cnn", {}),
    ("TRPO", "Cnn", {"share_features_extractor": False}),
    ("DQN", "Mlp", {}),
    ("DQN", "Cnn", {}),
    ("DQN", "Mlp", {"optimizer": "rmsprop"}),
    ("QRDQN", "Mlp", {}),
    ("SAC", "Mlp", {}),
    ("SAC", "Cnn", {}),
    ("SAC", "Cnn", {"share_features_extractor": True}),
    ("SAC", "Mlp", {"optimizer": "adamw"}),
    ("TQC", "Mlp", {}),
    ("TQC", "Cnn", {"share_features_extractor": True}),
    ("CrossQ", "Mlp", {}),
    ("CrossQ", "Mlp", {"batch_norm": False}),
    ("TD3", "Mlp", {}),
    ("TD3", "Cnn", {"share_features_extractor": True}),
    ("TD3", "Cnn", {"share_features_extractor": False}),
    ("DDPG", "Mlp", {}),
    ("DDPG", "Mlp", {"optimizer": "sgd+momentum"}),
]


@pytest.mark.parametrize(("algorithm", "head", "options"), TRAINED, ids=lambda value: str(value))
def test_learning_state(
    make_run: Any, make_model: Any, machine: Any, algorithm: str, head: str, options: dict[str, Any]
) -> None:
    policy = {"class": head + _suffix(algorithm)} | options
    run = make_run(algorithm, OBSERVATIONS[head], _action(algorithm), policy=policy)
    _check_learning_state(run, _trained(make_model, run), machine)


def test_learning_state_of_a2c_without_rmsprop(make_run: Any, make_model: Any, machine: Any) -> None:
    run = make_run("A2C", VECTOR, BOX, training={"use_rms_prop": False})
    _check_learning_state(run, _trained(make_model, run), machine)


@pytest.mark.parametrize("algorithm", ["PPO", "SAC"])
def test_learning_state_with_state_dependent_exploration(
    make_run: Any, make_model: Any, machine: Any, algorithm: str
) -> None:
    run = make_run(algorithm, VECTOR, BOX, training={"use_sde": True})
    _check_learning_state(run, _trained(make_model, run), machine)


def _trained(make_model: Any, run: Any) -> Any:
    model = make_model(run)
    model.learn(20)
    return model


def _check_learning_state(run: Any, model: Any, machine: Any) -> None:
    planned = {part.path: part.bytes for part in make_plan(run, machine).phase("update").components}
    assert planned["network/optimizer"] == sum(_state_bytes(optimizer) for optimizer in _optimizers(model.policy))
    gradients = [parameter.grad for parameter in model.policy.parameters() if parameter.grad is not None]
    assert planned["network/gradients"] == sum(gradient.numel() * gradient.element_size() for gradient in gradients)


def _optimizers(policy: Any) -> list[Any]:
    """Return the optimizers of the policy or of its actor and critic, without the entropy coefficient's."""
    holders = [policy, getattr(policy, "actor", None), getattr(policy, "critic", None)]
    found = [getattr(holder, "optimizer", None) for holder in holders]
    return list({id(optimizer): optimizer for optimizer in found if optimizer is not None}.values())


def _state_bytes(optimizer: Any) -> int:
    tensors = [value for state in optimizer.state.values() for value in state.values() if torch.is_tensor(value)]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

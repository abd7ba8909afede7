"""A live policy: what its networks and optimizers have, and the nearest description of it in a run file's words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.torch_layers import (
    BaseFeaturesExtractor,
    CombinedExtractor,
    FlattenExtractor,
    NatureCNN,
)

from rlmem.plan.layers import Stack
from rlmem.plan.policies import PolicyCost
from rlmem.run.layers import Opaque
from rlmem.run.model import NetArch, Policy
from rlmem.run.spaces import Dict, Space

_HEADS: Final = {FlattenExtractor: "Mlp", NatureCNN: "Cnn", CombinedExtractor: "MultiInput"}
_OPTIMIZERS: Final = {"Adam": "adam", "AdamW": "adamw", "RMSprop": "rmsprop", "RMSpropTFLike": "rmsprop", "SGD": "sgd"}
_LSTM_FIELDS: Final = ("lstm_hidden_size", "n_lstm_layers", "shared_lstm", "enable_critic_lstm")
_KEPT: Final = ("full_std", "batch_norm")
"""Keywords of the policy that bear on its size and have no field of their own."""
_UNKNOWN_GRAPH: Final = Stack(output=())


def read_cost(model: BaseAlgorithm, algorithm: str) -> tuple[PolicyCost, tuple[str, ...]]:
    """Return what the policy's networks and the model's optimizers have; the graph is left for a trace to fill.

    ``online`` and ``targets`` count the policy's own parameters. ``optimized`` also counts what is learnt beside
    it, such as an entropy coefficient.
    """
    learnt = _unique(_learnt(model, algorithm))
    parameters = list(model.policy.named_parameters())
    followers = _unique(
        parameter for name, parameter in parameters if _is_target(name) and _address(parameter) not in learnt
    )
    everything = _unique(parameter for _, parameter in parameters)
    online = {address: tensor for address, tensor in everything.items() if address not in followers}
    statistics = list(model.policy.named_buffers())
    cost = PolicyCost(
        online=_stack(online, [tensor for name, tensor in statistics if not _is_target(name)]),
        targets=_stack(followers, [tensor for name, tensor in statistics if _is_target(name)]),
        optimized=sum(tensor.numel() for tensor in learnt.values()),
        optimized_tensors=len(learnt),
        graph=_UNKNOWN_GRAPH,
    )
    odd = sorted({str(tensor.dtype) for tensor in everything.values() if tensor.element_size() != 4})
    notes = (f"parameters of {', '.join(odd)} are counted as 4 bytes each",) if odd else ()
    return cost, notes


def _learnt(model: BaseAlgorithm, algorithm: str) -> list[torch.Tensor]:
    """Return the parameters that get gradients and optimizer state."""
    held = [
        parameter
        for optimizer in optimizers(model)
        for group in optimizer.param_groups
        for parameter in group["params"]
        if parameter.requires_grad
    ]
    if algorithm != "TRPO":
        return held
    # Only the critic has an optimizer's step; the policy moves along a conjugate gradient.
    critic = {id(parameter) for name, parameter in model.policy.named_parameters() if _is_critic(model.policy, name)}
    return [parameter for parameter in held if id(parameter) in critic]


def _is_critic(policy: Any, name: str) -> bool:
    own = not getattr(policy, "share_features_extractor", True)
    return "value" in name or (own and name.startswith("vf_features_extractor"))


def optimizers(model: BaseAlgorithm) -> tuple[torch.optim.Optimizer, ...]:
    """Return every optimizer that the model or its policy holds, once; the policy's come first."""
    holders = [*model.policy.modules(), model]
    found = [value for holder in holders for value in vars(holder).values() if isinstance(value, torch.optim.Optimizer)]
    return tuple({id(item): item for item in found}.values())


def _address(tensor: torch.Tensor) -> int:
    # Not the storage's address: ARS's parameters are parts of one vector.
    return tensor.data_ptr() or id(tensor)


def _unique(tensors: Any) -> dict[int, torch.Tensor]:
    """Return the tensors by their address, so that tied ones count once; an empty one has none."""
    return {_address(tensor): tensor for tensor in tensors}


def _is_target(name: str) -> bool:
    return any("target" in part.lower() for part in name.split("."))


def _stack(tensors: dict[int, torch.Tensor], statistics: list[torch.Tensor]) -> Stack:
    kept = _unique(statistics).values()
    return Stack(
        output=(),
        parameters=sum(tensor.numel() for tensor in tensors.values()),
        tensors=len(tensors),
        buffer_bytes=sum(tensor.numel() * tensor.element_size() for tensor in kept),
    )


def read_policy(model: BaseAlgorithm, observation: Space, algorithm: str) -> tuple[Policy, tuple[str, ...]]:
    """Return the policy as a run file would describe it, and what that description leaves out."""
    policy = model.policy
    extractor = next((inner for inner in policy.modules() if isinstance(inner, BaseFeaturesExtractor)), None)
    head = _HEADS.get(type(extractor)) if extractor is not None else None
    custom = extractor is not None and head is None
    kind = head or _alias_head(model, observation)
    optimizer, notes = _optimizer(model)
    described = Policy(
        class_name=_class_name(model, kind, algorithm),
        net_arch=_net_arch(getattr(policy, "net_arch", None)),
        features=(_opaque(extractor),) if custom and extractor is not None else None,
        features_dim=_features_dim(model, extractor),
        share_features_extractor=_boolean(getattr(policy, "share_features_extractor", None)),
        optimizer=optimizer,
        n_critics=_count(getattr(getattr(policy, "critic", None), "n_critics", None)),
        n_quantiles=_quantiles(policy),
        normalize_images=getattr(policy, "normalize_images", True) is not False,
        other=tuple((key, value) for key, value in model.policy_kwargs.items() if key in _KEPT),
    )
    if custom:
        notes += (f"the features extractor is {_import_path(extractor)}, read as a whole",)
    return _with_lstm(described, policy, algorithm), notes


def _class_name(model: BaseAlgorithm, head: str, algorithm: str) -> str:
    if algorithm == "RecurrentPPO":
        return f"{head}LstmPolicy"
    linear = getattr(type(model), "policy_aliases", {}).get("LinearPolicy")
    if algorithm == "ARS":
        return "LinearPolicy" if linear is not None and isinstance(model.policy, linear) else "MlpPolicy"
    return f"{head}Policy"


def _alias_head(model: BaseAlgorithm, observation: Space) -> str:
    """Return the head of the nearest policy that the algorithm has a name for."""
    if isinstance(observation, Dict):
        return "MultiInput"
    aliases = {kind: name for name, kind in getattr(type(model), "policy_aliases", {}).items()}
    name = next((aliases[kind] for kind in type(model.policy).__mro__ if kind in aliases), "MlpPolicy")
    return "Cnn" if name.startswith("Cnn") else "Mlp"


def _net_arch(arch: Any) -> NetArch | None:
    """Return the hidden layers, or None where they are not plain widths."""
    if isinstance(arch, list | tuple):
        return NetArch(policy=tuple(arch), value=tuple(arch)) if _are_widths(arch) else None
    if not isinstance(arch, dict):
        return None
    actor, critic = arch.get("pi") or (), arch.get("vf") or arch.get("qf") or ()
    return NetArch(policy=tuple(actor), value=tuple(critic)) if _are_widths([*actor, *critic]) else None


def _are_widths(values: Any) -> bool:
    return all(isinstance(value, int) and value > 0 for value in values)


def _opaque(extractor: BaseFeaturesExtractor) -> Opaque:
    tensors = _unique(extractor.parameters())
    return Opaque(
        name=_import_path(extractor),
        output=(int(extractor.features_dim),),
        parameters=sum(tensor.numel() for tensor in tensors.values()),
        tensors=len(tensors),
        buffer_bytes=sum(tensor.numel() * tensor.element_size() for tensor in extractor.buffers()),
        saved=0,
        widest=0,
    )


def _import_path(value: Any) -> str:
    return f"{type(value).__module__}:{type(value).__qualname__}"


def _features_dim(model: BaseAlgorithm, extractor: Any) -> int | None:
    if type(extractor) is NatureCNN:
        return int(extractor.features_dim)
    if type(extractor) is CombinedExtractor:
        keywords = model.policy_kwargs.get("features_extractor_kwargs") or {}
        return _count(keywords.get("cnn_output_dim"))
    return None


def _quantiles(policy: Any) -> int | None:
    critic = getattr(policy, "critic", None)
    return _count(getattr(policy, "n_quantiles", None)) or _count(getattr(critic, "n_quantiles", None))


def _count(value: Any) -> int | None:
    return int(value) if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _boolean(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _with_lstm(described: Policy, policy: Any, algorithm: str) -> Policy:
    lstm = getattr(policy, "lstm_actor", None)
    if algorithm != "RecurrentPPO" or not isinstance(lstm, torch.nn.LSTM):
        return described
    return replace(
        described,
        lstm_hidden_size=lstm.hidden_size,
        n_lstm_layers=lstm.num_layers,
        shared_lstm=bool(getattr(policy, "shared_lstm", False)),
        enable_critic_lstm=bool(getattr(policy, "enable_critic_lstm", True)),
    )


def _optimizer(model: BaseAlgorithm) -> tuple[str | None, tuple[str, ...]]:
    """Return the name of the policy's optimizer; of several, the first."""
    found = optimizers(model)
    if not found:
        return None, ()
    first = found[0]
    name = next((_OPTIMIZERS[kind.__name__] for kind in type(first).__mro__ if kind.__name__ in _OPTIMIZERS), None)
    if name is None:
        return None, (f"the optimizer {type(first).__name__} is not known: its state is assumed, not read",)
    if name == "sgd" and first.defaults.get("momentum"):
        name = "sgd+momentum"
    extra = first.defaults.get("amsgrad") or (name == "rmsprop" and first.defaults.get("momentum"))
    notes = (f"{type(first).__name__} keeps one more copy of the parameters than is counted",) if extra else ()
    return name, notes

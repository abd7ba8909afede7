"""The policies of Stable-Baselines3 and sb3-contrib, as the layers they are made of.

Parameter counts are exact, and tested against the real modules.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeGuard

from rlmem.errors import InputError
from rlmem.plan.layers import Stack, mlp, stack
from rlmem.run.layers import Activation, Conv, Flatten, Layer, Linear, Lstm
from rlmem.run.model import FrameworkRun, NetArch, Policy
from rlmem.run.spaces import (
    Box,
    Dict,
    Discrete,
    Leaf,
    MultiBinary,
    MultiDiscrete,
    Space,
    action_dim,
    flat_dim,
    is_image,
    leaves,
)
from rlmem.run.wrappers import stored_observation


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyCost:
    """What a policy has: ``online`` networks that learn, ``targets`` that follow, and optimizer state.

    ``optimized`` counts elements with gradients and optimizer state.
    ``graph`` is what one row of a minibatch leaves in the graph, ``graph_rows`` how many rows per sample.
    """

    online: Stack
    targets: Stack
    optimized: int
    optimized_tensors: int
    graph: Stack
    graph_rows: int = 1

    @property
    def parameters(self) -> int:
        return self.online.parameters + self.targets.parameters


_NOTHING = Stack(output=())


def policy_cost(run: FrameworkRun) -> PolicyCost:
    """Return what the run's policy has."""
    match run.algorithm:
        case "PPO" | "A2C" | "MaskablePPO" | "TRPO":
            return _actor_critic(run)
        case "RecurrentPPO":
            return _recurrent(run)
        case "DQN" | "QRDQN":
            return _q_network(run)
        case "SAC" | "TQC" | "CrossQ":
            return _soft_actor_critic(run)
        case "TD3" | "DDPG":
            return _deterministic(run)
        case _:
            return _linear_search(run)


def nature_cnn(image: Box, features_dim: int) -> Stack:
    """Return the Nature CNN on one channels-first image."""
    convolutions: tuple[Layer, ...] = (
        *_conv(32, kernel=8, stride=4),
        *_conv(64, kernel=4, stride=2),
        *_conv(64, kernel=3, stride=1),
    )
    head: tuple[Layer, ...] = (Flatten(), Linear(out=features_dim), Activation(name="relu"))
    return stack((*convolutions, *head), input_shape=image.shape)


def _conv(out: int, *, kernel: int, stride: int) -> tuple[Layer, Layer]:
    conv = Conv(dims=2, out=out, kernel=(kernel, kernel), stride=(stride, stride), padding=(0, 0))
    return conv, Activation(name="relu")


def _extractor(run: FrameworkRun) -> Stack:
    policy, observation = run.policy, stored_observation(run.env)
    if isinstance(policy.features, tuple):
        return _described(policy.features, _input_shape(observation))
    if isinstance(observation, Dict):
        return _combined(observation, policy)
    if policy.class_name.startswith("Cnn") and isinstance(observation, Box):
        return nature_cnn(observation, policy.features_dim or 512)
    return Stack(output=(flat_dim(observation),))


def _described(layers: tuple[Layer, ...], shape: tuple[int, ...]) -> Stack:
    try:
        return stack((*layers, Flatten()), input_shape=shape)
    except InputError as error:
        raise InputError(f"`policy.features` does not fit observations of the shape {shape}: {error}") from None


def _input_shape(observation: Space) -> tuple[int, ...]:
    return observation.shape if isinstance(observation, Box) else (flat_dim(observation),)


def _combined(observation: Dict, policy: Policy) -> Stack:
    """Return SB3's CombinedExtractor: a Nature CNN for each image, everything else flattened."""
    images = [leaf for _, leaf in leaves(observation) if _takes_cnn(leaf, policy)]
    others = sum(flat_dim(leaf) for _, leaf in leaves(observation) if not _takes_cnn(leaf, policy))
    width = policy.features_dim or 256
    networks = [nature_cnn(image, width) for image in images]
    total = Stack(output=(others + width * len(networks),))
    for network in networks:
        total = total.beside(network)
    return total


def _takes_cnn(leaf: Leaf, policy: Policy) -> TypeGuard[Box]:
    """Whether a leaf is an image to the framework: without `normalize_images`, every Box of three axes is."""
    return is_image(leaf) or (not policy.normalize_images and isinstance(leaf, Box) and len(leaf.shape) == 3)


def _uses_nature_cnn(policy: Policy) -> bool:
    return policy.class_name.startswith("Cnn") and policy.features is None


def _arch(policy: Policy, default: tuple[int, ...], critic: tuple[int, ...] | None = None) -> NetArch:
    if policy.net_arch is not None:
        return policy.net_arch
    return NetArch(policy=default, value=default if critic is None else critic)


def _logits(action: Space, *, maskable: bool) -> int:
    """Return the width of the last layer of a stochastic policy."""
    match action:
        case Discrete(n=n):
            return n
        case MultiDiscrete(nvec=nvec):
            return sum(nvec)
        case MultiBinary():
            return action_dim(action) * (2 if maskable else 1)
        case _:
            return action_dim(action)


def _actor_critic_heads(run: FrameworkRun, inputs: int) -> tuple[Stack, Stack]:
    """Return policy and value networks after the features (or the LSTM)."""
    action = _action(run)
    arch = _arch(run.policy, () if _uses_nature_cnn(run.policy) else (64, 64))
    width = _logits(action, maskable=run.algorithm == "MaskablePPO")
    actor = mlp(inputs, arch.policy, outputs=width)
    if isinstance(action, Box):
        latent = arch.policy[-1] if arch.policy else inputs
        full = dict(run.policy.other).get("full_std", True) is not False
        elements = latent * (width if full else 1) if run.training.use_sde else width
        actor = actor.beside(Stack(output=(), parameters=elements, tensors=1))
    return actor, mlp(inputs, arch.value, outputs=1)


def _action(run: FrameworkRun) -> Space:
    assert run.env.action is not None  # noqa: S101 - load_run has read it
    return run.env.action


def _actor_critic(run: FrameworkRun) -> PolicyCost:
    extractor = _extractor(run)
    actor, critic = _actor_critic_heads(run, extractor.output[0])
    shared = run.policy.share_features_extractor is not False
    online = extractor.times(1 if shared else 2).beside(actor).beside(critic)
    learnt = online
    if run.algorithm == "TRPO":
        # Only the critic has an optimizer's step; the policy moves along a conjugate gradient.
        learnt = critic if shared else critic.beside(extractor)
    return PolicyCost(
        online=online,
        targets=_NOTHING,
        optimized=learnt.parameters,
        optimized_tensors=learnt.tensors,
        graph=online,
    )


def _recurrent(run: FrameworkRun) -> PolicyCost:
    policy, extractor = run.policy, _extractor(run)
    lstm = stack((Lstm(hidden=policy.lstm_hidden_size, layers=policy.n_lstm_layers),), input_shape=extractor.output)
    actor, critic = _actor_critic_heads(run, policy.lstm_hidden_size)
    online = extractor.times(1 if policy.share_features_extractor is not False else 2).beside(lstm)
    if policy.enable_critic_lstm:
        online = online.beside(lstm)
    elif not policy.shared_lstm:
        online = online.beside(mlp(extractor.output[0], (), outputs=policy.lstm_hidden_size))
    online = online.beside(actor).beside(critic)
    return PolicyCost(
        online=online,
        targets=_NOTHING,
        optimized=online.parameters,
        optimized_tensors=online.tensors,
        graph=online,
    )


def _q_network(run: FrameworkRun) -> PolicyCost:
    extractor = _extractor(run)
    action = _action(run)
    actions = action.n if isinstance(action, Discrete) else action_dim(action)
    quantiles = (run.policy.n_quantiles or 200) if run.algorithm == "QRDQN" else 1
    hidden = _arch(run.policy, () if _uses_nature_cnn(run.policy) else (64, 64)).policy
    network = extractor.then(mlp(extractor.output[0], hidden, outputs=actions * quantiles))
    return PolicyCost(
        online=network,
        targets=network,
        optimized=network.parameters,
        optimized_tensors=network.tensors,
        graph=network,
    )


def _soft_actor_critic(run: FrameworkRun) -> PolicyCost:
    extractor, actions = _extractor(run), action_dim(_action(run))
    crossq = run.algorithm == "CrossQ"
    arch = _arch(run.policy, (256, 256), critic=(1024, 1024) if crossq else None)
    latent = arch.policy[-1] if arch.policy else extractor.output[0]
    renorm = crossq and dict(run.policy.other).get("batch_norm", True) is not False
    body = _mlp(extractor.output[0], arch.policy, outputs=None, renorm=renorm)
    if renorm and arch.policy:
        body = body.beside(_renorm(latent))
    mean = mlp(latent, (), outputs=actions)
    spread = Stack(output=(), parameters=latent * actions, tensors=1) if run.training.use_sde else mean
    actor = extractor.beside(body).beside(mean).beside(spread)
    outputs = (run.policy.n_quantiles or 25) if run.algorithm == "TQC" else 1
    quality = _mlp(extractor.output[0] + actions, arch.value, outputs=outputs, renorm=renorm)
    critics = quality.times(run.policy.n_critics or 2)
    own = _NOTHING if run.policy.share_features_extractor else extractor
    critic = critics.beside(own)
    online = actor.beside(critic)
    return PolicyCost(
        online=online,
        targets=_NOTHING if crossq else critics.beside(extractor),
        optimized=online.parameters,
        optimized_tensors=online.tensors,
        graph=critic if crossq else online,
        graph_rows=2 if crossq else 1,
    )


def _mlp(inputs: int, hidden: tuple[int, ...], *, outputs: int | None, renorm: bool) -> Stack:
    """Return a perceptron, with CrossQ's batch renormalisation before each of its linear layers."""
    network = mlp(inputs, hidden, outputs=outputs)
    if not renorm or not (hidden or outputs):
        return network
    widths = (inputs, *hidden) if outputs is not None else (inputs, *hidden[:-1])
    for width in widths:
        network = network.beside(_renorm(width))
    return network


def _renorm(width: int) -> Stack:
    """Return one BatchRenorm layer: scale and bias, running mean and variance, a counter; two saved copies."""
    return Stack(
        output=(width,),
        parameters=2 * width,
        tensors=2,
        buffer_bytes=2 * width * 4 + 8,
        saved=2 * width,
        widest=2 * width,
    )


def _deterministic(run: FrameworkRun) -> PolicyCost:
    extractor, actions = _extractor(run), action_dim(_action(run))
    arch = _arch(run.policy, (256, 256) if _uses_nature_cnn(run.policy) else (400, 300))
    actor = extractor.beside(mlp(extractor.output[0], arch.policy, outputs=actions))
    quality = mlp(extractor.output[0] + actions, arch.value, outputs=1)
    critics = quality.times(run.policy.n_critics or (1 if run.algorithm == "DDPG" else 2))
    shared = bool(run.policy.share_features_extractor)
    online = actor.beside(critics if shared else critics.beside(extractor))
    return PolicyCost(
        online=online,
        targets=online,
        optimized=online.parameters,  # a shared extractor stands in both optimizers, but only the actor's moves it
        optimized_tensors=online.tensors,
        graph=online,
    )


def _linear_search(run: FrameworkRun) -> PolicyCost:
    """Return ARS's policy: evaluated, never differentiated."""
    linear = run.policy.class_name == "LinearPolicy"
    hidden = () if linear else _arch(run.policy, (64, 64)).policy
    action = _action(run)
    outputs = action.n if isinstance(action, Discrete) else action_dim(action)
    network = mlp(flat_dim(stored_observation(run.env)), hidden, outputs=outputs, bias=not linear)
    return PolicyCost(online=network, targets=_NOTHING, optimized=0, optimized_tensors=0, graph=_NOTHING)

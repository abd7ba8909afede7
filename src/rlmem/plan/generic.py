"""Generic runs: named arrays and networks, sizes that can be varied, and what follows when they are."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from rlmem.errors import InputError
from rlmem.plan import cuda, processes
from rlmem.plan.layers import Stack, stack
from rlmem.plan.model import ASSUMED, EXACT, Component, Phase
from rlmem.plan.optimizers import state_bytes, state_formula
from rlmem.run.arrays import ITEM_BYTES, ArraySpec, format_shape
from rlmem.run.model import Dim, GenericRun, NamedArray, NamedNetwork


def phases(run: GenericRun) -> tuple[Phase, ...]:
    """Return each phase that the run names, with what lives in it."""
    standing = (
        processes.generic_floor(run),
        *processes.generic_workers(run),
        *processes.thread_stacks(run.processes),
        *(part for network in run.networks for part in _network(run, network)),
    )
    return tuple(_phase(run, name, standing) for name in run.phases)


def parameters(run: GenericRun) -> int:
    """Return the parameters of one copy of each network, without targets."""
    return sum(_stack(run, network).parameters for network in run.networks)


def with_size(run: GenericRun, name: str, value: int) -> GenericRun:
    """Return the run with one of its sizes changed."""
    return replace(run, sizes=tuple((key, value if key == name else size) for key, size in run.sizes))


def _phase(run: GenericRun, name: str, standing: tuple[Component, ...]) -> Phase:
    arrays = tuple(_array(run, array) for array in run.arrays if array.phases is None or name in array.phases)
    graphs = tuple(_graph(run, network) for network in run.networks if network.rows and name in network.graph_phases)
    alive = (*standing, *arrays, *graphs)
    return Phase(name=name, components=(*alive, *_cuda(run, alive)))


def _cuda(run: GenericRun, alive: tuple[Component, ...]) -> tuple[Component, ...]:
    if not run.device.startswith("cuda"):
        return ()
    tensors = sum(component.bytes for component in alive if component.where == "vram")
    return cuda.overheads(tensors_bytes=tensors, graph=Stack(output=()), rows=0, convolutional=False)


def _value(run: GenericRun, dim: Dim) -> int:
    return dict(run.sizes)[dim] if isinstance(dim, str) else dim


def _product(run: GenericRun, dims: Iterable[Dim]) -> int:
    return math.prod(_value(run, dim) for dim in dims)


def _words(run: GenericRun, dims: tuple[Dim, ...]) -> str:
    return " × ".join(f"{_value(run, dim):,} {dim}" if isinstance(dim, str) else f"{dim:,}" for dim in dims)


def _array(run: GenericRun, array: NamedArray) -> Component:
    named = tuple(dim for dim in array.shape if isinstance(dim, str))
    plain = tuple(dim for dim in array.shape if not isinstance(dim, str))
    count = _product(run, (*array.count, *named))
    every = _product(run, array.every)
    many = -(-count // every)
    each = ArraySpec(shape=plain, dtype=array.dtype)
    words = [_words(run, (*array.count, *named))] if (*array.count, *named) else []
    formula = " × ".join([*words, f"{format_shape(plain)} × {ITEM_BYTES[array.dtype]} B"])
    if array.every:
        formula += f", one for every {_words(run, array.every)}"
    return Component(path=array.path, where=array.where, bytes=many * each.nbytes, formula=formula, basis=EXACT)


def _place(run: GenericRun) -> str:
    return "vram" if run.device.startswith("cuda") else "ram"


def _stack(run: GenericRun, network: NamedNetwork) -> Stack:
    if network.parameters is not None:
        return Stack(output=(), parameters=network.parameters, tensors=1, saved=network.activations_per_row or 0)
    shape = tuple(_value(run, dim) for dim in network.input)
    try:
        measured = stack(network.layers, input_shape=shape)
    except InputError as error:
        raise InputError(f"the network {network.name!r} does not fit its input {shape}: {error}") from None
    return (
        measured
        if network.activations_per_row is None
        else replace(measured, saved=network.activations_per_row, widest=0)
    )


def _network(run: GenericRun, network: NamedNetwork) -> tuple[Component, ...]:
    """Return parameters of all copies with their targets, and gradients and optimizer state where it learns."""
    one, copies = _stack(run, network), _product(run, network.copies)
    held = copies * (1 + network.targets)
    parts = [
        _part(
            run,
            f"network/parameters/{network.name}",
            held * (one.parameters * 4 + one.buffer_bytes),
            f"{held} × {one.parameters:,} × 4 B",
        )
    ]
    if network.optimizer is None:
        return tuple(parts)
    learning = _product(run, network.active) if network.active else copies
    state = learning * state_bytes(network.optimizer, elements=one.parameters, tensors=one.tensors)
    words = state_formula(network.optimizer, elements=one.parameters)
    return (
        *parts,
        _part(
            run,
            f"network/gradients/{network.name}",
            learning * one.parameters * 4,
            f"{learning} × {one.parameters:,} × 4 B",
        ),
        _part(run, f"network/optimizer/{network.name}", state, f"{learning} × {words}"),
    )


def _part(run: GenericRun, path: str, size: int, formula: str) -> Component:
    return Component(path=path, where=_place(run), bytes=size, formula=formula, basis=EXACT)


def _graph(run: GenericRun, network: NamedNetwork) -> Component:
    """Return the activations: they scale with the rows in the graph."""
    one, rows = _stack(run, network), _product(run, network.rows)
    return Component(
        path=f"update/activations/{network.name}",
        where=_place(run),
        bytes=rows * (one.saved + one.widest) * 4,
        formula=f"{_words(run, network.rows)} rows × ({one.saved:,} saved + {one.widest:,} in flight) × 4 B",
        basis=ASSUMED,
    )

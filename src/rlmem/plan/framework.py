"""What every framework run has, whatever its algorithm: networks, the update step, saving."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from rlmem.plan import cuda, processes, trace
from rlmem.plan.buffers import BufferArray
from rlmem.plan.model import ASSUMED, EXACT, MEASURED, TRACED, Component
from rlmem.plan.optimizers import state_bytes, state_formula
from rlmem.plan.parts import Parts
from rlmem.plan.policies import PolicyCost
from rlmem.run.layers import Conv
from rlmem.run.model import FrameworkRun
from rlmem.run.spaces import Space, flat_dim, leaves, sample_bytes, sample_spec
from rlmem.run.wrappers import stored_observation

FLOAT_BYTES: Final = 4


def standing(run: FrameworkRun, parts: Parts) -> tuple[Component, ...]:
    """Return the processes: there from the first phase to the last."""
    return (
        processes.framework_floor(run, parts.calibration),
        *processes.environments(run, parts.calibration),
        *processes.thread_stacks(run.processes),
    )


def device_place(run: FrameworkRun) -> str:
    return "vram" if run.device.startswith("cuda") else "ram"


def networks(run: FrameworkRun, cost: PolicyCost) -> tuple[Component, ...]:
    """Return parameters and target networks."""
    place, online, targets = device_place(run), cost.online, cost.targets
    parts = [
        Component(
            path="network/parameters",
            where=place,
            bytes=online.parameters * FLOAT_BYTES + online.buffer_bytes,
            formula=f"{online.parameters:,} × 4 B" + (" + running statistics" if online.buffer_bytes else ""),
            basis=EXACT,
        )
    ]
    if targets.parameters:
        parts.append(
            Component(
                path="network/targets",
                where=place,
                bytes=targets.parameters * FLOAT_BYTES + targets.buffer_bytes,
                formula=f"{targets.parameters:,} × 4 B in target networks",
                basis=EXACT,
            )
        )
    return tuple(parts)


def learning_state(run: FrameworkRun, cost: PolicyCost) -> tuple[Component, ...]:
    """Return gradients and optimizer state, which stay from the first update on."""
    place, trained, optimizer = device_place(run), cost.optimized, _optimizer(run)
    state = state_bytes(optimizer, elements=cost.optimized, tensors=cost.optimized_tensors)
    return (
        Component(
            path="network/gradients",
            where=place,
            bytes=trained * FLOAT_BYTES,
            formula=f"{trained:,} × 4 B, kept until the next backward pass",
            basis=EXACT,
        ),
        Component(
            path="network/optimizer",
            where=place,
            bytes=state,
            formula=state_formula(optimizer, elements=cost.optimized),
            basis=EXACT,
        ),
    )


def _optimizer(run: FrameworkRun) -> str:
    # A2C's own switch counts only where the policy does not name an optimizer.
    unswitched = dict(run.training.other).get("use_rms_prop", True) is not False
    return run.policy.optimizer or (run.spec.optimizer if unswitched else "adam")


def update_step(run: FrameworkRun, cost: PolicyCost, *, rows: int, observations: int) -> tuple[Component, ...]:
    """Return what one gradient step adds; ``observations`` is how many observations a sample holds (two in replay)."""
    place, observation = device_place(run), stored_observation(run.env)
    sample = observations * sample_bytes(observation)
    minibatch = rows * sample
    graph_rows = rows * cost.graph_rows
    inputs = graph_rows * _input_elements(observation) * FLOAT_BYTES * observations if _is_cast(observation) else 0
    activations = (cost.graph.saved + cost.graph.widest) * graph_rows * FLOAT_BYTES
    parts = [
        _update("update/minibatch", "ram", minibatch, f"{rows:,} samples × {sample:,} B, as NumPy", EXACT),
        _update("update/minibatch_tensor", place, minibatch, f"{rows:,} samples × {sample:,} B, as tensor", EXACT),
    ]
    if inputs:
        parts.append(_update("update/inputs", place, inputs, "the minibatch cast to float32", EXACT))
    parts.append(
        _update(
            "update/activations",
            place,
            activations,
            f"{graph_rows:,} rows × ({cost.graph.saved:,} saved + {cost.graph.widest:,} in flight) × 4 B, "
            "from layer shapes",
            ASSUMED,
        )
    )
    return tuple(parts)


def _update(path: str, place: str, size: int, formula: str, basis: str) -> Component:
    return Component(path=path, where=place, bytes=size, formula=formula, basis=basis)


def _is_cast(observation: Space) -> bool:
    return any(sample_spec(leaf).dtype != "float32" for _, leaf in leaves(observation))


def _input_elements(observation: Space) -> int:
    """Return the width of the float copy: only leaves that are not float32 already are copied."""
    return sum(flat_dim(leaf) for _, leaf in leaves(observation) if sample_spec(leaf).dtype != "float32")


_TRACED_PATHS: Final = {
    trace.PARAMETERS: ("network/parameters", "parameters, targets and running statistics"),
    trace.GRADIENTS: ("network/gradients", "those alive at the peak"),
    trace.OPTIMIZER: ("network/optimizer", "the optimizers' state"),
    trace.MINIBATCH: ("update/minibatch_tensor", "the minibatch as tensors"),
    trace.HOST: ("update/minibatch", "the minibatch as NumPy arrays"),
    trace.ACTIVATIONS: ("update/activations", "made in the forward pass"),
    trace.TEMPORARIES: ("update/temporaries", "made in the backward pass or without gradients"),
    trace.SCRATCH: ("update/scratch", "oneDNN's copies in its own layout, metered on the real convolutions"),
}


def traced_update(run: FrameworkRun, parts: Parts, alive: tuple[Component, ...]) -> tuple[Component, ...]:
    """Return the update phase of a traced or metered run on the CPU, or nothing where it is neither."""
    update = parts.update
    if device_place(run) == "vram":
        return _traced_on_gpu(run, parts, alive)
    if parts.step is not None:
        words = f"a real update at {parts.step.rows[0]} and {parts.step.rows[1]} rows, extrapolated"
        step = _update("update/step", "ram", parts.step.bytes, words, MEASURED)
        return (*alive, *networks(run, parts.cost), *learning_state(run, parts.cost), step)
    if update is None:
        return ()
    words = f"traced at {update.rows:,} rows: "
    traced = tuple(
        _update(_TRACED_PATHS[kind][0], "ram", size, words + _TRACED_PATHS[kind][1], TRACED)
        for kind, size in update.at_peak.items()
        if size
    )
    return (*alive, *traced, *_kept(update.kept_at_peak(parts.calibration.heap_ratio), "at the peak"))


def _traced_on_gpu(run: FrameworkRun, parts: Parts, alive: tuple[Component, ...]) -> tuple[Component, ...]:
    """Return the update phase of a traced run on a GPU: the host has a minibatch, the device all else."""
    if parts.update is None:
        return ()
    host = _update("update/minibatch", "ram", parts.update.host_bytes, "the minibatch as NumPy arrays", TRACED)
    return (*alive, host, *cuda.traced_components(parts.update, with_cudnn=uses_cudnn(run)))


def kept_heap(run: FrameworkRun, parts: Parts) -> tuple[Component, ...]:
    """Return what the C library keeps of the blocks that an update has freed."""
    if parts.update is None or device_place(run) == "vram":
        return ()
    return _kept(parts.update.kept_at_end(parts.calibration.heap_ratio), "after an update")


def _kept(size: int, when: str) -> tuple[Component, ...]:
    if size <= 0:
        return ()
    formula = f"freed blocks that the C library keeps {when}: traced blocks requested from the real one"
    return (_update("process/allocator", "ram", size, formula, TRACED),)


def cuda_parts(
    run: FrameworkRun, cost: PolicyCost, alive: tuple[Component, ...], *, rows: int
) -> tuple[Component, ...]:
    """Return what the device has besides tensors, for a run on CUDA."""
    if device_place(run) == "ram":
        return ()
    tensors = sum(component.bytes for component in alive if component.where == "vram")
    return cuda.overheads(
        tensors_bytes=tensors,
        graph=cost.graph,
        rows=rows * cost.graph_rows,
        convolutional=is_convolutional(run),
    )


def context(device: tuple[Component, ...]) -> tuple[Component, ...]:
    """Return the part of the device's overheads that is there from the start."""
    return tuple(part for part in device if part.path == "cuda/context")


def between_updates(
    full: tuple[Component, ...],
    device: tuple[Component, ...],
    step: tuple[Component, ...],
    updating: tuple[Component, ...],
) -> tuple[Component, ...]:
    """Return what is alive between updates: the caching allocator keeps what the last one has freed."""
    if not any(part.where == "vram" and part.basis == TRACED for part in updating):
        return (*full, *held_back(device, step))
    peak = sum(part.bytes for part in updating if part.where == "vram")
    held = sum(part.bytes for part in full if part.where == "vram")
    slack = _update("cuda/reserved_slack", "vram", 0, "reserved by the caching allocator since the last update", TRACED)
    context = tuple(part for part in updating if part.path in ("cuda/context", "cuda/workspace"))
    known = held + sum(part.bytes for part in context)
    return (*full, *context, replace(slack, bytes=max(peak - known, 0)))


def held_back(device: tuple[Component, ...], step: tuple[Component, ...]) -> tuple[Component, ...]:
    """Return the device's overheads between updates: the caching allocator keeps what the step has freed."""
    freed = sum(component.bytes for component in step if component.where == "vram")
    return tuple(
        replace(part, bytes=part.bytes + freed, formula=f"{part.formula}; and what the last update freed, kept")
        if part.path == "cuda/reserved_slack"
        else part
        for part in device
    )


def uses_cudnn(run: FrameworkRun) -> bool:
    """Whether the policy has convolutions or an LSTM, whose kernels cuDNN loads."""
    return is_convolutional(run) or run.algorithm == "RecurrentPPO"


def is_convolutional(run: FrameworkRun) -> bool:
    """Whether the policy has convolutions."""
    features = run.policy.features
    if isinstance(features, tuple):
        return any(isinstance(layer, Conv) for layer in features)
    return not run.policy.class_name.startswith("Mlp")


def saving(run: FrameworkRun, cost: PolicyCost, arrays: tuple[BufferArray, ...]) -> tuple[Component, ...]:
    """Return what a checkpoint takes: little RAM, since files are written straight through, and disk."""
    optimizer = _optimizer(run)
    state = state_bytes(optimizer, elements=cost.optimized, tensors=cost.optimized_tensors)
    model = (cost.parameters * FLOAT_BYTES) + state
    parts = [
        Component(
            path="save/serialization",
            where="ram",
            bytes=min(model, 8 * 2**20),
            formula="model.save streams tensors into the zip file",
            basis=ASSUMED,
        ),
        Component(
            path="save/model_file",
            where="disk",
            bytes=model,
            formula=f"{cost.parameters:,} parameters × 4 B + optimizer state",
            basis=EXACT,
        ),
    ]
    if run.checkpoint is not None and run.checkpoint.save_replay_buffer and run.spec.off_policy:
        size = sum(array.bytes for array in arrays)
        parts.append(
            Component(
                path="save/replay_buffer_file",
                where="disk",
                bytes=size,
                formula="a pickle of the whole buffer, filled or not",
                basis=EXACT,
            )
        )
    return tuple(parts)


def buffer_components(
    arrays: tuple[BufferArray, ...], *, source: str, filled: int | None = None
) -> tuple[Component, ...]:
    """Return the buffer's arrays as components; only ``filled`` rows of lazily made arrays are resident."""
    resident = [_resident(array, source, filled) for array in arrays]
    unfilled = sum(array.bytes - array.resident_bytes(filled) for array in arrays if array.reserved)
    if not unfilled:
        return tuple(resident)
    never = Component(
        path="buffer/never_filled",
        where="virtual",
        bytes=unfilled,
        formula="rows that the run never writes: reserved, not resident",
        basis=EXACT,
    )
    return (*resident, never)


def _resident(array: BufferArray, source: str, filled: int | None) -> Component:
    rows = array.rows if filled is None or not array.lazy else min(filled, array.rows)
    return Component(
        path=array.path,
        where="ram",
        bytes=array.resident_bytes(filled),
        formula=f"{source} × {array.row_formula}" if rows == array.rows else f"{rows:,} filled × {array.row_formula}",
        basis=array.basis,
    )


def rows_per_update(run: FrameworkRun) -> int:
    """Return how many samples one gradient step takes."""
    training = run.training
    rollout = training.n_steps * run.n_envs
    if not run.spec.on_policy:
        return training.batch_size or 1
    if training.batch_size is None:
        return rollout  # A2C: the whole rollout in one step
    if run.algorithm == "TRPO":
        return rollout  # the policy's step sees the whole rollout; batches are the critic's
    return min(training.batch_size, rollout)


def minibatches(run: FrameworkRun) -> int:
    """Return how many minibatches an epoch has; the last may be smaller."""
    rollout = run.training.n_steps * run.n_envs
    return math.ceil(rollout / rows_per_update(run))

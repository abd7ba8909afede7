"""The parts of a run as this machine has them: the update traced, the processes metered, both remembered."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final

from rlmem.errors import EnvironmentReadError
from rlmem.measure.cache import remembered
from rlmem.measure.calibration import record
from rlmem.measure.lean_sample import with_sample
from rlmem.plan import search
from rlmem.plan.framework import rows_per_update
from rlmem.plan.parts import Calibration, MeasuredStep, Parts, described_parts
from rlmem.plan.schedule import short, updates
from rlmem.plan.trace import UpdateTrace, trace_from_dict
from rlmem.run import complete_run, run_from_mapping, write_run
from rlmem.run.child import ask
from rlmem.run.model import Budget, Buffer, FrameworkRun

_TRACE_TIMEOUT_S: Final = 120.0
_PROBE_ROWS: Final = (8, 32)
_TELLING_BYTES: Final = 16 * 2**20
"""A heap smaller than this says nothing about a large one."""

_TRACED_BUFFER_ROWS: Final = 1000
"""Rows of the replay buffer while an update is traced: none is read, for the minibatches are the trace's own."""

_TRACED_UPDATES: Final = 20
"""Updates that are traced: more than a short training makes, for the heap of a long one keeps growing a while."""


def traced_parts(run: FrameworkRun) -> Parts:
    """Return the run's parts with its update traced and its processes metered on this machine.

    The children run side by side; what they find is remembered by all that determines it.
    """
    if run.buffer.is_lean:
        return _with_lean_buffer(run)
    parts = described_parts(run)
    if run.spec.family == "search":
        return replace(parts, calibration=_with_workers(_search_floor(run), _workers(run)))
    if run.device.startswith("cuda"):
        return replace(parts, update=_trace(run, rows_per_update(run), 0))
    small = short(run)
    with ThreadPoolExecutor() as pool:
        own_trace = pool.submit(_trace, run, rows_per_update(run), _traced_updates(run))
        short_trace = pool.submit(_trace, run, rows_per_update(small), updates(small))
        training = pool.submit(train, small)
    # Alone: pages that other processes share would be divided among more of them.
    workers = _workers(run)
    try:
        update = own_trace.result()
        calibration = _calibration(run, short_trace.result(), training.result())
    except EnvironmentReadError:
        parts = replace(parts, step=_measured_step(run))
        return replace(parts, calibration=_with_workers(_rough_floor(run, training.result()), workers))
    calibration = _with_workers(calibration, workers)
    record(run, calibration)
    return replace(parts, update=update, calibration=calibration)


def _with_lean_buffer(run: FrameworkRun) -> Parts:
    """Return the parts of the run with a stock buffer, which trace and meter know, but for the buffer itself."""
    traced, own = traced_parts(replace(run, buffer=Buffer())), described_parts(run)
    return with_sample(run, replace(traced, arrays=own.arrays, notes=own.notes))


def calibrate() -> None:
    """Meter this machine with a small run that most others are like: PPO on CartPole, in a worker."""
    described = {
        "framework": "sb3",
        "algorithm": "PPO",
        "env": {"id": "CartPole-v1", "workers": "subprocess"},
        "training": {"n_steps": 128, "batch_size": 64},
    }
    run = complete_run(run_from_mapping(described), source="the calibration")
    assert isinstance(run, FrameworkRun)  # noqa: S101 - it is described so
    traced_parts(run)


def _traced_updates(run: FrameworkRun) -> int:
    """Return how many updates to trace: a recurrent one is long, step by step."""
    return 4 if run.algorithm == "RecurrentPPO" else _TRACED_UPDATES


def _trace(run: FrameworkRun, rows: int, count: int) -> UpdateTrace:
    """Return the trace of ``count`` updates of ``rows`` rows, from memory where it was made before."""
    question = {"run": _determining(_as_traced(run)), "rows": rows, "updates": count}
    return trace_from_dict(
        remembered(
            "trace",
            question,
            lambda: ask("rlmem.sb3.tracing", question, subject="the update", timeout_s=_TRACE_TIMEOUT_S),
        )
    )


def _as_traced(run: FrameworkRun) -> FrameworkRun:
    """Return the run with one value for all that its traced update does not depend on.

    The trace is made on one synthetic environment with the run's spaces and on minibatches of its own, so neither
    how the environments are made nor how many there are nor how long the replay buffer is can be seen in it.
    """
    env = replace(run.env, n_envs=1, workers="in-process", start_method=None, id=None, make=None, wrappers=())
    if not run.spec.off_policy:
        return replace(run, env=env)
    given = run.training.given | {"buffer_size"}
    return replace(run, env=env, training=replace(run.training, buffer_size=_TRACED_BUFFER_ROWS, given=given))


def train(run: FrameworkRun) -> dict[str, Any]:
    """Return what a real training of the run had, from memory where it was made before."""
    question = {"run": _determining(run)}
    return remembered(
        "training",
        question,
        lambda: ask("rlmem.sb3.real_training", question, subject="a short training", timeout_s=300.0),
    )


def _workers(run: FrameworkRun) -> dict[str, Any] | None:
    if run.env.workers != "subprocess":
        return None
    question = {"run": _determining(run)}
    return remembered(
        "workers", question, lambda: ask("rlmem.sb3.worker_meter", question, subject="environment workers")
    )


def _with_workers(calibration: Calibration, workers: dict[str, Any] | None) -> Calibration:
    return replace(calibration, **workers) if workers else calibration


def _calibration(run: FrameworkRun, trace: UpdateTrace, training: dict[str, Any]) -> Calibration:
    """Return the process without its arrays and networks, and how the real heap compares with the traced one.

    The floor is what lies outside the heap after training (code, interpreter, threads) and what the heap had in
    use once the model was built, without the model's own parameters and buffer.
    """
    parts = described_parts(short(run))
    buffer = sum(array.bytes for array in parts.arrays)
    own = parts.cost.parameters * 4 + buffer
    floor = training["trained_outside_heap_bytes"] + training["built_in_use_bytes"] - own
    if trace.heap is None:
        return Calibration(floor_bytes=floor)
    real = training["high_water_bytes"] - floor - buffer
    if trace.heap.peak_bytes < _TELLING_BYTES:
        return Calibration(floor_bytes=floor)
    likeness = (trace.rows / rows_per_update(run)) ** 2
    return Calibration(floor_bytes=floor, heap_ratio=1 + (_bounded(real / trace.heap.peak_bytes) - 1) * likeness)


def _bounded(ratio: float) -> float:
    return min(max(ratio, 0.75), 1.3)


def _rough_floor(run: FrameworkRun, training: dict[str, Any]) -> Calibration:
    """Return the floor where nothing could be traced: networks and buffer taken away, the small step left in."""
    small = described_parts(short(run))
    known = sum(array.bytes for array in small.arrays) + small.cost.parameters * 4 + small.cost.optimized * 12
    return Calibration(floor_bytes=int(training["high_water_bytes"]) - known)


def _search_floor(run: FrameworkRun) -> Calibration:
    """Return the process of a random search without its candidates: there is no update to trace, and none to make."""
    alone = replace(run, env=replace(run.env, n_envs=1, workers="in-process"), evaluation=None, checkpoint=None)
    collect = search.phases(alone, described_parts(alone))[1]
    known = sum(part.bytes for part in collect.components if part.where == "ram" and "process/" not in part.path)
    return Calibration(floor_bytes=int(train(alone)["high_water_bytes"]) - known)


def _measured_step(run: FrameworkRun) -> MeasuredStep:
    """Return the update's size from real ones at two batch sizes: a line through both, less its part in the floor."""
    marks = [train(_with_rows(run, rows))["high_water_bytes"] for rows in _PROBE_ROWS]
    few, many = _PROBE_ROWS
    slope = max((marks[1] - marks[0]) / (many - few), 0.0)
    return MeasuredStep(bytes=int(slope * rows_per_update(run)), rows=_PROBE_ROWS)


def _with_rows(run: FrameworkRun, rows: int) -> FrameworkRun:
    small = short(run)
    most = max(_PROBE_ROWS)
    training = replace(small.training, n_steps=most, batch_size=rows, buffer_size=most if run.spec.off_policy else None)
    return replace(small, training=replace(training, given=training.given | {"n_steps", "batch_size", "buffer_size"}))


def _determining(run: FrameworkRun) -> dict[str, Any]:
    """Return the run without what does not bear on its processes: the key under which findings are remembered."""
    training = replace(run.training, total_timesteps=None, given=run.training.given - {"total_timesteps"})
    plain = replace(run, name="run", training=training, evaluation=None, checkpoint=None, budget=Budget())
    return write_run(plain)

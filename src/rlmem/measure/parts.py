"""The parts of a run as this machine has them: the update traced, the processes metered, both remembered."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final

from rlmem.errors import EnvironmentReadError
from rlmem.measure.cache import remembered
from rlmem.measure.schedule import tiny, updates
from rlmem.plan.framework import rows_per_update
from rlmem.plan.parts import Calibration, MeasuredStep, Parts, described_parts
from rlmem.plan.trace import UpdateTrace, trace_from_dict
from rlmem.run import write_run
from rlmem.run.child import ask
from rlmem.run.model import FrameworkRun

TRACED_UPDATES: Final = 20
_TRACE_TIMEOUT_S: Final = 120.0
_PROBE_ROWS: Final = (8, 32)


def traced_parts(run: FrameworkRun) -> Parts:
    """Return the run's parts with its update traced and its processes metered on this machine.

    The children run side by side; what they find is remembered by all that determines it.
    """
    parts = described_parts(run)
    if run.spec.family == "search":
        return parts
    with ThreadPoolExecutor() as pool:
        traces = pool.submit(_traces, run)
        training = pool.submit(_tiny_training, run)
        workers = pool.submit(_workers, run)
        try:
            update, small = traces.result()
        except EnvironmentReadError:
            return replace(
                parts, step=_measured_step(run), calibration=_with_workers(_rough_floor(run, training), workers)
            )
    calibration = _calibration(run, small, training.result())
    return replace(parts, update=update, calibration=_with_workers(calibration, workers))


def _traces(run: FrameworkRun) -> tuple[UpdateTrace, UpdateTrace]:
    """Return the trace of the run's own update, and of the tiny training's."""
    small = tiny(run)
    pairs = [[rows_per_update(run), TRACED_UPDATES], [rows_per_update(small), updates(small)]]
    question = {"run": _determining(run), "updates": pairs}
    reply = remembered(
        "trace", question, lambda: ask("rlmem.sb3.tracing", question, subject="the update", timeout_s=_TRACE_TIMEOUT_S)
    )
    own, other = (trace_from_dict(data) for data in reply["traces"])
    return own, other


def _tiny_training(run: FrameworkRun) -> dict[str, Any]:
    return train(tiny(run))


def train(run: FrameworkRun) -> dict[str, Any]:
    """Return what a real training of the run had, from memory where it was made before."""
    question = {"run": _determining(run)}
    return remembered(
        "training",
        question,
        lambda: ask("rlmem.sb3.real_training", question, subject="a tiny training", timeout_s=300.0),
    )


def _workers(run: FrameworkRun) -> dict[str, Any] | None:
    if run.env.workers != "subprocess":
        return None
    question = {"run": _determining(run)}
    return remembered(
        "workers", question, lambda: ask("rlmem.sb3.worker_meter", question, subject="environment workers")
    )


def _with_workers(calibration: Calibration, workers: Future[dict[str, Any] | None]) -> Calibration:
    metered = workers.result()
    return replace(calibration, **metered) if metered else calibration


def _calibration(run: FrameworkRun, trace: UpdateTrace, training: dict[str, Any]) -> Calibration:
    """Return what the tiny training had beyond its buffer and its update: the process itself.

    An update takes the allocator's spare blocks first, so of the two only the larger counts.
    """
    held = trace.heap.peak_bytes if trace.heap else trace.peak_bytes
    buffer = sum(array.bytes for array in described_parts(tiny(run)).arrays)
    spare = training["spare_bytes"]
    return Calibration(
        floor_bytes=training["high_water_bytes"] - max(held, spare + trace.alive_at_end) - buffer,
        spare_bytes=spare,
        startup_bytes=training["built_high_water_bytes"] - training["built_bytes"],
    )


def _rough_floor(run: FrameworkRun, training: Future[dict[str, Any]]) -> Calibration:
    """Return the floor where nothing could be traced: networks and buffer taken away, the small step left in."""
    small = described_parts(tiny(run))
    known = sum(array.bytes for array in small.arrays) + small.cost.parameters * 4 + small.cost.optimized * 12
    return Calibration(floor_bytes=int(training.result()["high_water_bytes"]) - known)


def _measured_step(run: FrameworkRun) -> MeasuredStep:
    """Return the update's size from real ones at two batch sizes: a line through both, less its part in the floor."""
    marks = [train(_with_rows(run, rows))["high_water_bytes"] for rows in _PROBE_ROWS]
    few, many = _PROBE_ROWS
    slope = max((marks[1] - marks[0]) / (many - few), 0.0)
    return MeasuredStep(bytes=int(slope * rows_per_update(run)), rows=_PROBE_ROWS)


def _with_rows(run: FrameworkRun, rows: int) -> FrameworkRun:
    small = tiny(run)
    most = max(_PROBE_ROWS)
    training = replace(small.training, n_steps=most, batch_size=rows, buffer_size=most if run.spec.off_policy else None)
    return replace(small, training=replace(training, given=training.given | {"n_steps", "batch_size", "buffer_size"}))


def _determining(run: FrameworkRun) -> dict[str, Any]:
    """Return the run without what does not bear on its processes: the key under which findings are remembered."""
    plain = replace(run, name="run", evaluation=None, checkpoint=None, budget=type(run.budget)())
    return write_run(plain)

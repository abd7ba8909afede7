"""The parts of a run whose model was captured or is alive: read, traced and metered as it is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from rlmem.plan.framework import rows_per_update
from rlmem.plan.lean_buffers import LEFT_ALONE, lean_sampled, sample_from_dict, within_limit
from rlmem.plan.parts import Calibration, Parts
from rlmem.plan.trace import trace_from_dict
from rlmem.run.model import FrameworkRun

FIRST_UPDATE_BYTES: Final = 12 * 2**20
"""What the first rollout and update load beyond their data: lazily imported code, kernels made on the spot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedRun:
    """A run read off a real model, with the parts its plan is made from."""

    run: FrameworkRun
    parts: Parts
    notes: tuple[str, ...]


def capture(script: Path, arguments: list[str], *, timeout_s: float) -> CapturedRun:
    """Return what an unmodified script would train: run up to its first ``learn()``, and no further."""
    from rlmem.sb3.capture import capture_script, reading_from

    answer = capture_script(script, arguments, timeout_s=timeout_s, options={"trace": True})
    reading = reading_from(answer)
    parts = Parts(
        cost=reading.cost,
        arrays=reading.arrays,
        update=trace_from_dict(answer["trace"]) if answer.get("trace") else None,
        calibration=_calibration(answer),
    )
    untraced = (f"the update could not be traced: {answer['trace_error']}",) if answer.get("trace_error") else ()
    captured = CapturedRun(run=reading.run, parts=parts, notes=(*reading.notes, *untraced))
    return _with_sample(captured, answer)


def _with_sample(captured: CapturedRun, answer: Mapping[str, Any]) -> CapturedRun:
    """Return the run with a lean buffer as the script's own environment was seen to fill it."""
    if answer.get("sample_error"):
        said = f"the environment could not be sampled: {answer['sample_error']}"
        return replace(captured, notes=(*captured.notes, said))
    if not answer.get("sample"):
        return captured
    arrays, said_of_it = lean_sampled(captured.run, captured.parts.arrays, sample_from_dict(answer["sample"]))
    known = tuple(note for note in captured.notes if note != LEFT_ALONE)
    return replace(captured, parts=replace(captured.parts, arrays=arrays), notes=(*known, *said_of_it))


def _calibration(answer: Mapping[str, Any]) -> Calibration:
    """Return the script's own process as it stood before training, without the weights it had already.

    Beside workers it counts as they do: by its share of the pages that they have in common, with the processes that
    multiprocessing started to start them.
    """
    weights = 4 * (answer["cost"]["online"]["parameters"] + answer["cost"]["targets"]["parameters"])
    workers = [*answer["worker_pss_bytes"], *answer["evaluation_worker_pss_bytes"]]
    main = answer["pss_tree_bytes"] - sum(workers) if workers else answer["rss_bytes"]
    return Calibration(
        floor_bytes=main - weights + FIRST_UPDATE_BYTES,
        worker_bytes=sum(workers) // len(workers) if workers else None,
        described="the script's own process at learn(), and 12 MiB that a first update loads",
    )


def live(model: Any) -> CapturedRun:
    """Return the run of a live model, traced in this process without touching its weights or its buffer."""
    from rlmem.observe import rss_bytes
    from rlmem.sb3.fake_training import trace_on_gpu, trace_update
    from rlmem.sb3.reading import read_model

    reading = read_model(model)
    rows = rows_per_update(reading.run)
    update = None
    if reading.run.spec.family != "search":
        trace = trace_on_gpu if reading.run.device.startswith("cuda") else trace_update
        update = trace(model, rows=rows)
    # What the buffer has resident already is not known from outside: a model that has not trained has none of it.
    floor = rss_bytes(os.getpid()) - 4 * reading.cost.parameters + FIRST_UPDATE_BYTES
    calibration = Calibration(floor_bytes=floor, described="this process as it is now, and 12 MiB for a first update")
    arrays, notes = within_limit(reading.run, reading.arrays)
    parts = Parts(cost=reading.cost, arrays=arrays, update=update, calibration=calibration)
    return CapturedRun(run=reading.run, parts=parts, notes=(*reading.notes, *notes))

"""What this machine's processes take, as it was metered for one run after another; written down to be shown.

Plans do not read these records: theirs are the readings that `rlmem.measure.cache` remembers. Nothing heavy is
imported, for `rlmem machine` answers at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from rlmem.measure.cache import entries, keep, key, setting, versions

if TYPE_CHECKING:
    from rlmem.plan.parts import Calibration
    from rlmem.run.model import FrameworkRun

_KIND: Final = "calibration"


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationRecord:
    """A calibration with the run, the versions and the time it was metered for.

    ``heap_ratio`` is None where the heap was too small to tell, the others where there were no workers.
    """

    run: str
    floor_bytes: int
    heap_ratio: float | None
    start_method: str | None
    worker_bytes: int | None
    helper_bytes: int | None
    versions: Mapping[str, str | None]
    metered_at: str


def record(run: FrameworkRun, calibration: Calibration) -> None:
    """Write down what was metered for a run, in place of what was known of such a run before."""
    if calibration.floor_bytes is None:
        return
    made = CalibrationRecord(
        run=_described(run),
        floor_bytes=calibration.floor_bytes,
        heap_ratio=round(calibration.heap_ratio, 4) if calibration.heap_ratio != 1 else None,
        **_workers(run, calibration),
        versions=versions(),
        metered_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    known = next((old for old in records() if _question(old) == _question(made)), None)
    if known is None or _figures(known) != _figures(made):  # else it was metered when it says
        keep(_KIND, _question(made), asdict(made))


def records() -> tuple[CalibrationRecord, ...]:
    """Return what was metered on this machine with all that is installed here, the newest first."""
    here = setting(_KIND)
    found = [made for name, entry in entries(_KIND) if (made := _read(entry)) and key(_question(made), here) == name]
    return tuple(sorted(found, key=lambda made: made.metered_at, reverse=True))


def _question(made: CalibrationRecord) -> dict[str, str | None]:
    return {"run": made.run, "start_method": made.start_method}


def _read(entry: Mapping[str, Any]) -> CalibrationRecord | None:
    try:
        return CalibrationRecord(**entry)
    except TypeError:  # of another version of rlmem
        return None


def _figures(made: CalibrationRecord) -> tuple[int | float | None, ...]:
    return made.floor_bytes, made.heap_ratio, made.worker_bytes, made.helper_bytes


def _described(run: FrameworkRun) -> str:
    env = run.env.id or run.env.make or "spaces only"
    return f"{run.algorithm} {run.policy.class_name}, {env}"


def _workers(run: FrameworkRun, calibration: Calibration) -> dict[str, Any]:
    if calibration.worker_bytes is None:
        return {"start_method": None, "worker_bytes": None, "helper_bytes": None}
    from rlmem.plan.processes import start_method

    return {
        "start_method": start_method(run.env),
        "worker_bytes": calibration.worker_bytes,
        "helper_bytes": calibration.helper_bytes,
    }

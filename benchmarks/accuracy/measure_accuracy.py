"""Predicted against measured, over many real runs: `make bench-accuracy`.

Each run is planned (update traced, processes metered), then trained for real in a child process. Truth is the
kernel's: VmHWM for one process, the largest sum of PSS over the tree for several. Results are written as they
come, one JSON file a run, so that a stopped benchmark goes on where it was; a run that is there is not made again.

Bias: observations are random (nothing here depends on their values), epochs are not repeated, and a replay
buffer is filled before the first update. All runs share one machine and nothing else of size runs beside them.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import time
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from runs import REPEATED, RUNS, is_held_out

from rlmem.machine import as_dict, read_machine
from rlmem.measure.parts import traced_parts
from rlmem.measure.training import measure
from rlmem.plan import make_plan
from rlmem.report.measurement import measurement_to_dict
from rlmem.run import FrameworkRun, run_from_mapping
from rlmem.run.environment import read_environment

RESULTS = Path(__file__).parents[1] / "results" / "accuracy"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="WORD", help="only runs whose name has one of these words")
    parser.add_argument("--again", action="store_true", help="make runs again that are there")
    parser.add_argument("--replan", action="store_true", help="keep what was measured, predict it anew")
    parser.add_argument("--no-repeats", action="store_true", help="measure each run once")
    arguments = parser.parse_args()
    RESULTS.mkdir(parents=True, exist_ok=True)
    for name in RUNS:
        if arguments.only and not any(word in name for word in arguments.only):
            continue
        for repeat in range(1 if arguments.no_repeats or name not in REPEATED else 2):
            path = RESULTS / f"{_slug(name)}{'-again' if repeat else ''}.json"
            if path.exists() and arguments.replan:
                _replan(name, path)
            elif not path.exists() or arguments.again:
                _measure(name, path)


def _replan(name: str, path: Path) -> None:
    result = json.loads(path.read_text())
    if "measured" not in result:
        return
    run = _load(name)
    plan = make_plan(run, read_machine(), traced_parts(run))
    result["predicted"] |= {"ram_bytes": plan.peak.ram_bytes, "ram_phase": plan.peak.ram_phase}
    result["error"]["ram"] = plan.peak.ram_bytes / result["measured"]["ram_bytes"] - 1
    result["phases"] = {phase.name: phase.ram_bytes for phase in plan.phases}
    result["held_out"] = is_held_out(name)
    path.write_text(json.dumps(result, indent=1))
    print(f"{name:28} {result['error']['ram']:+8.1%}", flush=True)


def _load(name: str) -> FrameworkRun:
    run = run_from_mapping({"name": name, **RUNS[name]})
    assert isinstance(run, FrameworkRun)
    return replace(run, env=read_environment(run.env))


def _measure(name: str, path: Path) -> None:
    started = time.monotonic()
    try:
        result = _result(name)
    except Exception as error:  # a failed run is a result too, and must not stop the others
        result = {"name": name, "failed": f"{type(error).__name__}: {error}"}
    result |= {"seconds": round(time.monotonic() - started, 1), "setting": _setting()}
    path.write_text(json.dumps(result, indent=1))
    error = f"{result['error']['ram']:+.1%}" if "error" in result else result["failed"]
    print(f"{name:28} {error:>8}  {result['seconds']:6.1f} s", flush=True)


def _result(name: str) -> dict[str, Any]:
    measurement = measurement_to_dict(measure(_load(name), read_machine()))
    return {"name": name, "held_out": is_held_out(name), **measurement}


def _setting() -> dict[str, Any]:
    libraries = ("rlmem", "torch", "stable-baselines3", "sb3-contrib", "gymnasium", "numpy")
    machine = as_dict(read_machine())
    return {
        "libraries": {name: version(name) for name in libraries},
        "python": platform.python_version(),
        "libc": " ".join(platform.libc_ver()),
        "ram_total_bytes": machine["ram_total_bytes"],
        "cores": machine["cores"],
    }


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower())


if __name__ == "__main__":
    main()

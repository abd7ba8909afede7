"""What several commands take: runs, and the machine to hold them against."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rlmem.errors import InputError
from rlmem.units import parse_bytes

if TYPE_CHECKING:
    from rlmem.plan import Plan
    from rlmem.run import Run


def add_budget(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--ram",
        type=_size,
        metavar="SIZE",
        help="hold against this much RAM (16GB, 24 GiB), not this machine's",
    )
    parser.add_argument("--vram", type=_size, metavar="SIZE", help="hold against a GPU of this size")


def _size(text: str) -> int:
    try:
        return parse_bytes(text)
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def add_run(parser: argparse.ArgumentParser) -> None:
    """Add what a run may be: a run file, a training script with its own arguments, or a zoo entry."""
    parser.add_argument(
        "run",
        metavar="RUN",
        help="a run file (YAML), zoo:ALGO/ENV, or a training script (.py); its own arguments go behind --",
    )
    parser.add_argument("--trace", action="store_true", help="trace a run file's update and meter this machine")
    parser.add_argument(
        "--timeout", type=float, default=60.0, metavar="S", help="how long a script may take to learn() (default 60)"
    )


def planned(subject: str, arguments: argparse.Namespace) -> Plan:
    """Return the plan of whatever was named, against the machine that was asked for."""
    from rlmem.api import machine_for, plan, plan_captured
    from rlmem.measure.captured import capture

    budget = {"ram_bytes": arguments.ram, "vram_bytes": arguments.vram}
    if Path(subject).suffix == ".py":
        captured = capture(Path(subject), arguments.arguments, timeout_s=arguments.timeout)
        return plan_captured(captured, machine=machine_for(captured.run, **budget))
    run, notes = load_subject(subject)
    made = plan(run, machine=machine_for(run, **budget), trace=arguments.trace)
    return replace(made, notes=(*made.notes, *notes))


def load_subject(subject: str) -> tuple[Run, tuple[str, ...]]:
    """Return the run of a run file or of a zoo entry, and what of the entry could not be taken along."""
    from rlmem.run import complete_run, load_run

    if not subject.startswith("zoo:"):
        return load_run(subject), ()
    from rlmem.run.zoo import read_zoo_name

    run, notes = read_zoo_name(subject)
    return complete_run(run, source=subject), notes


def plan_of(path: str, arguments: argparse.Namespace) -> Plan:
    """Return the plan of a run file or a zoo entry against the machine that was asked for."""
    from rlmem.api import machine_for, plan

    run, _ = load_subject(path)
    return plan(run, machine=machine_for(run, ram_bytes=arguments.ram, vram_bytes=arguments.vram))

"""``rlmem measure``: train for real until the peak has been seen, and hold it against the plan."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rlmem.commands.inputs import add_budget, load_subject
from rlmem.commands.output import console, print_json

if TYPE_CHECKING:
    from rlmem.measure.training import Measurement

_CAPS: Final = (1.02, 0.90)
NAME: Final = "measure"
HELP: Final = "train for real until the peak has been seen; predicted against measured"
DESCRIPTION: Final = (
    "Train the run for real in a child process until its peak has been seen (two rollouts with their updates, or a "
    "full replay buffer and some updates), and print predicted against measured. A training script is run unmodified, "
    "with its callbacks, to the end of a learn() that is made as short; what it writes from Python is kept out of "
    "your folders. Observations are random where a run file gives spaces only."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run",
        metavar="RUN",
        help="a run file (YAML), zoo:ALGO/ENV, or a training script (.py); its own arguments go behind --",
    )
    add_budget(parser)
    parser.add_argument(
        "--timeout", type=float, default=60.0, metavar="S", help="how long a script may take to learn() (default 60)"
    )
    parser.add_argument(
        "--most-timesteps",
        type=int,
        default=200_000,
        metavar="N",
        help="fill a replay buffer for at most this long; of a larger one, that much is measured (default 200000)",
    )
    parser.add_argument(
        "--cap",
        action="store_true",
        help="train again under a memory cgroup: at the predicted peak + 2 %% (must live) and - 10 %% (must die)",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(arguments: argparse.Namespace) -> int:
    from rlmem.measure.training import capped

    with _progress_bar() as progress:
        measurement = _measured(arguments, progress)
    caps = tuple(capped(measurement, share=share) for share in _CAPS) if arguments.cap else ()
    if arguments.json:
        from rlmem.report.measurement import measurement_to_dict

        print_json(measurement_to_dict(measurement, caps))
    else:
        from rlmem.report.measurement import measurement_report

        console().print(measurement_report(measurement, caps))
    return 0 if all(cap.lived == (cap.share > 1) for cap in caps) else 1


def _measured(arguments: argparse.Namespace, progress: Callable[[int, int], None]) -> Measurement:
    """Return the measurement of whatever was named, held against the machine that was asked for."""
    from rlmem.api import machine_for
    from rlmem.measure.captured import capture
    from rlmem.measure.training import ScriptCommand, measure, measure_script

    budget = {"ram_bytes": arguments.ram, "vram_bytes": arguments.vram}
    most = arguments.most_timesteps
    if Path(arguments.run).suffix == ".py":
        words = tuple(arguments.arguments)
        command = ScriptCommand(script=Path(arguments.run), arguments=words, timeout_s=arguments.timeout)
        captured = capture(command.script, list(words), timeout_s=command.timeout_s)
        machine = machine_for(captured.run, **budget)
        return measure_script(command, captured, machine, most_timesteps=most, progress=progress)
    described, _ = load_subject(arguments.run)
    return measure(described, machine_for(described, **budget), most_timesteps=most, progress=progress)


@contextmanager
def _progress_bar() -> Iterator[Callable[[int, int], None]]:
    """Give a function that shows how far the training has come, on standard error and only to a person."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("planning", total=None)
        yield lambda done, total: bar.update(task, description="training for real", completed=done, total=total)

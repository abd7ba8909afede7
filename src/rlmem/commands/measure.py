"""``rlmem measure``: train for real until the peak has been seen, and hold it against the plan."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rlmem.commands.inputs import add_budget, load_subject
from rlmem.commands.output import console, print_json

_CAPS: Final = (1.02, 0.90)
NAME: Final = "measure"
HELP: Final = "train for real until the peak has been seen; predicted against measured"
DESCRIPTION: Final = (
    "Train the run for real in a child process until its peak has been seen (two rollouts with their updates, or a "
    "full replay buffer and some updates), and print predicted against measured. Observations are random where the "
    "run gives spaces only."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_file", metavar="RUN", help="a run file (YAML)")
    add_budget(parser)
    parser.add_argument(
        "--most-timesteps",
        type=int,
        default=200_000,
        metavar="N",
        help="fill a replay buffer for at most this long; a larger one is measured smaller (default 200000)",
    )
    parser.add_argument(
        "--cap",
        action="store_true",
        help="train again under a memory cgroup: at the predicted peak + 2 %% (must live) and - 10 %% (must die)",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(arguments: argparse.Namespace) -> int:
    from rlmem.api import machine_for
    from rlmem.measure.training import capped, measure

    described, _ = load_subject(arguments.run_file)
    machine = machine_for(described, ram_bytes=arguments.ram, vram_bytes=arguments.vram)
    with _progress_bar() as progress:
        measurement = measure(described, machine, most_timesteps=arguments.most_timesteps, progress=progress)
    caps = tuple(capped(measurement, share=share) for share in _CAPS) if arguments.cap else ()
    if arguments.json:
        from rlmem.report.measurement import measurement_to_dict

        print_json(measurement_to_dict(measurement, caps))
    else:
        from rlmem.report.measurement import measurement_report

        console().print(measurement_report(measurement, caps))
    return 0 if all(cap.lived == (cap.share > 1) for cap in caps) else 1


@contextmanager
def _progress_bar() -> Iterator[Callable[[int, int], None]]:
    """Give a function that shows how far the training has come, on standard error and only to a person."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("training for real", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)

"""``rlmem machine``: what this machine has."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from rlmem.commands.output import console, print_json

if TYPE_CHECKING:
    from rlmem.machine import Gpu, Machine
    from rlmem.measure.calibration import CalibrationRecord

NAME: Final = "machine"
HELP: Final = "what this machine has: RAM, limits, swap, cores, GPUs; and what was metered on it"
DESCRIPTION: Final = (
    "Show what this machine has: RAM and what limits it, swap, cores, GPUs. Below it the calibration: what the "
    "processes of training runs were metered to take here, with the installed versions."
)
_SHOWN: Final = 8
"""How many calibrations people are shown, the newest."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's own arguments to ``parser``."""
    parser.add_argument(
        "--calibrate", action="store_true", help="first meter a small run (PPO on CartPole, with workers): some seconds"
    )
    parser.add_argument("--json", action="store_true", help="print the machine as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print the machine this process runs on, and what was metered on it, and return 0."""
    from rlmem.machine import as_dict, read_machine
    from rlmem.measure.calibration import records

    if arguments.calibrate:
        _calibrate()
    machine, metered = read_machine(), records()
    if arguments.json:
        calibration = [asdict(made) for made in metered] or None
        print_json({"schema": 1, **as_dict(machine), "calibration": calibration})
    else:
        _print_text(machine)
        _print_calibration(metered)
    return 0


def _calibrate() -> None:
    """Meter the small run, and say so meanwhile, on standard error and only to a person."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from rlmem.measure.parts import calibrate

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        bar.add_task("metering a small training and its workers", total=None)
        calibrate()


def verdict(machine: Machine) -> str:
    """Return the machine in one line."""
    from rlmem.units import format_bytes

    cores = f"{machine.cores} core" if machine.cores == 1 else f"{machine.cores} cores"
    usable = f"{format_bytes(machine.ram_limit_bytes)} of RAM usable (limit: {machine.ram_limit_source})"
    return f"{usable}, {cores}, {_gpus_in_words(machine.gpus)}"


def _gpus_in_words(gpus: tuple[Gpu, ...]) -> str:
    if not gpus:
        return "no GPU"
    names = ", ".join(dict.fromkeys(gpu.name for gpu in gpus))
    return f"{len(gpus)} GPU ({names})" if len(gpus) == 1 else f"{len(gpus)} GPUs ({names})"


def _print_text(machine: Machine) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column()
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value, note in _rows(machine):
        table.add_row(Text(name), Text(value), Text(note))
    screen = console()
    screen.print(Text(verdict(machine)))
    screen.print()
    screen.print(table)


def _print_calibration(metered: tuple[CalibrationRecord, ...]) -> None:
    from rich.table import Table
    from rich.text import Text

    screen = console()
    screen.print()
    if not metered:
        screen.print(Text("Calibration: none metered yet with these versions; `rlmem machine --calibrate` meters one"))
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), title="Calibration", title_justify="left")
    table.add_column("metered with", overflow="fold")
    for name in ("floor", "heap ratio", "one worker", "metered (UTC)"):
        table.add_column(name, justify="right", no_wrap=True)
    for made in metered[:_SHOWN]:
        table.add_row(*(Text(cell) for cell in _calibration_cells(made)))
    screen.print(table)
    if len(metered) > _SHOWN:
        screen.print(Text(f"and {len(metered) - _SHOWN} older ones, in --json"))
    installed = ", ".join(f"{name} {version}" for name, version in metered[0].versions.items() if version)
    screen.print(Text(installed, style="dim"))


def _calibration_cells(made: CalibrationRecord) -> tuple[str, ...]:
    worker = f"{_size(made.worker_bytes)} ({made.start_method})" if made.worker_bytes is not None else "–"
    when = made.metered_at[:16].replace("T", " ")
    ratio = f"{made.heap_ratio:.2f}" if made.heap_ratio is not None else "–"
    return made.run, _size(made.floor_bytes), ratio, worker, when


def _rows(machine: Machine) -> list[tuple[str, str, str]]:
    return [
        ("RAM", _size(machine.ram_total_bytes), f"{_size(machine.ram_available_bytes)} available"),
        ("RAM limit", _size(machine.ram_limit_bytes), machine.ram_limit_source),
        ("cgroup usage", _size(machine.cgroup_usage_bytes), "page cache included"),
        ("swap", _size(machine.swap_total_bytes), f"{_size(machine.swap_free_bytes)} free"),
        ("cores", str(machine.cores), f"of {machine.cores_total} in the machine"),
        *(_gpu_row(gpu) for gpu in machine.gpus),
    ]


def _gpu_row(gpu: Gpu) -> tuple[str, str, str]:
    note = f"{_size(gpu.vram_free_bytes)} free, {gpu.name}, driver {gpu.driver or 'unknown'}"
    return (f"GPU {gpu.index}", _size(gpu.vram_total_bytes), note)


def _size(size: int | None) -> str:
    from rlmem.units import format_bytes

    return "unknown" if size is None else format_bytes(size)

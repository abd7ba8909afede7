"""``rlmem machine``: what this machine has."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from rlmem.commands.output import console, print_json

if TYPE_CHECKING:
    from rlmem.machine import Gpu, Machine

NAME: Final = "machine"
HELP: Final = "what this machine has: RAM, limits, swap, cores, GPUs"
DESCRIPTION: Final = "Show what this machine has: RAM and what limits it, swap, cores, GPUs."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's own arguments to ``parser``."""
    parser.add_argument("--json", action="store_true", help="print the machine as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print the machine this process runs on and return 0."""
    from rlmem.machine import as_dict, read_machine

    machine = read_machine()
    if arguments.json:
        print_json({"schema": 1, **as_dict(machine)})
    else:
        _print_text(machine)
    return 0


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

"""What several commands take: runs, and the machine to hold them against."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from rlmem.errors import InputError
from rlmem.units import parse_bytes

if TYPE_CHECKING:
    from rlmem.plan import Plan


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


def plan_of(path: str, arguments: argparse.Namespace) -> Plan:
    """Return the plan of a run file against the machine that was asked for."""
    from rlmem.api import machine_for, plan
    from rlmem.run import load_run

    run = load_run(path)
    return plan(run, machine=machine_for(run, ram_bytes=arguments.ram, vram_bytes=arguments.vram))

"""``rlmem compare``: several runs side by side."""

from __future__ import annotations

import argparse
from typing import Final

from rlmem.commands.inputs import add_budget, plan_of
from rlmem.commands.output import console, print_json

NAME: Final = "compare"
HELP: Final = "runs side by side, and the largest that fits"
DESCRIPTION: Final = (
    "Show runs side by side: peak RAM and VRAM, what dominates, the ratio to the smallest, and which is the "
    "largest that fits. Exit code 1 when none does."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_files", metavar="RUN", nargs="+", help="run files (YAML)")
    add_budget(parser)
    parser.add_argument("--json", action="store_true", help="print the comparison as JSON")


def run(arguments: argparse.Namespace) -> int:
    from rlmem.report.comparison import comparison_report, comparison_to_dict, largest_that_fits

    plans = tuple(plan_of(path, arguments) for path in arguments.run_files)
    if arguments.json:
        print_json(comparison_to_dict(plans))
    else:
        console().print(comparison_report(plans))
    return 0 if largest_that_fits(plans) else 1

"""``rlmem plan``: what a run will take, before it is started."""

from __future__ import annotations

import argparse
from typing import Final

from rlmem.commands.inputs import add_budget, add_run, planned
from rlmem.commands.output import console, print_json
from rlmem.errors import InputError

NAME: Final = "plan"
HELP: Final = "how much RAM and VRAM a run takes, by phase and component, and whether it fits"
DESCRIPTION: Final = (
    "Say before the run how much RAM and VRAM it takes, phase by phase and component by component, and "
    "whether that fits. A training script is run unmodified up to its first learn(), and no further. Exit code 1 "
    "when it does not fit."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    add_budget(parser)
    parser.add_argument("--phase", metavar="NAME", help="show the components of this phase instead of the peak's")
    parser.add_argument("--json", action="store_true", help="print the plan as JSON")


def run(arguments: argparse.Namespace) -> int:
    plan = planned(arguments.run, arguments)
    if arguments.phase and plan.phase(arguments.phase) is None:
        names = ", ".join(phase.name for phase in plan.phases)
        raise InputError(f"--phase must be one of {names}, but got {arguments.phase!r}")
    if arguments.json:
        from rlmem.check import check_plan
        from rlmem.report.json import plan_to_dict

        print_json(plan_to_dict(plan, check_plan(plan)))
    else:
        from rlmem.report.text import plan_report

        console().print(plan_report(plan, phase=arguments.phase))
    return 1 if False in (plan.fits.ram, plan.fits.vram) else 0

"""``rlmem check``: what is wrong with a run's settings, or with its script; and how lean an environment is."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rlmem.commands.inputs import add_budget, plan_of
from rlmem.commands.output import console, print_json, waiting
from rlmem.errors import InputError, MissingExtra

if TYPE_CHECKING:
    from rlmem.check import Finding

NAME: Final = "check"
HELP: Final = "what is wrong with a run's settings or its script, and what to do"
DESCRIPTION: Final = (
    "Check a run's settings and, where one is given, its training script, which is read and not run unless "
    "--capture says so. Each finding has a page in docs/rules. Exit code 1 when one of them is an error. With --env "
    "instead: step an environment with random actions, and say how much of its observations is new a step."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", metavar="RUN [SCRIPT.py]", nargs="*", help="a run file, a training script, or both")
    parser.add_argument(
        "--env",
        metavar="ENV",
        help="inspect an environment for lean buffers: a Gymnasium id, module:function, or a run file's own",
    )
    parser.add_argument("--steps", type=int, default=500, metavar="N", help="how long --env plays (default 500)")
    add_budget(parser)
    parser.add_argument("--select", type=_codes, default=(), metavar="CODES", help="only these, e.g. RLM01,RLM033")
    parser.add_argument("--ignore", type=_codes, default=(), metavar="CODES", help="all but these")
    parser.add_argument(
        "--capture",
        action="store_true",
        help="also run the script (its arguments behind --) up to learn() and check what it would train",
    )
    parser.add_argument(
        "--timeout", type=float, default=60.0, metavar="S", help="how long a captured script may take to learn()"
    )
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")


def _codes(text: str) -> tuple[str, ...]:
    return tuple(code.strip() for code in text.split(",") if code.strip())


def run(arguments: argparse.Namespace) -> int:
    if arguments.env is not None:
        return _inspect(arguments)
    if not arguments.files:
        raise InputError("check takes a run file, a training script or both, or --env and an environment")
    from rlmem.check import in_order, select

    found = in_order(finding for path in arguments.files for finding in _findings(path, arguments))
    findings = select(found, select=arguments.select, ignore=arguments.ignore)
    if arguments.json:
        from rlmem.report.json import findings_to_dict

        print_json(findings_to_dict(findings))
    else:
        from rlmem.report.findings import findings_report

        console().print(findings_report(findings))
    return 1 if any(finding.severity == "error" for finding in findings) else 0


def _inspect(arguments: argparse.Namespace) -> int:
    if arguments.files:
        raise InputError(f"--env is looked at by itself, but got {' '.join(arguments.files)} too")
    try:
        from rlmem.measure.inspection import inspect_environment
    except ModuleNotFoundError as error:
        raise MissingExtra(library=error.name or "a library", extra="sb3", purpose="check --env") from None

    with waiting(f"stepping {arguments.env}"):
        inspection = inspect_environment(arguments.env, steps=arguments.steps)
    if arguments.json:
        from rlmem.report.json import SCHEMA

        print_json({"schema": SCHEMA, **inspection.to_dict()})
    else:
        console().print(str(inspection), markup=False)
    return 0


def _captured(script: str, arguments: argparse.Namespace) -> tuple[Finding, ...]:
    """Return what there is to say about the run that a script would train, where that was asked for."""
    if not arguments.capture:
        return ()
    from rlmem.api import machine_for, plan_captured
    from rlmem.check import check_plan
    from rlmem.measure.captured import capture

    captured = capture(Path(script), arguments.arguments, timeout_s=arguments.timeout)
    machine = machine_for(captured.run, ram_bytes=arguments.ram, vram_bytes=arguments.vram)
    return check_plan(plan_captured(captured, machine=machine))


def _findings(path: str, arguments: argparse.Namespace) -> tuple[Finding, ...]:
    from rlmem.check import check_plan, check_script, read_script

    if Path(path).suffix == ".py":
        return (*check_script(read_script(path)), *_captured(path, arguments))
    return check_plan(plan_of(path, arguments))

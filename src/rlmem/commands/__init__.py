"""The command line: one module per command, each of which parses, calls the library and renders.

Nothing heavy is imported before a command runs, so that ``rlmem --help`` answers at once.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Final

from rlmem import __version__
from rlmem.commands import check, compare, machine, measure, plan, store
from rlmem.errors import RlmemError

COMMANDS: Final = (plan, compare, check, measure, store, machine)
BAD_INPUT: Final = 2


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="rlmem",
        description="The memory engineer for reinforcement-learning training.",
        epilog="Exit codes: 0 fine, 1 does not fit or has findings, 2 bad input. "
        "A run file describes a run; see docs/run_files.md.",
    )
    parser.add_argument("--version", action="version", version=f"rlmem {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        inner = commands.add_parser(command.NAME, help=command.HELP, description=command.DESCRIPTION)
        command.add_arguments(inner)
        inner.set_defaults(execute=command.run)
    return parser


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Return the parsed command line; what stands behind the first ``--`` is a script's own, and not looked into."""
    place = list(words).index("--") if "--" in words else len(words)
    return build_parser().parse_args(words[:place], argparse.Namespace(arguments=list(words[place + 1 :])))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parsed = parse(sys.argv[1:] if arguments is None else arguments)
    try:
        code: int = parsed.execute(parsed)
        sys.stdout.flush()
    except RlmemError as error:
        sys.stderr.write(f"rlmem: {error}\n")
        return BAD_INPUT
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader went away (`rlmem plan … | head`); keep Python from complaining about it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


def entry() -> None:
    """End the process with the command line's exit code."""
    sys.exit(main())

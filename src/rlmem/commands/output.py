"""Where commands write: JSON for programs, a console of sensible width for people."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rich.console import Console

PIPE_WIDTH: Final = 120
"""How wide to write where nobody says: a pipe or a file."""


def print_json(data: Any) -> None:
    sys.stdout.write(json.dumps(data, indent=2, ensure_ascii=False) + "\n")


def console() -> Console:
    """Return a console as wide as the terminal, or as COLUMNS says, or wide enough for a pipe."""
    from rich.console import Console

    width = None if sys.stdout.isatty() or os.environ.get("COLUMNS") else PIPE_WIDTH
    return Console(highlight=False, width=width, soft_wrap=False)


@contextmanager
def waiting(words: str) -> Iterator[None]:
    """Show on standard error, and only to a person, that something is under way."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(words):
        yield

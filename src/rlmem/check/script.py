"""Training scripts as syntax trees: read within bounds, never run."""

from __future__ import annotations

import ast
import warnings
from pathlib import Path
from typing import Final

from rlmem.check.model import Script
from rlmem.errors import ScriptError

MAX_SCRIPT_BYTES: Final = 5 * 2**20


def read_script(path: str | Path) -> Script:
    """Return the script's syntax tree."""
    return parse_script(_read_text(Path(path)), path=str(path))


def parse_script(source: str, *, path: str = "script.py") -> Script:
    """Return the syntax tree of a script that is at hand as text."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what Python thinks of the script's style is not our finding
            return Script(path=path, tree=ast.parse(source, filename=path))
    except SyntaxError as error:
        place = path if error.lineno is None else f"{path}:{error.lineno}"
        raise ScriptError(f"{place}: not valid Python: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise ScriptError(f"{path}: not valid Python: {error or 'nested too deeply'}") from None


def _read_text(path: Path) -> str:
    try:
        data = _read_bytes(path)
    except FileNotFoundError:
        raise ScriptError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:
        raise ScriptError(f"{path}: cannot be read: {error}") from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ScriptError(f"{path}: a script must be UTF-8 text, but {error.reason} at byte {error.start:,}") from None


def _read_bytes(path: Path) -> bytes:
    if path.is_dir():
        raise ScriptError(f"{path}: a script must be a file, but this is a directory")
    path.stat()  # a missing file is told as such, before the kind of file is
    if not path.is_file():
        raise ScriptError(f"{path}: a script must be a regular file")
    with path.open("rb") as file:
        data = file.read(MAX_SCRIPT_BYTES + 1)
    if len(data) > MAX_SCRIPT_BYTES:
        raise ScriptError(f"{path}: a script is at most 5 MiB, but this is longer")
    return data

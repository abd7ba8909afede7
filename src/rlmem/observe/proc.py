"""The kernel's own figures for a process: resident set, its high-water mark, proportional share, children.

A process that ends while it is being read counts as nothing: that is what it takes from then on.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_KIB: Final = 1024


def rss_bytes(pid: int) -> int:
    """Return the resident set of a process."""
    return _status(pid, "VmRSS")


def high_water_bytes(pid: int) -> int:
    """Return the most that the resident set has been since the process began or its mark was reset."""
    return _status(pid, "VmHWM")


def file_bytes(pid: int) -> int:
    """Return the resident pages that are backed by files: code and libraries, mostly shared with others."""
    return _status(pid, "RssFile")


def reset_high_water() -> None:
    """Let this process's own high-water mark begin anew."""
    (_PROC / "self/clear_refs").write_text("5")


def pss_bytes(pid: int) -> int:
    """Return the proportional set: pages that several processes share are divided among them."""
    return _field(_PROC / str(pid) / "smaps_rollup", "Pss")


def process_tree(pid: int) -> tuple[int, ...]:
    """Return the process and all its descendants."""
    found, waiting = [], [pid]
    while waiting:
        current = waiting.pop()
        found.append(current)
        waiting += _children(current)
    return tuple(found)


def _children(pid: int) -> list[int]:
    """Return the children of every thread; none of a process that ends while it is being looked at."""
    children: list[int] = []
    with suppress(OSError):
        for task in (_PROC / str(pid) / "task").glob("*/children"):
            children += [int(child) for child in _read(task).split()]
    return children


def _status(pid: int, name: str) -> int:
    return _field(_PROC / str(pid) / "status", name)


def _field(path: Path, name: str) -> int:
    match = re.search(rf"^{name}:\s+(\d+) kB", _read(path), re.MULTILINE)
    return int(match[1]) * _KIB if match else 0


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""

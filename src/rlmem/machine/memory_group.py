"""A memory cgroup of our own, with a limit that the kernel enforces; for what must be shown to live or die."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rlmem.errors import InputError
from rlmem.machine.cgroup_paths import Group, find_groups

_LIMIT_FILES: Final = {"v1": "memory.limit_in_bytes", "v2": "memory.max"}
_PEAK_FILES: Final = {"v1": "memory.max_usage_in_bytes", "v2": "memory.peak"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryGroup:
    """A cgroup that processes can be put into."""

    version: str
    directory: Path

    def add(self, pid: int) -> None:
        (self.directory / "cgroup.procs").write_text(str(pid))

    def peak_bytes(self) -> int | None:
        """Return the most that the group was charged with; read it before the group goes."""
        with suppress(OSError, ValueError):
            return int((self.directory / _PEAK_FILES[self.version]).read_text())
        return None


@contextmanager
def memory_group(limit_bytes: int, *, proc: Path = Path("/proc")) -> Iterator[MemoryGroup]:
    """Make a group with a limit, and remove it afterwards; clear words where that is not allowed."""
    group = _make(limit_bytes, find_groups(proc, "memory"))
    try:
        yield group
    finally:
        _remove(group.directory)


def _make(limit_bytes: int, parents: tuple[Group, ...]) -> MemoryGroup:
    """Make the group beside this process's own, or where the hierarchy begins."""
    for parent in (*parents[-1:], *parents):
        directory = parent.directory / f"rlmem-{os.getpid()}-{time.monotonic_ns()}"
        with suppress(OSError):
            directory.mkdir()
            try:
                (directory / _LIMIT_FILES[parent.version]).write_text(str(limit_bytes))
            except OSError:
                directory.rmdir()
                raise
            return MemoryGroup(version=parent.version, directory=directory)
    raise InputError("a memory limit needs a cgroup that can be written, and there is none here (root may write them)")


def _remove(directory: Path) -> None:
    """Remove the group once its processes are gone, which takes the kernel a moment."""
    for _ in range(50):
        try:
            directory.rmdir()
        except OSError:
            time.sleep(0.05)
        else:
            return

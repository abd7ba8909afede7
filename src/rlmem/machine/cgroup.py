"""What the cgroups of this process allow it: memory and CPU, versions 1 and 2, nested.

A limit binds everything below it, so the tightest on the way from the process's own group to the
root is the one that kills. ``memory.high`` and the soft limit slow a process down and do not kill,
so they are no limits here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rlmem.machine.cgroup_paths import Group, Version, find_groups

_PROC: Final = Path("/proc")
_UNLIMITED_BYTES: Final = 2**62
"""Version 1 writes "no limit" as the largest long rounded down to a page; no machine has half of that."""

_LIMIT_FILE: Final[dict[Version, str]] = {"v1": "memory.limit_in_bytes", "v2": "memory.max"}
_USAGE_FILE: Final[dict[Version, str]] = {"v1": "memory.usage_in_bytes", "v2": "memory.current"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A memory limit, what sets it, and what the group it is set on uses now."""

    limit_bytes: int
    source: str
    usage_bytes: int | None


def read_limit(proc: Path = _PROC) -> Limit | None:
    """Return the tightest memory limit on this process, or None where no group sets one."""
    groups = find_groups(proc, "memory")
    # min() keeps the first of equals: the file that sets a limit is named before one that repeats it.
    limits = [
        *(_set_limit(group) for group in groups),
        *(_inherited_limit(group) for group in groups if group.own and group.version == "v1"),
    ]
    found = (limit for limit in limits if limit is not None)
    return min(found, key=lambda limit: limit.limit_bytes, default=None)


def read_usage(proc: Path = _PROC) -> int | None:
    """Return what this process's own group uses, page cache included, or None where nobody counts."""
    usages = (_usage_of(group) for group in find_groups(proc, "memory") if group.own)
    return next((usage for usage in usages if usage is not None), None)


def read_cpu_quota(proc: Path = _PROC) -> float | None:
    """Return the tightest CPU quota on this process in cores, or None where no group sets one."""
    quotas = (_quota_of(group) for group in find_groups(proc, "cpu"))
    return min((quota for quota in quotas if quota is not None), default=None)


def _set_limit(group: Group) -> Limit | None:
    file = group.directory / _LIMIT_FILE[group.version]
    return _limit(group, _number(_read(file)), str(file))


def _inherited_limit(group: Group) -> Limit | None:
    """Return what version 1 says binds a group, ancestors that a container's mount hides counted in."""
    file, name = group.directory / "memory.stat", "hierarchical_memory_limit"
    return _limit(group, _number(_stat(file, name)), f"{file} {name}")


def _limit(group: Group, size: int | None, source: str) -> Limit | None:
    if size is None or not 0 <= size < _UNLIMITED_BYTES:
        return None
    return Limit(limit_bytes=size, source=f"cgroup {group.version} {source}", usage_bytes=_usage_of(group))


def _usage_of(group: Group) -> int | None:
    return _number(_read(group.directory / _USAGE_FILE[group.version]))


def _quota_of(group: Group) -> float | None:
    if group.version == "v2":
        words = (_read(group.directory / "cpu.max") or "").split()
        quota, period = (_number(word) for word in words) if len(words) == 2 else (None, None)
    else:
        quota = _number(_read(group.directory / "cpu.cfs_quota_us"))
        period = _number(_read(group.directory / "cpu.cfs_period_us"))
    if quota is None or period is None or quota <= 0 or period <= 0:
        return None
    return quota / period


def _stat(file: Path, name: str) -> str | None:
    lines = (line.partition(" ") for line in (_read(file) or "").splitlines())
    return next((value for key, _, value in lines if key == name), None)


def _read(file: Path) -> str | None:
    """Return what ``file`` holds, or None where this group has no such file or hides it."""
    try:
        return file.read_text().strip()
    except OSError:
        return None


def _number(text: str | None) -> int | None:
    """Return a whole number, or None for ``max`` and for what is not there."""
    try:
        return None if text is None else int(text)
    except ValueError:
        return None

"""Where a process's cgroups lie in the file system: from its own group up to the root of the mount.

The mount points come from mountinfo, because distributions and containers differ on them. Memory
and CPU may live in version 1, in version 2, or one in each (a hybrid), so both are looked at.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

Version = Literal["v1", "v2"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One visible cgroup directory; ``own`` is the innermost one seen of its hierarchy."""

    version: Version
    directory: Path
    own: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mount:
    version: Version
    root: PurePosixPath
    point: Path
    controllers: frozenset[str]


def find_groups(proc: Path, controller: str) -> tuple[Group, ...]:
    """Return the groups that may govern ``controller`` here, innermost first in each hierarchy."""
    try:
        memberships = _parse_memberships((proc / "self" / "cgroup").read_text(), controller)
        mounts = _parse_mounts((proc / "self" / "mountinfo").read_text())
    except OSError:
        return ()
    return tuple(
        group
        for version, path in memberships.items()
        for group in _groups_of(path, [m for m in mounts if _carries(m, version, controller)])
    )


def _carries(mount: _Mount, version: Version, controller: str) -> bool:
    return mount.version == version and (version == "v2" or controller in mount.controllers)


def _parse_memberships(text: str, controller: str) -> dict[Version, PurePosixPath]:
    """Return this process's path in each hierarchy, from lines such as ``4:memory:/a`` and ``0::/b``."""
    paths: dict[Version, PurePosixPath] = {}
    for line in text.splitlines():
        number, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            paths["v1"] = PurePosixPath(path)
        elif number == "0" and not controllers:
            paths["v2"] = PurePosixPath(path)
    return paths


def _parse_mounts(text: str) -> list[_Mount]:
    return [mount for line in text.splitlines() if (mount := _parse_mount(line)) is not None]


def _parse_mount(line: str) -> _Mount | None:
    """Return a line's cgroup mount: ``id parent dev root point options [tags] - type source options``."""
    before, _, after = line.partition(" - ")
    left, right = before.split(), after.split()
    if len(left) < 5 or len(right) < 3 or right[0] not in ("cgroup", "cgroup2"):
        return None
    return _Mount(
        version="v1" if right[0] == "cgroup" else "v2",
        root=PurePosixPath(_unescape(left[3])),
        point=Path(_unescape(left[4])),
        controllers=frozenset(right[2].split(",")),
    )


def _unescape(field: str) -> str:
    """Undo mountinfo's octal escapes of blanks and backslashes."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)


def _groups_of(path: PurePosixPath, mounts: list[_Mount]) -> list[Group]:
    """Return the groups on the way up, through every mount that shows this process's own group.

    Inside a container the path may be the host's while the mount shows only the container's part,
    or a cgroup namespace may hide names. Where no mount shows the group, the mount's root stands
    in, which in a container is the container's own group.
    """
    seen = [(mount, own) for mount in mounts if (own := _visible(path, mount)) is not None]
    if not seen:
        seen = [(mount, mount.point) for mount in mounts[:1]]
    return [group for mount, own in seen for group in _climb(mount, own)]


def _visible(path: PurePosixPath, mount: _Mount) -> Path | None:
    if not path.is_relative_to(mount.root):
        return None
    below = path.relative_to(mount.root)
    own = mount.point / below
    return own if ".." not in below.parts and own.is_dir() else None


def _climb(mount: _Mount, own: Path) -> list[Group]:
    above = [parent for parent in own.parents if parent.is_relative_to(mount.point)]
    return [Group(version=mount.version, directory=at, own=at == own) for at in (own, *above)]

"""How many cores this process may use."""

from __future__ import annotations

import math
import os
from pathlib import Path

from rlmem.machine.cgroup import read_cpu_quota


def read_cores_total() -> int:
    """Return how many logical cores the machine has."""
    return os.cpu_count() or 1


def read_cores(proc: Path = Path("/proc")) -> int:
    """Return the logical cores that affinity and cgroup quota leave; a part of a core counts as one."""
    allowed = _affinity()
    quota = read_cpu_quota(proc)
    return allowed if quota is None else max(1, min(allowed, math.ceil(quota)))


def _affinity() -> int:
    # Not every system has it (macOS), and there every core is allowed.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return read_cores_total()

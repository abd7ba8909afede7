"""Reads the machine this process runs on."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from rlmem.machine.cgroup import Limit, read_limit, read_usage
from rlmem.machine.cores import read_cores, read_cores_total
from rlmem.machine.gpus import read_gpus
from rlmem.machine.ram import read_ram
from rlmem.machine.values import Machine

PHYSICAL: Final = "physical RAM"


def read_machine(proc: Path = Path("/proc")) -> Machine:
    """Return what this process may use, with the tightest limit on its RAM and who sets it."""
    ram = read_ram(proc)
    limit = read_limit(proc)
    if limit is None or limit.limit_bytes >= ram.total_bytes:
        limit = Limit(limit_bytes=ram.total_bytes, source=PHYSICAL, usage_bytes=read_usage(proc))
    return Machine(
        ram_total_bytes=ram.total_bytes,
        ram_available_bytes=ram.available_bytes,
        ram_limit_bytes=limit.limit_bytes,
        ram_limit_source=limit.source,
        cgroup_usage_bytes=limit.usage_bytes,
        swap_total_bytes=ram.swap_total_bytes,
        swap_free_bytes=ram.swap_free_bytes,
        cores=read_cores(proc),
        cores_total=read_cores_total(),
        gpus=read_gpus(),
    )

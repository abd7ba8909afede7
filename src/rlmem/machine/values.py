"""A machine as a value: read off the real one, or as told in a budget."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Final

GIVEN: Final = "given"
"""The source of what was told rather than read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU, by the driver's own index; what was not read off a driver is None."""

    index: int
    name: str
    vram_total_bytes: int
    vram_free_bytes: int | None
    driver: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a run may use: ``ram_limit_bytes`` is where the kernel would kill it.

    ``cgroup_usage_bytes`` is the usage, page cache included, of the group that sets the limit, or
    of the process's own group where physical RAM is the limit. ``cores`` is what this process may
    use, ``cores_total`` what the machine has; both count logical cores.
    """

    ram_total_bytes: int
    ram_available_bytes: int | None
    ram_limit_bytes: int
    ram_limit_source: str
    cgroup_usage_bytes: int | None
    swap_total_bytes: int
    swap_free_bytes: int
    cores: int
    cores_total: int
    gpus: tuple[Gpu, ...]


def budget_machine(
    base: Machine, *, ram_bytes: int | None, vram_bytes: int | None, cores: int | None = None
) -> Machine:
    """Return ``base`` with its RAM, GPUs and cores replaced by what was given; None keeps what ``base`` has."""
    machine = base
    if ram_bytes is not None:
        machine = _with_ram(machine, ram_bytes)
    if vram_bytes is not None:
        machine = replace(machine, gpus=(_given_gpu(vram_bytes),))
    return machine if cores is None else replace(machine, cores=cores)


def _with_ram(base: Machine, ram_bytes: int) -> Machine:
    return replace(
        base,
        ram_total_bytes=ram_bytes,
        ram_available_bytes=None,
        ram_limit_bytes=ram_bytes,
        ram_limit_source=GIVEN,
        cgroup_usage_bytes=None,
    )


def _given_gpu(vram_bytes: int) -> Gpu:
    return Gpu(index=0, name=GIVEN, vram_total_bytes=vram_bytes, vram_free_bytes=None, driver=None)


def as_dict(machine: Machine) -> dict[str, Any]:
    """Return ``machine`` as JSON has it: the same names, with the GPUs as a list."""
    return {**asdict(machine), "gpus": [asdict(gpu) for gpu in machine.gpus]}

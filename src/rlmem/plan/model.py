"""What a run will take: components alive in phases, the peak, and whether it fits.

Memory has a time axis: the peak is the largest phase, never the sum of everything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rlmem.machine import GIVEN, Machine
from rlmem.run import Run

PLACES: Final = ("ram", "vram", "virtual", "disk")
"""Where a component is. Virtual is reserved but not resident; it counts towards no limit, nor does disk."""

EXACT: Final = "exact"
TRACED: Final = "traced"
MEASURED: Final = "measured"
ASSUMED: Final = "assumed"
BASES: Final = (EXACT, TRACED, MEASURED, ASSUMED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """One named piece of memory, with its formula in words and where the number comes from."""

    path: str
    where: str
    bytes: int
    formula: str
    basis: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A stretch of the run and the components that are alive in it."""

    name: str
    components: tuple[Component, ...]

    def total(self, where: str) -> int:
        return sum(component.bytes for component in self.components if component.where == where)

    @property
    def ram_bytes(self) -> int:
        return self.total("ram")

    @property
    def vram_bytes(self) -> int:
        return self.total("vram")

    @property
    def reserved_slack(self) -> int:
        return sum(component.bytes for component in self.components if component.path == "cuda/reserved_slack")

    def groups(self, where: str) -> dict[str, int]:
        """Return the bytes by the first word of the path: buffer, network, process, update."""
        totals: dict[str, int] = {}
        for component in self.components:
            if component.where == where:
                name = component.path.partition("/")[0]
                totals[name] = totals.get(name, 0) + component.bytes
        return totals

    def largest(self, where: str) -> Component | None:
        """Return the component that decides the phase."""
        here = [component for component in self.components if component.where == where]
        return max(here, key=lambda component: component.bytes, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    ram_bytes: int
    ram_phase: str
    vram_bytes: int
    vram_phase: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Steady:
    ram_bytes: int
    vram_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fits:
    """Whether the run fits; None where nothing is needed or nothing is known to compare with."""

    ram: bool | None
    vram: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowthForecast:
    """How memory grows while a buffer fills, and when it stops: full, or at the machine's limit."""

    per: str
    bytes_per: int
    full_bytes: int
    full_at: int | None
    limit_at: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Slope:
    """What one component has fixed and what each further unit adds."""

    path: str
    fixed_bytes: int
    per_unit_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The peak as a fixed cost and a slope over one size, and the largest size that fits."""

    size: str
    value: int
    phase: str
    fixed_bytes: int
    per_unit_bytes: int
    largest_that_fits: int | None
    slopes: tuple[Slope, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the run will take on the machine."""

    run: Run
    machine: Machine
    phases: tuple[Phase, ...]
    parameters: int
    unmodelled: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    growth: GrowthForecast | None = None
    capacity: Capacity | None = None

    @property
    def peak(self) -> Peak:
        ram, vram = self.peak_phase("ram"), self.peak_phase("vram")
        return Peak(
            ram_bytes=ram.ram_bytes,
            ram_phase=ram.name,
            vram_bytes=vram.vram_bytes,
            vram_phase=vram.name if vram.vram_bytes else None,
        )

    def peak_phase(self, where: str) -> Phase:
        """Return the phase that takes most; of equals, the one that uses what others only keep reserved."""
        return max(self.phases, key=lambda phase: (phase.total(where), -phase.reserved_slack))

    def phase(self, name: str) -> Phase | None:
        return next((phase for phase in self.phases if phase.name == name), None)

    @property
    def steady(self) -> Steady:
        """What stays through every phase after startup."""
        return Steady(ram_bytes=self._lasting("ram"), vram_bytes=self._lasting("vram"))

    def _lasting(self, where: str) -> int:
        phases = self.phases[1:] or self.phases
        paths = set.intersection(*({component.path for component in phase.components} for phase in phases))
        kept = (component for component in phases[0].components if component.path in paths)
        return sum(component.bytes for component in kept if component.where == where)

    @property
    def ram_limit_bytes(self) -> int:
        return self.machine.ram_limit_bytes

    @property
    def vram_limit_bytes(self) -> int | None:
        """The memory of the GPU that the run names, or None where the machine has no such GPU."""
        _, _, index = self.run.device.partition(":")
        gpus = {gpu.index: gpu for gpu in self.machine.gpus}
        card = gpus.get(int(index or 0), next((gpu for gpu in gpus.values() if gpu.name == GIVEN), None))
        return card.vram_total_bytes if card else None

    @property
    def fits(self) -> Fits:
        peak, vram_limit = self.peak, self.vram_limit_bytes
        needs_vram = peak.vram_bytes > 0
        return Fits(
            ram=peak.ram_bytes <= self.ram_limit_bytes,
            vram=peak.vram_bytes <= vram_limit if needs_vram and vram_limit is not None else None,
        )

"""Plans for people: the verdict first, then what takes the memory, then when."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from rlmem.plan.model import Capacity, Component, GrowthForecast, Phase, Plan
from rlmem.run.model import FrameworkRun
from rlmem.units import format_bytes

_BASIS_STYLE: Final = {"exact": "green", "traced": "cyan", "measured": "cyan", "assumed": "yellow"}
_BAR_WIDTH: Final = 36
_SMALL_SHARE: Final = 0.0005
_UNITS: Final = {"ram": "RAM", "vram": "VRAM", "virtual": "virtual", "disk": "disk"}


def plan_report(plan: Plan, *, phase: str | None = None) -> RenderableType:
    """Return the whole report; ``phase`` shows the components of another phase than the peak's."""
    shown = plan.phase(phase) if phase else None
    parts: list[RenderableType] = [verdict(plan), Text()]
    for place in ("ram", "vram"):
        at = shown or plan.peak_phase(place)
        if at.total(place):
            parts += [components_table(plan, at, place), Text()]
    parts += [timeline(plan), Text()]
    parts += [Text(line) for line in _others(plan)]
    parts += [_growth(plan.growth)] if plan.growth else []
    parts += [_capacity(plan.capacity)] if plan.capacity else []
    parts += [Text(line, style="dim") for line in _small_print(plan)]
    return Group(*parts)


def render(report: RenderableType, *, width: int = 120) -> str:
    """Return a report as plain text."""
    console = Console(width=width, highlight=False, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(report)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def verdict(plan: Plan) -> Text:
    """Return the answer: fits or not, by how much, and which phase and component decide."""
    text = Text()
    over = [place for place in ("ram", "vram") if getattr(plan.fits, place) is False]
    if over:
        text.append("DOES NOT FIT", style="bold red")
    else:
        text.append("FITS", style="bold green")
    text.append(f"  {plan.run.name}\n", style="bold")
    for place in ("ram", "vram"):
        if plan.peak_phase(place).total(place):
            text.append(_verdict_line(plan, place))
    text.rstrip()
    return text


def _verdict_line(plan: Plan, place: str) -> str:
    phase = plan.peak_phase(place)
    need, limit = phase.total(place), plan.ram_limit_bytes if place == "ram" else plan.vram_limit_bytes
    largest = phase.largest(place)
    decides = f", most of it {largest.path} ({format_bytes(largest.bytes)})" if largest else ""
    head = f"{_UNITS[place]}: peak {format_bytes(need)} in {phase.name}{decides};"
    if limit is None:
        return f"{head} no card to compare with (--vram 16GB names one)\n"
    source = f" ({plan.machine.ram_limit_source})" if place == "ram" else ""
    if need > limit:
        return f"{head} {format_bytes(need - limit)} more than the {format_bytes(limit)} there are{source}\n"
    return f"{head} {format_bytes(limit - need)} left of {format_bytes(limit)}{source}\n"


def components_table(plan: Plan, phase: Phase, place: str) -> Table:
    """Return the components of one phase, largest first, with formula and basis."""
    at_peak = " (the peak)" if phase is plan.peak_phase(place) else ""
    table = Table(title=f"{_UNITS[place]} in {phase.name}{at_peak}", title_justify="left", box=None, pad_edge=False)
    table.add_column("component", no_wrap=True)
    table.add_column(_UNITS[place], justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    table.add_column("basis", no_wrap=True)
    table.add_column("formula", overflow="fold")
    total = phase.total(place)
    shown, small = _split(phase, place)
    for part in shown:
        basis = Text(part.basis, style=_BASIS_STYLE[part.basis])
        table.add_row(part.path, format_bytes(part.bytes), _share(part.bytes, total), basis, escape(part.formula))
    if small:
        rest = sum(part.bytes for part in small)
        table.add_row(f"{len(small)} smaller ones", format_bytes(rest), _share(rest, total), "", "in full in --json")
    table.add_row(Text("total", style="bold"), Text(format_bytes(total), style="bold"), "100 %", "", "")
    return table


def _split(phase: Phase, place: str) -> tuple[list[Component], list[Component]]:
    """Return the components by size, and apart from them those too small to matter where there are several."""
    here = sorted(
        (part for part in phase.components if part.where == place and part.bytes),
        key=lambda part: -part.bytes,
    )
    small = [part for part in here if part.bytes < _SMALL_SHARE * phase.total(place)]
    if len(small) < 3:
        return here, []
    return here[: -len(small)], small


def _share(part: int, total: int) -> str:
    return f"{100 * part / total:.1f} %" if total else ""


def timeline(plan: Plan) -> Table:
    """Return a bar for each phase, in the order they come."""
    table = Table(title="Phases", title_justify="left", box=None, pad_edge=False)
    table.add_column("phase", no_wrap=True)
    places = [place for place in ("ram", "vram") if plan.peak_phase(place).total(place)]
    for place in places:
        table.add_column(_UNITS[place], justify="right", no_wrap=True)
        table.add_column("", no_wrap=True)
    for phase in plan.phases:
        cells: list[RenderableType] = [phase.name]
        for place in places:
            cells += [
                format_bytes(phase.total(place)),
                _bar(plan, phase, place, width=_BAR_WIDTH // len(places)),
            ]
        table.add_row(*cells)
    return table


def _bar(plan: Plan, phase: Phase, place: str, *, width: int) -> Text:
    top = plan.peak_phase(place)
    eighths = round(8 * width * phase.total(place) / max(top.total(place), 1))
    blocks = "█" * (eighths // 8) + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[eighths % 8]
    limit = plan.ram_limit_bytes if place == "ram" else plan.vram_limit_bytes
    style = "red" if limit is not None and phase.total(place) > limit else "green"
    return Text(blocks, style=style).append(" peak" if phase is top else "", style="bold")


def _others(plan: Plan) -> Iterable[str]:
    """Return what counts towards no limit: virtual memory and files."""
    later = plan.phases[1:] or plan.phases
    seen = {part.path: part for phase in later for part in phase.components if part.where in ("virtual", "disk")}
    for part in seen.values():
        yield f"{_UNITS[part.where]}: {part.path} {format_bytes(part.bytes)}: {part.formula}"


def _growth(growth: GrowthForecast) -> Text:
    text = Text(f"Growth: {format_bytes(growth.bytes_per)} a {growth.per} while the buffer fills")
    if growth.full_at is not None:
        text.append(f"; full at {growth.per} {growth.full_at:,} ({format_bytes(growth.full_bytes)})")
    else:
        text.append(f"; {format_bytes(growth.full_bytes)} when the run ends, the buffer not full")
    if growth.limit_at is not None:
        text.append(f"; the machine is full in {growth.per} {growth.limit_at:,}", style="bold red")
    return text


def _capacity(capacity: Capacity) -> Text:
    text = Text(
        f"Capacity: {format_bytes(capacity.fixed_bytes)} fixed + {format_bytes(capacity.per_unit_bytes)} for each of "
        f"{capacity.value:,} {capacity.size} (in {capacity.phase})"
    )
    if capacity.largest_that_fits is not None:
        text.append(f"; up to {capacity.largest_that_fits:,} {capacity.size} fit", style="bold")
    return text


def _small_print(plan: Plan) -> Iterable[str]:
    run = plan.run
    optimizer = f", {run.policy.optimizer or run.spec.optimizer}" if isinstance(run, FrameworkRun) else ""
    yield f"{plan.parameters:,} parameters{optimizer}; steady {format_bytes(plan.steady.ram_bytes)} of RAM"
    yield from plan.notes
    yield f"Not modelled: {'; '.join(plan.unmodelled)}."

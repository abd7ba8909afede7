"""The kernel's own account of RAM and swap."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Ram:
    """The whole machine's RAM and swap, whatever groups limit it further."""

    total_bytes: int
    available_bytes: int | None
    swap_total_bytes: int
    swap_free_bytes: int


def read_ram(proc: Path = Path("/proc")) -> Ram:
    """Return RAM and swap from ``proc``/meminfo, or from psutil where there is none."""
    try:
        text = (proc / "meminfo").read_text()
    except OSError:
        return _read_psutil()
    return parse_meminfo(text) or _read_psutil()


def parse_meminfo(text: str) -> Ram | None:
    """Return what a meminfo file says, or None if it does not name the total."""
    sizes: dict[str, int] = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        words = value.split()
        if words and words[0].isdigit():
            sizes[name] = int(words[0]) * 1024
    if "MemTotal" not in sizes:
        return None
    return Ram(
        total_bytes=sizes["MemTotal"],
        available_bytes=sizes.get("MemAvailable"),
        swap_total_bytes=sizes.get("SwapTotal", 0),
        swap_free_bytes=sizes.get("SwapFree", 0),
    )


def _read_psutil() -> Ram:
    import psutil

    memory, swap = psutil.virtual_memory(), psutil.swap_memory()
    return Ram(
        total_bytes=int(memory.total),
        available_bytes=int(memory.available),
        swap_total_bytes=int(swap.total),
        swap_free_bytes=int(swap.free),
    )

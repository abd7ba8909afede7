"""Bytes in, bytes out: the one parser and the one formatter of sizes.

``GB`` is 10^9 and ``GiB`` is 2^30, always. Output is binary, because that is what kernels and
allocators count in.
"""

from __future__ import annotations

import re
from typing import Final

from rlmem.errors import InputError

_BINARY: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_FACTORS: Final[dict[str, int]] = {
    "": 1,
    "b": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgtpe", start=1)},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgtpe", start=1)},
}
_SIZE: Final = re.compile(r"\s*(?P<number>\d[\d_,]*(?:\.\d+)?)\s*(?P<unit>[A-Za-z]*)\s*", re.ASCII)

MAX_BYTES: Final = 2**63 - 1
"""No address space is larger; a size beyond it is a mistake, not a machine."""


def parse_bytes(text: str | int) -> int:
    """Return the bytes that ``text`` names: ``"16GB"`` is 16·10^9, ``"16 GiB"`` is 16·2^30, ``4096`` is itself."""
    size = text if isinstance(text, int) else _parse_text(text)
    if not 0 <= size <= MAX_BYTES:
        raise InputError(f"a size must lie between 0 and 8 EiB, but got {_shown(text)}")
    return size


def _shown(text: str | int) -> str:
    if isinstance(text, int) and abs(text) >= 10**30:
        return "10^30 or more" if text > 0 else "-10^30 or less"
    return f"{text:.40}" if isinstance(text, str) else str(text)


def _parse_text(text: str) -> int:
    match = _SIZE.fullmatch(text)
    factor = _FACTORS.get(match["unit"].lower()) if match else None
    if match is None or factor is None:
        raise InputError(f"a size must look like 16GB, 500 MiB or 1048576, but got {text[:40]!r}")
    whole, _, fraction = match["number"].replace("_", "").replace(",", "").partition(".")
    if len(whole) > 30:
        raise InputError(f"a size must lie between 0 and 8 EiB, but got {text[:40]!r}")
    fraction = fraction[:30]
    return int(whole) * factor + (int(fraction) * factor // 10 ** len(fraction) if fraction else 0)


def format_bytes(size: int) -> str:
    """Return ``size`` in binary units with three or four significant digits: ``"104.7 GiB"``."""
    if size < 0:
        return f"-{format_bytes(-size)}"
    if size < 1024:
        return f"{size} B"
    scaled, power = float(size), 0
    while scaled >= 1023.95 and power < len(_BINARY) - 1:
        scaled /= 1024
        power += 1
    digits = 2 if scaled < 9.995 else 1
    return f"{scaled:.{digits}f} {_BINARY[power]}"


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: ``1 env``, ``2,048 steps``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"

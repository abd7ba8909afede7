"""Numbers as findings write them."""

from __future__ import annotations


def ratio(part: int, whole: int) -> str:
    """Return ``part`` over ``whole``: whole where it is, else with two digits."""
    return f"{part // whole:,}" if part % whole == 0 else f"{part / whole:,.2f}"


def count(number: int, noun: str, plural: str | None = None) -> str:
    """Return ``1 worker`` or ``2,048 workers``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {plural or noun + 's'}"


def percent(part: int, whole: int) -> str:
    """Return a share as a percentage; what is not nothing is never shown as 0 %."""
    share = 100 * part / whole if whole else 0.0
    return f"{share:,.0f} %" if share >= 1 or not part else "under 1 %"

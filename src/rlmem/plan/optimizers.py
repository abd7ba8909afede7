"""What an optimizer keeps beside the parameters."""

from __future__ import annotations

from typing import Final

_COPIES: Final = {"adam": 2, "adamw": 2, "rmsprop": 1, "sgd": 0, "sgd+momentum": 1}
_COUNTS_STEPS: Final = ("adam", "adamw", "rmsprop")


def state_bytes(optimizer: str | None, *, elements: int, tensors: int) -> int:
    """Return the bytes of state after the first step: moments as float32, and a counter for each tensor."""
    if optimizer is None:
        return 0
    counters = 4 * tensors if optimizer in _COUNTS_STEPS else 0
    return _COPIES[optimizer] * elements * 4 + counters


def state_formula(optimizer: str | None, *, elements: int) -> str:
    copies = _COPIES[optimizer] if optimizer else 0
    return f"{optimizer}: {copies} × {elements:,} × 4 B" if copies else f"{optimizer or 'no optimizer'}: no state"

"""The states of every random number generator that training draws from."""

from __future__ import annotations

import random
import warnings
from typing import Any

import numpy as np
import torch as th


def rng_state() -> dict[str, Any]:
    """Return the states of Python's, NumPy's and torch's global generators; CUDA's only where it is in use."""
    version, numbers, gauss = random.getstate()
    cuda = th.cuda.get_rng_state_all() if th.cuda.is_available() and th.cuda.is_initialized() else []
    return {
        "python": {"version": version, "numbers": np.array(numbers, np.uint64), "gauss": gauss},
        "numpy": np.random.get_state(),
        "torch": th.get_rng_state(),
        "cuda": list(cuda),
    }


def set_rng_state(state: dict[str, Any]) -> None:
    """Continue with the generators where they were."""
    python = state["python"]
    random.setstate((python["version"], tuple(python["numbers"].tolist()), python["gauss"]))
    np.random.set_state(state["numpy"])
    th.set_rng_state(state["torch"])
    if state["cuda"] and th.cuda.is_available():
        _set_cuda(state["cuda"])


def _set_cuda(states: list[Any]) -> None:
    if len(states) != th.cuda.device_count():
        warnings.warn(
            f"the snapshot has generators of {len(states)} GPUs, and this machine has {th.cuda.device_count()}: "
            "what is drawn on a GPU will differ",
            RuntimeWarning,
            stacklevel=4,
        )
    for device, state in enumerate(states[: th.cuda.device_count()]):
        th.cuda.set_rng_state(state, device)


def generator_state(owner: Any) -> Any:
    """Return the state of a space's or an environment's ``np_random``, or None where it has drawn nothing yet."""
    generator = getattr(owner, "_np_random", None)
    return None if generator is None else generator.bit_generator.state


def set_generator_state(owner: Any, state: Any) -> None:
    """Continue with a space's or an environment's ``np_random`` where it was."""
    if state is None:
        return
    generator = owner.np_random.bit_generator
    if generator.state["bit_generator"] == state["bit_generator"]:
        generator.state = state

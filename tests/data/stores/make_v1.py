"""Made the sample store `v1` beside it, with format version 1. What it holds follows from the functions below.

Run it only into a new folder, to compare: the sample itself stays as that version of rlmem wrote it.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from rlmem.lean import Column
from rlmem.store import ArrayPart, ColumnPart, Json, Store, Tensors

ROWS, N_ENVS = 96, 2
COLUMNS: dict[str, dict[str, Any]] = {
    "frames": {},
    "frames_compact": {"compact": True},
    "frames_followed": {"follows": True},
    "windows": {},
    "vectors": {},
}


def observation(name: str, step: int) -> np.ndarray:
    """Return what two environments show at a step."""
    if name == "windows":
        table = (np.arange(60 * 140) * 2654435761 % 4093).reshape(60, 140).astype(np.float32)
        return np.stack([table[step % 30 : step % 30 + 20], table[step % 17 : step % 17 + 20]])
    if name == "vectors":
        return (np.arange(8).reshape(2, 4) * 0.25 + step).astype(np.float32)
    stack = [(np.arange(24 * 24).reshape(24, 24) // 40 + env * 100) for env in range(N_ENVS) for _ in range(4)]
    frames = np.array(stack, np.uint8).reshape(N_ENVS, 4, 24, 24)
    for back in range(4):
        frames[:, back, (step + back) % 24, :9] = (step + back) % 251
    return frames


def column(name: str, steps: int) -> Column:
    first = observation(name, 0)
    made = Column(rows=ROWS, n_envs=N_ENVS, shape=first.shape[1:], dtype=first.dtype, **COLUMNS[name])
    for step in range(steps):
        following = [observation(name, step + 1)] if COLUMNS[name].get("follows") else []
        made.put(step % ROWS, observation(name, step), *following)
    return made


def arrays(step: int) -> dict[str, np.ndarray]:
    return {
        "actions": (np.arange(300) + step).astype(np.int64).reshape(150, 2),
        "rewards": (np.arange(20_000) % 7 + step).astype(np.float32),
        "dones": np.arange(64) % 9 == step % 9,
    }


def tensors(step: int) -> dict[str, np.ndarray]:
    return {
        "weight": (np.arange(130 * 130) % 11).astype(np.float32).reshape(130, 130),
        "bias": np.full(7, step, np.float64),
        "step": np.array(step, np.int64),
        "bits": np.arange(6, dtype=np.uint16),
    }


def main(folder: str) -> None:
    store = Store.open(folder, create=True)
    for step in (80, 130):
        parts: dict[str, Any] = {f"columns/{name}": ColumnPart(column=column(name, step)) for name in COLUMNS}
        parts |= {
            f"arrays/{name}": ArrayPart(array=array, compress=name == "rewards") for name, array in arrays(step).items()
        }
        parts["policy"] = Tensors(tensors=tensors(step), formats={"bits": "BF16"})
        parts["counters"] = Json(value={"step": step, "name": "ü", "list": [None, True, 0.5]})
        parts["long"] = Json(value=[f"line {line} of {step}" for line in range(1500)])
        store.save(parts, step=step, metadata={"made by": "make_v1.py"})


if __name__ == "__main__":
    main(sys.argv[1])

"""Players that read the console's 128 bytes of memory: random ones, and the better ones kept in a data file.

`skilled_policies.json` is written by `find_policies.py`, with the scores that the players reach.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

SKILLED = Path(__file__).with_name("skilled_policies.json")
EXPLORE = 0.02  # the share of random actions: frees a fixed rule that is stuck, and is in the range that DQN ends at

Policy = Callable[[np.ndarray, np.random.Generator], int]


def random_policy(n_actions: int) -> Policy:
    return lambda _ram, rng: int(rng.integers(n_actions))


def skilled_policy(game: str) -> Policy:
    return policy_from(json.loads(SKILLED.read_text())["games"][game]["policy"])


def policy_from(described: dict[str, Any]) -> Policy:
    rule = _chase(**described["chase"]) if "chase" in described else _linear(described["linear"])
    n_actions = described["n_actions"]

    def act(ram: np.ndarray, rng: np.random.Generator) -> int:
        return int(rng.integers(n_actions)) if rng.random() < EXPLORE else rule(ram)

    return act


def _chase(*, target: int, own: int, offset: int, margin: int, up: int, down: int) -> Callable[[np.ndarray], int]:
    """Move the byte `own` towards the byte `target`; fire (action 1) while there is no target."""

    def act(ram: np.ndarray) -> int:
        if ram[target] == 0:
            return 1
        distance = int(ram[target]) - int(ram[own]) + offset
        return up if distance > margin else down if distance < -margin else 0

    return act


def _linear(weights: list[list[int]]) -> Callable[[np.ndarray], int]:
    """Take the action of the greatest weighted sum over the bytes; the last weight of each row is its bias."""
    matrix = np.array(weights, dtype=np.float32)
    scale, bias = matrix[:, :-1] / 128.0, matrix[:, -1] - matrix[:, :-1].sum(axis=1)
    return lambda ram: int(np.argmax(scale @ ram.astype(np.float32) + bias))

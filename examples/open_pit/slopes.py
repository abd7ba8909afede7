"""The geometry of an open pit: what the slopes allow to be dug, and how far it pays to dig.

A pit is an array (x, y) that says how many benches of each column are gone, air included. A block may be dug when the
block above it and that one's four neighbours are gone: a cross-shaped cone, walls of one bench a block. The ground
beyond the model stays, at the height of the model's edge.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Pit = NDArray[np.int64]


def lowest_neighbour(pit: Pit, outside: Pit) -> Pit:
    """How many benches are gone in the least dug of each column's four neighbours.

    `outside` is the surface before mining: its edge is the ground that lies beyond the model.
    """
    padded = np.pad(outside, 1, mode="edge")
    padded[1:-1, 1:-1] = pit
    along_x = np.minimum(padded[:-2, 1:-1], padded[2:, 1:-1])
    along_y = np.minimum(padded[1:-1, :-2], padded[1:-1, 2:])
    return np.minimum(along_x, along_y)


def diggable(pit: Pit, surface: Pit, n_benches: int) -> NDArray[np.bool_]:
    """(x, y): whether the topmost block of the column may be dug now."""
    return (pit < n_benches) & (pit <= lowest_neighbour(pit, surface))


def deepest_pit(surface: Pit, n_benches: int) -> Pit:
    """The pit when everything is dug that the slopes ever allow."""
    pit = np.full_like(surface, n_benches)
    while True:
        deepest = np.maximum(surface, np.minimum(n_benches, lowest_neighbour(pit, surface) + 1))
        if (deepest == pit).all():
            return pit
        pit = deepest


def paying_pit(value: NDArray[np.float64], surface: Pit) -> Pit:
    """How far it pays to dig, time aside: the floating-cone method.

    From the top down, each block of positive value is taken with the cone above it if the cone pays as a whole; again
    until nothing is added. The method is the classical one, and cautious: two ore blocks that only together pay for
    the waste above them stay in the ground.
    """
    n_x, n_y, n_benches = value.shape
    worth = np.zeros((n_x, n_y, n_benches + 1))
    np.cumsum(value, axis=2, out=worth[:, :, 1:])  # worth[x, y, n]: of the column's n topmost blocks
    columns = np.arange(n_x * n_y).reshape(n_x, n_y) * (n_benches + 1)
    away = np.abs(np.arange(1 - n_x, n_x))[:, None] + np.abs(np.arange(1 - n_y, n_y))
    reachable = np.arange(n_benches) < deepest_pit(surface, n_benches)[:, :, None]
    candidates = np.argwhere(((value > 0) & reachable).transpose(2, 0, 1))  # bench by bench, from the top

    pit = surface.copy()
    added = True
    while added:
        added = False
        for bench, x, y in candidates.tolist():
            if pit[x, y] > bench:
                continue
            near = np.s_[max(0, x - bench) : x + bench + 1, max(0, y - bench) : y + bench + 1]
            cone = bench + 1 - away[n_x - 1 - x : 2 * n_x - 1 - x, n_y - 1 - y : 2 * n_y - 1 - y][near]
            dug = np.maximum(pit[near], cone)
            gain = worth.take(columns[near] + dug) - worth.take(columns[near] + pit[near])
            if gain.sum() > 0:
                pit[near] = dug
                added = True
    return pit

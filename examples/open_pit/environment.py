"""The mine as a Gymnasium environment: each step digs the topmost block of one column.

The observation is float32, (17, x, y, bench), every channel between -1 and 1. Fourteen channels describe the deposit
and never change. Three record the mining, and a step writes one block of each, once and for all: so two observations
in a row differ in three numbers, whatever the size of the mine.

What may be dug follows from `mined` by looking at the neighbours above, which a convolution sees, and it is in
`action_masks()`: there is no channel for it. Nor is there a plane of elapsed time: the latest value in `day` tells it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from deposit import AIR, DESTINATIONS, FULL_SIZE, MILL, ROCKS, Deposit, Economics, Size, cash_flows, generate
from numpy.typing import NDArray
from slopes import diggable, paying_pit

Floats = NDArray[np.float32]

CHANNELS: Mapping[str, str] = {
    # of the deposit; numbers are scaled by the largest in the deposit
    "ground": "1 where there was rock before mining, 0 in the air",
    "grade": "copper",
    "gold": "gold",
    "arsenic": "arsenic",
    "density": "tonnes in a block",
    "hardness": "energy of grinding",
    "overburden": "1 in this kind of rock",
    "oxide": "1 in this kind of rock",
    "sulphide": "1 in this kind of rock",
    "waste": "1 in this kind of rock",
    "value": "undiscounted cash flow at the best destination; negative where digging only costs",
    "depth": "benches below the original surface, over all benches",
    "ore_distance": "steps from block to block to the nearest one of positive value, up to ten, over ten",
    "pit": "1 inside the pit that pays, time aside, with the slopes it needs",
    # of the mining; 0 in blocks that are still there
    "mined": "1 once dug",
    "day": "the day it was dug on, over the last day that the episode can reach",
    "destination": "where it went: 0.25 dump, 0.5 leach, 0.75 stockpile, 1 mill",
}
MINED, DAY, DESTINATION = (list(CHANNELS).index(name) for name in ("mined", "day", "destination"))
FARTHEST_ORE = 10


class OpenPit(gymnasium.Env[Floats, np.int64]):
    """Dig a deposit for the highest net present value.

    Action `x * n_y + y` digs the topmost block of column (x, y). If the slopes forbid it, nothing happens but the step
    is used up; `action_masks()` tells beforehand. The reward is the block's cash flow in million dollars, discounted
    from the day it was dug on. Ore goes to the best destination that has room: the mill takes so many tonnes a day.
    The episode terminates when no block worth digging is left, and is truncated after `max_steps`.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 (Gymnasium's own declaration)

    def __init__(
        self,
        deposit: Deposit | None = None,
        *,
        size: Size = FULL_SIZE,
        seed: int = 0,
        economics: Economics | None = None,
        max_steps: int = 2048,
    ) -> None:
        """The mine of this deposit, or of a generated one of `size` by `seed`."""
        if max_steps < 1:
            raise ValueError(f"max_steps must be at least 1, but got {max_steps}")
        self.deposit = generate(size, seed=seed) if deposit is None else deposit
        self.economics = economics or Economics()
        self.max_steps = max_steps

        self._tonnes = self.deposit.tonnes
        self._surface = self.deposit.surface
        self._cash = cash_flows(self.deposit, self.economics)
        value = self._cash.max(axis=0)
        paying = np.arange(self.deposit.size[2]) < paying_pit(value, self._surface)[:, :, None]
        paying &= self.deposit.rock != AIR
        self._worth_digging = paying & (value > 0)
        if not self._worth_digging.any():
            raise ValueError(
                "at least one block must be worth digging, but at these prices and costs no cone of this deposit pays: "
                "raise economics.copper_price, or look at the grades (in %)"
            )
        heaviest_run = float(self._tonnes.max()) * max_steps
        self._last_day = 1 + int(heaviest_run // self.economics.mined_tonnes_a_day)

        n_x, n_y, n_benches = self.deposit.size
        self.observation_space = gymnasium.spaces.Box(-1.0, 1.0, (len(CHANNELS), n_x, n_y, n_benches), np.float32)
        self.action_space = gymnasium.spaces.Discrete(n_x * n_y)
        self._observation = np.zeros(self.observation_space.shape, np.float32)
        self._observation[:MINED] = static_channels(self.deposit, value, paying)
        self._start()

    def _start(self) -> None:
        self._observation[MINED:] = 0
        self._pit = self._surface.copy()
        self._mask = diggable(self._pit, self._surface, self.deposit.size[2])
        self._steps = 0
        self._worth_left = int(self._worth_digging.sum())
        self._tonnes_mined = 0.0
        self._day = 1
        self._mill_room = self.economics.milled_tonnes_a_day
        self._npv = 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Floats, dict[str, Any]]:
        """The mine before the first block. Nothing in it is random: the seed is only passed on."""
        super().reset(seed=seed)
        self._start()
        return self._observation.copy(), self._info()

    def step(self, action: np.int64) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        """Dig in the column of that number."""
        x, y = divmod(int(action), self.deposit.size[1])
        reward = self._dig(x, y) if self._mask[x, y] else 0.0
        self._steps += 1
        self._npv += reward
        terminated = self._worth_left == 0 or not self._mask.any()
        truncated = not terminated and self._steps >= self.max_steps
        return self._observation.copy(), reward, terminated, truncated, self._info()

    def action_masks(self) -> NDArray[np.bool_]:
        """For each action whether the slopes allow it, as MaskablePPO asks for it."""
        return self._mask.ravel().copy()

    def _dig(self, x: int, y: int) -> float:
        """Dig the topmost block of a column; the discounted cash flow."""
        bench = int(self._pit[x, y])
        block = (x, y, bench)
        tonnes = float(self._tonnes[block])
        destination = self._destination(block, tonnes)
        if destination == MILL:
            self._mill_room -= tonnes
        reward = float(self._cash[destination][block]) * self.economics.discount(self._day)

        self._observation[(MINED, *block)] = 1.0
        self._observation[(DAY, *block)] = self._day / self._last_day
        self._observation[(DESTINATION, *block)] = (destination + 1) / len(DESTINATIONS)

        self._pit[x, y] += 1
        self._mask = diggable(self._pit, self._surface, self.deposit.size[2])
        self._worth_left -= int(self._worth_digging[block])
        self._pass_time(tonnes)
        return reward

    def _destination(self, block: tuple[int, int, int], tonnes: float) -> int:
        """The best place that has room today. A block heavier than a whole day of the mill still starts its day."""
        cash = self._cash[(slice(None), *block)].copy()
        full = self._mill_room < min(tonnes, self.economics.milled_tonnes_a_day)
        if full:
            cash[MILL] = -np.inf
        return int(cash.argmax())

    def _pass_time(self, tonnes: float) -> None:
        """The fleet moves so many tonnes a day; each day the mill has room again."""
        self._tonnes_mined += tonnes
        day = 1 + int(self._tonnes_mined // self.economics.mined_tonnes_a_day)
        if day > self._day:
            self._day, self._mill_room = day, self.economics.milled_tonnes_a_day

    def _info(self) -> dict[str, Any]:
        return {"npv": self._npv, "day": self._day, "tonnes": self._tonnes_mined, "worth_left": self._worth_left}


def static_channels(deposit: Deposit, value: NDArray[np.float64], paying: NDArray[np.bool_]) -> Floats:
    """The channels that mining does not change, in the order of CHANNELS."""
    ground = deposit.rock != AIR
    benches = np.arange(deposit.size[2])
    channels = [
        ground,
        *(_scaled(a) for a in (deposit.grade, deposit.gold, deposit.arsenic, deposit.density, deposit.hardness)),
        *(deposit.rock == code for code in range(1, len(ROCKS) + 1)),
        _scaled(value),
        np.where(ground, benches - deposit.surface[:, :, None], 0) / len(benches),
        _steps_to(value > 0) / FARTHEST_ORE,
        paying,
    ]
    return np.stack(channels).astype(np.float32)


def _scaled(values: NDArray[Any]) -> NDArray[Any]:
    largest = np.abs(values).max()
    return values / largest if largest else values


def _steps_to(ore: NDArray[np.bool_]) -> NDArray[np.int64]:
    """How many steps along x, y or z each block is away from the nearest ore, at most FARTHEST_ORE."""
    near = np.pad(ore, 1)
    steps = np.zeros(ore.shape, np.int64)
    for _ in range(FARTHEST_ORE):
        steps += ~near[1:-1, 1:-1, 1:-1]
        grown = near.copy()
        for axis in range(3):
            grown |= np.roll(near, 1, axis) | np.roll(near, -1, axis)
        near[1:-1, 1:-1, 1:-1] = grown[1:-1, 1:-1, 1:-1]
    return steps

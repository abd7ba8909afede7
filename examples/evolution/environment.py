"""A stock market to trade in: one table of days × assets × features, and windows that slide over it.

What an agent sees is the last 504 days (two years) of 669 assets with 9 features each, 12,138,336 B of float32, and
every day drops one row and adds one. The table itself, 2,000 days, is 48 MB, and any number of environments share it.

    table = make_table(seed=0)              # or load_table("prices.csv"), load_table("features.npz")
    env = MarketEnv(table)                  # MarketEnv(table, window=32) for a small one
    observation, _ = env.reset(seed=0)
    observation, reward, terminated, truncated, info = env.step(env.action_space.sample())

Run this file to see the table's sizes and how fast a step is on your machine.
"""

from __future__ import annotations

import csv
import time
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float32]
Prices: TypeAlias = NDArray[np.float64]

FEATURES: Final = (
    "log-return",  # of the day's close: what a position earns
    "range",  # log of the day's high over its low
    "volume",  # log of the day's volume over its mean of 20 days
    "return of 5 days",
    "return of 20 days",
    "volatility",  # standard deviation of the log-return over 20 days
    "strength",  # relative strength index of 14 days, from -1 (only losses) to 1 (only gains)
    "above the mean",  # log of the close over its mean of 50 days
    "place in the range",  # where in the highs and lows of 50 days the close lies, from -1 to 1
)
WARM_UP_DAYS: Final = 50  # the longest look back of a feature: a table begins so many days after its prices do
CSV_COLUMNS: Final = ("date", "asset", "high", "low", "close", "volume")


# --- the table ------------------------------------------------------------------------------------------------------


def make_table(*, days: int = 2_000, assets: int = 669, seed: int = 0) -> Floats:
    """Return a made-up market as days × assets × 9 features.

    The log-return of an asset is the sum of what moves them all, what moves its sector and what moves it alone, each
    times a volatility that is high for weeks and low for weeks (its log is an autoregression, and a nervous market
    makes every asset nervous). Shocks have fat tails (Student's t with five degrees of freedom). Sectors drift up and
    down for about a month at a time: the one thing that an agent can learn. Volume is sticky, and rises on days of
    large moves.
    """
    rng = np.random.default_rng(seed)
    length, sectors = days + WARM_UP_DAYS, max(assets // 60, 2)
    sector = rng.integers(0, sectors, assets)
    beta = rng.normal(1, 0.3, assets)
    nervous = np.exp(_sticky(rng, (length, 1), keep=0.97, spread=0.4))
    market = 0.0003 + 0.007 * nervous * _shocks(rng, (length, 1))
    drift = _sticky(rng, (length, sectors), keep=0.95, spread=0.001)
    by_sector = drift + 0.005 * nervous * _shocks(rng, (length, sectors))
    own_volatility = rng.uniform(0.008, 0.025, assets) * np.exp(_sticky(rng, (length, assets), keep=0.95, spread=0.3))
    own_volatility *= np.sqrt(nervous)
    alone = own_volatility * _shocks(rng, (length, assets))
    returns = beta * market + by_sector[:, sector] + alone

    close = 50 * np.exp(np.cumsum(returns, axis=0))
    before = np.vstack([close[:1], close[:-1]])
    beyond = own_volatility * np.abs(rng.standard_normal((2, length, assets))) / 2
    high, low = np.maximum(close, before) * np.exp(beyond[0]), np.minimum(close, before) * np.exp(-beyond[1])
    volume = np.exp(13 + _sticky(rng, (length, assets), keep=0.9, spread=0.4) + 8 * np.abs(returns))
    return features_of(high=high, low=low, close=close, volume=volume)


def _sticky(rng: np.random.Generator, shape: tuple[int, int], *, keep: float, spread: float) -> Prices:
    """Return series (days × series) that forget slowly: each day keeps a share of the day before."""
    series = rng.standard_normal(shape) * spread
    for day in range(1, len(series)):
        series[day] = keep * series[day - 1] + (1 - keep**2) ** 0.5 * series[day]
    return series


def _shocks(rng: np.random.Generator, shape: tuple[int, int]) -> Prices:
    """Return shocks of variance one with fat tails."""
    return rng.standard_t(5, shape) * (3 / 5) ** 0.5


def features_of(*, high: Prices, low: Prices, close: Prices, volume: Prices) -> Floats:
    """Return prices and volumes (days × assets) as a table; it begins 50 days later and cannot be written to."""
    log_close = np.log(close)
    returns = np.diff(log_close, axis=0, prepend=log_close[:1])
    gains, losses = _mean(np.maximum(returns, 0), 14), _mean(np.maximum(-returns, 0), 14)
    highest, lowest = _over_days(np.maximum, high, 50), _over_days(np.minimum, low, 50)
    columns = (
        returns,
        np.log(high / low),
        np.log(volume / _mean(volume, 20)),
        _change(log_close, 5),
        _change(log_close, 20),
        np.sqrt(np.maximum(_mean(returns**2, 20) - _mean(returns, 20) ** 2, 0)),
        (gains - losses) / (gains + losses + 1e-9),
        np.log(close / _mean(close, 50)),
        2 * (close - lowest) / (highest - lowest + 1e-9) - 1,
    )
    table: Floats = np.empty((len(close) - WARM_UP_DAYS, close.shape[1], len(FEATURES)), np.float32)
    for index, column in enumerate(columns):
        table[..., index] = column[WARM_UP_DAYS:]
    table.setflags(write=False)
    return table


def _mean(series: Prices, days: int) -> Prices:
    """Return the mean of the last so many days; at the beginning, of those that there are."""
    total = np.cumsum(series, axis=0)
    total[days:] -= total[:-days].copy()
    return total / np.minimum(np.arange(1, len(series) + 1), days)[:, None]


def _change(series: Prices, days: int) -> Prices:
    return series - np.vstack([np.repeat(series[:1], days, axis=0), series[:-days]])


def _over_days(extreme: np.ufunc, series: Prices, days: int) -> Prices:
    out = series.copy()
    for back in range(1, days):
        extreme(out[back:], series[:-back], out=out[back:])
    return out


def load_table(path: str | Path) -> Floats:
    """Return the table of your own data: ``.csv`` with prices, or ``.npz`` with features.

    A CSV file has the columns date, asset, high, low, close and volume, a line for every asset on every date; its first
    50 dates are looked back on only. An npz file has an array ``features``, days × assets × features, whose first
    feature is the day's log-return.
    """
    path = Path(path)
    if path.suffix == ".csv":
        return _read_csv(path)
    with np.load(path) as arrays:
        table: Floats = np.ascontiguousarray(arrays["features"], np.float32)
    if table.ndim != 3:
        raise ValueError(f"{path}: features must be days × assets × features, but got shape {table.shape}")
    table.setflags(write=False)
    return table


def _read_csv(path: Path) -> Floats:
    with path.open(newline="") as file:
        lines = csv.DictReader(file)
        if missing := set(CSV_COLUMNS) - set(lines.fieldnames or ()):
            raise ValueError(
                f"{path}: must have the columns {', '.join(CSV_COLUMNS)}, but lacks {', '.join(sorted(missing))}"
            )
        cells = {(line["date"], line["asset"]): [float(line[name]) for name in CSV_COLUMNS[2:]] for line in lines}
    dates, assets = sorted({date for date, _ in cells}), sorted({asset for _, asset in cells})
    if len(cells) != len(dates) * len(assets):
        raise ValueError(
            f"{path}: must have a line for each of {len(assets)} assets on each of {len(dates)} dates, "
            f"but has {len(cells):,} of {len(dates) * len(assets):,}"
        )
    if len(dates) <= WARM_UP_DAYS:
        raise ValueError(f"{path}: must have more than {WARM_UP_DAYS} dates, but has {len(dates)}")
    values = np.array([[cells[date, asset] for asset in assets] for date in dates])
    high, low, close, volume = np.moveaxis(values, -1, 0)
    return features_of(high=high, low=low, close=close, volume=volume)


# --- the environment ------------------------------------------------------------------------------------------------


@cache
def window_space(shape: tuple[int, ...]) -> spaces.Box:
    """Return the space of windows, one for all environments: its bounds alone take 2.5 times a window."""
    return spaces.Box(-np.inf, np.inf, shape, np.float32)


class MarketEnv(gymnasium.Env[Floats, Floats]):
    """Trade some of a table's assets, a step a day, from a random day on.

    An observation is the ``window`` rows before today: a function of the day alone. Each is a new array, as Gymnasium
    demands. With ``views`` it is a view of the table that cannot be written to: nothing is copied, which suits whoever
    only reads it (a buffer, ``np.stack``); ``torch.from_numpy`` warns about such arrays.

    An action has two numbers from -1 to 1 for each traded asset: which share of the money shall lie in it (-1 none, 1
    all; more than all together is scaled down, what is left is cash), and how far to go towards that today (-1 not at
    all, 1 all the way). The reward is the portfolio's log-return of the day, after costs. An episode is truncated
    after ``episode_steps`` days, and terminates when half of the money is gone.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - as Gymnasium declares it

    def __init__(
        self,
        table: Floats,
        *,
        window: int = 504,
        traded: int = 108,
        episode_steps: int = 145,
        cost: float = 0.001,
        views: bool = False,
    ) -> None:
        days, assets, features = table.shape
        if days < window + episode_steps:
            raise ValueError(
                f"the table must have window + episode_steps days, {window} + {episode_steps}, but has {days}"
            )
        self.table, self.window, self.episode_steps, self.cost = table, window, episode_steps, cost
        self.traded, self.views = min(traded, assets), views
        self.observation_space = window_space((window, assets, features))
        self.action_space = spaces.Box(-1, 1, (self.traded, 2), np.float32)
        self.day = self.last_day = window
        self.weights: Prices = np.zeros(self.traded)
        self.value = 1.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Floats, dict[str, Any]]:
        """Begin on a random day with nothing but cash; ``options={"day": 700}`` says which day."""
        super().reset(seed=seed)
        latest = len(self.table) - self.episode_steps
        self.day = int((options or {}).get("day", self.np_random.integers(self.window, latest + 1)))
        if not self.window <= self.day <= latest:
            raise ValueError(f"day must be from {self.window} to {latest}, but got {self.day}")
        self.last_day = self.day + self.episode_steps
        self.weights = np.zeros(self.traded)
        self.value = 1.0
        return self._seen(), self._info()

    def step(self, action: Floats) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        """Trade at yesterday's close, earn today's returns, and see today's row."""
        moved = self._wanted(action) - self.weights
        self.weights = self.weights + moved
        growths = np.exp(self.table[self.day, : self.traded, 0].astype(np.float64))
        cash = 1 - self.weights.sum() - self.cost * np.abs(moved).sum()
        growth = float(cash + self.weights @ growths)
        self.weights = self.weights * growths / growth
        self.value *= growth
        self.day += 1
        terminated = self.value < 0.5
        return self._seen(), float(np.log(growth)), terminated, self.day == self.last_day, self._info()

    def _wanted(self, action: Floats) -> Prices:
        """Return the weights after today's trades: some way from those of yesterday to those asked for."""
        share, pace = (np.clip(np.asarray(action, np.float64), -1, 1).T + 1) / 2
        asked = share / max(share.sum(), 1.0)
        return self.weights + pace * (asked - self.weights)

    def _seen(self) -> Floats:
        rows = self.table[self.day - self.window : self.day]
        return rows if self.views else rows.copy()

    def _info(self) -> dict[str, Any]:
        return {"day": self.day, "value": self.value}


def main() -> None:
    """Make the market at full size, play one episode in it, and say how large and how fast that is."""
    began = time.perf_counter()
    table = make_table()
    made_s = time.perf_counter() - began
    print(f"table: {table.shape}, {table.nbytes:,} B, made in {made_s:.1f} s")
    for views in (False, True):
        env = MarketEnv(table, views=views)
        observation, _ = env.reset(seed=0)
        env.action_space.seed(0)
        began, done = time.perf_counter(), False
        while not done:
            _, _, terminated, truncated, _ = env.step(env.action_space.sample())
            done = terminated or truncated
        per_s = env.episode_steps / (time.perf_counter() - began)
        print(f"observation: {observation.shape}, {observation.nbytes:,} B, views={views}: {per_s:,.0f} steps/s")


if __name__ == "__main__":
    main()

"""A block model of an ore deposit: read from a CSV of your own, or generated; and what each block is worth.

A CSV has one line a block and these columns, in any order; others are ignored:

| column   | unit  |          | what it is                                                                       |
|----------|-------|----------|----------------------------------------------------------------------------------|
| x, y, z  | m     | required | centre of the block, on a regular grid; z points up                              |
| grade    | %     | required | copper                                                                           |
| density  | t/m³  | required |                                                                                  |
| rock     |       | required | `overburden`, `oxide`, `sulphide` or `waste`: by it the processes recover metal  |
| gold     | g/t   | 0        |                                                                                  |
| arsenic  | ppm   | 0        | a smelter charges for it                                                         |
| hardness | kWh/t | 12       | Bond work index, the energy of grinding                                          |

Blocks that the file leaves out are air: above the topography it need not list any. Inside, arrays are (x, y, bench)
with bench 0 on top, so that a column is dug by counting up.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Size = tuple[int, int, int]

FULL_SIZE: Size = (49, 71, 58)
SMALLEST_GENERATED: Size = (8, 8, 6)  # with less, the walls of a pit leave no room for ore under the overburden

ROCKS = ("overburden", "oxide", "sulphide", "waste")
AIR, OVERBURDEN, OXIDE, SULPHIDE, WASTE_ROCK = range(5)  # the codes in Deposit.rock: ROCKS, counted from 1

DESTINATIONS = ("dump", "leach", "stockpile", "mill")
DUMP, LEACH, STOCKPILE, MILL = range(4)

COORDINATES = ("x", "y", "z")
REQUIRED_MEASURES = ("grade", "density")
OPTIONAL_MEASURES = {"gold": 0.0, "arsenic": 0.0, "hardness": 12.0}
MEASURES = (*REQUIRED_MEASURES, *OPTIONAL_MEASURES)


class BlockModelError(ValueError):
    """A block-model file that cannot be used; the message says where in it, and what must hold."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Deposit:
    """What is in the ground. Every array is (x, y, bench), and zero where there is air."""

    rock: NDArray[np.uint8]
    grade: Floats
    density: Floats
    gold: Floats
    arsenic: Floats
    hardness: Floats
    block_m: tuple[float, float, float] = (20.0, 20.0, 15.0)
    lowest_m: tuple[float, float, float] = (0.0, 0.0, 0.0)  # x, y, z of the lowest corner block's centre

    @property
    def size(self) -> Size:
        """Blocks along x, y and down."""
        n_x, n_y, n_benches = self.rock.shape
        return n_x, n_y, n_benches

    @property
    def surface(self) -> NDArray[np.int64]:
        """(x, y): the bench of each column's topmost block, which is also how many blocks of air lie above it."""
        air: NDArray[np.int64] = np.sum(self.rock == AIR, axis=2)
        return air

    @property
    def tonnes(self) -> NDArray[np.float64]:
        """The mass of each block."""
        return self.density.astype(np.float64) * math.prod(self.block_m)


# Part 1: a deposit of one's own


def read_csv(path: str | Path) -> Deposit:
    """The deposit in a block-model CSV; BlockModelError, with line and column, if it is not one."""
    path = Path(path)
    lines, rocks, numbers = _read_lines(path)
    axes = [_Axis.of(path, name, numbers[name], lines) for name in COORDINATES]
    size = (axes[0].count, axes[1].count, axes[2].count)
    x, y, up = (axis.index for axis in axes)
    index = np.stack([x, y, size[2] - 1 - up])  # the file's z points up, benches are counted downwards
    _check_blocks(path, index, axes, lines)

    def spread(values: NDArray[np.float64] | list[int], dtype: type) -> NDArray[Any]:
        grid: NDArray[Any] = np.zeros(size, dtype)
        grid[tuple(index)] = values
        return grid

    return Deposit(
        rock=spread(rocks, np.uint8),
        **{name: spread(numbers[name], np.float32) for name in MEASURES},
        block_m=(axes[0].step, axes[1].step, axes[2].step),
        lowest_m=(axes[0].lowest, axes[1].lowest, axes[2].lowest),
    )


def _read_lines(path: Path) -> tuple[list[int], list[int], dict[str, NDArray[np.float64]]]:
    """Of each block: its line in the file, its rock, and its numbers by column."""
    lines: list[int] = []
    rocks: list[int] = []
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        given = _measures_of(path, [name or "" for name in reader.fieldnames or ()])
        numbers: dict[str, list[float]] = {name: [] for name in (*COORDINATES, *given)}
        for row in reader:
            cells = _Cells(path=path, line=reader.line_num, row=row)
            lines.append(cells.line)
            rocks.append(cells.rock())
            for name, column in numbers.items():
                column.append(cells.number(name) if name in COORDINATES else cells.measure(name))
    if not lines:
        raise BlockModelError(f"{path.name}, line 2: at least one block must follow the header, but the file ends")
    defaults = {name: np.full(len(lines), default) for name, default in OPTIONAL_MEASURES.items()}
    return lines, rocks, defaults | {name: np.array(column) for name, column in numbers.items()}


def write_csv(deposit: Deposit, path: str | Path) -> None:
    """Every block that is not air, a line each; read_csv gives the same deposit back."""
    with Path(path).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*COORDINATES, "rock", *MEASURES])
        writer.writerows(_lines_of(deposit))


def _lines_of(deposit: Deposit) -> Iterator[list[object]]:
    (x0, y0, z0), (dx, dy, dz) = deposit.lowest_m, deposit.block_m
    top = deposit.size[2] - 1
    for i, j, k in np.argwhere(deposit.rock != AIR).tolist():
        where = [x0 + i * dx, y0 + j * dy, z0 + (top - k) * dz]
        yield [*where, ROCKS[deposit.rock[i, j, k] - 1], *(getattr(deposit, name)[i, j, k] for name in MEASURES)]


def _measures_of(path: Path, header: list[str]) -> list[str]:
    required = (*COORDINATES, "rock", *REQUIRED_MEASURES)
    if missing := [name for name in required if name not in header]:
        raise BlockModelError(
            f"{path.name}, line 1: the columns {', '.join(required)} must be there, "
            f"but {', '.join(missing)} is not among: {', '.join(header) or 'none'}"
        )
    return [name for name in MEASURES if name in header]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cells:
    """One line of the file, and its place for the error messages."""

    path: Path
    line: int
    row: dict[str, str | None]

    def number(self, name: str) -> float:
        text = self.row[name]
        try:
            value = float(text or "")
        except ValueError:
            raise self.wrong(name, "a number") from None
        if not abs(value) < 1e30:  # NaN and infinity too, and what float32 cannot hold
            raise self.wrong(name, "a finite number")
        return value

    def measure(self, name: str) -> float:
        value = self.number(name)
        if value < 0 or (name == "density" and value == 0):
            raise self.wrong(name, "a number above 0" if name == "density" else "a number of at least 0")
        return value

    def rock(self) -> int:
        if self.row["rock"] not in ROCKS:
            raise self.wrong("rock", f"one of {', '.join(ROCKS)}")
        return 1 + ROCKS.index(self.row["rock"])

    def wrong(self, name: str, expected: str) -> BlockModelError:
        got = "nothing" if not self.row[name] else repr(self.row[name])
        return BlockModelError(f"{self.path.name}, line {self.line}, column {name!r}: expected {expected}, got {got}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axis:
    """A regular grid along one coordinate, found from the coordinates of the blocks."""

    lowest: float
    step: float
    count: int
    index: NDArray[np.int64]

    @classmethod
    def of(cls, path: Path, name: str, values: NDArray[np.float64], lines: list[int]) -> _Axis:
        distinct = np.unique(np.round(values, 6))  # a micrometre apart is the same place
        if len(distinct) < 2:
            raise BlockModelError(
                f"{path.name}, column {name!r}: at least two different values must be there to tell the size of a "
                f"block, but every line has {distinct[0]:g}"
            )
        lowest, step = float(distinct[0]), float(np.diff(distinct).min())
        position = (values - lowest) / step
        index = np.rint(position).astype(np.int64)
        off_grid = np.abs(position - index) > 0.01
        if off_grid.any():
            worst = int(np.argmax(off_grid))
            raise BlockModelError(
                f"{path.name}, line {lines[worst]}, column {name!r}: blocks must lie on a regular grid "
                f"(here {lowest:g}, {lowest + step:g}, … by {step:g} m), but got {values[worst]:g}"
            )
        return cls(lowest=lowest, step=step, count=int(index.max()) + 1, index=index)


def _check_blocks(path: Path, index: NDArray[np.int64], axes: list[_Axis], lines: list[int]) -> None:
    """The grid is not mostly empty, each block stands once, and no block hangs over a gap."""
    size = [axis.count for axis in axes]
    if math.prod(size) > 100 * len(lines):
        raise BlockModelError(
            f"{path.name}, columns 'x', 'y', 'z': at least one in a hundred of the grid's blocks must be listed, "
            f"but got {len(lines):,} of {math.prod(size):,}; the smallest steps between blocks make the grid, "
            f"here {' × '.join(f'{axis.step:g}' for axis in axes)} m"
        )
    line_of = np.zeros(size, np.int64)
    for (i, j, k), line in zip(index.T.tolist(), lines, strict=True):
        if line_of[i, j, k]:
            raise BlockModelError(
                f"{path.name}, line {line}, columns 'x', 'y', 'z': each block must be listed once, "
                f"but line {line_of[i, j, k]} has the same one"
            )
        line_of[i, j, k] = line
    hanging = np.argwhere((line_of[:, :, :-1] > 0) & (line_of[:, :, 1:] == 0))
    if len(hanging):
        raise BlockModelError(
            f"{path.name}, line {line_of[tuple(hanging[0])]}, column 'z': only air may be left out, "
            "but the block beneath this one is not in the file"
        )


# Part 2: a made-up deposit


def generate(size: Size = FULL_SIZE, *, seed: int = 0) -> Deposit:
    """A porphyry copper deposit under gentle hills: the same for the same size and seed.

    Ore bodies are tilted ellipsoids whose grade falls off from their middle, under correlated noise. Weathering has
    turned what lies near the surface into oxide, and loose overburden covers everything.
    """
    if any(n < least for n, least in zip(size, SMALLEST_GENERATED, strict=True)):
        raise ValueError(f"size must be at least {SMALLEST_GENERATED} blocks for a generated deposit, but got {size}")
    rng = np.random.default_rng(seed)
    depth = _depth_below_topography(rng, size)
    ore = _ore_bodies(rng, size)
    noise = [_correlated_noise(rng, size, length=3.0) for _ in range(5)]

    grade = 1.1 * ore * np.exp(0.45 * noise[0] - 0.1)
    grade[grade < 0.02] = 0.0
    soil = depth < 1 + 0.03 * size[2]
    weathered = depth < (0.16 + 0.05 * noise[1]) * size[2]
    rock = np.where(grade > 0.1, np.where(weathered, OXIDE, SULPHIDE), WASTE_ROCK)
    rock = np.where(soil, OVERBURDEN, rock)
    rock = np.where(depth < 0, AIR, rock).astype(np.uint8)
    grade = np.where(rock == OVERBURDEN, 0.0, grade)

    def in_ground(values: NDArray[np.float64]) -> Floats:
        return np.where(rock == AIR, 0.0, values).astype(np.float32)

    return Deposit(
        rock=rock,
        grade=in_ground(grade),
        density=in_ground(np.array([0.0, 2.0, 2.4, 2.8, 2.65])[rock] * (1 + 0.03 * noise[2])),
        gold=in_ground(0.3 * grade * np.exp(0.5 * noise[3])),
        arsenic=in_ground(120 * grade * np.exp(noise[4] - 2 * depth / size[2])),
        hardness=in_ground(9 + 5 * np.clip(depth, 0, None) / size[2] + noise[1]),
    )


def _depth_below_topography(rng: np.random.Generator, size: Size) -> NDArray[np.float64]:
    """How many benches each block lies below the surface of its column; negative in the air."""
    hills = _correlated_noise(rng, size[:2], length=9.0)
    hills = (hills - hills.min()) / (hills.max() - hills.min())
    surface = np.floor(0.12 * size[2] * hills)
    depth: NDArray[np.float64] = np.arange(size[2]) - surface[:, :, None]
    return depth


def _ore_bodies(rng: np.random.Generator, size: Size, *, count: int = 4) -> NDArray[np.float64]:
    """Between 0 and about 1: how deep inside an ore body each block lies."""
    position = np.stack(np.meshgrid(*(np.arange(n) for n in size), indexing="ij"), axis=-1).astype(float)
    richness = np.zeros(size)
    for _ in range(count):
        centre = rng.uniform((0.3, 0.3, 0.2), (0.7, 0.7, 0.55)) * size
        radii = rng.uniform((0.08, 0.08, 0.15), (0.18, 0.18, 0.35)) * size
        tilt, _ = np.linalg.qr(np.eye(3) + 0.3 * rng.standard_normal((3, 3)))
        distance = np.linalg.norm((position - centre) @ tilt / radii, axis=-1)
        richness = np.maximum(richness, rng.uniform(0.7, 1.0) * np.exp(-(distance**2)))
    return richness


def _correlated_noise(rng: np.random.Generator, shape: tuple[int, ...], *, length: float) -> NDArray[np.float64]:
    """A Gaussian field of mean 0 and deviation 1 whose values are alike over some `length` blocks."""
    length = min(length, min(shape) / 6)
    frequencies = np.meshgrid(*(np.fft.fftfreq(n) for n in shape), indexing="ij")
    smooth = np.exp(-2 * (np.pi * length) ** 2 * sum(f**2 for f in frequencies))
    field: NDArray[np.float64] = np.fft.ifftn(np.fft.fftn(rng.standard_normal(shape)) * smooth).real
    field -= field.mean()
    field /= field.std()
    return field


# Part 3: what a block is worth


@dataclass(frozen=True, slots=True, kw_only=True)
class Economics:
    """Prices, costs and capacities. Recoveries are by rock: overburden, oxide, sulphide, waste."""

    copper_price: float = 8_500.0  # $ a tonne
    gold_price: float = 65.0  # $ a gram
    mining_cost: float = 2.2  # $ a tonne, and …
    haulage_cost: float = 0.02  # … $ a tonne for each bench that it must be hauled up
    milling_cost: float = 5.0  # $ a tonne, and …
    grinding_cost: float = 0.4  # … $ a tonne for each kWh/t of hardness
    leaching_cost: float = 4.0  # $ a tonne
    rehandling_cost: float = 1.0  # $ a tonne that goes to the mill by the stockpile
    arsenic_charge: float = 0.01  # $ a tonne for each ppm, in the mill
    mill_recovery: tuple[float, float, float, float] = (0.0, 0.45, 0.88, 0.80)
    leach_recovery: tuple[float, float, float, float] = (0.0, 0.65, 0.10, 0.10)  # of copper; gold does not leach
    mined_tonnes_a_day: float = 50_000.0
    milled_tonnes_a_day: float = 20_000.0
    stockpile_years: float = 3.0  # until the mill has room for what waits
    discount_rate: float = 0.10  # a year

    def discount(self, day: float) -> float:
        """What a dollar of that day is worth at the start."""
        return float((1 + self.discount_rate) ** (-day / 365))


def cash_flows(deposit: Deposit, economics: Economics) -> NDArray[np.float64]:
    """(destination, x, y, bench): million dollars when a block is mined and goes there, in money of that day."""
    tonnes, e = deposit.tonnes, economics
    copper = deposit.grade.astype(np.float64) / 100 * e.copper_price  # $ of metal in a tonne of rock
    gold = deposit.gold.astype(np.float64) * e.gold_price
    mill_recovery = np.array([0.0, *e.mill_recovery])[deposit.rock]
    leach_recovery = np.array([0.0, *e.leach_recovery])[deposit.rock]

    mining = e.mining_cost + e.haulage_cost * np.arange(deposit.size[2])
    milling = e.milling_cost + e.grinding_cost * deposit.hardness + e.arsenic_charge * deposit.arsenic
    mill = (copper + gold) * mill_recovery - milling
    leach = copper * leach_recovery - e.leaching_cost
    stockpile = mill * e.discount(365 * e.stockpile_years) - e.rehandling_cost
    dollars_a_tonne: NDArray[np.float64] = np.stack([np.zeros_like(mill), leach, stockpile, mill]) - mining
    return dollars_a_tonne * tonnes / 1e6

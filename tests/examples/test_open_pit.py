"""The open-pit example: its mine is a sound environment, its slopes hold, and its money is right to the cent."""

from __future__ import annotations

import csv
import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium.utils.env_checker
import numpy as np
import pytest
import stable_baselines3.common.env_checker

EXAMPLE = Path(__file__).parents[2] / "examples" / "open_pit"
SMALL = (12, 16, 10)


def load(*names: str) -> list[ModuleType]:
    """The example's modules as a script beside them imports them, leaving none of their common names behind."""
    sys.path.insert(0, str(EXAMPLE))
    try:
        for name in names:
            sys.modules.pop(name, None)
        return [importlib.import_module(name) for name in names]
    finally:
        sys.path.remove(str(EXAMPLE))
        for name in names:
            sys.modules.pop(name, None)


deposit, slopes, environment = load("deposit", "slopes", "environment")
STATIC = environment.MINED  # how many channels come before the first that changes


# The environment


@pytest.fixture(scope="module")
def mine() -> Any:
    return environment.OpenPit(size=SMALL, max_steps=10_000)


def random_play(mine: Any, *, seed: int = 0, steps: int = 10_000) -> Any:
    """Observation before, action, and what step() gave, for each step of masked random play."""
    rng = np.random.default_rng(seed)
    before, _ = mine.reset()
    for _ in range(steps):
        action = rng.choice(np.flatnonzero(mine.action_masks()))
        result = mine.step(action)
        yield before, action, result
        before = result[0]
        if result[2] or result[3]:
            return


def test_both_environment_checkers_accept_it() -> None:
    mine = environment.OpenPit(size=SMALL)
    gymnasium.utils.env_checker.check_env(mine, skip_render_check=True)
    # Without its advice to flatten what is neither an image nor a vector: a 3D CNN reads it as it is.
    stable_baselines3.common.env_checker.check_env(mine, warn=False)


def test_seventeen_channels_at_full_size() -> None:
    mine = environment.OpenPit()
    observation, _ = mine.reset()
    assert observation.shape == (17, 49, 71, 58)
    assert observation.nbytes == 13_721_176
    assert mine.action_space.n == 3479
    assert mine.action_masks().shape == (3479,)
    assert len(environment.CHANNELS) == 17
    assert mine.observation_space.contains(observation)
    for static in observation[:STATIC]:
        assert static.min() < static.max()  # each says something


def allowed_by_looking_up(observation: np.ndarray, x: int, y: int, bench: int) -> bool:
    """The rule as it is told: the block above and its four neighbours are gone, and the ground outside stays."""
    gone = (observation[environment.MINED] == 1) | (observation[0] == 0)
    was_air = observation[0] == 0
    if bench == 0:
        return True
    for i, j in ((x, y), (x - 1, y), (x + 1, y), (x, y - 1), (x, y + 1)):
        inside = 0 <= i < gone.shape[0] and 0 <= j < gone.shape[1]
        if not (gone[i, j, bench - 1] if inside else was_air[x, y, bench - 1]):
            return False
    return True


def test_random_masked_play_never_undercuts_a_slope(mine: Any) -> None:
    n_y = SMALL[1]
    for before, action, (after, _, _, _, _) in random_play(mine):
        changed = np.argwhere(before[environment.MINED] != after[environment.MINED])
        assert len(changed) == 1
        x, y, bench = changed[0].tolist()
        assert (x, y) == divmod(action, n_y)
        assert allowed_by_looking_up(before, x, y, bench)
        assert before[0, x, y, bench] == 1  # rock, not air


def test_the_mask_allows_every_column_that_the_rule_allows(mine: Any) -> None:
    for number, (_, _, (after, _, terminated, _, _)) in enumerate(random_play(mine)):
        if number % 100 == 0 or terminated:
            standing = (after[environment.MINED] == 0) & (after[0] == 1)
            expected = [
                bool(column.any()) and allowed_by_looking_up(after, x, y, int(column.argmax()))
                for x, plane in enumerate(standing)
                for y, column in enumerate(plane)
            ]
            assert mine.action_masks().tolist() == expected


def test_a_step_changes_three_numbers_and_an_observation_handed_out_stays(mine: Any) -> None:
    first, _ = mine.reset()
    kept = first.copy()
    for before, _, (after, _, _, _, _) in random_play(mine, steps=100):
        assert np.argwhere(before != after)[:, 0].tolist() == [
            environment.MINED,
            environment.DAY,
            environment.DESTINATION,
        ]
    assert np.array_equal(first, kept)


def test_a_forbidden_action_only_uses_up_its_step(mine: Any) -> None:
    before, _ = mine.reset()
    forbidden = np.flatnonzero(~mine.action_masks())[0]
    after, reward, terminated, truncated, info = mine.step(forbidden)
    assert np.array_equal(before, after)
    assert (reward, terminated, truncated, info["tonnes"]) == (0.0, False, False, 0.0)


def test_it_ends_when_nothing_worth_digging_is_left(mine: Any) -> None:
    *_, (_, _, (after, _, terminated, truncated, info)) = random_play(mine)
    assert (terminated, truncated, info["worth_left"]) == (True, False, 0)
    pit, value, mined = (after[list(environment.CHANNELS).index(name)] for name in ("pit", "value", "mined"))
    assert mined[(pit == 1) & (value > 0)].all()


def test_it_is_cut_off_after_max_steps() -> None:
    *_, (_, _, (_, _, terminated, truncated, _)) = random_play(environment.OpenPit(size=SMALL, max_steps=7))
    assert (terminated, truncated) == (False, True)


def test_the_same_seed_gives_the_same_mine_and_the_same_play() -> None:
    def rewards_and_last(seed: int) -> tuple[list[float], np.ndarray]:
        steps = list(random_play(environment.OpenPit(size=SMALL, seed=seed), steps=50))
        return [result[1] for _, _, result in steps], steps[-1][2][0]

    (rewards, last), (again, last_again), (others, _) = rewards_and_last(3), rewards_and_last(3), rewards_and_last(4)
    assert rewards == again
    assert np.array_equal(last, last_again)
    assert rewards != others


def test_every_small_mine_has_something_to_dig() -> None:
    for seed in range(20):
        environment.OpenPit(size=deposit.SMALLEST_GENERATED, seed=seed)
    with pytest.raises(ValueError, match=r"size must be at least \(8, 8, 6\) .* got \(8, 7, 6\)"):
        environment.OpenPit(size=(8, 7, 6))


TRAINING = """
from environment import OpenPit
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.utils import get_action_masks
from stable_baselines3.common.vec_env import SubprocVecEnv

if __name__ == "__main__":
    mines = SubprocVecEnv([lambda: OpenPit(size=(8, 9, 6))] * 2, start_method="fork")
    assert get_action_masks(mines).shape == (2, 72)
    model = MaskablePPO("MlpPolicy", mines, n_steps=8, batch_size=8, n_epochs=1, device="cpu")
    model.learn(16)
    assert model.rollout_buffer.action_masks.min() == 0
    mines.close()
"""


def test_maskable_ppo_trains_on_it_in_worker_processes(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"import sys\nsys.path.insert(0, {str(EXAMPLE)!r})\n{TRAINING}")
    one_thread = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, str(script)], env=one_thread, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# Money


def blocks(rocks: list[list[list[int]]], **measures: Any) -> Any:
    """A deposit of 2,000 t blocks; waste rock without metal where nothing else is said."""
    rock = np.array(rocks, np.uint8)
    ground = (rock != deposit.AIR).astype(np.float32)
    zero = np.zeros(rock.shape, np.float32)
    arrays = {"grade": zero, "gold": zero, "arsenic": zero, "hardness": zero, "density": 2 * ground} | measures
    return deposit.Deposit(rock=rock, block_m=(10.0, 10.0, 10.0), **arrays)


def economics(**changes: Any) -> Any:
    plain = {
        "copper_price": 8_000.0,
        "mining_cost": 2.0,
        "haulage_cost": 0.0,
        "milling_cost": 5.0,
        "rehandling_cost": 1.0,
        "mill_recovery": (0.0, 0.0, 0.5, 0.5),
        "leach_recovery": (0.0, 0.0, 0.0, 0.0),
        "mined_tonnes_a_day": 4_000.0,
        "discount_rate": 0.1,
    }
    return deposit.Economics(**(plain | changes))


def ore_under_the_middle() -> Any:
    rocks = np.full((3, 3, 2), deposit.WASTE_ROCK)
    rocks[1, 1, 1] = deposit.SULPHIDE
    grade = np.zeros((3, 3, 2), np.float32)
    grade[1, 1, 1] = 1.0
    return blocks(rocks.tolist(), grade=grade)


def test_npv_by_hand() -> None:
    mine = environment.OpenPit(ore_under_the_middle(), economics=economics())
    mine.reset()
    # Two blocks a day. Waste costs 2,000 t × 2 $ = 4,000 $; the ore brings 2,000 t × (80 × 0.5 - 5 - 2) $ = 66,000 $.
    for column in (4, 1, 3, 5, 7):
        _, _, terminated, _, _ = mine.step(column)
        assert not terminated
    observation, reward, terminated, _, info = mine.step(4)
    day_1, day_2, day_3 = (1.1 ** (-day / 365) for day in (1, 2, 3))
    assert reward == pytest.approx(0.066 * day_3)
    assert info["npv"] == pytest.approx(-0.004 * (2 * day_1 + 2 * day_2 + day_3) + 0.066 * day_3)
    assert info["tonnes"] == 12_000
    assert terminated
    assert observation[environment.DESTINATION, 1, 1].tolist() == [0.25, 1.0]
    day_of_waste, day_of_ore = observation[environment.DAY, 1, 1].tolist()
    assert day_of_ore == pytest.approx(3 * day_of_waste)


def test_the_ore_beneath_waits_for_its_four_neighbours() -> None:
    mine = environment.OpenPit(ore_under_the_middle(), economics=economics())
    mine.reset()
    for column in (4, 1, 3, 5):
        mine.step(column)
        assert not mine.action_masks()[4]
    mine.step(7)
    assert mine.action_masks().nonzero()[0].tolist() == [0, 2, 4, 6, 8]


def test_ore_that_finds_the_mill_full_goes_to_the_stockpile() -> None:
    rocks = np.full((3, 3, 1), deposit.SULPHIDE)
    rich = blocks(rocks.tolist(), grade=np.ones((3, 3, 1), np.float32))
    mine = environment.OpenPit(rich, economics=economics(milled_tonnes_a_day=2_000.0))
    mine.reset()
    rewards = [mine.step(column)[1] for column in (0, 1, 2)]
    day_1, day_2 = (1.1 ** (-day / 365) for day in (1, 2))
    stockpiled = 2_000 * (35 / 1.1**3 - 1 - 2) / 1e6
    assert rewards == pytest.approx([0.066 * day_1, stockpiled * day_1, 0.066 * day_2])


def test_a_mine_that_cannot_pay_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one block must be worth digging"):
        environment.OpenPit(ore_under_the_middle(), economics=economics(mining_cost=10.0))


def test_every_cost_counts() -> None:
    ones = np.ones((1, 1, 2), np.float32)
    sulphide = blocks([[[deposit.SULPHIDE] * 2]], grade=ones, gold=ones, arsenic=100 * ones, hardness=10 * ones)
    prices = economics(gold_price=60.0, haulage_cost=0.5, grinding_cost=0.4, arsenic_charge=0.01, leaching_cost=4.0)
    dump, leach, _, mill = deposit.cash_flows(sulphide, prices)[:, 0, 0, 1] * 1e6 / 2_000
    assert dump == pytest.approx(-2.5)
    assert leach == pytest.approx(-4 - 2.5)
    assert mill == pytest.approx((80 + 60) * 0.5 - 5 - 4 - 1 - 2.5)


# Slopes


def test_digging_all_that_is_allowed_ends_in_the_deepest_pit() -> None:
    rng = np.random.default_rng(0)
    surface = rng.integers(0, 3, (7, 9))
    pit = surface.copy()
    while (allowed := np.argwhere(slopes.diggable(pit, surface, 6))).size:
        pit[tuple(rng.choice(allowed))] += 1
    assert np.array_equal(pit, slopes.deepest_pit(surface, 6))


def test_the_paying_pit_can_be_dug_and_pays() -> None:
    model = deposit.generate(SMALL, seed=2)
    value = deposit.cash_flows(model, deposit.Economics()).max(axis=0)
    goal, surface = slopes.paying_pit(value, model.surface), model.surface
    pit = surface.copy()
    while (allowed := np.argwhere(slopes.diggable(pit, surface, SMALL[2]) & (pit < goal))).size:
        pit[tuple(allowed[0])] += 1
    assert np.array_equal(pit, goal)
    assert value[(np.arange(SMALL[2]) < goal[:, :, None])].sum() > 0


# Files


def test_a_deposit_survives_its_csv(tmp_path: Path) -> None:
    model = deposit.generate(SMALL, seed=5)
    deposit.write_csv(model, tmp_path / "blocks.csv")
    back = deposit.read_csv(tmp_path / "blocks.csv")
    for name in ("rock", *deposit.MEASURES):
        ours, theirs = getattr(model, name), getattr(back, name)
        assert ours.dtype == theirs.dtype
        assert np.array_equal(ours, theirs), name
    assert (back.block_m, back.lowest_m) == (model.block_m, model.lowest_m)


GOOD = [
    {"x": "5", "y": "5", "z": "115", "grade": "0.4", "density": "2.7", "rock": "sulphide"},
    {"x": "5", "y": "5", "z": "105", "grade": "0.8", "density": "2.7", "rock": "sulphide"},
    {"x": "15", "y": "5", "z": "105", "grade": "0", "density": "2.5", "rock": "waste"},
    {"x": "5", "y": "15", "z": "105", "grade": "0", "density": "2.5", "rock": "waste"},
]


def csv_file(path: Path, rows: list[dict[str, str]]) -> Path:
    file = path / "blocks.csv"
    with file.open("w", newline="") as out:
        writer = csv.DictWriter(out, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return file


def test_left_out_blocks_are_air_and_left_out_measures_have_defaults(tmp_path: Path) -> None:
    model = deposit.read_csv(csv_file(tmp_path, GOOD))
    assert model.size == (2, 2, 2)
    assert model.block_m == (10.0, 10.0, 10.0)
    assert model.surface.tolist() == [[0, 1], [1, 2]]
    assert model.grade[0, 0].tolist() == pytest.approx([0.4, 0.8])  # the higher z is the upper bench
    assert model.hardness[0, 0, 0] == 12.0
    assert model.hardness[1, 1, 0] == 0.0


@pytest.mark.parametrize(
    ("line", "change", "message"),
    [
        (3, {"grade": "rich"}, r"blocks.csv, line 3, column 'grade': expected a number, got 'rich'"),
        (3, {"grade": ""}, r"line 3, column 'grade': expected a number, got nothing"),
        (4, {"grade": "-1"}, r"line 4, column 'grade': expected a number of at least 0, got '-1'"),
        (4, {"density": "0"}, r"line 4, column 'density': expected a number above 0, got '0'"),
        (4, {"x": "nan"}, r"line 4, column 'x': expected a finite number, got 'nan'"),
        (2, {"rock": "gneiss"}, r"line 2, column 'rock': expected one of overburden, oxide, .*, got 'gneiss'"),
        (5, {"y": "5"}, r"column 'y': at least two different values"),
        (3, {"x": "15", "z": "115"}, r"line 2, column 'z': only air may be left out"),
    ],
)
def test_a_bad_cell_is_named_with_line_and_column(
    tmp_path: Path, line: int, change: dict[str, str], message: str
) -> None:
    rows = [row | change if number == line else row for number, row in enumerate(GOOD, start=2)]
    with pytest.raises(deposit.BlockModelError, match=message):
        deposit.read_csv(csv_file(tmp_path, rows))


def test_a_block_off_the_grid_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        deposit.BlockModelError, match=r"line 6, column 'y': blocks must lie on a regular grid .* got 29"
    ):
        deposit.read_csv(csv_file(tmp_path, [*GOOD, GOOD[3] | {"y": "29"}]))


def test_a_slip_that_makes_the_grid_huge_is_refused(tmp_path: Path) -> None:
    rows = [*GOOD, GOOD[3] | {"x": "5.001"}, GOOD[3] | {"x": "90005"}]
    with pytest.raises(deposit.BlockModelError, match=r"at least one in a hundred .* smallest .* 0.001 × 10 × 10 m"):
        deposit.read_csv(csv_file(tmp_path, rows))


def test_a_block_listed_twice_is_named_with_both_lines(tmp_path: Path) -> None:
    with pytest.raises(deposit.BlockModelError, match=r"line 6, .* must be listed once, but line 4 has the same one"):
        deposit.read_csv(csv_file(tmp_path, [*GOOD, GOOD[2]]))


def test_a_missing_column_and_an_empty_file_are_named(tmp_path: Path) -> None:
    without = [{name: cell for name, cell in row.items() if name != "density"} for row in GOOD]
    with pytest.raises(deposit.BlockModelError, match=r"line 1: .* but density is not among: x, y, z, grade, rock"):
        deposit.read_csv(csv_file(tmp_path, without))
    file = csv_file(tmp_path, GOOD)
    file.write_text(file.read_text().splitlines()[0] + "\n")
    with pytest.raises(deposit.BlockModelError, match="line 2: at least one block must follow the header"):
        deposit.read_csv(file)

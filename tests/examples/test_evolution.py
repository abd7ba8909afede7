"""The market's windows slide over its table, its episodes end as they say, and its rewards add up."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

_FILE = Path(__file__).parents[2] / "examples" / "evolution" / "environment.py"


@pytest.fixture(name="market", scope="module")
def _market() -> ModuleType:
    spec = importlib.util.spec_from_file_location("evolution_environment", _FILE)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(name="table", scope="module")
def _table(market):
    return market.make_table(days=300, assets=20, seed=0)


@pytest.fixture(name="env")
def _env(market, table):
    return market.MarketEnv(table, window=32, traded=6, episode_steps=10)


@pytest.mark.filterwarnings("ignore:.*A Box observation space m.*imum value is")  # returns have no bounds
def test_gymnasium_finds_nothing_wrong(env):
    check_env(env, skip_render_check=True)


def test_sb3_accepts_it(env):
    from stable_baselines3.common.env_checker import check_env as sb3_check_env

    sb3_check_env(env, warn=False)  # its advice is about images, for which it takes three axes


def test_the_documented_sizes(market):
    table = np.broadcast_to(np.zeros((1, 669, 9), np.float32), (700, 669, 9))
    env = market.MarketEnv(table)
    observation, _ = env.reset(seed=0)
    assert (observation.shape, observation.nbytes) == ((504, 669, 9), 12_138_336)
    assert env.action_space.shape == (108, 2)
    assert env.episode_steps == 145
    assert market.MarketEnv(table).observation_space is env.observation_space


def test_a_table_is_made_the_same_way_again(market, table):
    assert table.shape == (300, 20, len(market.FEATURES))
    assert table.dtype == np.float32
    assert np.isfinite(table).all()
    assert np.array_equal(table, market.make_table(days=300, assets=20, seed=0))
    assert not np.array_equal(table, market.make_table(days=300, assets=20, seed=1))


def test_assets_move_together_and_nervous_days_come_together(market):
    returns = market.make_table(days=1500, assets=60, seed=2)[..., 0].astype(np.float64)
    together = np.corrcoef(returns.T)[np.triu_indices(60, 1)].mean()
    size = np.abs(returns).mean(axis=1)
    assert 0.05 < together < 0.8
    assert np.corrcoef(size[1:], size[:-1])[0, 1] > 0.2
    assert 0.1 < returns.std() * 252**0.5 < 0.8  # a year's volatility


def test_features_look_back_only(market):
    rng = np.random.default_rng(0)
    close = 50 * np.exp(np.cumsum(rng.normal(0, 0.02, (90, 3)), axis=0))
    prices = {"high": close * 1.01, "low": close * 0.99, "close": close, "volume": rng.uniform(1, 2, (90, 3))}
    changed = {name: np.vstack([array[:80], 2 * array[80:]]) for name, array in prices.items()}
    one, other = market.features_of(**prices), market.features_of(**changed)
    assert np.array_equal(one[:30], other[:30])
    assert not np.array_equal(one[30], other[30])
    np.testing.assert_allclose(one[:, :, 0], np.diff(np.log(close), axis=0)[49:], rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(one[-1, :, 5], np.diff(np.log(close), axis=0)[-20:].std(axis=0), rtol=1e-4)
    np.testing.assert_allclose(one[-1, :, 7], np.log(close[-1] / close[-50:].mean(axis=0)), rtol=1e-4)


def test_an_observation_is_a_new_array_or_a_view_that_cannot_be_written_to(market, env, table):
    observation, info = env.reset(seed=0)
    assert not np.shares_memory(observation, table)
    lean = market.MarketEnv(table, window=32, traded=6, episode_steps=10, views=True)
    view, _ = lean.reset(seed=0)
    assert np.shares_memory(view, table)
    assert not view.flags.writeable
    assert np.array_equal(view, observation)
    assert np.array_equal(view, table[info["day"] - 32 : info["day"]])


def test_each_day_drops_a_row_and_adds_one(env, table):
    before, _ = env.reset(seed=0)
    for _ in range(10):
        after, _, _, truncated, info = env.step(env.action_space.sample())
        assert np.array_equal(after[:-1], before[1:])
        assert np.array_equal(after[-1], table[info["day"] - 1])
        before = after
    assert truncated


def test_episodes_begin_on_random_days_that_the_seed_repeats(env, table):
    days = [env.reset(seed=5)[1]["day"]] + [env.reset()[1]["day"] for _ in range(200)]
    assert days[0] == env.reset(seed=5)[1]["day"]
    assert min(days) >= 32
    assert max(days) <= len(table) - 10
    assert len(set(days)) > 80


def test_the_last_day_of_the_table_is_reached_and_not_passed(env, table):
    env.reset(options={"day": len(table) - 10})
    for _ in range(10):
        observation, _, _, truncated, info = env.step(np.zeros((6, 2), np.float32))
    assert truncated
    assert info["day"] == len(table)
    assert np.array_equal(observation, table[-32:])
    with pytest.raises(ValueError, match="day must be from 32 to 290, but got 291"):
        env.reset(options={"day": 291})


def test_cash_earns_nothing_and_a_position_what_its_asset_does(market, table):
    env = market.MarketEnv(table, window=32, traded=6, episode_steps=10, cost=0.0)
    env.reset(options={"day": 40})
    assert env.step(np.full((6, 2), -1, np.float32))[1] == 0
    action = np.full((6, 2), -1, np.float32)
    action[3] = 1  # all of it, and at once
    for day in (41, 42):
        assert env.step(action)[1] == pytest.approx(float(table[day, 3, 0]), abs=1e-6)


def test_trades_cost_and_holding_does_not(market, table):
    action = np.full((6, 2), -1, np.float32)
    action[3] = 1
    rewards = {}
    for cost in (0.0, 0.01):
        env = market.MarketEnv(table, window=32, traded=6, episode_steps=10, cost=cost)
        env.reset(options={"day": 40})
        rewards[cost] = [env.step(action)[1] for _ in range(3)]
    lost = np.subtract(rewards[0.0], rewards[0.01])
    assert lost[0] == pytest.approx(0.01, abs=0.002)
    np.testing.assert_allclose(lost[1:], 0, atol=2e-4)


def test_an_episode_terminates_when_half_of_the_money_is_gone(market):
    falling = np.zeros((60, 3, 9), np.float32)
    falling[..., 0] = -0.3
    env = market.MarketEnv(falling, window=8, traded=3, episode_steps=20)
    env.reset(seed=0)
    ends = [env.step(np.ones((3, 2), np.float32))[2] for _ in range(3)]
    assert ends == [False, False, True]


def test_a_table_that_is_too_short_is_refused(market, table):
    with pytest.raises(ValueError, match=r"window \+ episode_steps days, 290 \+ 20, but has 300"):
        market.MarketEnv(table, window=290, episode_steps=20)


def test_your_own_features_and_prices_are_read(market, table, tmp_path):
    np.savez(tmp_path / "features.npz", features=table)
    read = market.load_table(tmp_path / "features.npz")
    assert np.array_equal(read, table)
    assert not read.flags.writeable
    lines = ["date,asset,high,low,close,volume"]
    lines += [
        f"day {day:03},{name},{day + 12},{day + 9},{day + 10 + n},5" for day in range(60) for n, name in enumerate("AB")
    ]
    (tmp_path / "prices.csv").write_text("\n".join(lines))
    prices = market.load_table(tmp_path / "prices.csv")
    assert prices.shape == (10, 2, 9)
    np.testing.assert_allclose(prices[0, :, 0], np.log([60 / 59, 61 / 60]), rtol=1e-5)


def test_data_that_cannot_be_a_table_is_refused(market, tmp_path):
    np.savez(tmp_path / "flat.npz", features=np.zeros((5, 9)))
    with pytest.raises(ValueError, match=r"must be days × assets × features, but got shape \(5, 9\)"):
        market.load_table(tmp_path / "flat.npz")
    file = tmp_path / "prices.csv"
    for text, message in (
        ("date,asset\n", "lacks close, high, low, volume"),
        ("date,asset,high,low,close,volume\n1,A,1,1,1,1\n2,A,1,1,1,1\n2,B,1,1,1,1\n", "but has 3 of 4"),
        ("date,asset,high,low,close,volume\n1,A,1,1,1,1\n", "more than 50 dates, but has 1"),
    ):
        file.write_text(text)
        with pytest.raises(ValueError, match=message):
            market.load_table(file)

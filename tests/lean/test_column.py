"""Columns against plain arrays: every kind of observation, every way of reading, bit by bit."""

from __future__ import annotations

import copy
import gc
import pickle
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from rlmem.errors import CorruptBlockError, LeanBufferError
from rlmem.lean import Column
from rlmem.lean.block import Block

Array = NDArray[Any]

N_ENVS = 3
DTYPES = ["uint8", "int16", "int64", "float32", "float64", "bool", "complex64"]

both_ways = pytest.mark.parametrize("compact", [False, True], ids=["as encoded", "compact"])


def random_bits(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Array:
    """Return elements of random bits: among floats there are NaNs of all payloads, infinities and noughts below 0."""
    if np.dtype(dtype) == bool:
        return rng.integers(0, 2, shape).astype(bool)
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer(rng.bytes(size), dtype).reshape(shape)


# --- observations as environments give them ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Observations of some shape; ``episode`` yields those of one episode, one step after the other."""

    shape: tuple[int, ...]
    episode: Any


def frame_stack(axis: int, newest_first: bool, dtype: str) -> Scene:
    def episode(rng: np.random.Generator) -> Iterator[Array]:
        frame = random_bits(rng, (12, 10), dtype).copy()
        frames = deque([frame] * 4, maxlen=4)
        while True:
            yield np.stack([*frames][:: -1 if newest_first else 1], axis=axis)
            frame = frame.copy()
            frame[rng.integers(0, 12), rng.integers(0, 10)] = random_bits(rng, (), dtype)
            frames.append(frame)

    shape = [12, 10]
    shape.insert(axis, 4)
    return Scene(shape=tuple(shape), episode=episode)


def windows_on_one_table(dtype: str) -> Scene:
    table = random_bits(np.random.default_rng(7), (400, 640 // np.dtype(dtype).itemsize), dtype)

    def episode(rng: np.random.Generator) -> Iterator[Array]:
        start = int(rng.integers(0, 300))
        while True:
            yield table[start % 380 : start % 380 + 20]
            start += 1

    return Scene(shape=(20, table.shape[1]), episode=episode)


def small_changes_in_a_large_array(dtype: str) -> Scene:
    shape = (250, 280 // np.dtype(dtype).itemsize)

    def episode(rng: np.random.Generator) -> Iterator[Array]:
        board = random_bits(rng, shape, dtype).copy()
        while True:
            yield board
            board = board.copy()
            board[rng.integers(0, shape[0]), rng.integers(0, shape[1])] = random_bits(rng, (), dtype)

    return Scene(shape=shape, episode=episode)


def noise(shape: tuple[int, ...], dtype: str) -> Scene:
    def episode(rng: np.random.Generator) -> Iterator[Array]:
        while True:
            yield random_bits(rng, shape, dtype)

    return Scene(shape=shape, episode=episode)


def constant(dtype: str) -> Scene:
    def episode(_rng: np.random.Generator) -> Iterator[Array]:
        while True:
            yield np.ones((9, 11), dtype)

    return Scene(shape=(9, 11), episode=episode)


def few_values(dtype: str) -> Scene:
    def episode(rng: np.random.Generator) -> Iterator[Array]:
        while True:
            yield rng.integers(0, 3, (8, 11)).astype(dtype)

    return Scene(shape=(8, 11), episode=episode)


SCENES: dict[str, Any] = {
    "frame stack": lambda dtype: frame_stack(0, False, dtype),
    "frame stack, newest first": lambda dtype: frame_stack(2, True, dtype),
    "windows on one table": windows_on_one_table,
    "small changes in a large array": small_changes_in_a_large_array,
    "noise": lambda dtype: noise((5, 7), dtype),
    "numbers": lambda dtype: noise((), dtype),
    "constant": constant,
    "few values": few_values,
}


def steps(scene: Scene, n: int, *, seed: int = 0, lasts: int = 17) -> Iterator[tuple[Array, Array]]:
    """Yield for each step what all environments saw and what followed; episodes end, and some steps change nothing."""
    rngs = [np.random.default_rng((seed, env)) for env in range(N_ENVS)]
    episodes = [scene.episode(rng) for rng in rngs]
    now = [next(episode) for episode in episodes]
    for step in range(n):
        seen, following = list(now), []
        for env in range(N_ENVS):
            still = rngs[env].random() < 0.1
            following.append(now[env] if still else next(episodes[env]))
            now[env] = following[env]
            if (step + env) % lasts == lasts - 1:
                episodes[env] = scene.episode(rngs[env])
                now[env] = next(episodes[env])
        yield np.stack(seen), np.stack(following)


# --- columns beside plain arrays -----------------------------------------------------------------------------------


class Beside:
    """A column, and the plain arrays that it stands for."""

    def __init__(self, scene: Scene, dtype: str, *, rows: int, follows: bool = True, compact: bool = False) -> None:
        self.column = Column(rows=rows, n_envs=N_ENVS, shape=scene.shape, dtype=dtype, follows=follows, compact=compact)
        self.seen, self.followed = np.zeros((2, rows, N_ENVS, *scene.shape), dtype)
        self.rows, self.follows, self.written = rows, follows, 0

    def put(self, seen: Array, following: Array) -> None:
        row = self.written % self.rows
        self.seen[row], self.followed[row] = seen, following
        self.column.put(row, seen, following if self.follows else None)
        self.written += 1

    def check(self, column: Column | None = None) -> None:
        """Compare everything that is there, in an order of its own."""
        column = column or self.column
        rows, envs = np.divmod(np.random.default_rng(1).permutation(min(self.written, self.rows) * N_ENVS), N_ENVS)
        same_bits(column.get(rows, envs), self.seen[rows, envs])
        if self.follows:
            same_bits(column.get_next(rows, envs), self.followed[rows, envs])
            seen, followed = column.get_both(rows, envs)
            same_bits(seen, self.seen[rows, envs])
            same_bits(followed, self.followed[rows, envs])


def same_bits(one: Array, other: Array) -> None:
    assert (one.shape, one.dtype) == (other.shape, other.dtype)
    assert one.tobytes() == other.tobytes()


def pickled(column: Column) -> Column:
    return pickle.loads(pickle.dumps(column))  # noqa: S301


def blocks_of(column: Column) -> list[Block]:
    """Return the sealed blocks that a column holds, wherever it has them."""
    found, seen, todo = [], {id(column)}, [column.__getstate__()]
    while todo:
        for held in gc.get_referents(todo.pop()):
            if id(held) in seen or isinstance(held, type | np.dtype):
                continue
            seen.add(id(held))
            if isinstance(held, Block):
                found.append(held)
            elif type(held).__module__.startswith("rlmem.lean") or isinstance(held, dict | list | tuple | deque):
                todo.append(held)
    return found


def filled(scene: str, dtype: str, n: int, **how: Any) -> Beside:
    made = SCENES[scene](dtype)
    beside = Beside(made, dtype, **how)
    for seen, following in steps(made, n):
        beside.put(seen, following)
    return beside


@both_ways
@pytest.mark.parametrize("follows", [True, False], ids=["with next", "without next"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scene", SCENES)
def test_what_is_put_is_got_back_to_the_last_bit(scene: str, dtype: str, follows: bool, compact: bool) -> None:
    made = SCENES[scene](dtype)
    beside = Beside(made, dtype, rows=50, follows=follows, compact=compact)
    for step, (seen, following) in enumerate(steps(made, 180)):
        beside.put(seen, following)
        if step in (0, 2, 30, 31, 32, 49, 50, 51, 114):
            beside.check()
    beside.check()


@both_ways
@pytest.mark.parametrize("scene", ["frame stack", "numbers", "noise", "windows on one table"])
def test_a_ring_that_goes_round_many_times(scene: str, compact: bool) -> None:
    made = SCENES[scene]("float32")
    beside = Beside(made, "float32", rows=70, compact=compact)
    for step, (seen, following) in enumerate(steps(made, 2500)):
        beside.put(seen, following)
        if step % 333 == 0:
            beside.check()
    beside.check()


@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize("follows", [True, False], ids=["with next", "without next"])
@pytest.mark.parametrize("scene", ["noise", "frame stack"])
def test_a_ring_of_few_rows(scene: str, rows: int, follows: bool) -> None:
    made = SCENES[scene]("float64")
    beside = Beside(made, "float64", rows=rows, follows=follows)
    for seen, following in steps(made, 600):
        beside.put(seen, following)
        beside.check()


@pytest.mark.parametrize("rows", [1, 2])
def test_an_observation_stays_the_same_while_its_block_is_sealed(rows: int) -> None:
    column = Column(rows=rows, n_envs=1, shape=(100,), dtype="float64")
    for number in range(200):
        observation = np.full((1, 100), number + 0.1)
        for again in range(2):
            row = (2 * number + again) % rows
            column.put(row, observation)
            same_bits(column.get(np.array([row]), np.array([0])), observation)


@both_ways
@pytest.mark.parametrize("scene", ["frame stack", "windows on one table", "noise", "few values"])
@pytest.mark.parametrize("again", [pickled, copy.deepcopy], ids=["pickled", "copied"])
def test_a_copy_has_the_same_rows_and_a_life_of_its_own(again: Any, scene: str, compact: bool) -> None:
    made = SCENES[scene]("float32")
    beside = Beside(made, "float32", rows=90, compact=compact)
    for step, (seen, following) in enumerate(steps(made, 400)):
        beside.put(seen, following)
        if step in (0, 20, 250):
            kept = beside.column
            beside.column = again(kept)
            beside.check(kept)
            kept.put(beside.written % 90, following, seen)  # what happens to the one is nothing to the other
            kept.clear()
            beside.check()
    beside.check()


@both_ways
@pytest.mark.parametrize("scene", ["frame stack", "windows on one table", "noise", "few values"])
def test_a_cleared_column_begins_anew(scene: str, compact: bool) -> None:
    made = SCENES[scene]("float32")
    beside = Beside(made, "float32", rows=60, compact=compact)
    for seed, n in enumerate((3, 60, 40, 200)):
        for seen, following in steps(made, n, seed=seed):
            beside.put(seen, following)
        beside.check()
        layout = beside.column.layout
        beside.column.clear()
        beside.written = 0
        assert beside.column.layout == layout


def test_the_layout_is_found_on_the_way() -> None:
    for scene, pieces in (("frame stack", 4), ("frame stack, newest first", 4), ("windows on one table", 20)):
        layout = filled(scene, "uint8", 40, rows=50).column.layout
        assert (layout.count, layout.shift) == (pieces, 1), scene
    assert filled("noise", "float32", 40, rows=50).column.layout.count == 1


@both_ways
def test_windows_on_one_table_cost_little_more_than_the_table(compact: bool) -> None:
    column = filled("windows on one table", "float32", 3000, rows=3000, compact=compact).column
    table_bytes = 400 * 640
    assert column.nbytes < 4 * table_bytes < 3000 * N_ENVS * 20 * 640 // 50


def test_a_frame_stack_costs_less_than_one_frame_a_step() -> None:
    column = filled("frame stack", "float32", 1000, rows=1000).column
    assert column.nbytes < 1000 * N_ENVS * 12 * 10 * 4 // 2


def test_nothing_asked_for_is_nothing_got() -> None:
    none = np.zeros(0, np.int64)
    for compact in (False, True):
        column = filled("noise", "float32", 10, rows=20, compact=compact).column
        assert column.get(none, none).shape == (0, 5, 7)
        assert [array.shape for array in column.get_both(none, none)] == [(0, 5, 7)] * 2


def test_what_was_got_stays_as_it_was() -> None:
    """Large arrays are used again, but never one that somebody holds, be it by a view of it."""
    beside = filled("small changes in a large array", "uint8", 120, rows=60)
    rows, envs = np.arange(16), np.zeros(16, np.int64)
    first = beside.column.get(rows, envs)[3:5, 10:]
    expected = beside.seen[rows, 0][3:5, 10:].copy()
    for _ in range(5):
        beside.column.get(rows + 16, envs + 1)
        beside.column.get_both(rows + 32, envs + 2)
    same_bits(np.ascontiguousarray(first), expected)


def test_an_empty_observation() -> None:
    column = Column(rows=70, n_envs=2, shape=(0,), dtype="float32")
    for row in range(140):
        column.put(row % 70, np.zeros((2, 0), np.float32))
    assert column.get(np.array([3, 4]), np.array([0, 1])).shape == (2, 0)


def test_observations_must_be_plain_numbers() -> None:
    with pytest.raises(LeanBufferError, match="object"):
        Column(rows=2, n_envs=1, shape=(3,), dtype=object)


# --- packed elements -----------------------------------------------------------------------------------------------


def put_all(column: Column, observations: Array, following: Array | None = None) -> None:
    """Write steps × environments observations, and read all that are still there."""
    for step, seen in enumerate(observations):
        column.put(step % column.rows, seen, None if following is None else following[step])
    kept = np.arange(max(len(observations) - column.rows, 0), len(observations))
    for env in range(column.n_envs):
        envs = np.full(len(kept), env)
        same_bits(column.get(kept % column.rows, envs), observations[kept, env])
        if following is not None:
            same_bits(column.get_next(kept % column.rows, envs), following[kept, env])


@pytest.mark.parametrize("dtype", ["float64", "int64", "uint8", "bool"])
def test_an_environment_that_was_not_looked_at_may_need_more_bits(dtype: str) -> None:
    observations = np.zeros((40, 3, 100), dtype)
    observations[:, 2] = random_bits(np.random.default_rng(0), (40, 100), dtype)
    put_all(Column(rows=64, n_envs=3, shape=(100,), dtype=dtype), observations)


def test_a_last_observation_may_need_more_bits() -> None:
    seen = np.tile(np.arange(40)[:, None, None] % 2, (1, 1, 100)).astype(float)
    following = 1 - seen
    following[7] = np.random.default_rng(0).random((1, 100))
    put_all(Column(rows=64, n_envs=1, shape=(100,), dtype="float64", follows=True), seen, following)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int16", "uint8"])
@pytest.mark.parametrize("widens_at", [31, 32, 33, 500, 1023, 1024, 1500])
def test_what_is_learnt_late_is_not_forgotten(dtype: str, widens_at: int) -> None:
    observations = np.tile(np.arange(1600)[:, None, None] % 2, (1, 1, 80)).astype(dtype)
    observations[widens_at:] = random_bits(np.random.default_rng(0), (1600 - widens_at, 1, 80), dtype)
    put_all(Column(rows=1550, n_envs=1, shape=(80,), dtype=dtype), observations)


@pytest.mark.parametrize("rows", [2, 5, 40])
@pytest.mark.parametrize("widens_at", [42, 45, 60, 100])
def test_a_ring_of_small_rows_that_learns_late(rows: int, widens_at: int) -> None:
    observations = np.tile(np.arange(200)[:, None, None] % 5, (1, 1, 100)).astype(np.uint8)
    observations[widens_at] = 14
    put_all(Column(rows=rows, n_envs=1, shape=(100,), dtype="uint8"), observations)


@pytest.mark.parametrize("odd", [-0.0, np.nan, np.inf, -np.inf, 5e-324, 1e-40, 65504.0, 2.0**24 + 1, 0.1])
def test_a_number_that_a_narrower_type_has_not(odd: float) -> None:
    observations = np.tile(np.arange(60.0)[:, None, None], (1, 1, 80))
    observations[45, 0, 3] = odd
    put_all(Column(rows=64, n_envs=1, shape=(80,), dtype="float64"), observations)


@pytest.mark.parametrize("dtype", [">f4", ">i8", ">u2", "float16", "longdouble", "M8[s]"])
def test_unusual_dtypes(dtype: str) -> None:
    observations = np.tile(np.arange(60)[:, None, None] * 3, (1, 1, 80)).astype(dtype)
    put_all(Column(rows=64, n_envs=1, shape=(80,), dtype=dtype), observations)


# --- rows given back early -----------------------------------------------------------------------------------------


def test_what_is_forgotten_is_given_back() -> None:
    beside = filled("noise", "float64", 3000, rows=3000)
    before = beside.column.nbytes
    beside.column.forget(2500)
    assert beside.column.nbytes < before / 3
    rows, envs = np.arange(2500, 3000), np.zeros(500, np.int64)
    same_bits(beside.column.get(rows, envs), beside.seen[rows, 0])


def test_a_second_look_leaves_out_what_was_forgotten() -> None:
    column, rng = Column(rows=2000, n_envs=1, shape=(100,), dtype="float64"), np.random.default_rng(0)
    observations = rng.random((1100, 1, 100))
    for row, observation in enumerate(observations):
        column.put(row, observation)
        if row == 900:
            column.forget(800)
    rows = np.arange(800, 1100)
    same_bits(column.get(rows, np.zeros_like(rows)), observations[rows, 0])


def test_forgotten_rows_stay_forgotten_when_the_ring_goes_round() -> None:
    column = Column(rows=300, n_envs=1, shape=(100,), dtype="float64")
    observations = np.tile(np.arange(310.0)[:, None, None] % 7, (1, 1, 100))
    observations[305] = np.random.default_rng(0).random((1, 100))  # makes the column write itself again
    for step, observation in enumerate(observations):
        column.put(step % 300, observation)
        if step == 299:
            column.forget(290)
    kept = np.arange(290, 310)
    same_bits(column.get(kept % 300, np.zeros_like(kept)), observations[kept, 0])


# --- what cannot be read -------------------------------------------------------------------------------------------


@both_ways
def test_a_block_that_cannot_be_decoded_is_named(compact: bool) -> None:
    """Bits may flip in memory, too."""
    beside = filled("noise", "float32", 700, rows=700, compact=compact)
    spoilt = blocks_of(beside.column)[1]
    spoilt.data.setflags(write=True)
    for start in range(128, spoilt.data.size, 8):
        spoilt.data[start] = 0xFF
    named = []
    for env in range(N_ENVS):
        for row in range(700):
            try:
                beside.column.get(np.array([row]), np.array([env]))
            except CorruptBlockError as error:
                named.append(str(error))
    assert named or not compact
    assert all(spoilt.content_digest.hex() in message for message in named), named[:1]


def test_a_piece_of_a_kind_that_does_not_exist_is_named_in_its_block() -> None:
    beside = filled("frame stack", "float32", 700, rows=700)
    spoilt = blocks_of(beside.column)[1]
    spoilt.data.setflags(write=True)
    # an observation may begin in the block before, whose pieces are in order
    offsets = spoilt.data[72 : 72 + 4 * (spoilt.pieces + 1)].view("<u4")
    spoilt.data[72 + offsets.nbytes + offsets[:-1]] = 9
    rows, envs = np.divmod(np.arange(700 * N_ENVS), N_ENVS)
    with pytest.raises(CorruptBlockError, match=spoilt.content_digest.hex()):
        beside.column.get(rows, envs)


def test_lossy_is_by_name_only_and_says_so() -> None:
    seen = np.random.default_rng(0).normal(size=(40, 2, 50)).astype(np.float32)
    column = Column(rows=40, n_envs=2, shape=(50,), dtype=np.float32, follows=True, lossy="float16")
    for row in range(39):
        column.put(row, seen[row], seen[row + 1])
    rows, envs = np.arange(39), np.ones(39, int)
    first, second = column.get_both(rows, envs)
    assert first.dtype == second.dtype == np.float32
    assert np.array_equal(first, seen[:39, 1].astype(np.float16).astype(np.float32))
    assert np.array_equal(second, seen[1:, 1].astype(np.float16).astype(np.float32))
    assert "LOSSY: float32 is rounded to float16" in column.describe()
    assert "LOSSY" not in Column(rows=4, n_envs=1, shape=(5,), dtype=np.float32).describe()


def test_lossy_leaves_alone_what_is_no_wide_float() -> None:
    column = Column(rows=3, n_envs=1, shape=(70,), dtype=np.int64, lossy="float16")
    column.put(0, np.arange(70)[None] * 10**12)
    assert np.array_equal(column.get(np.array([0]), np.array([0]))[0], np.arange(70) * 10**12)
    assert "LOSSY" not in column.describe()


def test_lossy_must_be_known() -> None:
    with pytest.raises(LeanBufferError, match="float16"):
        Column(rows=3, n_envs=1, shape=(7,), dtype=np.float32, lossy="int4")

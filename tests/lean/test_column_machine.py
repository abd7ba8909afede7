"""A column driven at random beside plain arrays, which it must equal to the last bit whatever happens."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from numpy.typing import NDArray

from rlmem.lean import Column

Array = NDArray[Any]

DTYPES = ["uint8", "int16", "int64", "float32", "float64", "bool", "complex64"]
STACK, WINDOW, SPARSE, NOISE, CONSTANT, FEW, SCALAR = range(7)
SHAPES: dict[int, tuple[int, ...]] = {
    STACK: (4, 9, 8),
    WINDOW: (20, 64),
    SPARSE: (256, 260),
    NOISE: (5, 13),
    CONSTANT: (8, 9),
    FEW: (10, 7),
    SCALAR: (),
}
SAME, ON, NEW, TERMINAL = range(4)


def random_bits(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Array:
    """Return elements of random bits: NaNs of all payloads, infinities and noughts below 0 are among the floats."""
    if np.dtype(dtype) == bool:
        return rng.integers(0, 2, shape).astype(bool)
    bits = np.frombuffer(rng.bytes(int(np.prod(shape)) * np.dtype(dtype).itemsize), dtype).reshape(shape)
    if np.dtype(dtype).kind == "f" and rng.random() < 0.2:
        return np.where(rng.random(shape) < 0.5, np.array(-0.0, dtype), np.array(np.inf, dtype))
    return bits


class World:
    """What the environments show, by kind of observation."""

    def __init__(self, kind: int, dtype: str, seed: int) -> None:
        self.kind, self.dtype, self.shape = kind, dtype, SHAPES[kind]
        self.rng = np.random.default_rng(seed)
        self.table = random_bits(self.rng, (120, 64), dtype) if kind == WINDOW else None

    def new(self) -> Array:
        if self.table is not None:
            start = self.rng.integers(0, 100)
            return self.table[start : start + 20]
        if self.rng.random() < 0.02:  # whatever was learnt about the observations may turn out wrong
            return random_bits(self.rng, self.shape, self.dtype)
        if self.kind == CONSTANT:
            return np.ones(self.shape, self.dtype)
        if self.kind == FEW:
            return self.rng.integers(0, 2, self.shape).astype(self.dtype)
        return random_bits(self.rng, self.shape, self.dtype)

    def after(self, last: Array) -> Array:
        if self.table is not None:
            return np.concatenate([last[1:], self.table[self.rng.integers(0, 120)][None]])
        if self.kind == STACK:
            return np.concatenate([last[1:], random_bits(self.rng, (1, *self.shape[1:]), self.dtype)])
        if self.kind == SPARSE:
            changed = last.copy()
            changed.reshape(-1)[self.rng.integers(0, changed.size, 3)] = random_bits(self.rng, (3,), self.dtype)
            return changed
        return self.new()


def same_bits(one: Array, other: Array) -> None:
    assert (one.shape, one.dtype) == (other.shape, other.dtype)
    assert one.tobytes() == other.tobytes()


class ColumnMachine(RuleBasedStateMachine):
    """Writes and reads a column and two plain arrays."""

    @initialize(
        kind=st.sampled_from([*SHAPES]),
        dtype=st.sampled_from(DTYPES),
        rows=st.one_of(st.integers(1, 4), st.integers(5, 90)),
        n_envs=st.integers(1, 4),
        follows=st.booleans(),
        compact=st.booleans(),
        seed=st.integers(0, 2**16),
    )
    def begin(self, kind: int, dtype: str, rows: int, n_envs: int, follows: bool, compact: bool, seed: int) -> None:
        self.world = World(kind, dtype, seed)
        self.rows, self.n_envs, self.follows = rows, n_envs, follows
        self.column = Column(
            rows=rows, n_envs=n_envs, shape=self.world.shape, dtype=dtype, follows=follows, compact=compact
        )
        self.seen, self.followed = np.zeros((2, rows, n_envs, *self.world.shape), dtype)
        self.now = [self.world.new() for _ in range(n_envs)]
        self.written = 0

    def step(self, what: list[int]) -> None:
        """Let each environment go on in its way, and write what it saw."""
        following, then = [], []
        for last, how in zip(self.now, what, strict=True):
            following.append(last if how == SAME else self.world.new() if how == NEW else self.world.after(last))
            then.append(self.world.new() if how == TERMINAL else following[-1])
        row = self.written % self.rows
        self.seen[row], self.followed[row] = np.stack(self.now), np.stack(following)
        self.column.put(row, np.stack(self.now), np.stack(following) if self.follows else None)
        self.now, self.written = then, self.written + 1

    @rule(data=st.data())
    def put(self, data: Any) -> None:
        ways = st.sampled_from([SAME, ON, NEW, TERMINAL])
        self.step(data.draw(st.lists(ways, min_size=self.n_envs, max_size=self.n_envs)))

    @rule(n=st.integers(1, 150), resets=st.sampled_from([0.0, 0.05, 0.5]), still=st.sampled_from([0.0, 0.3]))
    def put_many(self, n: int, resets: float, still: float) -> None:
        odds = [still, 1 - still - resets, resets / 2, resets / 2]
        for what in self.world.rng.choice(4, (n, self.n_envs), p=odds).tolist():
            self.step(what)

    @rule()
    def pickle(self) -> None:
        self.column = pickle.loads(pickle.dumps(self.column))  # noqa: S301

    @rule()
    def copy(self) -> None:
        kept = self.column
        self.column = copy.deepcopy(kept)
        kept.clear()

    @rule()
    def clear(self) -> None:
        self.column.clear()
        self.written = 0

    @precondition(lambda self: self.written > 0)
    @rule(data=st.data())
    def read(self, data: Any) -> None:
        held = min(self.written, self.rows)
        some = st.tuples(st.integers(0, held - 1), st.integers(0, self.n_envs - 1))
        rows, envs = np.array(data.draw(st.lists(some, min_size=1, max_size=8))).T
        self.compare(rows, envs)

    @precondition(lambda self: self.written > 0)
    @rule()
    def read_all(self) -> None:
        self.compare(*np.divmod(np.arange(min(self.written, self.rows) * self.n_envs), self.n_envs))

    def compare(self, rows: Array, envs: Array) -> None:
        same_bits(self.column.get(rows, envs), self.seen[rows, envs])
        if self.follows:
            same_bits(self.column.get_next(rows, envs), self.followed[rows, envs])
            seen, followed = self.column.get_both(rows, envs)
            same_bits(seen, self.seen[rows, envs])
            same_bits(followed, self.followed[rows, envs])

    @invariant()
    def says_what_it_holds(self) -> None:
        if hasattr(self, "column"):
            assert self.column.nbytes > 0

    def teardown(self) -> None:
        if getattr(self, "written", 0):
            self.read_all()


TestColumn = ColumnMachine.TestCase
TestColumn.settings = settings(
    max_examples=40, stateful_step_count=12, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)

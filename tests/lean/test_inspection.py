"""Environments inspected for lean buffers: each kind of them, and the figures against columns really filled."""

from __future__ import annotations

from itertools import islice, pairwise
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack

from rlmem.errors import LeanBufferError
from rlmem.lean import Column, inspect
from rlmem.lean.inspection import KINDS, inspection_from_dict
from rlmem.lean.random_play import count_of, leaves_of, play

EPISODE = 37
TOLERANCE = 0.15
"""Of the bytes new a step, against a column of many more rows: its blocks are longer, and cost less each."""


class Camera(gymnasium.Env[Any, Any]):
    """A flickering square that wanders over a dark ground.

    ``nested``: with its place as floats beside the picture. ``in_place``: one array is written again and again.
    """

    def __init__(self, *, nested: bool = False, in_place: bool = False) -> None:
        picture = spaces.Box(0, 255, (36, 40, 1), np.uint8)
        place = spaces.Dict({"place": spaces.Box(-1, 40, (2,), np.float32)})
        self.observation_space: Any = spaces.Dict({"camera": picture, "state": place}) if nested else picture
        self.action_space = spaces.Discrete(4)
        self._nested, self._in_place = nested, in_place
        self._picture = np.zeros((36, 40, 1), np.uint8)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._place, self._steps = np.array([10, 10]), 0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._place = np.clip(self._place + [(0, 1), (1, 0), (0, -1), (-1, 0)][int(action)], 0, 30)
        self._steps += 1
        return self._seen(), 0.0, False, self._steps == EPISODE, {}

    def _seen(self) -> Any:
        y, x = self._place
        self._picture = self._picture if self._in_place else self._picture.copy()
        self._picture[:] = 0
        self._picture[y : y + 6, x : x + 6] = self.np_random.integers(1, 256, (6, 6, 1), np.uint8)
        if not self._nested:
            return self._picture
        return {"camera": self._picture, "state": {"place": self._place.astype(np.float32)}}


class Masked(Camera):
    """A camera that may not be moved down or up, and says so."""

    def action_masks(self) -> Any:
        return np.array([True, False, True, False])

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert action in (0, 2)
        return super().step(action)


def _stacked(n_envs: int = 2) -> Any:
    return VecFrameStack(DummyVecEnv([Camera] * n_envs), 4)


def test_a_frame_stack_is_found_and_counted() -> None:
    inspection = inspect(_stacked(), steps=400)
    (leaf,) = inspection.leaves
    assert leaf.shape == (36, 40, 4)
    assert leaf.observation_bytes == inspection.observation_bytes == 36 * 40 * 4
    assert "frame stack along axis 2: 4 pieces, 1 new a step" in leaf.structure
    assert inspection.n_envs == 2
    assert leaf.replay.stock_bytes == 2 * leaf.rollout.stock_bytes == 2 * leaf.observation_bytes
    assert leaf.replay.ratio > 20
    assert leaf.replay.ratio > leaf.rollout.ratio > 10


def test_new_bytes_are_what_a_long_column_really_takes_a_step() -> None:
    rows = 3000
    column = Column(rows=rows, n_envs=2, shape=(36, 40, 4), dtype=np.uint8, follows=True)
    for row, step in enumerate(islice(play(_stacked(), seed=1), rows)):
        column.put(row, step.observations[""], step.following[""])
    really = column.nbytes / rows / 2
    assert inspect(_stacked(), steps=600).held("replay").new_bytes == pytest.approx(really, rel=TOLERANCE)


def test_each_leaf_of_a_dict_is_inspected_apart() -> None:
    inspection = inspect(Camera(nested=True), steps=200)
    assert [leaf.key for leaf in inspection.leaves] == ["camera", "state/place"]
    assert [leaf.shape for leaf in inspection.leaves] == [(36, 40, 1), (2,)]
    assert inspection.observation_bytes == 36 * 40 + 8
    for kind in KINDS:
        parts = [getattr(leaf, kind) for leaf in inspection.leaves]
        assert inspection.held(kind).new_bytes == pytest.approx(sum(part.new_bytes for part in parts))
    text = str(inspection)
    assert "state/place" in text
    assert text.splitlines()[0].startswith("1.41 KiB an observation, ")
    assert "(camera: " in text.splitlines()[0]


def test_the_verdict_comes_first_and_the_table_is_aligned() -> None:
    text = str(inspect(_stacked(1), steps=128))
    verdict, blank, head, row, *_ = text.splitlines()
    assert verdict.startswith("5.62 KiB an observation, ")
    assert "× in a replay buffer (frame stack along axis 2: 4 pieces, 1 new a step)" in verdict
    assert blank == ""
    assert len(head) == len(row)
    assert "128 steps of random play, seed 0" in text


def test_an_inspection_survives_json() -> None:
    inspection = inspect(Camera(nested=True), steps=64)
    assert inspection_from_dict(inspection.to_dict()) == inspection


def test_the_same_seed_gives_the_same_inspection() -> None:
    assert inspect(_stacked(), steps=100, seed=3) == inspect(_stacked(), steps=100, seed=3)


def test_too_few_steps_are_refused() -> None:
    with pytest.raises(LeanBufferError, match="steps ≥ 64 must hold, but got 10"):
        inspect(Camera(), steps=10)


def test_observations_that_are_no_arrays_are_refused() -> None:
    env = Camera()
    env.observation_space = spaces.Tuple((spaces.Discrete(3),))
    with pytest.raises(LeanBufferError, match="must be arrays or a Dict of arrays"):
        inspect(env)


@pytest.mark.parametrize(
    "env",
    [
        Camera(in_place=True),
        DummyVecEnv([Camera] * 2),
        SyncVectorEnv([Camera] * 2),
        SyncVectorEnv([Camera] * 2, autoreset_mode=AutoresetMode.SAME_STEP),
        Camera(nested=True),
        DummyVecEnv([lambda: gymnasium.wrappers.FlattenObservation(Camera(nested=True))]),
        SyncVectorEnv([lambda: Camera(nested=True)] * 2, autoreset_mode=AutoresetMode.SAME_STEP),
    ],
    ids=["one", "vec-env", "next-step", "same-step", "nested", "flattened", "nested-same-step"],
)
def test_rows_follow_each_other_and_end_with_the_true_last_observation(env: Any) -> None:
    steps = [*islice(play(env, seed=0), 2 * EPISODE)]
    for leaf in leaves_of(env):
        shape = (count_of(env), *leaf.shape)
        assert all(step.observations[leaf.key].shape == step.following[leaf.key].shape == shape for step in steps)
        assert all(step.observations[leaf.key].dtype == leaf.dtype for step in steps)
        same = [
            np.array_equal(before.following[leaf.key], after.observations[leaf.key])
            for before, after in pairwise(steps)
        ]
        next_step = isinstance(env, SyncVectorEnv) and env.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
        assert same == [next_step or index + 1 != EPISODE for index in range(len(same))]


def test_masks_are_kept_to_and_handed_out() -> None:
    for env in (Masked(), DummyVecEnv([Masked] * 3)):
        steps = [*islice(play(env, seed=0), 50)]
        assert all(step.masks is not None and step.masks.shape == (count_of(env), 4) for step in steps)
    assert next(play(Camera(), seed=0)).masks is None

"""How observations are found to move on, and cut and joined again without a bit's difference."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from rlmem.lean import Layout, find_layout

Array = NDArray[Any]


def frames(n: int, shape: tuple[int, ...], dtype: str = "uint8", seed: int = 0) -> Array:
    """Frames of random bits: among floats there are NaNs of all payloads."""
    size = n * int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8).view(dtype).reshape(n, *shape)


def stacked(
    frames: Array, *, depth: int, axis: int = 0, newest_first: bool = False, shift: int = 1, join: bool = False
) -> Array:
    """Observations of the last ``depth`` frames along an axis: stacked along a new one, or joined along theirs."""
    steps = range(0, len(frames) - depth + 1, shift)
    order = slice(None, None, -1) if newest_first else slice(None)
    put = np.concatenate if join else np.stack
    return np.stack([put(list(frames[step : step + depth][order]), axis=axis) for step in steps])


def found(*episodes: Array) -> Layout:
    return find_layout(episodes, shape=episodes[0].shape[1:], dtype=episodes[0].dtype)


def summary(layout: Layout) -> tuple[int, int, int, bool]:
    return layout.axis, layout.count, layout.shift, layout.newest_first


NO_HISTORY = (0, 1, 0, False)


# --- frame stacks ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("newest_first", [False, True], ids=["newest last", "newest first"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_frame_stack_along_any_axis(axis: int, newest_first: bool) -> None:
    episode = stacked(frames(20, (7, 9)), depth=4, axis=axis, newest_first=newest_first)
    assert summary(found(episode)) == (axis, 4, 1, newest_first)


@pytest.mark.parametrize("newest_first", [False, True], ids=["newest last", "newest first"])
@pytest.mark.parametrize(("axis", "frame"), [(0, (3, 6, 5)), (2, (6, 5, 3))], ids=["channels first", "channels last"])
def test_a_stack_of_rgb_frames_moves_on_by_three_channels(
    axis: int, frame: tuple[int, ...], newest_first: bool
) -> None:
    episode = stacked(frames(20, frame), depth=4, axis=axis, newest_first=newest_first, join=True)
    assert episode.shape[1 + axis] == 12
    assert summary(found(episode)) == (axis, 4, 1, newest_first)


def test_a_stack_of_two_frames() -> None:
    assert summary(found(stacked(frames(10, (5, 5)), depth=2))) == (0, 2, 1, False)


def test_a_still_picture_does_not_hide_the_stack() -> None:
    film = frames(30, (6, 6))
    film[3:18] = film[3]
    assert summary(found(stacked(film, depth=4))) == (0, 4, 1, False)


# --- sliding windows ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("depth", "shift", "count", "shift_found"),
    [
        (30, 1, 30, 1),
        (30, 2, 15, 1),
        (30, 5, 6, 1),
        (31, 2, 31, 2),
        (31, 5, 31, 5),
        (32, 5, 32, 5),
        (10, 5, 2, 1),
        (9, 4, 9, 4),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int16"])
def test_a_window_moves_on_by_its_shift(depth: int, shift: int, count: int, shift_found: int, dtype: str) -> None:
    episode = stacked(frames(depth + 12 * shift, (6,), dtype), depth=depth, shift=shift)
    assert summary(found(episode)) == (0, count, shift_found, False)


def test_a_window_of_single_numbers() -> None:
    assert summary(found(stacked(frames(40, (), "float32"), depth=24))) == (0, 24, 1, False)


@pytest.mark.parametrize("shift", [5, 7, 8, 11])
def test_a_window_that_keeps_less_than_half_is_not_worth_cutting_for(shift: int) -> None:
    assert summary(found(stacked(frames(120, (6,)), depth=8, shift=shift))) == NO_HISTORY


# --- no history --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (5,), (4, 6), (4, 6, 3), (1, 6), (1,)])
def test_observations_that_share_nothing(shape: tuple[int, ...]) -> None:
    assert summary(found(frames(32, shape, "float64"))) == NO_HISTORY


def test_a_constant_observation() -> None:
    assert summary(found(np.full((32, 4, 6), 7, np.uint8))) == NO_HISTORY


@pytest.mark.parametrize("steps", [0, 1])
def test_too_few_steps_to_see_anything(steps: int) -> None:
    assert summary(found(frames(steps, (4, 6)))) == NO_HISTORY


def test_no_episodes() -> None:
    assert summary(find_layout([], shape=(4, 6), dtype=np.dtype("uint8"))) == NO_HISTORY


@pytest.mark.parametrize("dtype", ["uint8", "bool"])
def test_a_long_axis_is_looked_at_in_a_moment(dtype: str) -> None:
    """It happens within one step of the training."""
    steps = np.random.default_rng(0).integers(0, 2, (32, 20_000)).astype(dtype)
    began = time.process_time()
    assert summary(found(steps)) == NO_HISTORY
    assert time.process_time() - began < 1


# --- what gets in the way ----------------------------------------------------------------------------------------


def test_resets_among_the_steps() -> None:
    lives = [stacked(frames(12, (5, 6), seed=life), depth=4) for life in range(4)]
    assert summary(found(np.concatenate(lives))) == (0, 4, 1, False)


def test_resets_at_most_of_the_steps_are_not_worth_cutting_for() -> None:
    lives = [stacked(frames(5, (5, 6), seed=life), depth=4) for life in range(10)]
    kept = np.concatenate([life[:2] if number % 3 == 0 else life[:1] for number, life in enumerate(lives)])
    assert summary(found(kept)) == NO_HISTORY


def test_one_of_several_environments_may_stand_still() -> None:
    moving, still = stacked(frames(20, (5, 6)), depth=4), np.zeros((17, 4, 5, 6), np.uint8)
    assert summary(found(still, moving)) == (0, 4, 1, False)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
def test_nans_are_compared_by_their_bytes(dtype: str) -> None:
    film = np.full(60 * 5, np.nan, dtype).view(np.uint8)
    film[:: np.dtype(dtype).itemsize] = np.random.default_rng(0).integers(0, 256, 60 * 5)  # the NaNs' payloads
    episode = stacked(film.view(dtype).reshape(60, 5), depth=20)
    assert np.isnan(episode).all()
    assert summary(found(episode)) == (0, 20, 1, False)


def test_noughts_are_told_apart_by_their_sign() -> None:
    still = np.zeros((20, 4, 5), np.float32)
    still[1::2] *= np.float32(-1)
    assert summary(found(still)) == NO_HISTORY


# --- cut and joined ----------------------------------------------------------------------------------------------

DTYPES = ["uint8", "int16", "int64", "float32", "float64", "complex64", ">f4"]


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    shape = draw(st.lists(st.integers(1, 6), max_size=4).map(tuple))
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    if not shape:
        return Layout(shape=shape, dtype=dtype)
    axis = draw(st.integers(0, len(shape) - 1))
    count = draw(st.sampled_from([n for n in range(1, shape[axis] + 1) if shape[axis] % n == 0]))
    shift, newest_first = draw(st.integers(0, count - 1)), draw(st.booleans())
    return Layout(shape=shape, dtype=dtype, axis=axis, count=count, shift=shift, newest_first=newest_first)


@given(layout=layouts(), items=st.integers(1, 5))
def test_what_is_cut_is_joined_again(layout: Layout, items: int) -> None:
    observations = frames(items, layout.shape, layout.dtype.str)
    pieces = layout.cut(observations)
    assert pieces.shape == (items, layout.count, layout.piece_bytes)
    assert pieces.dtype == np.uint8
    again = layout.join(pieces)
    assert (again.shape, again.dtype) == (observations.shape, observations.dtype)
    assert again.tobytes() == observations.tobytes()


@given(layout=layouts(), items=st.integers(1, 5))
def test_pieces_are_joined_from_the_middle_of_others(layout: Layout, items: int) -> None:
    observations = frames(items, layout.shape, layout.dtype.str)
    wider = np.zeros((items, layout.count + 2, layout.piece_bytes), np.uint8)
    wider[:, 1:-1] = layout.cut(observations)
    assert layout.join(wider[:, 1:-1]).tobytes() == observations.tobytes()


@given(layout=layouts())
def test_a_row_lies_within_a_piece(layout: Layout) -> None:
    assert 1 <= layout.row_bytes <= layout.piece_bytes


@pytest.mark.parametrize("newest_first", [False, True], ids=["newest last", "newest first"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_the_pieces_of_the_next_step_are_the_last_ones_moved_on(axis: int, newest_first: bool) -> None:
    episode = stacked(frames(20, (7, 9)), depth=4, axis=axis, newest_first=newest_first)
    layout = found(episode)
    pieces = layout.cut(episode)
    assert np.array_equal(pieces[1:, : -layout.shift], pieces[:-1, layout.shift :])


def test_a_layout_says_what_was_found() -> None:
    assert found(frames(8, (6,))).describe() == "no moving history: an observation is one piece"
    stack = found(stacked(frames(20, (7, 9)), depth=4, axis=2, newest_first=True))
    assert stack.describe() == "frame stack along axis 2: 4 pieces, 1 new a step, newest first"
    window = found(stacked(frames(70, (6,)), depth=31, shift=2))
    assert window.describe() == "sliding window along axis 0: 31 pieces, 2 new a step"

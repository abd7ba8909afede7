"""A replay buffer as the episodes of a Minari dataset.

A ring of rows × environments is walked from its oldest row on. An episode ends where the buffer says done, and where an
observation is not the one that the row before led to (the environment was reset in between); what the ring's end cuts
off is marked as truncated, as Minari's own collector does it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from rlmem.errors import InputError
from rlmem.lean.kernels import Array
from rlmem.store.cells import ArrayCells, Cells, ColumnCells, at_a_time
from rlmem.store.entries import ArrayEntry, ColumnEntry, JsonEntry
from rlmem.store.reading import Snapshot

MAIN_FILE: Final = "main_data.hdf5"
"""What Minari calls the file of a dataset; beside it lies METADATA."""

METADATA: Final = "metadata.json"
_VERSION: Final = "0.5.0"
"""The version of Minari whose layout is written; later ones read it."""

_NEEDED: Final = ("actions", "rewards", "dones")
_CHUNK_BYTES: Final = 32 * 2**10
_CHUNK_ROWS: Final = 64
"""Small, since an episode of a few steps takes a whole chunk of each dataset."""

Leaves: TypeAlias = dict[str, Array]
"""Arrays of a Dict observation by key; a plain observation has the one key ``""``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A replay buffer: which cells are what, and which rows are in use, oldest first."""

    observations: Mapping[str, Cells]
    following: Mapping[str, Cells]
    actions: Cells
    rewards: Cells
    dones: Cells
    timeouts: Cells | None
    n_envs: int
    rows: int
    first: int
    count: int

    def windows(self) -> Iterator[tuple[int, int]]:
        """Yield runs of rows, oldest first, none of which goes over the end of the ring."""
        step = max(1, min(at_a_time(cells) for cells in self.observations.values()) // (2 * self.n_envs))
        ends = ((self.first, min(self.first + self.count, self.rows)), (0, self.first + self.count - self.rows))
        for begin, end in ends:
            for start in range(begin, end, step):
                yield start, min(start + step, end)


# --- finding it ------------------------------------------------------------------------------------------------------


def find_buffer(snapshot: Snapshot, chosen: Mapping[str, str]) -> Replay | str | None:
    """Return the replay buffer that some parts are; in words why they cannot be episodes; or None if they are none."""
    names = {name: path for path, name in chosen.items()}
    if not all(isinstance(snapshot.entry(names[name]), ArrayEntry) for name in _NEEDED if name in names):
        return None
    if not all(name in names for name in _NEEDED) or not any(_key(name, "observations") is not None for name in names):
        return None
    observations, following = _observations(snapshot, names)
    if observations.keys() != following.keys():
        return "no episodes: the buffer has no next observations, so the last one of an episode is not known"
    return _in_order(snapshot, names, observations, following)


def _key(name: str, of: str) -> str | None:
    """Return the key under which a part holds observations: empty for a plain one, None if it holds none."""
    if name == of:
        return ""
    return name[len(of) + 1 :] if name.startswith(f"{of}/") else None


def _observations(snapshot: Snapshot, names: Mapping[str, str]) -> tuple[dict[str, Cells], dict[str, Cells]]:
    observations: dict[str, Cells] = {}
    following: dict[str, Cells] = {}
    for name, path in names.items():
        entry = snapshot.entry(path)
        key, after = _key(name, "observations"), _key(name, "next_observations")
        if isinstance(entry, ArrayEntry) and len(entry.shape) >= 2:
            if key is not None:
                observations[key] = ArrayCells(snapshot, path, lead=2)
            elif after is not None:
                following[after] = ArrayCells(snapshot, path, lead=2)
        elif isinstance(entry, ColumnEntry) and key is not None:
            column = snapshot.column(path)
            observations[key] = ColumnCells(column)
            if column.follows:
                following[key] = ColumnCells(column, following=True)
    return observations, following


def _in_order(
    snapshot: Snapshot, names: Mapping[str, str], observations: dict[str, Cells], following: dict[str, Cells]
) -> Replay | str:
    parts = {name: ArrayCells(snapshot, names[name], lead=2) for name in _NEEDED if name in names}
    timeouts = ArrayCells(snapshot, names["timeouts"], lead=2) if "timeouts" in names else None
    every: list[Cells] = [*observations.values(), *following.values(), *parts.values()]
    every += [] if timeouts is None else [timeouts]
    ring = _ring(snapshot, names, observations)
    if ring is None:
        return "no episodes: nothing says where the oldest row of the buffer is (`pos` and `full`)"
    first, count, rows = ring
    if any(len(cells.shape) < 2 or cells.shape[1] != every[0].shape[1] for cells in every):
        return "no episodes: the arrays are not all rows × environments"
    needed = rows if first + count > rows else first + count
    if any(cells.shape[0] < needed for cells in every):
        return "no episodes: an array has fewer rows than the buffer"
    return Replay(
        observations=observations,
        following=following,
        **parts,
        timeouts=timeouts,
        n_envs=every[0].shape[1],
        rows=rows,
        first=first,
        count=count,
    )


def _ring(
    snapshot: Snapshot, names: Mapping[str, str], observations: Mapping[str, Cells]
) -> tuple[int, int, int] | None:
    """Return the oldest row in use, how many there are from it on, and after how many the ring begins again."""
    columns = [cells for cells in observations.values() if isinstance(cells, ColumnCells)]
    if columns:
        count = min(column.rows_held for column in columns)
        rows = max(columns[0].shape[0], 1)
        return (columns[0].newest + 1 - count) % rows, count, rows
    rows = min(cells.shape[0] for cells in observations.values())
    return next((_said(said, rows) for said in _counters(snapshot, names)), None)


def _counters(snapshot: Snapshot, names: Mapping[str, str]) -> Iterator[tuple[int, bool]]:
    """Yield where the next row goes and whether all rows are in use, from what says so."""
    for path in names.values():
        said = snapshot.json(path) if isinstance(snapshot.entry(path), JsonEntry) else None
        said = said.get("counters", said) if isinstance(said, dict) else None
        if isinstance(said, dict) and type(said.get("pos")) is int and type(said.get("full")) is bool:
            yield said["pos"], said["full"]


def _said(counters: tuple[int, bool], rows: int) -> tuple[int, int, int] | None:
    pos, full = counters
    if not 0 <= pos <= rows:
        return None
    return (pos % max(rows, 1), rows, rows) if full else (0, pos, rows)


# --- writing it ------------------------------------------------------------------------------------------------------


class _Episode:
    """An episode that is being written; its datasets are opened for each piece, so that none keeps a cache."""

    def __init__(self, file: Any, number: int, compress: bool) -> None:
        self._group = file.create_group(f"episode_{number}")
        self._filter = "gzip" if compress else None
        self._group.attrs["id"] = number
        self.steps = 0

    def append(self, name: str, values: Array) -> None:
        if name not in self._group:
            inner = values.shape[1:]
            size = max(math.prod(inner) * values.dtype.itemsize, 1)
            chunk = min(max(_CHUNK_BYTES // size, 1), _CHUNK_ROWS)
            self._group.create_dataset(
                name,
                shape=(0, *inner),
                maxshape=(None, *inner),
                dtype=values.dtype,
                chunks=(chunk, *inner),
                compression=self._filter,
            )
        made = self._group[name]
        before = made.shape[0]
        made.resize(before + len(values), axis=0)
        made[before:] = values

    def append_observations(self, leaves: Leaves) -> None:
        for key, values in leaves.items():
            self.append(f"observations/{key}" if key else "observations", values)

    def end(self, last: Leaves, *, truncated: bool) -> None:
        """Add the observation that the last step led to; ``truncated`` where the buffer does not say how it ended."""
        self.append_observations(last)
        self._group.attrs["total_steps"] = self.steps
        self._group.attrs["rlmem_cut"] = truncated
        if truncated:
            self._group["truncations"][-1] = True


class _Episodes:
    """All environments' episodes, one open for each."""

    def __init__(self, file: Any, replay: Replay, compress: bool) -> None:
        self._file, self._replay, self._compress = file, replay, compress
        self._open: dict[int, _Episode] = {}
        self._led_to: dict[int, Leaves] = {}
        self.count = self.steps = 0

    def add(self, start: int, stop: int) -> int:
        """Write rows ``start`` to ``stop``, and return how many bytes that were."""
        replay = self._replay

        def read(cells: Cells) -> Array:
            values = cells.read(start * replay.n_envs, stop * replay.n_envs)
            return values.reshape(stop - start, replay.n_envs, *cells.shape[2:])

        observations = {key: read(cells) for key, cells in replay.observations.items()}
        following = {key: read(cells) for key, cells in replay.following.items()}
        actions, rewards, dones = read(replay.actions), read(replay.rewards), read(replay.dones) != 0
        timeouts = np.zeros_like(dones) if replay.timeouts is None else (read(replay.timeouts) != 0) & dones
        steps = {"actions": actions, "rewards": rewards, "terminations": dones & ~timeouts, "truncations": timeouts}
        for env in range(replay.n_envs):
            self._add_env(env, _of(observations, env), _of(following, env), {k: v[:, env] for k, v in steps.items()})
        every = (*observations.values(), *following.values(), actions, rewards)
        return sum(values.nbytes for values in every)

    def _add_env(self, env: int, observations: Leaves, following: Leaves, steps: Leaves) -> None:
        if env in self._open and not _same(self._led_to[env], _rows(observations, 0, 1)):
            self._end(env, truncated=True)
        done = steps["terminations"] | steps["truncations"]
        begin = 0
        for end in _ends(done, observations, following):
            self._add_run(env, _rows(observations, begin, end), {k: v[begin:end] for k, v in steps.items()})
            self._led_to[env] = {key: values.copy() for key, values in _rows(following, end - 1, end).items()}
            if end < len(done) or done[end - 1]:
                self._end(env, truncated=not done[end - 1])
            begin = end

    def _add_run(self, env: int, observations: Leaves, steps: Leaves) -> None:
        if env not in self._open:
            self._open[env] = _Episode(self._file, self.count, self._compress)
            self.count += 1
        episode = self._open[env]
        episode.append_observations(observations)
        for name, values in steps.items():
            episode.append(name, values)
        episode.steps += len(steps["rewards"])
        self.steps += len(steps["rewards"])

    def _end(self, env: int, *, truncated: bool) -> None:
        self._open.pop(env).end(self._led_to[env], truncated=truncated)

    def end_all(self) -> None:
        for env in sorted(self._open):
            self._end(env, truncated=True)


def _of(leaves: Leaves, env: int) -> Leaves:
    return {key: values[:, env] for key, values in leaves.items()}


def _rows(leaves: Leaves, start: int, stop: int) -> Leaves:
    return {key: values[start:stop] for key, values in leaves.items()}


def _bits(values: Array) -> Array:
    return np.ascontiguousarray(values).reshape(len(values), math.prod(values.shape[1:])).view(np.uint8)


def _same(one: Leaves, other: Leaves) -> bool:
    return all(np.array_equal(_bits(one[key]), _bits(other[key])) for key in one)


def _ends(done: Array, observations: Leaves, following: Leaves) -> list[int]:
    """Return behind which rows a run of steps ends: done, not followed by what it led to, or the last of the window."""
    ends = done.copy()
    ends[-1] = True
    for key in observations:
        ends[:-1] |= (_bits(following[key][:-1]) != _bits(observations[key][1:])).any(axis=1)
    return [int(row) + 1 for row in np.flatnonzero(ends)]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodesWritten:
    """What was written."""

    files: tuple[Path, ...]
    episodes: int
    steps: int
    nbytes: int


def write(
    library: Any,
    replay: Replay,
    snapshot: Snapshot,
    path: str,
    *,
    target: Path,
    unfinished: Path,
    compress: bool,
    written: Callable[[int], None],
) -> EpisodesWritten:
    """Write a replay buffer as episodes; where the file has Minari's own name, the metadata beside it too."""
    beside = target.with_name(METADATA)
    if target.name == MAIN_FILE and beside.exists() and not target.exists():
        raise InputError(f"{beside} is there already, without its {MAIN_FILE}: choose another folder")
    with library.File(unfinished, "w", track_order=True) as file:
        file.attrs["rlmem_step"], file.attrs["rlmem_part"] = snapshot.step, path
        episodes = _Episodes(file, replay, compress)
        for start, stop in replay.windows():
            written(episodes.add(start, stop))
        episodes.end_all()
    nbytes = unfinished.stat().st_size
    files: tuple[Path, ...] = (target,)
    if target.name == MAIN_FILE:
        beside.write_text(json.dumps(_metadata(replay, snapshot, episodes, nbytes)))
        files = (target, beside)
    return EpisodesWritten(files=files, episodes=episodes.count, steps=episodes.steps, nbytes=nbytes)


# --- metadata --------------------------------------------------------------------------------------------------------


def _metadata(replay: Replay, snapshot: Snapshot, episodes: _Episodes, nbytes: int) -> dict[str, Any]:
    return {
        "total_episodes": episodes.count,
        "total_steps": episodes.steps,
        "data_format": "hdf5",
        "jpeg_encoding": False,
        "observation_space": json.dumps(_space(replay.observations)),
        "action_space": json.dumps(_box(replay.actions)),
        "dataset_id": f"rlmem/step{snapshot.step}-v0",
        "minari_version": _VERSION,
        "dataset_size": round(nbytes / 1e6, 1),
    }


def _space(leaves: Mapping[str, Cells]) -> dict[str, Any]:
    if "" in leaves:
        return _box(leaves[""])
    return {"type": "Dict", "subspaces": {key: _box(cells) for key, cells in sorted(leaves.items())}}


def _box(cells: Cells) -> dict[str, Any]:
    """Return a space with all values of a dtype: the buffer does not know narrower bounds."""
    shape, low, high = cells.shape[2:], *_bounds(cells.dtype)
    return {
        "type": "Box",
        "dtype": cells.dtype.name,
        "shape": [*shape],
        "low": _filled(shape, low),
        "high": _filled(shape, high),
    }


def _bounds(dtype: np.dtype[Any]) -> tuple[float, float]:
    if dtype.kind in "ui":
        return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    return (0, 1) if dtype.kind == "b" else (-math.inf, math.inf)


def _filled(shape: tuple[int, ...], value: float) -> Any:
    """Return nested lists of one value; the lists of an axis are the same one."""
    filled: Any = value
    for side in reversed(shape):
        filled = [filled] * side
    return filled

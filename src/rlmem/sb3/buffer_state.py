"""A replay buffer as parts of a snapshot: arrays as far as they are filled, columns by their blocks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from rlmem.errors import InputError
from rlmem.lean.kernels import Array
from rlmem.sb3 import plain_tree
from rlmem.sb3.column_view import ColumnAccess
from rlmem.sb3.lean_buffer import LeanBuffer
from rlmem.store import ArrayPart, ColumnPart, Contents, Json, Part, Snapshot, chunk_bytes_for

_COUNTERS: Final = ("pos", "full", "_adds", "_forgotten")
_PLAIN_KEY: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", re.ASCII)


def buffer_parts(path: str, buffer: Any) -> Contents:
    """Return a replay buffer's parts; arrays are only referred to, and written before a save returns."""
    rows = _filled(buffer)
    held: dict[str, Part] = {f"{path}.json": Json(value=_head(buffer, rows))}
    for name, array in _arrays(buffer):
        chunk_bytes = chunk_bytes_for(array.nbytes)
        held[f"{path}/{name}"] = ArrayPart(array=_cut(array, buffer, rows), mutable=True, chunk_bytes=chunk_bytes)
    for name, access in _columns(buffer):
        held[f"{path}/columns/{name}"] = ColumnPart(column=access.column)
    if getattr(buffer, "copy_info_dict", False):
        held |= plain_tree.parts(f"{path}/infos", buffer.infos[:rows].tolist())
    return held


def restore_buffer(snapshot: Snapshot, path: str, buffer: Any) -> None:
    """Fill a fresh buffer, made with the same settings, with what a snapshot holds; arrays are read into place."""
    head = snapshot.json(f"{path}.json")
    _check(head, buffer, snapshot)
    used = bool(buffer.full or buffer.pos)
    for name, array in _arrays(buffer):
        snapshot.array(f"{path}/{name}", out=_cut(array, buffer, head["rows"]))
        if used and _is_by_row(array, buffer):
            array[head["rows"] :] = 0
    for name, access in _columns(buffer):
        _restore_column(access, snapshot.column(f"{path}/columns/{name}"), head["columns"][name])
    for name, value in head["counters"].items():
        if name in _COUNTERS:
            setattr(buffer, name, value)
    if getattr(buffer, "copy_info_dict", False):
        for row, infos in enumerate(plain_tree.read(snapshot, f"{path}/infos")):
            buffer.infos[row] = infos


def truncate_episodes(buffer: Any) -> None:
    """Mark the last transition of every environment as the end of an episode that ran out of time."""
    if not buffer.full and buffer.pos == 0:
        return
    row = (buffer.pos - 1) % buffer.buffer_size
    for env in np.flatnonzero(buffer.dones[row] == 0):
        buffer.dones[row, env] = True
        if hasattr(buffer, "_compute_episode_length"):  # a HerReplayBuffer samples from episodes that have ended
            buffer._compute_episode_length(int(env))
        if buffer.handle_timeout_termination:
            buffer.timeouts[row, env] = True


def _filled(buffer: Any) -> int:
    if buffer.full:
        return int(buffer.buffer_size)
    ahead = 1 if getattr(buffer, "optimize_memory_usage", False) else 0  # the next observation lies in the next row
    return min(int(buffer.pos) + ahead, int(buffer.buffer_size))


def _head(buffer: Any, rows: int) -> dict[str, Any]:
    return {
        "class": type(buffer).__name__,
        "buffer_size": int(buffer.buffer_size),
        "n_envs": int(buffer.n_envs),
        "rows": rows,
        "counters": {name: _plain(getattr(buffer, name)) for name in _COUNTERS if hasattr(buffer, name)},
        "columns": {name: {"written": int(access._written)} for name, access in _columns(buffer)},
    }


def _plain(value: Any) -> int | bool:
    return value if isinstance(value, bool) else int(value)


def _check(head: dict[str, Any], buffer: Any, snapshot: Snapshot) -> None:
    names = ("class", "buffer_size", "n_envs")
    here = _head(buffer, 0)
    for name in names:
        if here[name] != head[name]:
            raise InputError(
                f"snapshot {snapshot.info.label}: the replay buffer must have {name}={head[name]}, as when it was "
                f"saved, but the model's has {here[name]}"
            )


def _arrays(buffer: Any) -> Iterator[tuple[str, Array]]:
    """Give the arrays by the names of their parts."""
    for name, value in sorted(vars(buffer).items()):
        if isinstance(value, np.ndarray) and value.dtype != object:
            yield name, value
        elif isinstance(value, dict):
            arrays = {key: item for key, item in value.items() if isinstance(item, np.ndarray)}
            for index, (key, array) in enumerate(arrays.items()):
                yield f"{name}/{_word(str(key), index)}", array


def _word(key: str, index: int) -> str:
    return key if _PLAIN_KEY.fullmatch(key) else f"key-{index}"


def _columns(buffer: Any) -> Iterator[tuple[str, ColumnAccess]]:
    if isinstance(buffer, LeanBuffer):
        for index, (name, access) in enumerate(buffer._accesses.items()):
            first, _, key = name.partition("/")
            yield (f"{first}/{_word(key, index)}" if key else first), access


def _cut(array: Array, buffer: Any, rows: int) -> Array:
    return array[:rows] if _is_by_row(array, buffer) else array


def _is_by_row(array: Array, buffer: Any) -> bool:
    return array.ndim > 1 and array.shape[0] == buffer.buffer_size


def _restore_column(access: ColumnAccess, column: Any, head: dict[str, Any]) -> None:
    here, there = access.column, column
    if (here.rows, here.n_envs, here.shape, here.dtype) != (there.rows, there.n_envs, there.shape, there.dtype):
        raise InputError(
            f"a column of the buffer must be {there.rows} × {there.n_envs} × {there.shape} of {there.dtype}, as it was "
            f"saved, but the model's is {here.rows} × {here.n_envs} × {here.shape} of {here.dtype}"
        )
    access.clear()
    access.column = column
    access._written = int(head["written"])
    access._next_row = access._written % column.rows

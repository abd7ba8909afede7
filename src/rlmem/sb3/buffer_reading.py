"""Every array that a live buffer holds, whatever its class; sizes are read and data is never touched."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from types import ModuleType
from typing import Any, Final

import gymnasium
import numpy as np
import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.buffers import BaseBuffer, RolloutBuffer
from stable_baselines3.common.vec_env import VecEnv

from rlmem.plan.buffers import BufferArray
from rlmem.plan.lean_buffers import LEFT_ALONE, at_most
from rlmem.run.arrays import format_shape
from rlmem.sb3.weightless import is_eager

_NAMED: Final = ("observations", "next_observations", "actions", "action_masks", "infos")
_LSTM: Final = ("hidden_states", "cell_states")
_EPISODES: Final = ("ep_start", "ep_length")
_FLATTENED: Final = ("observations", "actions", "action_masks", "lstm_states", "scalars")
"""What the stock `get` copies when it merges steps and environments; what a subclass adds is not known to be."""
_MAIN: Final = ("rollout_buffer", "replay_buffer")
_DEEPEST: Final = 5
_LONGEST: Final = 100_000
_OPAQUE: Final = (
    VecEnv,
    gymnasium.Env,
    gymnasium.Space,
    torch.nn.Module,
    torch.device,
    BaseAlgorithm,
    ModuleType,
    type,
    str,
    bytes,
)
"""What a buffer may point at without owning it."""
_LEAN: Final = "rlmem.sb3.lean_buffer"
_COLUMNS: Final = "rlmem.sb3.column_view"
"""Lean buffers and their columns are told by where they come from: nobody imports them to read what is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """One piece of memory: where it is, how large, and how it would be described."""

    name: str
    key: str
    address: int
    nbytes: int
    shape: tuple[int, ...]
    item_bytes: int
    floating: bool
    lazy: bool
    content_bytes: int = 0
    note: str | None = None


def buffers(model: BaseAlgorithm) -> tuple[tuple[str, Any], ...]:
    """Return the buffers that a model holds by the name of their attribute, the one it trains from first."""
    found = [(name, getattr(model, name, None)) for name in _MAIN]
    found += [item for item in vars(model).items() if isinstance(item[1], BaseBuffer)]
    return tuple({id(value): (name, value) for name, value in reversed(found) if value is not None}.values())[::-1]


def buffer_arrays(model: BaseAlgorithm) -> tuple[tuple[BufferArray, ...], tuple[str, ...]]:
    """Return the arrays of the model's buffers, and what there is to say about them."""
    groups: dict[str, list[_Found]] = {}
    rows: dict[str, int] = {}
    flattened: set[str] = set()
    seen: set[tuple[int, int]] = set()
    for index, (attribute, buffer) in enumerate(buffers(model)):
        for item in _arrays(buffer):
            if (item.address, item.nbytes) in seen:
                continue
            seen.add((item.address, item.nbytes))
            count = _rows(buffer, model)
            path = f"buffer/{_group(item, count) if index == 0 else attribute}"
            groups.setdefault(path, []).append(item)
            rows.setdefault(path, count)
            if index == 0 and isinstance(buffer, RolloutBuffer) and path.removeprefix("buffer/") in _copied(buffer):
                flattened.add(path)
    arrays = [
        array
        for path, items in groups.items()
        for array in _merged(path, items, rows=rows[path], flattened=path in flattened)
    ]
    columns = _columns(model)
    notes = tuple(item.note for items in groups.values() for item in items if item.note)
    return (*columns, *arrays), (*notes, *((LEFT_ALONE,) if columns else ()))


def lean_buffer(model: BaseAlgorithm) -> Any | None:
    """Return the buffer that a model trains from if it is a lean one."""
    first = next(iter(buffers(model)), (None, None))[1]
    return first if _is_lean(first) else None


def _is_lean(buffer: Any) -> bool:
    return any(kind.__module__ == _LEAN for kind in type(buffer).__mro__)


def _copied(buffer: Any) -> tuple[str, ...]:
    """Return what `get` copies: of a lean buffer next to nothing, but for recurrent states."""
    return ("lstm_states",) if _is_lean(buffer) else _FLATTENED


def _columns(model: BaseAlgorithm) -> list[BufferArray]:
    """Return what the columns of a lean buffer take at most: what they will hold has not been seen yet."""
    buffer = lean_buffer(model)
    if buffer is None:
        return []
    paths: dict[str, list[Any]] = {}
    for name, column in buffer.columns.items():
        paths.setdefault(f"buffer/{name.partition('/')[0]}", []).append(column)
    return [at_most(_plain_arrays(path, columns)) for path, columns in paths.items()]


def _plain_arrays(path: str, columns: list[Any]) -> BufferArray:
    """Return the arrays that a stock buffer would have in the place of columns."""
    copies = 2 if columns[0].follows else 1
    item = 4 if path == "buffer/action_masks" else None  # the stock buffer holds yes or no as floats
    each = [f"{format_shape(column.shape)} × {item or column.dtype.itemsize} B" for column in columns]
    sizes = [int(np.prod(column.shape, dtype=object)) * (item or column.dtype.itemsize) for column in columns]
    formula = each[0] if len(each) == 1 else f"({' + '.join(each)})"
    return BufferArray(
        path=path,
        rows=columns[0].rows * columns[0].n_envs,
        row_bytes=copies * sum(sizes),
        row_formula=f"2 × {formula}" if copies == 2 else formula,
        largest_row_bytes=max(sizes),
    )


def _rows(buffer: Any, model: BaseAlgorithm) -> int:
    """Return how many transitions the buffer holds."""
    size, envs = getattr(buffer, "buffer_size", None), getattr(buffer, "n_envs", getattr(model, "n_envs", 1))
    return max(int(size) * int(envs), 1) if isinstance(size, int | np.integer) else 1


def _group(item: _Found, rows: int) -> str:
    """Return the last word of the path that an array belongs to."""
    if item.name in _NAMED:
        return item.name
    if item.name.startswith(_LSTM):
        return "lstm_states"
    if item.name in _EPISODES:
        return "episodes"
    if item.floating and not item.key and item.nbytes == rows * item.item_bytes:
        return "scalars"
    return item.name.lstrip("_")


def _merged(path: str, items: list[_Found], *, rows: int, flattened: bool) -> Iterator[BufferArray]:
    """Give one BufferArray for what is lazy and one for what is not: they are resident at different times."""
    for lazy in (True, False):
        alike = [item for item in items if item.lazy is lazy]
        if alike:
            yield _array(path, alike, rows=rows, flattened=flattened)


def _array(path: str, items: list[_Found], *, rows: int, flattened: bool) -> BufferArray:
    total = sum(item.nbytes + item.content_bytes for item in items)
    # What does not divide into rows (a tree, a counter for each environment) is one row of its own.
    count = rows if all((item.nbytes + item.content_bytes) % rows == 0 for item in items) else 1
    return BufferArray(
        path=path,
        rows=count,
        row_bytes=total // count,
        row_formula=_formula(items, count),
        largest_row_bytes=max(item.nbytes for item in items) // count,
        flattened=flattened,
        lazy=items[0].lazy,
    )


def _formula(items: list[_Found], rows: int) -> str:
    if len(items) == 1:
        return _row(items[0], rows)
    widths = {item.nbytes // rows for item in items}
    if len(widths) == 1 and not any(item.key for item in items):
        return f"{len(items)} × {widths.pop():,} B ({', '.join(item.name for item in items)})"
    return f"({' + '.join(f'{item.key or item.name} {_row(item, rows)}' for item in items)})"


def _row(item: _Found, rows: int) -> str:
    if item.content_bytes:
        return f"({item.item_bytes} B pointer + {item.content_bytes // rows} B object)"
    leading = next((axes for axes in (2, 1) if int(np.prod(item.shape[:axes], dtype=object)) == rows), None)
    shape = (item.nbytes // rows // item.item_bytes,) if leading is None else item.shape[leading:]
    return f"{format_shape(shape)} × {item.item_bytes} B"


def _arrays(buffer: Any) -> Iterator[_Found]:
    """Give every array of a buffer under the name of the attribute that leads to it."""
    visited: set[int] = {id(buffer)}
    for name, value in _attributes(buffer):
        yield from _search(value, name, "", visited, depth=0)


def _search(value: Any, name: str, key: str, visited: set[int], *, depth: int) -> Iterator[_Found]:
    if isinstance(value, np.ndarray):
        yield _of_array(value, name, key)
    elif isinstance(value, torch.Tensor):
        yield _of_tensor(value, name, key)
    elif depth < _DEEPEST and id(value) not in visited and not _is_opaque(value):
        visited.add(id(value))
        for inner, item in _inside(value):
            yield from _search(item, name, f"{key}/{inner}" if key else inner, visited, depth=depth + 1)


def _is_opaque(value: Any) -> bool:
    """Whether not to look inside; columns are read as a whole."""
    return isinstance(value, _OPAQUE) or type(value).__module__ == _COLUMNS


def _inside(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        return ((str(key), item) for key, item in islice(value.items(), _LONGEST))
    if isinstance(value, list | tuple | deque):
        return ((str(index), item) for index, item in enumerate(islice(value, _LONGEST)))
    return iter(_attributes(value))


def _attributes(value: Any) -> list[tuple[str, Any]]:
    slots = [name for kind in type(value).__mro__ for name in _slots(kind)]
    named = [(name, getattr(value, name)) for name in slots if hasattr(value, name)]
    return [*getattr(value, "__dict__", {}).items(), *named]


def _slots(kind: type) -> tuple[str, ...]:
    slots = kind.__dict__.get("__slots__", ()) if kind.__module__ != "builtins" else ()
    names = (slots,) if isinstance(slots, str) else tuple(slots)
    return tuple(name for name in names if name not in ("__dict__", "__weakref__"))


def _of_array(array: Any, name: str, key: str) -> _Found:
    """Describe an array by the memory that it keeps alive: a view keeps all of its base."""
    root = array
    while isinstance(root.base, np.ndarray):
        root = root.base
    mapped = isinstance(root, np.memmap)
    return _Found(
        name=name,
        key=key,
        address=int(root.__array_interface__["data"][0]),
        nbytes=int(root.nbytes),
        shape=tuple(array.shape) if array.nbytes == root.nbytes else tuple(root.shape),
        item_bytes=max(int(array.dtype.itemsize), 1),
        floating=array.dtype.kind == "f",
        lazy=not (array.dtype.hasobject or is_eager(array) or name == "action_masks"),
        content_bytes=_content_bytes(root) if array.dtype.hasobject else 0,
        note=f"buffer/{name} is a file mapped into memory: it takes page cache, which the kernel can drop"
        if mapped
        else None,
    )


def _content_bytes(array: Any) -> int:
    """Return what the objects of an array take when each row has its own, judged by the first."""
    if not array.size or array.flat[0] is None or (array.size > 1 and array.flat[0] is array.flat[1]):
        return 0
    return int(array.size) * sys.getsizeof(array.flat[0])


def _of_tensor(tensor: torch.Tensor, name: str, key: str) -> _Found:
    storage = tensor.untyped_storage()
    elsewhere = tensor.device.type != "cpu"
    return _Found(
        name=name,
        key=key,
        address=storage.data_ptr(),
        nbytes=0 if elsewhere else storage.nbytes(),
        shape=tuple(tensor.shape),
        item_bytes=tensor.element_size(),
        floating=tensor.is_floating_point(),
        lazy=False,
        note=f"buffer/{name} holds {storage.nbytes():,} B on {tensor.device}, which are not counted"
        if elsewhere
        else None,
    )

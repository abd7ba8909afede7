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
            if index == 0 and isinstance(buffer, RolloutBuffer) and path.removeprefix("buffer/") in _FLATTENED:
                flattened.add(path)
    arrays = [
        array
        for path, items in groups.items()
        for array in _merged(path, items, rows=rows[path], flattened=path in flattened)
    ]
    return tuple(arrays), tuple(item.note for items in groups.values() for item in items if item.note)


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
    elif depth < _DEEPEST and id(value) not in visited and not isinstance(value, _OPAQUE):
        visited.add(id(value))
        for inner, item in _inside(value):
            yield from _search(item, name, f"{key}/{inner}" if key else inner, visited, depth=depth + 1)


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

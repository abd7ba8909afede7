"""Nested values said as JSON and named tensors, and put together again: no pickle, nothing but plain types.

What JSON has no word for is an object with one key that begins with a dollar sign: ``{"$array": "name"}`` stands for
the tensor of that name. A dict that has such keys itself, or keys that are not text, is written as pairs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import torch as th

from rlmem.errors import InputError
from rlmem.lean.kernels import Array
from rlmem.store import Contents, Json, Part, Snapshot, Tensors

_EXACT_IN_JSON: Final = 2**53
_BITS: Final = {
    th.bfloat16: (th.int16, np.uint16, "BF16"),
    th.float8_e4m3fn: (th.uint8, np.uint8, "F8_E4M3"),
    th.float8_e5m2: (th.uint8, np.uint8, "F8_E5M2"),
}
"""Types that NumPy does not have: how torch sees their bits, how NumPy does, and what safetensors calls them."""

_BY_FORMAT: Final = {name: (dtype, signed) for dtype, (signed, _, name) in _BITS.items()}


class Unsayable(InputError):  # noqa: N818 - it says what the value is
    """A value that is neither JSON nor made of numbers; ``place`` says where it stands."""

    def __init__(self, value: object, place: str) -> None:
        self.place = place
        super().__init__(f"{place or 'a value'} must be numbers, text, lists, dicts or arrays, but is a {_kind(value)}")


def _kind(value: object) -> str:
    kind = type(value)
    return f"{kind.__module__}.{kind.__qualname__}"


@dataclass(slots=True)
class Packed:
    """A value as JSON, and the tensors that it names."""

    value: Any = None
    tensors: dict[str, Array] = field(default_factory=dict)
    formats: dict[str, str] = field(default_factory=dict)


def pack(value: Any) -> Packed:
    """Return a value as JSON and tensors, which share its memory; raise Unsayable where that cannot be."""
    packed = Packed()
    packed.value = _said(value, "", packed)
    return packed


def parts(path: str, value: Any) -> Contents:
    """Return a value as parts of a snapshot: JSON, and tensors where it has any."""
    packed = pack(value)
    found: dict[str, Part] = {f"{path}.json": Json(value=packed.value)}
    if packed.tensors:
        found[path] = Tensors(tensors=packed.tensors, formats=packed.formats)
    return found


def read(snapshot: Snapshot, path: str) -> Any:
    """Return a value that was stored as `parts`."""
    value = snapshot.json(f"{path}.json")
    if path not in snapshot.paths():
        return unpack(value, {}, {})
    return unpack(value, snapshot.tensors(path), snapshot.tensor_formats(path))


def _said(value: Any, place: str, packed: Packed) -> Any:
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, th.Tensor):
        return {"$tensor": _named(place, *_bits(value), packed)}
    if isinstance(value, np.ndarray | np.generic):
        word = "$array" if isinstance(value, np.ndarray) else "$scalar"
        return {word: _named(place, _numbers(value, place), None, packed)}
    if isinstance(value, int):
        return value if abs(value) < _EXACT_IN_JSON else {"$int": str(value)}
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": str(value)}
    if isinstance(value, bytes):
        return {"$bytes": _named(place, np.frombuffer(value, np.uint8), None, packed)}
    return _said_nested(value, place, packed)


def _said_nested(value: Any, place: str, packed: Packed) -> Any:
    if isinstance(value, list | tuple):
        items = [_said(item, _within(place, index), packed) for index, item in enumerate(value)]
        return items if isinstance(value, list) else {"$tuple": items}
    if not isinstance(value, Mapping):
        raise Unsayable(value, place)
    if all(isinstance(key, str) and not key.startswith("$") for key in value):
        return {key: _said(item, _within(place, key), packed) for key, item in value.items()}
    pairs = [
        [_said(key, f"{place} (a key)", packed), _said(item, _within(place, key), packed)]
        for key, item in value.items()
    ]
    return {"$pairs": pairs}


def _within(place: str, key: object) -> str:
    return f"{place}.{key}" if place else str(key)


def _numbers(value: Any, place: str) -> Array:
    array = np.asarray(value)
    if array.dtype.kind not in "biufc":
        raise Unsayable(value, place)
    return array


def _bits(tensor: th.Tensor) -> tuple[Array, str | None]:
    plain = tensor.detach().cpu()
    if plain.dtype not in _BITS:
        return plain.numpy(), None
    signed, dtype, name = _BITS[plain.dtype]
    return plain.view(signed).numpy().view(dtype), name


def _named(place: str, array: Array, form: str | None, packed: Packed) -> str:
    name, count = place or "value", 1
    while name in packed.tensors:
        count += 1
        name = f"{place or 'value'}#{count}"
    packed.tensors[name] = array
    if form is not None:
        packed.formats[name] = form
    return name


# --- back again ------------------------------------------------------------------------------------------------------


def unpack(value: Any, tensors: Mapping[str, Array], formats: Mapping[str, str]) -> Any:
    """Return the value that was packed; arrays are copies, which may be written to."""
    if isinstance(value, list):
        return [unpack(item, tensors, formats) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) != 1 or not next(iter(value)).startswith("$"):
        return {key: unpack(item, tensors, formats) for key, item in value.items()}
    word, inner = next(iter(value.items()))
    try:
        return _meant(word, inner, tensors, formats)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"a stored value cannot be read: {word} of {inner!r:.60}: {error!r:.80}") from error


def _meant(word: str, inner: Any, tensors: Mapping[str, Array], formats: Mapping[str, str]) -> Any:
    match word:
        case "$tuple":
            return tuple(unpack(item, tensors, formats) for item in inner)
        case "$pairs":
            return {unpack(key, tensors, formats): unpack(item, tensors, formats) for key, item in inner}
        case "$int":
            return int(inner)
        case "$float":
            return float(inner)
        case "$array":
            return tensors[inner].copy()
        case "$scalar":
            return tensors[inner].reshape(())[()]
        case "$bytes":
            return tensors[inner].tobytes()
        case "$tensor":
            return _tensor(tensors[inner], formats.get(inner))
    raise ValueError("no such word")


def _tensor(array: Array, form: str | None) -> th.Tensor:
    if form is None:
        return th.from_numpy(array.copy())
    dtype, signed = _BY_FORMAT[form]
    return th.from_numpy(array.copy().view(np.int16 if signed == th.int16 else np.uint8)).view(dtype)

"""Safetensors files, written from the tensors' own memory and read with nothing but their header parsed.

header bytes u64, little-endian · header: JSON of {name: {dtype, shape, data_offsets}} · data
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from rlmem.errors import StoreError
from rlmem.lean.kernels import Array
from rlmem.store.naming import Buffer

_NUMPY: Final = {
    "BOOL": "|b1",
    "U8": "|u1",
    "I8": "|i1",
    "U16": "<u2",
    "I16": "<i2",
    "F16": "<f2",
    "U32": "<u4",
    "I32": "<i4",
    "F32": "<f4",
    "U64": "<u8",
    "I64": "<i8",
    "F64": "<f8",
    "C64": "<c8",
    "BF16": "<u2",
    "F8_E4M3": "|u1",
    "F8_E5M2": "|u1",
}
"""What NumPy calls the types; the last three it does not have, and they are read as their bits."""

_FORMATS: Final = {numpy: name for name, numpy in reversed(_NUMPY.items()) if not name.startswith(("BF", "F8"))}
_MOST_HEADER_BYTES: Final = 16 * 2**20
_ALONE_BYTES: Final = 64 * 2**10
"""Tensors from this size on are files of their own, so that one that did not change is not written again."""


def groups_of(tensors: Mapping[str, Array]) -> Iterator[dict[str, Array]]:
    """Yield what goes into one file: large tensors alone, the others together."""
    together = {name: tensor for name, tensor in sorted(tensors.items()) if tensor.nbytes < _ALONE_BYTES}
    if together:
        yield together
    yield from ({name: tensor} for name, tensor in sorted(tensors.items()) if name not in together)


def pieces_of(tensors: Mapping[str, Array], formats: Mapping[str, str]) -> list[Buffer]:
    """Return a file in pieces: its header, and the memory of each tensor."""
    header, data, at = {}, [], 0
    for name, tensor in tensors.items():
        whole = _in_order(tensor)
        described = {"dtype": _format(name, whole, formats), "shape": [*tensor.shape]}
        header[name] = described | {"data_offsets": [at, at + whole.nbytes]}
        data.append(memoryview(whole.reshape(-1).view(np.uint8)))
        at += whole.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return [len(text).to_bytes(8, "little") + text, *data]


def _in_order(tensor: Array) -> Array:
    return np.ascontiguousarray(tensor, dtype=tensor.dtype.newbyteorder("<"))


def _format(name: str, tensor: Array, formats: Mapping[str, str]) -> str:
    declared = formats.get(name)
    if declared is not None and _NUMPY.get(declared) == tensor.dtype.str:
        return declared
    if declared is not None or tensor.dtype.str not in _FORMATS:
        raise StoreError(f"tensor {name!r}: safetensors has no {declared or tensor.dtype} for {tensor.dtype}")
    return _FORMATS[tensor.dtype.str]


class BadFile(ValueError):  # noqa: N818 - an answer, which the caller words
    """Bytes that are no safetensors file."""


def tensors_in(data: Array) -> tuple[dict[str, Array], dict[str, str]]:
    """Return the tensors of a file as views of its bytes, and the formats of those that are only bits to NumPy."""
    header, start = _header(data)
    tensors, formats = {}, {}
    for name, described in header.items():
        if name == "__metadata__":
            continue
        tensors[name], declared = _view(data[start:], described)
        if _FORMATS[_NUMPY[declared]] != declared:
            formats[name] = declared
    return tensors, formats


def _header(data: Array) -> tuple[dict[str, Any], int]:
    length = int.from_bytes(data[:8].tobytes(), "little")
    if data.size < 8 or length > min(data.size - 8, _MOST_HEADER_BYTES):
        raise BadFile("its header is longer than it may be")
    try:
        header = json.loads(data[8 : 8 + length].tobytes())
    except (ValueError, RecursionError) as error:
        raise BadFile(f"its header is not JSON: {error}") from error
    if not isinstance(header, dict):
        raise BadFile("its header is not a JSON object")
    return header, 8 + length


def _view(data: Array, described: Any) -> tuple[Array, str]:
    try:
        declared, shape = described["dtype"], [*described["shape"]]
        start, stop = described["data_offsets"]
        dtype = np.dtype(_NUMPY[declared])
        whole = all(type(number) is int and number >= 0 for number in (*shape, start, stop))
        if not whole or stop > data.size or stop - start != math.prod(shape) * dtype.itemsize:
            raise BadFile("a tensor lies outside of it")
        part = data[start:stop]
        if start % dtype.itemsize or not part.flags.aligned:
            part = part.copy()
        return part.view(dtype).reshape(shape), declared
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise BadFile(f"a tensor's description cannot be read: {error}") from error

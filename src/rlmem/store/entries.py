"""How a manifest describes parts: plain JSON, read with suspicion.

What an entry declares is checked before anything of it is read or allocated: digests look like digests, chunks are as
many as dtype and shape make them, sizes are whole numbers. The schema is written down in `docs/formats.md`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from rlmem.store.contents import LEAST_CHUNK_BYTES
from rlmem.store.naming import is_digest

MOST_BYTES: Final = 2**50
MOST_CHUNK_BYTES: Final = 64 * 2**20
MOST_DIMENSIONS: Final = 32
MOST_JSON_BYTES: Final = 64 * 2**20
INLINE_JSON_BYTES: Final = 16 * 2**10

_DTYPE: Final = re.compile(r"[<>|][biufc](1|2|4|8|16|32)", re.ASCII)


class BadEntry(ValueError):  # noqa: N818 - an answer, which the manifest's reader words
    """An entry that no rlmem has written."""


@dataclass(frozen=True, slots=True)
class Ref:
    """An object that is named, and how large it is; of a compressed chunk it is only known how large it may be."""

    digest: str
    nbytes: int
    exact: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayEntry:
    dtype: str
    shape: tuple[int, ...]
    chunk_bytes: int
    chunks: tuple[str, ...]
    compressed: bool = False

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * int(self.dtype[2:])

    def chunk_size(self, index: int) -> int:
        """Return how many bytes of the array a chunk holds."""
        return min(self.chunk_bytes, self.nbytes - index * self.chunk_bytes)

    def refs(self) -> Iterator[Ref]:
        for index, digest in enumerate(self.chunks):
            size = self.chunk_size(index)
            yield Ref(digest, size + size // 128 + 1024 if self.compressed else size, exact=not self.compressed)

    def as_json(self) -> dict[str, Any]:
        return {
            "kind": "array",
            "dtype": self.dtype,
            "shape": [*self.shape],
            "chunk_bytes": self.chunk_bytes,
            "compression": "zstd" if self.compressed else None,
            "chunks": [*self.chunks],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorsEntry:
    """Safetensors files, and which tensors each of them has."""

    files: tuple[tuple[Ref, tuple[str, ...]], ...]

    @property
    def nbytes(self) -> int:
        return sum(ref.nbytes for ref, _ in self.files)

    def refs(self) -> Iterator[Ref]:
        return (ref for ref, _ in self.files)

    def as_json(self) -> dict[str, Any]:
        files = [{"digest": ref.digest, "bytes": ref.nbytes, "names": [*names]} for ref, names in self.files]
        return {"kind": "tensors", "files": files}


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnEntry:
    """A lean column: its head, its arrays, its blocks by sequence, and its keys."""

    head: Mapping[str, Any]
    arrays: Mapping[str, ArrayEntry]
    blocks: tuple[tuple[Ref | None, ...], ...]
    keys: tuple[Ref, ...]

    @property
    def nbytes(self) -> int:
        return sum(ref.nbytes for ref in self.refs())

    def refs(self) -> Iterator[Ref]:
        for entry in self.arrays.values():
            yield from entry.refs()
        yield from self.keys
        yield from (ref for sequence in self.blocks for ref in sequence if ref is not None)

    def as_json(self) -> dict[str, Any]:
        return {
            "kind": "column",
            "head": dict(self.head),
            "arrays": {name: entry.as_json() for name, entry in self.arrays.items()},
            "blocks": [[_ref_json(ref) for ref in sequence] for sequence in self.blocks],
            "keys": [_ref_json(ref) for ref in self.keys],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonEntry:
    """A value, in the manifest itself or, when it is long, in an object."""

    value: Any = None
    ref: Ref | None = None

    @property
    def nbytes(self) -> int:
        return 0 if self.ref is None else self.ref.nbytes

    def refs(self) -> Iterator[Ref]:
        return iter(() if self.ref is None else (self.ref,))

    def as_json(self) -> dict[str, Any]:
        if self.ref is None:
            return {"kind": "json", "value": self.value}
        return {"kind": "json", "object": _ref_json(self.ref)}


Entry: TypeAlias = ArrayEntry | TensorsEntry | ColumnEntry | JsonEntry


def _ref_json(ref: Ref | None) -> list[Any] | None:
    return None if ref is None else [ref.digest, ref.nbytes]


# --- reading ---------------------------------------------------------------------------------------------------------


def read_entry(value: Any) -> Entry:
    """Return an entry from its JSON, or raise BadEntry."""
    kind = _field(value, "kind", str)
    if kind == "array":
        return _array(value)
    if kind == "tensors":
        return _tensors(value)
    if kind == "column":
        return _column(value)
    if kind == "json":
        return JsonEntry(ref=_json_ref(value["object"])) if "object" in value else JsonEntry(value=value.get("value"))
    raise BadEntry(f"a part must be an array, tensors, a column or json, but got {kind!r:.40}")


def _field(value: Any, name: str, kind: type) -> Any:
    if not isinstance(value, dict) or not isinstance(value.get(name), kind) or isinstance(value.get(name), bool):
        raise BadEntry(f"`{name}` must be there and be a {kind.__name__}")
    return value[name]


def _number(value: object, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise BadEntry(f"a number must lie between 0 and {most}, but got {value!r:.40}")
    return value


def _digest(value: object) -> str:
    if not is_digest(value):
        raise BadEntry(f"an object must be named by 64 hexadecimal digits, but got {value!r:.80}")
    return str(value)


def _ref(value: Any, most: int = MOST_BYTES) -> Ref:
    if not isinstance(value, list) or len(value) != 2:
        raise BadEntry("an object must be named by its digest and its size")
    return Ref(_digest(value[0]), _number(value[1], most))


def _json_ref(value: Any) -> Ref:
    return _ref(value, MOST_JSON_BYTES)


def _array(value: Any) -> ArrayEntry:
    dtype, shape = _field(value, "dtype", str), _field(value, "shape", list)
    if not _DTYPE.fullmatch(dtype) or len(shape) > MOST_DIMENSIONS:
        raise BadEntry(f"an array must be of plain numbers, but got {dtype!r:.40} with {len(shape)} dimensions")
    chunk_bytes = _number(_field(value, "chunk_bytes", int), MOST_CHUNK_BYTES)
    compression = value.get("compression")
    if chunk_bytes < LEAST_CHUNK_BYTES or compression not in (None, "zstd"):
        raise BadEntry(
            f"chunks must be plain or zstd and of 64 KiB or more, but got {compression!r:.40}, {chunk_bytes}"
        )
    entry = ArrayEntry(
        dtype=dtype,
        shape=tuple(_number(side, MOST_BYTES) for side in shape),
        chunk_bytes=chunk_bytes,
        chunks=tuple(_digest(name) for name in _field(value, "chunks", list)),
        compressed=compression is not None,
    )
    if entry.nbytes > MOST_BYTES or len(entry.chunks) != -(-entry.nbytes // chunk_bytes):
        raise BadEntry(f"an array of {entry.nbytes} bytes cannot have {len(entry.chunks)} chunks of {chunk_bytes}")
    return entry


def _tensors(value: Any) -> TensorsEntry:
    files = []
    for file in _field(value, "files", list):
        names = tuple(_field(file, "names", list))
        if not all(isinstance(name, str) for name in names):
            raise BadEntry("the names of tensors must be text")
        files.append((Ref(_digest(file.get("digest")), _number(file.get("bytes"), MOST_BYTES)), names))
    return TensorsEntry(files=tuple(files))


def _column(value: Any) -> ColumnEntry:
    arrays = {name: _array(array) for name, array in _field(value, "arrays", dict).items()}
    blocks = []
    for sequence in _field(value, "blocks", list):
        if not isinstance(sequence, list):
            raise BadEntry("the blocks of a sequence must be a list")
        blocks.append(tuple(None if ref is None else _ref(ref) for ref in sequence))
    keys = tuple(_ref(ref) for ref in _field(value, "keys", list))
    return ColumnEntry(head=_field(value, "head", dict), arrays=arrays, blocks=tuple(blocks), keys=keys)

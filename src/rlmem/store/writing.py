"""Writing a snapshot: parts become objects that the store does not have yet, and then one manifest."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final

import numpy as np
import xxhash

from rlmem.errors import MissingExtra, StoreError
from rlmem.lean.block import Block, Key
from rlmem.lean.kernels import Array
from rlmem.lean.parts import ColumnParts, take_apart
from rlmem.store.contents import (
    LEAST_CHUNK_BYTES,
    ArrayPart,
    ByteSource,
    ColumnPart,
    Json,
    Part,
    Tensors,
    check_path,
    chunk_bytes_for,
    source_of,
)
from rlmem.store.entries import (
    INLINE_JSON_BYTES,
    MOST_CHUNK_BYTES,
    MOST_JSON_BYTES,
    ArrayEntry,
    BadEntry,
    ColumnEntry,
    Entry,
    JsonEntry,
    Ref,
    TensorsEntry,
    read_entry,
)
from rlmem.store.manifest import Manifest, encode, json_bytes, parse_json
from rlmem.store.naming import Buffer, SnapshotInfo, digest_of, object_name
from rlmem.store.space import Space
from rlmem.store.tensor_files import groups_of, pieces_of

_LEVEL: Final = 1


@dataclass(slots=True)
class Remembered:
    """What one save can tell the next, so that what did not change costs one quick pass.

    ``there`` are objects that no collection may remove before the next snapshot is committed. Chunks of arrays are
    told by their XXH3 digest, blocks by the one they carry. Both lead to the name under which the content was written.
    """

    there: set[str] = field(default_factory=set)
    chunks: dict[str, dict[bytes, str]] = field(default_factory=dict)
    blocks: dict[bytes, str] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Written:
    """How much a save had to write."""

    objects: int = 0
    nbytes: int = 0


class SnapshotWriter:
    """One snapshot in the making: parts are added, by one thread at a time, and then it is committed."""

    def __init__(self, space: Space, remembered: Remembered) -> None:
        self._space, self._remembered = space, remembered
        self._entries: dict[str, Entry] = {}
        self._chunks: dict[str, dict[bytes, str]] = {}
        self._blocks: dict[bytes, str] = {}
        self._lock = Lock()
        self.written = Written()

    def add(self, path: str, part: Part | ColumnParts) -> None:
        """Write what is new of a part."""
        check_path(path)
        if path in self._entries:
            raise StoreError(f"a snapshot has one part a path, but got {path!r} twice")
        self._entries[path] = self._entry(path, part)

    def _entry(self, path: str, part: Part | ColumnParts) -> Entry:
        if isinstance(part, ColumnPart):
            part = take_apart(part.column)
        if isinstance(part, ColumnParts):
            return self._column(path, part)
        if isinstance(part, Tensors):
            return self._tensors(part)
        if isinstance(part, Json):
            return self._json(part, path)
        if isinstance(part, ArrayPart):
            return self._array(path, source_of(part.array), compressed=part.compress, chunk_bytes=part.chunk_bytes)
        raise StoreError(
            f"{path}: a part must be Tensors, ArrayPart, ColumnPart or Json, but got {type(part).__name__}"
        )

    def commit(self, *, step: int, metadata: Mapping[str, Any], after_ns: int) -> SnapshotInfo:
        """Bind the parts: when this returns, the snapshot is there and durable."""
        self._space.sync()
        manifest = Manifest(
            step=step, committed_ns=max(time.time_ns(), after_ns + 1), metadata=metadata, entries=self._entries
        )
        info, data = encode(manifest)
        self._space.put(info.name, [data])
        self._space.sync()
        self.written.nbytes += len(data)
        self._remembered.chunks, self._remembered.blocks = self._chunks, self._blocks
        self._remembered.there = set(manifest.digests())
        return info

    # --- objects -----------------------------------------------------------------------------------------------------

    def _put(self, pieces: Sequence[Buffer]) -> str:
        """Write an object unless the store has it; return its digest. Threads may call this at once."""
        digest = digest_of(pieces)
        with self._lock:
            if digest in self._remembered.there:
                return digest
            self._remembered.there.add(digest)
            self.written.objects += 1
            self.written.nbytes += sum(memoryview(piece).nbytes for piece in pieces)
        try:
            self._space.put(object_name(digest), pieces)
        except BaseException:
            self._remembered.there.discard(digest)
            raise
        return digest

    def _put_each(self, jobs: Iterable[Callable[[], str]]) -> list[str]:
        """Return what the jobs return, in their order; a few of them run at a time."""
        done: list[str] = []
        running: deque[Future[str]] = deque()
        with ThreadPoolExecutor(self._space.parallel, "rlmem-store") as pool:
            try:
                for job in jobs:
                    running.append(pool.submit(job))
                    if len(running) > self._space.parallel:
                        done.append(running.popleft().result())
                done.extend(future.result() for future in running)
            except BaseException:
                pool.shutdown(wait=True, cancel_futures=True)
                raise
        return done

    # --- arrays ------------------------------------------------------------------------------------------------------

    def _array(
        self, path: str, source: ByteSource, *, compressed: bool = False, chunk_bytes: int | None = None
    ) -> ArrayEntry:
        nbytes = int(np.prod(source.shape, dtype=np.int64)) * source.dtype.itemsize
        size = chunk_bytes_for(nbytes) if chunk_bytes is None else chunk_bytes
        if not LEAST_CHUNK_BYTES <= size <= MOST_CHUNK_BYTES:
            raise StoreError(f"{path}: chunks must have between 64 KiB and 64 MiB, but got {size} bytes")
        known = self._chunks[path] = {}
        jobs = (
            self._chunk_job(path, source, start, min(start + size, nbytes), compressed, known)
            for start in range(0, nbytes, size)
        )
        entry = ArrayEntry(
            dtype=source.dtype.str,
            shape=tuple(source.shape),
            chunk_bytes=size,
            chunks=tuple(self._put_each(jobs)),
            compressed=compressed,
        )
        return _checked(path, entry)

    def _chunk_job(
        self, path: str, source: ByteSource, start: int, stop: int, compressed: bool, known: dict[bytes, str]
    ) -> Callable[[], str]:
        before = self._remembered.chunks.get(path, {})

        def put() -> str:
            data = source.read(start, stop)
            quick = xxhash.xxh3_128_digest(data) + (b"z" if compressed else b"")
            digest = before.get(quick)
            if digest is None or digest not in self._remembered.there:
                digest = self._put([_compressed(data) if compressed else data])
            known[quick] = digest
            return digest

        return put

    # --- the other kinds ---------------------------------------------------------------------------------------------

    def _tensors(self, part: Tensors) -> TensorsEntry:
        files = []
        for group in groups_of(part.tensors):
            pieces = pieces_of(group, part.formats)
            size = sum(memoryview(piece).nbytes for piece in pieces)
            files.append((Ref(self._put(pieces), size), tuple(group)))
        return TensorsEntry(files=tuple(files))

    def _json(self, part: Json, path: str) -> JsonEntry:
        data = json_bytes(part.value, what=path)
        value = parse_json(data)
        if len(data) <= INLINE_JSON_BYTES:
            return JsonEntry(value=value)
        if len(data) > MOST_JSON_BYTES:
            raise StoreError(f"{path}: JSON must be no larger than {MOST_JSON_BYTES} bytes, but got {len(data)}")
        return JsonEntry(ref=Ref(self._put([data]), len(data)))

    def _column(self, path: str, parts: ColumnParts) -> ColumnEntry:
        digests = iter(self._put_each(self._block_jobs(parts)))
        blocks = tuple(
            tuple(None if block is None else Ref(next(digests), block.nbytes) for block in sequence)
            for sequence in parts.blocks
        )
        keys = tuple(Ref(next(digests), int(key.data.nbytes)) for key in parts.keys)
        arrays = {name: self._array(f"{path}#{name}", source_of(array)) for name, array in parts.arrays.items()}
        return ColumnEntry(head=parts.head, arrays=arrays, blocks=blocks, keys=keys)

    def _block_jobs(self, parts: ColumnParts) -> Iterator[Callable[[], str]]:
        for sequence in parts.blocks:
            yield from (self._block_job(block, block.content_digest) for block in sequence if block is not None)
        yield from (self._block_job(key, b"key" + key.digest) for key in parts.keys)

    def _block_job(self, block: Block | Key, quick: bytes) -> Callable[[], str]:
        def put() -> str:
            digest = self._remembered.blocks.get(quick)
            if digest is None or digest not in self._remembered.there:
                digest = self._put([_bytes_of(block.data)])
            self._blocks[quick] = digest
            return digest

        return put


def _bytes_of(array: Array) -> memoryview:
    return memoryview(np.ascontiguousarray(array))


def _checked(path: str, entry: ArrayEntry) -> ArrayEntry:
    try:
        read_entry(entry.as_json())
    except BadEntry as error:
        raise StoreError(f"{path}: {error}") from error
    return entry


def _compressed(data: Buffer) -> bytes:
    try:
        import zstandard
    except ImportError as error:
        raise MissingExtra(library="zstandard", extra="store", purpose="compressing chunks") from error
    packed: bytes = zstandard.ZstdCompressor(level=_LEVEL).compress(data)
    return packed

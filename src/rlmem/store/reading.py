"""Reading a snapshot: parts are put together again, each object checked against its name as it is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

import numpy as np

from rlmem.errors import (
    CorruptBlockError,
    CorruptObjectError,
    MissingExtra,
    SnapshotNotFound,
    StoreError,
    StoreLimitReached,
)
from rlmem.lean.block import Key, digest, read_block
from rlmem.lean.column import Column
from rlmem.lean.kernels import Array
from rlmem.lean.parts import ColumnParts, put_together
from rlmem.store.entries import ArrayEntry, ColumnEntry, Entry, JsonEntry, Ref, TensorsEntry
from rlmem.store.manifest import Manifest, parse_json
from rlmem.store.naming import SnapshotInfo, digest_of, object_name
from rlmem.store.space import Missing, Space, WrongSize
from rlmem.store.tensor_files import BadFile, tensors_in
from rlmem.units import format_bytes

_T = TypeVar("_T")
_KINDS: Final[dict[type, str]] = {
    ArrayEntry: "array",
    TensorsEntry: "tensors",
    ColumnEntry: "column",
    JsonEntry: "json",
}


class Snapshot:
    """A committed snapshot, read part by part."""

    def __init__(
        self,
        *,
        space: Space,
        info: SnapshotInfo,
        manifest: Manifest,
        limit_bytes: int,
        older: Callable[[], SnapshotInfo | None],
    ) -> None:
        self._space, self.info, self._manifest, self._older = space, info, manifest, older
        self.limit_bytes = limit_bytes

    @property
    def step(self) -> int:
        return self.info.step

    @property
    def metadata(self) -> Mapping[str, Any]:
        return self._manifest.metadata

    @property
    def nbytes(self) -> int:
        """What all parts take once they are read."""
        return self._manifest.nbytes

    def paths(self) -> list[str]:
        return sorted(self._manifest.entries)

    def kind(self, path: str) -> str:
        """Return what a part is: ``array``, ``tensors``, ``column`` or ``json``."""
        return _KINDS[type(self.entry(path))]

    def entry(self, path: str) -> Entry:
        """Return how the manifest describes a part."""
        entry = self._manifest.entries.get(path)
        if entry is None:
            there = ", ".join(self.paths()[:20])
            raise SnapshotNotFound(f"{self._place}: there is no part {path!r}, but {there or 'none at all'}")
        return entry

    def _of_kind(self, path: str, kind: type[_T]) -> _T:
        entry = self.entry(path)
        if not isinstance(entry, kind):
            raise StoreError(f"{self._place}: {path!r} must be {_KINDS[kind]}, but is {self.kind(path)}")
        return entry

    def _within_limit(self, path: str, entry: Entry) -> None:
        if entry.nbytes > self.limit_bytes:
            raise StoreLimitReached(
                f"{self._place}: {path!r} declares {format_bytes(entry.nbytes)}, and no more than "
                f"{format_bytes(self.limit_bytes)} may be read: give `limit_bytes` if it is right"
            )

    @property
    def _place(self) -> str:
        return f"{self._space.url}: snapshot {self.info.label}"

    # --- parts -------------------------------------------------------------------------------------------------------

    def json(self, path: str) -> Any:
        """Return what a part says."""
        entry = self._of_kind(path, JsonEntry)
        if entry.ref is None:
            return entry.value
        data = self._object(entry.ref).tobytes()
        try:
            return parse_json(data)
        except StoreError as error:
            raise self._corrupt(object_name(entry.ref.digest), str(error)) from error

    def tensors(self, path: str) -> dict[str, Array]:
        """Return named tensors; those that NumPy has no type for come as their bits, see `tensor_formats`."""
        return self._tensor_files(path)[0]

    def tensor_formats(self, path: str) -> dict[str, str]:
        """Return the safetensors type of those tensors that are only bits to NumPy."""
        return self._tensor_files(path)[1]

    def _tensor_files(self, path: str) -> tuple[dict[str, Array], dict[str, str]]:
        tensors: dict[str, Array] = {}
        formats: dict[str, str] = {}
        entry = self._of_kind(path, TensorsEntry)
        self._within_limit(path, entry)
        for ref, names in entry.files:
            try:
                found, declared = tensors_in(self._object(ref))
            except BadFile as error:
                raise self._corrupt(object_name(ref.digest), str(error)) from error
            if set(found) != set(names) or tensors.keys() & found.keys():
                raise self._corrupt(object_name(ref.digest), "it has other tensors than the manifest says")
            tensors |= found
            formats |= declared
        return dict(sorted(tensors.items())), formats

    def array(self, path: str, out: Array | None = None) -> Array:
        """Return an array; with ``out``, which must be of its shape and dtype, it is read into place."""
        entry = self._of_kind(path, ArrayEntry)
        if out is None:
            self._within_limit(path, entry)
        return self._array(path, entry, out)

    def chunks(self, path: str) -> Iterator[Array]:
        """Yield an array's bytes chunk by chunk, for who cannot have it in memory as a whole."""
        entry = self._of_kind(path, ArrayEntry)
        for index in range(len(entry.chunks)):
            chunk: Array = np.empty(entry.chunk_size(index), np.uint8)
            self._chunk(entry, index, memoryview(chunk))
            yield chunk

    def column(self, path: str) -> Column:
        """Return a lean column, to be read and written on."""
        entry = self._of_kind(path, ColumnEntry)
        self._within_limit(path, entry)
        keys = {}
        for ref in entry.keys:
            data = self._object(ref)
            data.setflags(write=False)
            key = Key(data=data, digest=digest(data))
            keys[key.digest] = key
        arrays = {name: self._array(f"{path}#{name}", array, None) for name, array in entry.arrays.items()}
        blocks = [self._blocks(sequence, keys) for sequence in entry.blocks]
        try:
            return put_together(ColumnParts(head=entry.head, arrays=arrays, blocks=blocks, keys=[*keys.values()]))
        except CorruptBlockError as error:
            raise self._corrupt(self.info.name, f"part {path!r}: {error}") from error

    def _blocks(self, refs: Sequence[Ref | None], keys: dict[bytes, Key]) -> list[Any]:
        def block(ref: Ref | None) -> Any:
            if ref is None:
                return None
            data = self._object(ref)
            data.setflags(write=False)
            try:
                return read_block(data, keys)
            except CorruptBlockError as error:
                raise self._corrupt(object_name(ref.digest), str(error)) from error

        return self._each(block, refs)

    # --- objects -----------------------------------------------------------------------------------------------------

    def _array(self, path: str, entry: ArrayEntry, out: Array | None) -> Array:
        dtype = np.dtype(entry.dtype)
        if out is not None and (out.shape != entry.shape or out.dtype != dtype):
            raise StoreError(
                f"{self._place}: {path!r} is {entry.shape} of {dtype}, but `out` is {out.shape} of {out.dtype}"
            )
        whole: Array = np.empty(entry.shape, dtype) if out is None else out
        if not whole.flags.c_contiguous:
            raise StoreError(f"{self._place}: `out` for {path!r} must lie in C order")
        flat = memoryview(whole.reshape(-1).view(np.uint8))
        size = entry.chunk_bytes
        self._each(
            lambda index: self._chunk(entry, index, flat[index * size : (index + 1) * size]), range(len(entry.chunks))
        )
        return whole

    def _chunk(self, entry: ArrayEntry, index: int, out: memoryview) -> None:
        name = object_name(entry.chunks[index])
        if not entry.compressed:
            self._checked_read(name, out)
            return
        most = len(out) + len(out) // 128 + 1024
        nbytes = self._telling(name, lambda: self._space.size(name))
        if nbytes > most:
            raise self._corrupt(name, f"a chunk of {len(out)} bytes cannot take {nbytes} compressed")
        packed = bytearray(nbytes)
        self._checked_read(name, memoryview(packed))
        plain = _decompressed(packed, len(out))
        if plain is None:
            raise self._corrupt(name, f"it does not decompress to {len(out)} bytes")
        out[:] = plain

    def _object(self, ref: Ref) -> Array:
        name = object_name(ref.digest)
        found = self._telling(name, lambda: self._space.size(name))
        if found != ref.nbytes:  # before anything is allocated
            raise self._corrupt(name, f"it must have {ref.nbytes} bytes, but has {found}")
        data: Array = np.empty(ref.nbytes, np.uint8)
        self._checked_read(name, memoryview(data))
        return data

    def _checked_read(self, name: str, out: memoryview) -> None:
        self._telling(name, lambda: self._space.read_into(name, out))
        if object_name(digest_of([out])) != name:
            raise self._corrupt(name, "its content does not match its name")

    def _telling(self, name: str, read: Callable[[], _T]) -> _T:
        try:
            return read()
        except WrongSize as error:
            raise self._corrupt(name, f"it has another size than the manifest says: {error.nbytes} bytes") from error
        except Missing as error:
            raise self._missing(name) from error

    def _missing(self, name: str) -> StoreError:
        try:
            self._space.size(self.info.name)
        except Missing:
            return SnapshotNotFound(f"{self._place} was removed while it was read: load a newer one")
        return self._corrupt(name, "it is missing")

    def _corrupt(self, name: str, reason: str) -> CorruptObjectError:
        older = self._older()
        label = None if older is None else older.label
        return CorruptObjectError(f"{self._place}: {name}: {reason}", name=name, older=label)

    def _each(self, job: Callable[[Any], _T], items: Sequence[Any]) -> list[_T]:
        if len(items) < 2:
            return [job(item) for item in items]
        with ThreadPoolExecutor(self._space.parallel, "rlmem-store") as pool:
            try:
                return [*pool.map(job, items)]
            except BaseException:
                pool.shutdown(wait=True, cancel_futures=True)
                raise


def _decompressed(packed: bytearray, nbytes: int) -> bytes | None:
    try:
        import zstandard
    except ImportError as error:
        raise MissingExtra(library="zstandard", extra="store", purpose="reading compressed chunks") from error
    try:
        if zstandard.frame_content_size(packed) != nbytes:
            return None
        return zstandard.ZstdDecompressor().decompress(packed, max_output_size=nbytes)
    except zstandard.ZstdError:
        return None

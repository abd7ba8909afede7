"""What can be said about a store without reading its objects: parts, users of an object, what a collection would do."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from rlmem.errors import StoreError
from rlmem.store.entries import ArrayEntry, ColumnEntry, Entry, JsonEntry, TensorsEntry
from rlmem.store.manifest import Manifest
from rlmem.store.naming import OBJECTS, SnapshotInfo, digest_in
from rlmem.store.store import GRACE_S, Store
from rlmem.store.upkeep import Collected, Fault, Verification, to_remove

_UNREADABLE: Final = (KeyError, TypeError, ValueError, OverflowError, AttributeError)
"""What a column's head raises when no rlmem has written it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartInfo:
    """A part of a snapshot. Only columns have ``plain_bytes``, what plain arrays would take.

    With ``follows`` a column has two such arrays: observations, and those that followed.
    ``logical_bytes`` is what the part takes once it is read, ``stored_bytes`` what its objects take in the store.
    """

    path: str
    kind: str
    shape: tuple[int, ...] | None
    dtype: str | None
    tensors: int | None
    follows: bool | None
    plain_bytes: int | None
    logical_bytes: int
    stored_bytes: int


def parts_of(manifest: Manifest, there: Mapping[str, int]) -> tuple[PartInfo, ...]:
    """Return what a snapshot holds, by path; ``there`` says how large objects are."""
    return tuple(_part(path, entry, there) for path, entry in sorted(manifest.entries.items()))


def object_sizes(store: Store) -> dict[str, int]:
    """Return how large each object in the store is, by digest."""
    return {digest_in(item.name) or "": item.nbytes for item in store.space.listed(OBJECTS)}


def _part(path: str, entry: Entry, there: Mapping[str, int]) -> PartInfo:
    shape, dtype = _shape_and_dtype(entry)
    follows = bool(entry.head.get("follows")) if isinstance(entry, ColumnEntry) else None
    plain = (
        math.prod(shape) * np.dtype(dtype).itemsize * (1 + follows) if shape and dtype and follows is not None else None
    )
    return PartInfo(
        path=path,
        kind=kind_of(entry),
        shape=shape,
        dtype=dtype,
        tensors=sum(len(names) for _, names in entry.files) if isinstance(entry, TensorsEntry) else None,
        follows=follows,
        plain_bytes=plain,
        logical_bytes=entry.nbytes,
        stored_bytes=sum(there.get(digest, 0) for digest in {ref.digest for ref in entry.refs()}),
    )


def kind_of(entry: Entry) -> str:
    """Return what a part is, in a word."""
    if isinstance(entry, ArrayEntry):
        return "array"
    if isinstance(entry, TensorsEntry):
        return "tensors"
    return "column" if isinstance(entry, ColumnEntry) else "json"


def _shape_and_dtype(entry: Entry) -> tuple[tuple[int, ...] | None, str | None]:
    if isinstance(entry, ArrayEntry):
        return entry.shape, np.dtype(entry.dtype).name
    if isinstance(entry, ColumnEntry):
        return _column_shape(entry)
    return None, None


def _column_shape(entry: ColumnEntry) -> tuple[tuple[int, ...] | None, str | None]:
    """Return the rows that are filled × environments × an observation, as plain arrays would have them."""
    head = entry.head
    try:
        rows = min(int(head["held"]["written"]), int(head["rows"]))
        shape = (rows, int(head["n_envs"]), *(int(side) for side in head["shape"]))
        return shape, np.dtype(head["dtype"]).name
    except _UNREADABLE:
        return None, None


# --- faults ----------------------------------------------------------------------------------------------------------


def newest_sound(store: Store, verification: Verification) -> SnapshotInfo | None:
    """Return the newest snapshot that no fault touches."""
    faulty = {info for fault in verification.faults for info in fault.snapshots}
    return next((info for info in reversed(store.snapshots()) if info not in faulty), None)


def users_of(store: Store, faults: Sequence[Fault]) -> tuple[tuple[tuple[str, str], ...], ...]:
    """Return for each faulty object which parts need it: what it is to them, and their path."""
    found: list[dict[tuple[str, str], None]] = [{} for _ in faults]
    for info in sorted({info for fault in faults for info in fault.snapshots}):
        try:
            entries = store.manifest(info).entries
        except StoreError:
            continue
        for fault, users in zip(faults, found, strict=True):
            if info in fault.snapshots:
                users |= dict.fromkeys(_users_in(entries, digest_in(fault.name)))
    return tuple(tuple(users) for users in found)


def _users_in(entries: Mapping[str, Entry], digest: str | None) -> Iterator[tuple[str, str]]:
    for path, entry in sorted(entries.items()):
        role = None if digest is None else _role(entry, digest)
        if role is not None:
            yield role, path


def _role(entry: Entry, digest: str) -> str | None:
    """Return what an object is to a part, or None if it is nothing to it."""
    if not any(ref.digest == digest for ref in entry.refs()):
        return None
    if isinstance(entry, ColumnEntry):
        return _role_in_column(entry, digest)
    if isinstance(entry, JsonEntry):
        return "json"
    return "chunk of array" if isinstance(entry, ArrayEntry) else "tensors"


def _role_in_column(entry: ColumnEntry, digest: str) -> str:
    if any(ref.digest == digest for ref in entry.keys):
        return "key of column"
    if any(digest in array.chunks for array in entry.arrays.values()):
        return "index of column"
    return "block of column"


# --- collecting and copying ------------------------------------------------------------------------------------------


def preview(store: Store, *, keep: int, keep_every: int | None, grace_s: float = GRACE_S) -> Collected:
    """Return what `Store.collect` would remove now."""
    infos = store.snapshots()
    going = to_remove(infos, keep=keep, keep_every=keep_every)
    oldest = time.time() - grace_s
    old = [item for item in store.space.listed(OBJECTS) if item.modified_s <= oldest]
    named = _named(store.manifest(info) for info in infos if info not in set(going))
    sizes = [item.nbytes for item in old if digest_in(item.name) not in named]
    return Collected(snapshots=tuple(going), objects=len(sizes), nbytes=sum(sizes))


def waiting_bytes(store: Store, collected: Collected, *, done: bool) -> int:
    """Return how much no snapshot names, and is too young to be removed; ``done`` says that it was collected."""
    staying = set(store.snapshots()) - set(collected.snapshots)
    named = _named(store.manifest(info) for info in staying)
    unnamed = sum(size for digest, size in object_sizes(store).items() if digest not in named)
    return unnamed if done else unnamed - collected.nbytes


def objects_named(store: Store, infos: Iterable[SnapshotInfo]) -> int:
    """Return how many objects some snapshots name, each counted once."""
    return len(_named(store.manifest(info) for info in infos))


def _named(manifests: Iterable[Manifest]) -> set[str]:
    return {digest for manifest in manifests for digest in manifest.digests()}

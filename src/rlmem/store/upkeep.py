"""What keeps a store in order: verifying, collecting what nothing names, copying, counting."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from rlmem.errors import CorruptObjectError, SnapshotNotFound, StoreError
from rlmem.store.entries import Ref
from rlmem.store.manifest import MOST_MANIFEST_BYTES, Manifest
from rlmem.store.naming import OBJECTS, SnapshotInfo, digest_in, digest_of, object_name
from rlmem.store.space import Missing, Space, WrongSize

if TYPE_CHECKING:
    from rlmem.store.store import Store

Progress: TypeAlias = Callable[[int, int], None]
"""Told how many bytes are done, and of how many."""

_BATCH: Final = 256


# --- verifying -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """An object that is not as it was written, and the snapshots that need it."""

    name: str
    reason: str
    snapshots: tuple[SnapshotInfo, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What was read, and what was wrong with it."""

    snapshots: int
    objects: int
    nbytes: int
    faults: tuple[Fault, ...]

    @property
    def is_sound(self) -> bool:
        return not self.faults


def verify(store: Store, progress: Progress | None) -> Verification:
    """Read everything that any snapshot names; memory is taken for a few pieces of it at a time."""
    faults: list[Fault] = []
    users: dict[Ref, list[SnapshotInfo]] = {}
    infos = store.snapshots()
    for info in infos:
        try:
            for ref in set(store.manifest(info).refs()):
                users.setdefault(ref, []).append(info)
        except SnapshotNotFound:
            continue  # collected in the meantime
        except CorruptObjectError as error:
            faults.append(Fault(name=info.name, reason=error.reason, snapshots=(info,)))
    total, done = sum(ref.nbytes for ref in users), 0
    for ref, needed_by in sorted(users.items(), key=lambda item: item[0].digest):
        reason = _fault_in(store.space, ref)
        if reason is not None and (living := _still_there(store, needed_by)):
            faults.append(Fault(name=object_name(ref.digest), reason=reason, snapshots=living))
        done += ref.nbytes
        if progress is not None:
            progress(done, total)
    return Verification(snapshots=len(infos), objects=len(users), nbytes=total, faults=tuple(faults))


def _fault_in(space: Space, ref: Ref) -> str | None:
    """Return what is wrong with an object, or None."""
    name = object_name(ref.digest)
    try:
        size = space.size(name)
        if size > ref.nbytes or (ref.exact and size != ref.nbytes):
            return f"it must have {ref.nbytes} bytes, but has {size}"
        return None if digest_of(space.stream(name, size)) == ref.digest else "its content does not match its name"
    except Missing:
        return "it is missing"
    except WrongSize as error:
        return f"it must have {ref.nbytes} bytes, but has {error.nbytes}"


def _still_there(store: Store, infos: Iterable[SnapshotInfo]) -> tuple[SnapshotInfo, ...]:
    there = set(store.snapshots())
    return tuple(info for info in infos if info in there)


# --- collecting ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What was removed."""

    snapshots: tuple[SnapshotInfo, ...]
    objects: int
    nbytes: int


def to_remove(infos: list[SnapshotInfo], *, keep: int, keep_every: int | None) -> list[SnapshotInfo]:
    """Return the snapshots that need not be kept: neither among the newest, nor the first of so many steps."""
    if keep < 1 or (keep_every is not None and keep_every < 1):
        raise StoreError(f"`keep` and `keep_every` must be 1 or more, but got keep={keep}, keep_every={keep_every}")
    kept = set(infos[-keep:])
    if keep_every is not None:
        first: dict[int, SnapshotInfo] = {}
        for info in infos:
            first.setdefault(info.step // keep_every, info)
        kept |= {info for part, info in first.items() if part > 0}
    return [info for info in infos if info not in kept]


def collect(store: Store, *, keep: int, keep_every: int | None, grace_s: float) -> Collected:
    """Remove manifests first and then objects: whenever it is stopped, every manifest has what it names.

    An object that has no name yet may belong to a snapshot in the making: it is kept until it is ``grace_s`` old.
    """
    removed = to_remove(store.snapshots(), keep=keep, keep_every=keep_every)
    store.space.delete(info.name for info in removed)
    unnamed = _unnamed(store, grace_s)
    names = [name for name, _ in unnamed]
    for start in range(0, len(names), _BATCH):
        store.space.delete(names[start : start + _BATCH])
    store.space.remove_leftovers(grace_s)
    return Collected(snapshots=tuple(removed), objects=len(names), nbytes=sum(size for _, size in unnamed))


def _unnamed(store: Store, grace_s: float) -> list[tuple[str, int]]:
    """Return old objects that no manifest names. A manifest that cannot be read stops it: it may name any of them.

    Objects are listed before manifests: one that is named in between is either young or named by a manifest seen.
    """
    oldest = time.time() - grace_s
    old = [item for item in store.space.listed(OBJECTS) if item.modified_s <= oldest]
    named = {digest for _, manifest in _manifests(store) for digest in manifest.digests()}
    return [(item.name, item.nbytes) for item in old if digest_in(item.name) not in named]


def _manifests(store: Store) -> Iterator[tuple[SnapshotInfo, Manifest]]:
    for info in store.snapshots():
        try:
            yield info, store.manifest(info)
        except SnapshotNotFound:
            continue


# --- copying ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """What had to be copied."""

    snapshots: tuple[SnapshotInfo, ...]
    objects: int
    nbytes: int


def copy(source: Store, target: Store, infos: list[SnapshotInfo], progress: Progress | None) -> Copied:
    """Copy snapshots one by one, each one's manifest last: stopped and called again, it goes on."""
    there = _safely_there(target)
    present = {info.name for info in target.snapshots()}
    wanted = [(info, source.manifest(info)) for info in infos if info.name not in present]
    missing = {ref.digest: ref for _, manifest in wanted for ref in manifest.refs() if ref.digest not in there}
    total = sum(ref.nbytes for ref in missing.values())
    objects = nbytes = 0
    for info, manifest in wanted:
        refs = {ref.digest: ref for ref in manifest.refs() if ref.digest not in there}
        for ref, copied in _copied(source.space, target.space, refs.values()):
            objects, nbytes = objects + 1, nbytes + copied
            there.add(ref.digest)
            if progress is not None:
                progress(min(nbytes, total), total)
        target.space.sync()
        target.space.put(info.name, [_read(source.space, info.name, MOST_MANIFEST_BYTES, exact=False)])
        target.space.sync()
    return Copied(snapshots=tuple(info for info, _ in wanted), objects=objects, nbytes=nbytes)


def _safely_there(target: Store) -> set[str]:
    """Return the objects that a store has and that no collection will remove in the meantime."""
    from rlmem.store.store import GRACE_S

    young = time.time() - GRACE_S / 2
    there = {digest_in(item.name) or "" for item in target.space.listed(OBJECTS) if item.modified_s > young}
    for _, manifest in _manifests(target):
        there |= manifest.digests()
    return there


def _copied(source: Space, target: Space, refs: Iterable[Ref]) -> Iterator[tuple[Ref, int]]:
    """Copy objects, a few at a time; yield each with its size."""

    def job(ref: Ref) -> tuple[Ref, int]:
        name = object_name(ref.digest)
        data = _read(source, name, ref.nbytes, exact=ref.exact)
        if digest_of([data]) != ref.digest:
            raise CorruptObjectError(f"{source.url}: {name}: its content does not match its name", name=name)
        target.put(name, [data])
        return ref, len(data)

    running: deque[Future[tuple[Ref, int]]] = deque()
    with ThreadPoolExecutor(min(source.parallel, target.parallel), "rlmem-copy") as pool:
        try:
            for ref in refs:
                running.append(pool.submit(job, ref))
                if len(running) > target.parallel:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _read(space: Space, name: str, nbytes: int, *, exact: bool) -> bytearray:
    try:
        size = space.size(name)
        if size > nbytes or (exact and size != nbytes):
            raise WrongSize(size)
        data = bytearray(size)
        space.read_into(name, memoryview(data))
        return data
    except Missing as error:
        raise SnapshotNotFound(f"{space.url}: {name} is missing: verify the store") from error
    except WrongSize as error:
        reason = f"{space.url}: {name}: it must have {nbytes} bytes, but has {error.nbytes}"
        raise CorruptObjectError(reason, name=name) from error


# --- counting --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotSize:
    """A snapshot's bytes: what it holds, what that takes in the store, and what no other snapshot names."""

    info: SnapshotInfo
    logical_bytes: int
    stored_bytes: int
    own_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """A store's bytes. ``shared_bytes`` is what would be needed in addition if snapshots had nothing in common."""

    logical_bytes: int
    stored_bytes: int
    shared_bytes: int
    unnamed_bytes: int
    snapshots: tuple[SnapshotSize, ...]


def sizes(store: Store) -> Sizes:
    """Count from the listing and the manifests; no object is read."""
    there = {digest_in(item.name): item.nbytes for item in store.space.listed(OBJECTS)}
    manifests = [*_manifests(store)]
    users = Counter(digest for _, manifest in manifests for digest in manifest.digests())
    each = tuple(_size_of(info, manifest, there, users) for info, manifest in manifests)
    named = sum(there.get(digest, 0) for digest in users)
    return Sizes(
        logical_bytes=sum(size.logical_bytes for size in each),
        stored_bytes=sum(there.values()),
        shared_bytes=sum(size.stored_bytes for size in each) - named,
        unnamed_bytes=sum(there.values()) - named,
        snapshots=each,
    )


def _size_of(info: SnapshotInfo, manifest: Manifest, there: dict[str | None, int], users: Counter[str]) -> SnapshotSize:
    digests = manifest.digests()
    return SnapshotSize(
        info=info,
        logical_bytes=manifest.nbytes,
        stored_bytes=sum(there.get(digest, 0) for digest in digests),
        own_bytes=sum(there.get(digest, 0) for digest in digests if users[digest] == 1),
    )

"""Stores of snapshots: opened by a path or a URL, saved to, loaded from."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any, Final

from rlmem.errors import CorruptObjectError, SnapshotNotFound, StoreError, StoreLimitReached
from rlmem.store import upkeep
from rlmem.store.contents import Contents
from rlmem.store.manifest import MOST_MANIFEST_BYTES, Manifest, decode, json_bytes, parse_json
from rlmem.store.naming import MARKER, SNAPSHOTS, SnapshotInfo, snapshot_in
from rlmem.store.reading import Snapshot
from rlmem.store.space import Missing, Space, WrongSize, open_space
from rlmem.store.writing import Remembered, SnapshotWriter, Written
from rlmem.units import format_bytes

_VERSION: Final = 1
_MARKER_FORMAT: Final = "rlmem-store"
_MOST_MARKER_BYTES: Final = 4096

GRACE_S: Final = 3600.0
"""Objects younger than this are not collected: who wrote them may be about to name them."""


class Store:
    """A folder or a bucket with snapshots in it. One thread at a time may save; any number of processes may read."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._remembered = Remembered()
        self._newest: SnapshotInfo | None = None
        self._tried_s = 0.0
        self.last_written = Written()
        """How much the last save had to write."""

    @classmethod
    def open(
        cls, url: str | os.PathLike[str], *, create: bool = False, options: Mapping[str, str] | None = None
    ) -> Store:
        """Open a store; with ``create``, begin one where there is none.

        ``options`` are obstore's settings for a bucket: ``endpoint``, ``access_key_id``, ``allow_http`` and so on. What
        is not given is taken from the environment, as other tools take it.
        """
        space = open_space(os.fspath(url), create=create, options=options)
        _check_marker(space, create=create)
        return cls(space)

    @property
    def url(self) -> str:
        """Where the store is, without credentials."""
        return self._space.url

    @property
    def space(self) -> Space:
        return self._space

    # --- saving ------------------------------------------------------------------------------------------------------

    def save(self, contents: Contents, *, step: int, metadata: Mapping[str, Any] | None = None) -> SnapshotInfo:
        """Write a snapshot; when this returns, it is there and durable."""
        writer = self.begin(step=step)
        for path, part in contents.items():
            writer.add(path, part)
        return self.commit(writer, step=step, metadata=metadata)

    def begin(self, *, step: int) -> SnapshotWriter:
        """Return a writer for a snapshot, to be handed to `commit` once its parts have been added."""
        if not isinstance(step, int) or not 0 <= step < 10**18:
            raise StoreError(f"a step must be a whole number from 0 on, but got {step!r}")
        self._see_what_is_there()
        self._tried_s = time.time()
        return SnapshotWriter(self._space, self._remembered)

    def commit(self, writer: SnapshotWriter, *, step: int, metadata: Mapping[str, Any] | None = None) -> SnapshotInfo:
        """Bind the parts that a writer has."""
        after = 0 if self._newest is None else self._newest.committed_ns
        self._newest = writer.commit(step=step, metadata=metadata or {}, after_ns=after)
        self.last_written = writer.written
        return self._newest

    def _see_what_is_there(self) -> None:
        """Find which objects need not be written: only those that no collection can remove in the meantime.

        Those are what the newest snapshot names, and what this process wrote a short while ago.
        """
        newest = next(iter(self._newest_first()), None)
        mine = self._remembered.there if time.time() - self._tried_s < GRACE_S / 2 else set()
        if newest == self._newest and mine:
            return
        named: frozenset[str] = frozenset()
        if newest is not None:
            try:
                named = self.manifest(newest).digests()
            except StoreError:
                named = frozenset()
        self._newest = newest
        self._remembered.there = set(named) | mine

    # --- loading -----------------------------------------------------------------------------------------------------

    def snapshots(self) -> list[SnapshotInfo]:
        """Return the committed snapshots, the oldest first, from their names alone."""
        found = (snapshot_in(item.name) for item in self._space.listed(SNAPSHOTS))
        return sorted(info for info in found if info is not None)

    def _newest_first(self) -> list[SnapshotInfo]:
        return self.snapshots()[::-1]

    def load(
        self, step: int | None = None, *, info: SnapshotInfo | None = None, limit_bytes: int | None = None
    ) -> Snapshot:
        """Return the newest snapshot, the newest of a step, or a certain one; its parts are read when asked for.

        One that declares more than ``limit_bytes`` is refused. Without a limit, no part is read that is larger than
        the machine's memory.
        """
        chosen = self._choose(step) if info is None else info
        try:
            manifest = self.manifest(chosen)
        except CorruptObjectError as error:
            raise self._with_older(error, chosen) from error
        if limit_bytes is not None and manifest.nbytes > limit_bytes:
            raise StoreLimitReached(
                f"{self.url}: snapshot {chosen.label} declares {format_bytes(manifest.nbytes)}, and no more than "
                f"{format_bytes(limit_bytes)} may be read"
            )
        return Snapshot(
            space=self._space,
            info=chosen,
            manifest=manifest,
            limit_bytes=_machine_bytes() if limit_bytes is None else limit_bytes,
            older=lambda: self._older(chosen),
        )

    def _choose(self, step: int | None) -> SnapshotInfo:
        every = self._newest_first()
        found = [info for info in every if step is None or info.step == step]
        if not found:
            there = ", ".join(str(info.step) for info in every[:10])
            wanted = "snapshot" if step is None else f"snapshot of step {step}"
            raise SnapshotNotFound(f"{self.url}: there is no {wanted}; {f'steps: {there}' if there else 'it is empty'}")
        return found[0]

    def _older(self, than: SnapshotInfo) -> SnapshotInfo | None:
        for info in self._newest_first():
            if info < than:
                try:
                    self.manifest(info)
                except StoreError:
                    continue
                return info
        return None

    def _with_older(self, error: CorruptObjectError, info: SnapshotInfo) -> CorruptObjectError:
        older = self._older(info)
        return CorruptObjectError(error.reason, name=error.name, older=None if older is None else older.label)

    def manifest(self, info: SnapshotInfo) -> Manifest:
        """Return what a snapshot's manifest says; raise CorruptObjectError if it is not as it was written."""
        place = f"{self.url}: {info.name}"
        try:
            data = read_small(self._space, info.name, MOST_MANIFEST_BYTES)
        except Missing as error:
            raise SnapshotNotFound(f"{place} is not there (any more): list the snapshots again") from error
        except WrongSize as error:
            raise CorruptObjectError(f"{place}: it has {error.nbytes} bytes", name=info.name) from error
        try:
            return decode(info, data)
        except CorruptObjectError as error:
            raise CorruptObjectError(f"{place}: {error.reason}", name=info.name) from error

    # --- upkeep ------------------------------------------------------------------------------------------------------

    def verify(self, progress: upkeep.Progress | None = None) -> upkeep.Verification:
        """Read everything that any snapshot names, and say what is not as it was written."""
        return upkeep.verify(self, progress)

    def collect(self, *, keep: int = 3, keep_every: int | None = None, grace_s: float = GRACE_S) -> upkeep.Collected:
        """Remove all but the newest snapshots and the first of each ``keep_every`` steps; then what nothing names."""
        collected = upkeep.collect(self, keep=keep, keep_every=keep_every, grace_s=grace_s)
        if collected.objects:
            self._remembered.there = set()  # some of them may have been written for a snapshot that failed
        return collected

    def copy_to(
        self, other: Store, *, snapshots: list[SnapshotInfo] | None = None, progress: upkeep.Progress | None = None
    ) -> upkeep.Copied:
        """Copy snapshots that the other store does not have; called again, it goes on where it was stopped."""
        return upkeep.copy(self, other, self.snapshots() if snapshots is None else snapshots, progress)

    def sizes(self) -> upkeep.Sizes:
        """Return what the snapshots hold, what that takes, and how much of it they share."""
        return upkeep.sizes(self)


def read_small(space: Space, name: str, most: int) -> bytes:
    """Return an object of at most so many bytes; raise WrongSize if it has more."""
    size = space.size(name)
    if size > most:
        raise WrongSize(size)
    data = bytearray(size)
    space.read_into(name, memoryview(data))
    return bytes(data)


def _machine_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _check_marker(space: Space, *, create: bool) -> None:
    """Make sure that this is a store of a format that can be read, or make it one."""
    try:
        found = parse_json(read_small(space, MARKER, _MOST_MARKER_BYTES))
    except Missing as error:
        if not create:
            raise SnapshotNotFound(
                f"{space.url}: there is no store here ({MARKER} is missing): see whether the path is right"
            ) from error
        marker = {"format": _MARKER_FORMAT, "version": _VERSION}
        space.put(MARKER, [json_bytes(marker, what=MARKER)])
        space.sync()
        return
    except (WrongSize, StoreError) as error:
        if isinstance(error, StoreError) and not str(error).startswith("it is not JSON"):
            raise
        raise CorruptObjectError(f"{space.url}: {MARKER} cannot be read", name=MARKER) from error
    if not isinstance(found, dict) or found.get("format") != _MARKER_FORMAT:
        raise CorruptObjectError(f"{space.url}: {MARKER} is not that of a store", name=MARKER)
    if found.get("version") != _VERSION:
        version = f"{found.get('version')!r:.20}"
        raise StoreError(
            f"{space.url}: the store is of format {version}, and this rlmem reads {_VERSION}: update rlmem"
        )

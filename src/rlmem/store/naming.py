"""Names in a store: objects are named after their content, snapshots after step, time and content.

    rlmem-store.json                                             says that this is a store, and of which format
    objects/ab/cdef…                                             BLAKE3 of the object's bytes, 64 hexadecimal digits
    snapshots/<step>-<nanoseconds, hex>-<BLAKE3, 32 digits>.json a manifest, written last

A name that does not look like this is never read, written or deleted, so none leads out of the store.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from rlmem.errors import MissingExtra

Buffer: TypeAlias = bytes | bytearray | memoryview
"""What is written: arrays are handed on as views of their memory."""

MARKER: Final = "rlmem-store.json"
OBJECTS: Final = "objects"
SNAPSHOTS: Final = "snapshots"

_DIGEST: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_OBJECT: Final = re.compile(r"objects/([0-9a-f]{2})/([0-9a-f]{62})", re.ASCII)
_SNAPSHOT: Final = re.compile(r"snapshots/(\d{12,18})-([0-9a-f]{16})-([0-9a-f]{32})\.json", re.ASCII)


def hasher() -> Any:
    """Return a new BLAKE3 hash: made to resist forging, as SHA-256 is, and faster (decision 12)."""
    try:
        from blake3 import blake3
    except ImportError as error:
        raise MissingExtra(library="blake3", extra="store", purpose="a store of snapshots") from error
    return blake3()


def digest_of(pieces: Iterable[Buffer]) -> str:
    """Return the name of some content."""
    whole = hasher()
    for piece in pieces:
        whole.update(piece)
    name: str = whole.hexdigest()
    return name


def is_digest(text: object) -> bool:
    return isinstance(text, str) and _DIGEST.fullmatch(text) is not None


def object_name(digest: str) -> str:
    """Return where an object lies."""
    if not is_digest(digest):
        raise ValueError(f"a digest has 64 hexadecimal digits, but got {digest!r:.80}")
    return f"{OBJECTS}/{digest[:2]}/{digest[2:]}"


def digest_in(name: str) -> str | None:
    """Return the digest that an object's name says, or None if it is no object's name."""
    match = _OBJECT.fullmatch(name)
    return None if match is None else match[1] + match[2]


def is_allowed(name: str) -> bool:
    """Whether a name is one that a store may have."""
    return name == MARKER or _OBJECT.fullmatch(name) is not None or _SNAPSHOT.fullmatch(name) is not None


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class SnapshotInfo:
    """A committed snapshot: what its name says. Snapshots are ordered by the time at which they were committed."""

    committed_ns: int
    step: int
    name: str

    @property
    def committed(self) -> datetime:
        return datetime.fromtimestamp(self.committed_ns / 1e9, UTC)

    @property
    def label(self) -> str:
        """How the snapshot is spoken of."""
        return f"step {self.step} of {self.committed:%Y-%m-%d %H:%M:%S} UTC"

    @property
    def digest(self) -> str:
        """The first 32 digits of the manifest's digest."""
        return self.name[-len("0" * 32 + ".json") : -len(".json")]


def snapshot_name(step: int, committed_ns: int, digest: str) -> str:
    """Return the name of a manifest with this digest."""
    return f"{SNAPSHOTS}/{step:012d}-{committed_ns:016x}-{digest[:32]}.json"


def snapshot_in(name: str) -> SnapshotInfo | None:
    """Return the snapshot that a name speaks of, or None if it is no manifest's name."""
    match = _SNAPSHOT.fullmatch(name)
    return None if match is None else SnapshotInfo(committed_ns=int(match[2], 16), step=int(match[1]), name=name)

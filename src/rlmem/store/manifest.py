"""Manifests: one JSON document for each snapshot, written last, whose name says its digest."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rlmem.errors import CorruptObjectError, StoreError
from rlmem.store.contents import check_path
from rlmem.store.entries import BadEntry, Entry, Ref, read_entry
from rlmem.store.naming import SnapshotInfo, digest_of, snapshot_name

FORMAT: Final = "rlmem-snapshot"
VERSION: Final = 1
MOST_MANIFEST_BYTES: Final = 64 * 2**20
_MOST_ITEMS: Final = 4_000_000
"""More commas and brackets than this are not parsed: each may become an object of sixty bytes."""

MOST_DEPTH: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What belongs together: entries by path, and what the caller said about the snapshot."""

    step: int
    committed_ns: int
    metadata: Mapping[str, Any]
    entries: Mapping[str, Entry]

    @property
    def nbytes(self) -> int:
        """What the parts take once they are read."""
        return sum(entry.nbytes for entry in self.entries.values())

    def refs(self) -> Iterator[Ref]:
        """Yield every object that is named, as often as it is."""
        for entry in self.entries.values():
            yield from entry.refs()

    def digests(self) -> frozenset[str]:
        return frozenset(ref.digest for ref in self.refs())


def encode(manifest: Manifest) -> tuple[SnapshotInfo, bytes]:
    """Return a manifest's name and bytes."""
    document = {
        "format": FORMAT,
        "version": VERSION,
        "step": manifest.step,
        "committed_ns": manifest.committed_ns,
        "metadata": dict(manifest.metadata),
        "parts": {path: entry.as_json() for path, entry in sorted(manifest.entries.items())},
    }
    data = json_bytes(document, what="a snapshot's metadata")
    if len(data) > MOST_MANIFEST_BYTES:
        raise StoreError(f"a manifest must be no larger than {MOST_MANIFEST_BYTES} bytes, but got {len(data)}")
    parse_json(data)  # what could not be read again is not written
    name = snapshot_name(manifest.step, manifest.committed_ns, digest_of([data]))
    return SnapshotInfo(committed_ns=manifest.committed_ns, step=manifest.step, name=name), data


def decode(info: SnapshotInfo, data: bytes) -> Manifest:
    """Return a manifest from its bytes, checked against its name."""
    if digest_of([data])[:32] != info.digest:
        raise CorruptObjectError("its content does not match its name", name=info.name)
    try:
        document = parse_json(data)
        return _read(info, document)
    except (BadEntry, StoreError, KeyError, TypeError, AttributeError) as error:
        raise CorruptObjectError(f"it is no manifest that rlmem writes: {error}", name=info.name) from error


def _read(info: SnapshotInfo, document: Any) -> Manifest:
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise BadEntry(f"`format` must be {FORMAT!r}")
    if document.get("version") != VERSION:
        raise BadEntry(f"it is of format version {document.get('version')!r:.20}, and this rlmem reads {VERSION}")
    if (document["step"], document["committed_ns"]) != (info.step, info.committed_ns):
        raise BadEntry("its name speaks of another step or time")
    if not isinstance(document["metadata"], dict) or not isinstance(document["parts"], dict):
        raise BadEntry("`metadata` and `parts` must be objects")
    entries = {check_path(path): read_entry(value) for path, value in document["parts"].items()}
    return Manifest(step=info.step, committed_ns=info.committed_ns, metadata=document["metadata"], entries=entries)


def json_bytes(value: Any, *, what: str) -> bytes:
    """Return a value as JSON, without what other readers of JSON would not take."""
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(
            f"{what} must be plain JSON: text, numbers that are finite, lists, objects: {error}"
        ) from error


def parse_json(data: bytes) -> Any:
    """Return what JSON says, with bounds on its depth and on how many things it has."""
    if sum(data.count(sign) for sign in (b",", b"[", b"{")) > _MOST_ITEMS:
        raise StoreError(f"JSON must have no more than {_MOST_ITEMS} items")
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"it is not JSON: {type(error).__name__}: {str(error)[:120]}") from error
    if _deeper_than(value, MOST_DEPTH):
        raise StoreError(f"JSON must be no deeper than {MOST_DEPTH}")
    return value


def _deeper_than(value: Any, depth: int) -> bool:
    level = [value]
    for _ in range(depth + 1):
        inner: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                inner.extend(item.values())
            elif isinstance(item, list):
                inner.extend(item)
        level = [item for item in inner if isinstance(item, dict | list)]
        if not level:
            return False
    return True

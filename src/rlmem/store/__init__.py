"""Snapshots that cannot hurt: incremental, crash-safe, written in the background, free of pickle."""

from rlmem.store.contents import ArrayPart, ByteSource, ColumnPart, Contents, Json, Part, Tensors, chunk_bytes_for
from rlmem.store.naming import SnapshotInfo
from rlmem.store.reading import Snapshot
from rlmem.store.saver import Saver, SaveWarning
from rlmem.store.store import Store
from rlmem.store.upkeep import Collected, Copied, Fault, Sizes, SnapshotSize, Verification
from rlmem.store.writing import SnapshotWriter, Written

__all__ = [
    "ArrayPart",
    "ByteSource",
    "Collected",
    "ColumnPart",
    "Contents",
    "Copied",
    "Fault",
    "Json",
    "Part",
    "SaveWarning",
    "Saver",
    "Sizes",
    "Snapshot",
    "SnapshotInfo",
    "SnapshotSize",
    "SnapshotWriter",
    "Store",
    "Tensors",
    "Verification",
    "Written",
    "chunk_bytes_for",
]

"""Blocks: sealed, immutable, checksummed runs of encoded pieces, byte for byte what a store writes.

    magic "RLMEMBLK" · version u16 · kind u8 · 0 u8 · group u32 · pieces u32 · row u32 · piece bytes u64
    · payload bytes u64 · digest of the key (16 bytes, nought without) · digest of everything else (16)
    · offsets: (pieces + 1) × u32, unless plain · payload

All numbers are little-endian. How a piece is encoded is said in `kernels.c`. In a compact block each group of
pieces is a zstd frame of its own: the payload's offsets are then those of the frames, (groups + 1) × u32, and what a
frame holds begins with the offsets of its pieces, (pieces of the group + 1) × u32.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import xxhash

from rlmem.errors import CorruptBlockError
from rlmem.lean.kernels import Array, address

MAGIC: Final = b"RLMEMBLK"
VERSION: Final = 1
PLAIN, DELTA, COMPACT = range(3)
_HEADER: Final = struct.Struct("<8sHBBIIIQQ16s16s")
HEADER_BYTES: Final = _HEADER.size
DIGEST_BYTES: Final = 16
NO_KEY: Final = bytes(DIGEST_BYTES)


Chunk: TypeAlias = tuple[int, int, int, int, int]
"""Where pieces lie, for the kernels: addresses of offsets, payload and key, how many pieces, bytes of the payload."""


def digest(data: bytes | Array) -> bytes:
    """Return the name of some content: the same bytes have the same digest.

    XXH3 runs at the speed of memory and finds what was torn. It does not keep out who means harm: a store that others
    can write to has to name its objects otherwise.
    """
    return xxhash.xxh3_128_digest(data)


def _digest_of(data: Array) -> bytes:
    """Return the digest of a block: of its header up to the digest itself, and of all that follows."""
    whole = xxhash.xxh3_128(data[: HEADER_BYTES - DIGEST_BYTES])
    whole.update(data[HEADER_BYTES:])
    return whole.digest()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Key:
    """A piece that others are told apart from; its content is its name."""

    data: Array
    digest: bytes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Block:
    """A sealed block: ``data`` is never written again. ``key`` is the piece that some of its pieces differ from."""

    data: Array
    kind: int
    group: int
    pieces: int
    row: int
    piece_bytes: int
    key: Key | None
    content_digest: bytes

    @property
    def nbytes(self) -> int:
        return int(self.data.nbytes)

    def chunk(self) -> Chunk:
        """Return where the pieces lie, for the kernels. A compact block has to be unpacked first."""
        start = address(self.data) + HEADER_BYTES
        offsets_bytes = 0 if self.kind == PLAIN else 4 * (self.pieces + 1)
        key = 0 if self.key is None else address(self.key.data)
        held = self.data.nbytes - HEADER_BYTES - offsets_bytes
        return start if offsets_bytes else 0, start + offsets_bytes, key, self.pieces, held

    def verify(self) -> None:
        """Raise CorruptBlockError unless the content is what was sealed."""
        if _digest_of(self.data) != self.content_digest:
            raise CorruptBlockError(f"block {self.content_digest.hex()}: its content does not match its digest")


def seal(
    *, kind: int, group: int, pieces: int, row: int, piece_bytes: int, offsets: Array, payload: Array, key: Key | None
) -> Block:
    """Return a block of its own memory, no larger than it must be."""
    index = b"" if kind == PLAIN else offsets.astype("<u4").tobytes()
    body = _in_place(payload) if kind == PLAIN else None
    if body is None:
        body = np.empty(HEADER_BYTES + len(index) + payload.size, np.uint8)
        body[HEADER_BYTES : HEADER_BYTES + len(index)] = np.frombuffer(index, np.uint8)
        body[HEADER_BYTES + len(index) :] = payload
    header = _HEADER.pack(
        MAGIC,
        VERSION,
        kind,
        0,
        group,
        pieces,
        row,
        piece_bytes,
        payload.size,
        key.digest if key else NO_KEY,
        NO_KEY,
    )
    body[:HEADER_BYTES] = np.frombuffer(header, np.uint8)
    name = _digest_of(body)
    body[HEADER_BYTES - DIGEST_BYTES : HEADER_BYTES] = np.frombuffer(name, np.uint8)
    body.setflags(write=False)
    return Block(
        data=body,
        kind=kind,
        group=group,
        pieces=pieces,
        row=row,
        piece_bytes=piece_bytes,
        key=key,
        content_digest=name,
    )


def room_for(payload_bytes: int) -> Array:
    """Return an array for a plain payload with room for the header before it, so that sealing need not copy it."""
    return np.empty(HEADER_BYTES + payload_bytes, np.uint8)[HEADER_BYTES:]


def _in_place(payload: Array) -> Array | None:
    """Return the whole array that `room_for` made, if the payload fills it."""
    base = payload.base
    return base if isinstance(base, np.ndarray) and base.size == HEADER_BYTES + payload.size else None


def read_block(data: Array, keys: dict[bytes, Key]) -> Block:
    """Return a block from its bytes, checked; ``keys`` has the key that it names, by digest."""
    if data.size < HEADER_BYTES:
        raise CorruptBlockError(f"a block has a header of {HEADER_BYTES} bytes, but got {data.size} bytes")
    magic, version, kind, _, group, pieces, row, piece_bytes, payload, key_digest, name = _HEADER.unpack(
        data[:HEADER_BYTES].tobytes()
    )
    if magic != MAGIC:
        raise CorruptBlockError(f"a block begins with {MAGIC!r}, but this begins with {magic!r}")
    label = f"block {name.hex()}"
    if version != VERSION:
        raise CorruptBlockError(f"{label}: written in format {version}, and this rlmem reads {VERSION}")
    if kind not in (PLAIN, DELTA, COMPACT) or not group or not piece_bytes or not row:
        raise CorruptBlockError(f"{label}: its header makes no sense")
    groups = -(-pieces // group)
    index = {PLAIN: 0, DELTA: 4 * (pieces + 1), COMPACT: 4 * (groups + 1)}[kind]
    if data.size != HEADER_BYTES + index + payload or (kind == PLAIN and payload != pieces * piece_bytes):
        raise CorruptBlockError(f"{label}: its header promises another size than its {data.size} bytes")
    if key_digest != NO_KEY and key_digest not in keys:
        raise CorruptBlockError(f"{label}: its key {key_digest.hex()} is missing")
    if key_digest != NO_KEY and keys[key_digest].data.size != piece_bytes:
        raise CorruptBlockError(f"{label}: its key {key_digest.hex()} is of another size than its pieces")
    block = Block(
        data=data,
        kind=kind,
        group=group,
        pieces=pieces,
        row=row,
        piece_bytes=piece_bytes,
        key=keys.get(key_digest),
        content_digest=name,
    )
    block.verify()
    if kind != PLAIN:
        _check_offsets(data[HEADER_BYTES : HEADER_BYTES + index].view("<u4"), payload, label)
    if kind == COMPACT:
        from rlmem.lean.compact import check_sizes  # which builds on blocks

        check_sizes(block)
    return block


def _check_offsets(offsets: Array, payload: int, label: str) -> None:
    """A digest proves that nothing was torn, not that nobody made it up: the kernels trust the offsets."""
    if offsets[0] != 0 or offsets[-1] != payload or bool((offsets[1:] < offsets[:-1]).any()):
        raise CorruptBlockError(f"{label}: its pieces lie outside of it")

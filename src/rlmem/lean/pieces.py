"""A growing sequence of pieces: sealed blocks, and an open one at the end that pieces are encoded into as they come.

A piece is kept as what differs from the piece before it. Each ``GROUP``-th differs from the block's key instead, so
that no piece is far from one that can be read at once. A piece that is cheaper to keep as it is, is; when most of
a block's are, the next block does not try.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

import numpy as np

from rlmem.errors import CorruptBlockError
from rlmem.lean import compact
from rlmem.lean.block import COMPACT, DELTA, PLAIN, Block, Chunk, Key, digest, room_for, seal
from rlmem.lean.fallback import KEY, PREV, RAW, SELF
from rlmem.lean.kernels import Array, address, runs

GROUP: Final = 16
_LARGE_RUNS: Final = 8
"""A piece whose runs take more than one part in so many of its bytes is worth trying other ways."""

_WORTHWHILE: Final = 0.9
"""Blocks that encoding does not bring below this share of their plain size are kept plain."""

_RETRY: Final = 16
"""After so many plain blocks, encoding is tried again."""

_SMALL_BYTES: Final = 1024

PLAIN_BELOW_BYTES: Final = 64
"""Pieces so small cost more in offsets than they can save."""


def block_length(piece_bytes: int, pieces: int) -> int:
    """Return how many pieces a block has, of a sequence that will hold so many.

    Enough to share a key; few enough that a ring gives old ones back in small parts.
    """
    wanted = min(2 * 2**20 // max(piece_bytes, 1), pieces // 16)
    longest = max((2**32 - 1) // (piece_bytes + 1), 1)
    length = min(max(wanted, 4 * GROUP), (256 if piece_bytes < PLAIN_BELOW_BYTES else 64) * GROUP)
    return min(length - length % GROUP, longest)


class Keys:
    """The keys of a column: pieces that many differ little from, held once however many blocks name them."""

    def __init__(self) -> None:
        self.recent: deque[Key] = deque(maxlen=2)

    def best(self, piece: Array, own: Key | None, scratch: Array) -> Key:
        """Return a key that the piece differs little from: the stream's own, a recent one, or the piece itself."""
        candidates = [key for key in (own, *self.recent) if key is not None and key.data.size == piece.size]
        for key in candidates:
            if runs(key.data, piece, scratch, piece.size // _LARGE_RUNS) is not None:
                return key
        data = piece.copy()
        data.setflags(write=False)
        key = Key(data=data, digest=digest(data))
        self.recent.append(key)
        return key


class Pieces:
    """One sequence of pieces. ``first`` is the number of the oldest that is still there, a block's first."""

    def __init__(self, *, size: int, row: int, length: int, keys: Keys, compact: bool = False) -> None:
        self.size, self.row, self.length = size, row, length
        self.blocks: deque[Block | None] = deque()
        self.first = 0
        self.end = 0
        self.compact = compact
        self._keys = keys
        self._key: Key | None = None
        self._plain = size < PLAIN_BELOW_BYTES
        self._plain_blocks = 0
        self._begin()

    def _begin(self) -> None:
        """Open a new block."""
        self._offsets: Array = np.zeros(0 if self._plain else 2, np.uint32)
        self._payload: Array = np.empty(0, np.uint8)
        self._used = 0
        self._opened = 0
        self._scratch: Array = np.empty(0 if self._plain else self.size + 32, np.uint8)

    @property
    def open_pieces(self) -> int:
        return self._opened

    @property
    def nbytes(self) -> int:
        """Everything that this sequence alone holds; keys are counted by their column."""
        held = sum(block.nbytes + _PER_BLOCK_BYTES for block in self.blocks if block is not None)
        own = self._offsets.nbytes + self._payload.nbytes + self._scratch.nbytes
        return int(held + own + _PER_SEQUENCE_BYTES)

    @property
    def keys_in_use(self) -> set[Key]:
        used = {block.key for block in self.blocks if block is not None and block.key is not None}
        return used | {self._key} if self._key is not None else used

    def append(self, piece: Array, before: Array | None) -> int:
        """Take a piece (bytes) and return its number; ``before`` is the one appended last, if it is still at hand."""
        if self._plain:
            self._put(piece, None)
        else:
            self._encode(piece, before)
        self._opened += 1
        self.end += 1
        if self._opened == self.length:
            self._seal()
        return self.end - 1

    def _encode(self, piece: Array, before: Array | None) -> None:
        scratch = self._scratch
        if self._opened == 0:
            self._key = self._keys.best(piece, self._key, scratch)
        how, encoded = RAW, piece
        for kind, base in self._bases(piece, before):
            written = runs(base, piece, scratch, encoded.size)
            if written is None or written >= encoded.size:
                continue
            how = kind
            if written <= self.size // _LARGE_RUNS:
                encoded = scratch[:written]
                break
            encoded = scratch[:written].copy()
        self._put(encoded, how)

    def _bases(self, piece: Array, before: Array | None) -> Iterator[tuple[int, Array]]:
        """Yield what the piece may be told apart from, the likeliest first."""
        if before is not None and self._opened % GROUP:
            yield PREV, before
        if self._key is not None:
            yield KEY, self._key.data
        if 0 < self.row < self.size:
            above = np.zeros_like(piece)
            above[self.row :] = piece[: -self.row]
            yield SELF, above

    def _put(self, data: Array, how: int | None) -> None:
        """Append encoded bytes to the open block."""
        head = 0 if how is None else 1
        needed = self._used + head + data.size
        if needed > self._payload.size:
            self._grow(needed)
        if how is not None:
            self._payload[self._used] = how
        self._payload[self._used + head : needed] = data
        self._used = needed
        if how is not None:
            if self._opened + 2 > self._offsets.size:
                self._offsets = np.concatenate([self._offsets, np.zeros(self._offsets.size, np.uint32)])
            self._offsets[self._opened + 1] = needed

    def _grow(self, needed: int) -> None:
        if self._plain:
            payload = room_for(min(max(2 * needed, 4 * self.size, _SMALL_BYTES), self.length * self.size))
        else:
            payload = np.empty(needed + needed // 4 + 256, np.uint8)
        payload[: self._used] = self._payload[: self._used]
        self._payload = payload

    def chunk(self) -> Chunk:
        """Return where the open block's pieces lie, for the kernels."""
        key = 0 if self._key is None or self._plain else address(self._key.data)
        return 0 if self._plain else address(self._offsets), address(self._payload), key, self._opened, self._used

    def open_group(self, within: int) -> Chunk:
        """Return where one group of the open block's pieces lies."""
        offsets, payload, key, opened, size = self.chunk()
        start = within * GROUP
        held = min(GROUP, opened - start)
        if self._plain:
            return 0, payload + start * self.size, 0, held, size - start * self.size
        return offsets + 4 * start, payload, key, held, size

    def _seal(self) -> None:
        payload = self._payload if self._used == self._payload.size else self._payload[: self._used]
        self.blocks.append(self._sealed(payload))
        tiny = self.size < PLAIN_BELOW_BYTES
        if self._plain:
            self._plain_blocks += 1
            self._plain = tiny or self._plain_blocks % _RETRY != 0
        else:
            self._plain = payload.size > _WORTHWHILE * self.length * self.size
        self._begin()

    def _sealed(self, payload: Array) -> Block:
        kind, offsets = (PLAIN, self._offsets) if self._plain else (DELTA, self._offsets[: self._opened + 1])
        if self.compact:
            offsets, payload = compact.pack(payload, None if self._plain else offsets, size=self.size, group=GROUP)
            kind = COMPACT
        return seal(
            kind=kind,
            group=GROUP,
            pieces=self._opened,
            row=self.row,
            piece_bytes=self.size,
            offsets=offsets,
            payload=payload,
            key=None if self._plain else self._key,
        )

    def block(self, index: int) -> Block:
        """Return a sealed block, counted from the oldest that is there."""
        block = self.blocks[index]
        if block is None:
            raise CorruptBlockError(f"block {index} must be there, but has been given back")
        return block

    def drop_before(self, number: int) -> int:
        """Give back the blocks all of whose pieces come before ``number``; return how many."""
        dropped = 0
        while self.blocks and self.first + self.length <= number:
            self.blocks.popleft()
            self.first += self.length
            dropped += 1
        return dropped


_PER_BLOCK_BYTES: Final = 400
_PER_SEQUENCE_BYTES: Final = 1200
"""What the objects around the arrays take, as sys.getsizeof adds them up."""

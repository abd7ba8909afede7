"""A growing sequence of pieces: sealed blocks, and an open one at the end that pieces are encoded into as they come.

A piece is kept as what differs from the piece before it. The first of each group differs from the block's key instead,
so that no piece is far from one that can be read at once. A piece that is cheaper to keep as it is, is; when most of
a block's are, the next block does not try. The simple cases are appended by the kernels, straight to the tail.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from rlmem.errors import CorruptBlockError
from rlmem.lean import compact
from rlmem.lean.block import COMPACT, DELTA, PLAIN, Block, Chunk, Key, digest, room_for, seal
from rlmem.lean.fallback import KEY, PREV, RAW, SELF
from rlmem.lean.kernels import TAIL, Array, address, runs

GROUP, COMPACT_GROUP = 8, 16
"""How many pieces a chain has: few, to be read fast; more, to be packed well."""

_LARGE_RUNS: Final = 8
"""A piece whose runs take more than one part in so many of its bytes is worth trying other ways."""

_BLANK: Final = 64
"""A piece is blank when its own rows tell it in less than one part in so many of its bytes."""

_WORTHWHILE: Final = 0.9
"""Blocks that encoding does not bring below this share of their plain size are kept plain."""

_RETRY: Final = 16
"""After so many plain blocks, encoding is tried again."""

_SLACK_BYTES: Final = 32
"""What the longest head of a run takes, and some more."""

_SMALL_BYTES: Final = 1024
PLAIN_BELOW_BYTES: Final = 64
"""Pieces so small cost more in offsets than they can save."""

_PER_BLOCK_BYTES: Final = 400
_PER_SEQUENCE_BYTES: Final = 1200
"""What the objects around the arrays take, as sys.getsizeof adds them up."""

_MAPPED_BYTES: Final = 128 * 1024
"""From this size on an array has pages of its own, which take no memory before they are written."""

(_PAYLOAD, _OFFSETS, _USED, _ROOM, _OPENED, _OFFSETS_ROOM, _PLAIN) = range(len(TAIL))


def block_length(piece_bytes: int, pieces: int) -> int:
    """Return how many pieces a block has, of a sequence that will hold so many.

    Enough to share a key; few enough that a ring gives old ones back in small parts.
    """
    wanted = min(2 * 2**20 // max(piece_bytes, 1), pieces // 16)
    longest = max((2**32 - 1) // (piece_bytes + 1), 1)
    length = min(max(wanted, 4 * COMPACT_GROUP), (256 if piece_bytes < PLAIN_BELOW_BYTES else 64) * COMPACT_GROUP)
    return min(length - length % COMPACT_GROUP, longest)


def one_row_down(piece: Array, row: int) -> Array:
    """Return what a piece would be if each of its rows were the one above it."""
    above = np.zeros_like(piece)
    above[row:] = piece[:-row]
    return above


class Keys:
    """The keys of a column: pieces that many differ little from, held once however many blocks name them."""

    def __init__(self, size: int) -> None:
        self.recent: deque[Key] = deque(maxlen=2)
        self.scratch: Array = np.empty(size + _SLACK_BYTES, np.uint8)

    def snapshot(self) -> Keys:
        """Return the keys as they are now."""
        twin = Keys(self.scratch.size - _SLACK_BYTES)
        twin.recent.extend(self.recent)
        return twin

    def best(self, piece: Array, own: Key | None, row: int) -> Key | None:
        """Return a key that the piece differs little from: the stream's own, a recent one, or the piece itself.

        A blank piece is no key: it needs none, and what follows a blank screen looks like what was before it.
        """
        for key in (own, *self.recent):
            if key is not None and runs(key.data, piece, self.scratch, piece.size // _LARGE_RUNS) is not None:
                return key
        if row < piece.size and runs(one_row_down(piece, row), piece, self.scratch, piece.size // _BLANK) is not None:
            return own or (self.recent[-1] if self.recent else None)
        data = piece.copy()
        data.setflags(write=False)
        key = Key(data=data, digest=digest(data))
        self.recent.append(key)
        return key


class Pieces:
    """One sequence of pieces. ``first`` is the number of the oldest that is still there, a block's first.

    ``tail`` is its row of the column's table of tails, which the kernels append to as well.
    """

    def __init__(
        self, *, size: int, row: int, length: int, keys: Keys, tail: Array | None = None, compact: bool = False
    ) -> None:
        self.size, self.row, self.length, self.compact = size, row, length, compact
        self.group = COMPACT_GROUP if compact else GROUP
        self.blocks: deque[Block | None] = deque()
        self.first = 0
        self.tail: Array = np.zeros(len(TAIL), np.int64) if tail is None else tail
        self._keys = keys
        self._key: Key | None = None
        self._plain_blocks = 0
        self._begin(plain=size < PLAIN_BELOW_BYTES)

    def _begin(self, *, plain: bool) -> None:
        """Open a new block."""
        self._plain = plain
        self._offsets: Array = np.zeros(0 if plain else 2, np.uint32)
        self._payload: Array = np.empty(0, np.uint8)
        self.tail[:] = 0
        self._say_where()

    def _say_where(self) -> None:
        """Enter into the tail where payload and offsets lie."""
        self.tail[_PAYLOAD], self.tail[_ROOM] = address(self._payload), self._payload.size
        self.tail[_OFFSETS], self.tail[_OFFSETS_ROOM] = address(self._offsets), self._offsets.size
        self.tail[_PLAIN] = self._plain

    def move_to(self, tail: Array) -> None:
        """Use another row for the tail."""
        tail[:] = self.tail
        self.tail = tail
        self._say_where()

    def snapshot(self, keys: Keys) -> Pieces:
        """Return the sequence as it is now: the same sealed blocks, and a copy of the open one."""
        twin = object.__new__(Pieces)
        twin.__dict__.update(self.__dict__)
        twin.blocks, twin.tail, twin._keys = self.blocks.copy(), self.tail.copy(), keys
        twin._payload, twin._offsets = self._payload[: int(self.tail[_USED])].copy(), self._offsets.copy()
        twin._say_where()
        return twin

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._say_where()

    def restore_tail(self, *, plain: bool, opened: int, payload: Array, offsets: Array) -> None:
        """Take copies of another sequence's open block, whose content has been checked, for its own."""
        self._begin(plain=plain)
        self._payload = payload.copy()
        if not plain:
            self._offsets = np.zeros(opened + 3, np.uint32)
            self._offsets[: opened + 1] = offsets
        self.tail[_USED], self.tail[_OPENED] = payload.size, opened
        self._say_where()

    @property
    def opened(self) -> int:
        """How many pieces the open block has."""
        return int(self.tail[_OPENED])

    @property
    def end(self) -> int:
        """The number of the next piece."""
        return self.first + len(self.blocks) * self.length + self.opened

    @property
    def nbytes(self) -> int:
        """Everything that this sequence alone holds; keys and scratch are counted by their column."""
        held = sum(block.nbytes + _PER_BLOCK_BYTES for block in self.blocks if block is not None)
        payload = self._payload.nbytes
        if payload > _MAPPED_BYTES:
            payload = min(payload, int(self.tail[_USED]) + _MAPPED_BYTES // 16)
        return int(held + self._offsets.nbytes + payload + _PER_SEQUENCE_BYTES)

    @property
    def keys_in_use(self) -> set[Key]:
        used = {block.key for block in self.blocks if block is not None and block.key is not None}
        return used | {self._key} if self._key is not None else used

    # --- appending -----------------------------------------------------------------------------------------------

    def append(self, piece: Array, before: Array | None) -> int:
        """Take a piece (bytes) and return its number; ``before`` is the one appended last, if it is still at hand."""
        if self._plain:
            self._put(piece, None)
        else:
            self._encode(piece, before)
        self.tail[_OPENED] += 1
        number = self.end - 1
        if self.opened == self.length:
            self._seal()
        return number

    def _encode(self, piece: Array, before: Array | None) -> None:
        if self.opened == 0 or self._key is None:
            self._key = self._keys.best(piece, self._key, self.row)
        scratch, how, encoded = self._keys.scratch, RAW, piece
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
        if before is not None and self.opened % self.group:
            yield PREV, before
        if self._key is not None:
            yield KEY, self._key.data
        if 0 < self.row < self.size:
            yield SELF, one_row_down(piece, self.row)

    def _put(self, data: Array, how: int | None) -> None:
        """Append encoded bytes to the open block, and leave room for the kernels to append the next."""
        used, head = int(self.tail[_USED]), 0 if how is None else 1
        needed = used + head + data.size
        if needed + (0 if how is None else 1 + self.size // _LARGE_RUNS) > self._payload.size:
            self._grow(used, needed)
        if how is not None:
            self._payload[used] = how
            opened = self.opened
            if opened + 3 > self._offsets.size:
                self._offsets = np.concatenate([self._offsets, np.zeros(self._offsets.size, np.uint32)])
                self._say_where()
            self._offsets[opened + 1] = needed
        self._payload[used + head : needed] = data
        self.tail[_USED] = needed

    def _grow(self, used: int, needed: int) -> None:
        if self._plain:
            payload = room_for(min(max(2 * needed, 4 * self.size, _SMALL_BYTES), self.length * self.size))
        else:
            payload = np.empty(needed + needed // 8 + 4 * (1 + self.size // _LARGE_RUNS), np.uint8)
        payload[:used] = self._payload[:used]
        self._payload = payload
        self._say_where()

    # --- reading -------------------------------------------------------------------------------------------------

    def chunk(self) -> Chunk:
        """Return where the open block's pieces lie, for the kernels."""
        payload, offsets, used, _, opened, _, _ = self.tail.tolist()
        key = 0 if self._key is None or self._plain else address(self._key.data)
        return 0 if self._plain else offsets, payload, key, opened, used

    def open_group(self, within: int) -> Chunk:
        """Return where one group of the open block's pieces lies."""
        offsets, payload, key, opened, size = self.chunk()
        start = within * self.group
        held = min(self.group, opened - start)
        if self._plain:
            return 0, payload + start * self.size, 0, held, size - start * self.size
        return offsets + 4 * start, payload, key, held, size

    # --- blocks --------------------------------------------------------------------------------------------------

    def _seal(self) -> None:
        used = int(self.tail[_USED])
        payload = self._payload if used == self._payload.size else self._payload[:used]
        self.blocks.append(self._sealed(payload))
        if self._plain:
            self._plain_blocks += 1
            self._begin(plain=self.size < PLAIN_BELOW_BYTES or self._plain_blocks % _RETRY != 0)
        else:
            self._begin(plain=payload.size > _WORTHWHILE * self.length * self.size)

    def _sealed(self, payload: Array) -> Block:
        kind, offsets = (PLAIN, self._offsets) if self._plain else (DELTA, self._offsets[: self.opened + 1])
        if self.compact:
            offsets, payload = compact.pack(payload, None if self._plain else offsets, size=self.size, group=self.group)
            kind = COMPACT
        return seal(
            kind=kind,
            group=self.group,
            pieces=self.opened,
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

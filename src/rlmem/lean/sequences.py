"""The sequences of pieces behind a column: one for each environment, or one that all share.

Where windows slide over one table, the pieces of any of them are looked up among all that was seen in any episode or
environment: fifty thousand windows then cost the table.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Final

import numpy as np
import xxhash

from rlmem.errors import CorruptBlockError
from rlmem.lean import compact as compact_form
from rlmem.lean.block import COMPACT, Chunk
from rlmem.lean.kernels import CHUNK, SAME, STILL, TAIL, Array, address, compare, extend, gather
from rlmem.lean.pieces import COMPACT_GROUP, GROUP, Keys, Pieces, block_length

_PER_HASH_BYTES: Final = 110
"""What an entry of a dict takes, with its key and its value."""

_FRUITLESS_WINDOWS: Final = 8
"""After so many new windows in which nothing was known, looking up is given up."""


class Sequences(ABC):
    """Where the pieces of a column's environments are."""

    shared: ClassVar[bool]

    def __init__(self, *, size: int, row: int, count: int, n_envs: int, compact: bool, pieces: int) -> None:
        self.size, self.row, self.count, self.n_envs, self.compact = size, row, count, n_envs, compact
        self.length, self.keys = block_length(size, pieces), Keys(size)
        self.group = COMPACT_GROUP if compact else GROUP
        n_sequences = 1 if self.shared else n_envs
        self.tails: Array = np.zeros((n_sequences, len(TAIL)), np.int64)
        self.pieces = [
            Pieces(size=size, row=row, length=self.length, keys=self.keys, tail=tail, compact=compact)
            for tail in self.tails
        ]
        self._table: Array = np.zeros((n_sequences, 2), CHUNK)
        self._changed: set[int] = set()
        self._bases: Array = np.zeros(n_sequences, np.int64)
        """What is added to each sequence's piece numbers to make places in the table of them."""

    @abstractmethod
    def extend(self, env: int, new: Array, before: Array | None) -> None:
        """Append new pieces to an environment's history; ``before`` is the last of it."""

    @abstractmethod
    def extend_simply(self, now: Array, last: Array, ends: Array, *, shift: int, following: bool) -> Array | None:
        """Append what is new of observations where that is simple; return 1 + the kind of those that are left."""

    @abstractmethod
    def places(self, firsts: Array, envs: Array, count: int) -> Array:
        """Return where ``count`` pieces from each first on lie: one place each when they lie together."""

    @abstractmethod
    def drop_before(self, firsts: Array) -> None:
        """Give back what lies before each environment's ``firsts``."""

    def read(self, firsts: Array, envs: Array, out: Array) -> None:
        """Fill ``out`` (items × pieces × bytes) with the pieces from each first on."""
        self._bring_up_to_date()
        self._read(self.places(firsts, envs, out.shape[1]), out)

    def _read(self, places: Array, out: Array) -> None:
        asked, table, length = places, self._table.reshape(-1), self.length
        if self.compact:
            table, places, length, _held = self._unpacked(places, out.shape[1])
        torn = gather(
            table,
            np.ascontiguousarray(places, np.int64),
            out,
            length=length,
            group=min(self.group, length),
            size=self.size,
            row=self.row,
            count=out.shape[1],
        )
        if torn is not None:
            raise CorruptBlockError(f"{self._torn(asked[torn], out.shape[1])}: a piece in it cannot be decoded")

    def _torn(self, places: Array, count: int) -> str:
        """Name the block of the first of an observation's pieces that cannot be read."""
        every = np.atleast_1d(places) if np.ndim(places) else int(places) + np.arange(count)
        if len(every) > 1:
            for place in every.tolist():
                try:
                    self._read(np.array([[place]]), np.empty((1, 1, self.size), np.uint8))
                except CorruptBlockError as error:
                    return str(error).split(":")[0]
        sequence, index = divmod(int(every[0]) // self.length, self._table.shape[1])
        blocks = self.pieces[sequence].blocks if sequence < len(self.pieces) else ()
        if index < len(blocks) and (block := blocks[index]) is not None:
            return f"block {block.content_digest.hex()}"
        return f"the open block of sequence {sequence}"

    def snapshot(self) -> Sequences:
        """Return the sequences as they are now; what is sealed is shared."""
        twin = object.__new__(type(self))  # copy.copy would move the tails of what it copies
        twin.__dict__.update(self.__dict__)
        twin.keys = self.keys.snapshot()
        twin.pieces = [pieces.snapshot(twin.keys) for pieces in self.pieces]
        twin._find_pieces()
        return twin

    def __getstate__(self) -> dict[str, Any]:
        addresses = ("_table", "tails")  # of this process
        return {name: value for name, value in self.__dict__.items() if name not in addresses}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._find_pieces()

    def _find_pieces(self) -> None:
        """Enter anew where everything lies."""
        self.tails = np.zeros((len(self.pieces), len(TAIL)), np.int64)
        for pieces, tail in zip(self.pieces, self.tails, strict=True):
            pieces.move_to(tail)
        self._table = np.zeros((len(self.pieces), 2), CHUNK)
        for sequence, pieces in enumerate(self.pieces):
            for index, block in enumerate(pieces.blocks):
                if block is not None:
                    self._enter_sealed(sequence, index)
        self._changed = set(range(len(self.pieces)))

    def all_changed(self) -> None:
        """Note that something may have been appended to any tail."""
        if len(self._changed) < len(self.pieces):
            self._changed.update(range(len(self.pieces)))

    # --- the table of chunks ---------------------------------------------------------------------------------------

    def _bring_up_to_date(self) -> None:
        """Enter into the table where the open blocks lie now."""
        if not self._changed:
            return
        for sequence in self._changed:
            pieces = self.pieces[sequence]
            self._room_for(len(pieces.blocks) + 1)
            self._table[sequence, len(pieces.blocks)] = pieces.chunk()
        self._changed.clear()
        firsts = np.fromiter((pieces.first for pieces in self.pieces), np.int64, len(self.pieces))
        self._bases = np.arange(len(self.pieces)) * (self._table.shape[1] * self.length) - firsts

    def _room_for(self, blocks: int) -> None:
        if blocks <= self._table.shape[1]:
            return
        wider: Array = np.zeros((len(self.pieces), blocks + blocks // 2), CHUNK)
        wider[:, : self._table.shape[1]] = self._table
        self._table = wider

    def _append(self, sequence: int, piece: Array, before: Array | None) -> int:
        pieces = self.pieces[sequence]
        sealed = len(pieces.blocks)
        number = pieces.append(piece, before)
        if len(pieces.blocks) > sealed:
            self._enter_sealed(sequence, sealed)
        self._changed.add(sequence)
        return number

    def _enter_sealed(self, sequence: int, index: int) -> None:
        block = self.pieces[sequence].block(index)
        self._room_for(index + 2)
        if block.kind != COMPACT:
            self._table[sequence, index] = block.chunk()

    def _leave(self, sequence: int, dropped: int) -> None:
        """Move the table's row up when its first blocks are gone."""
        row = self._table[sequence]
        row[: len(row) - dropped] = row[dropped:].copy()
        self._changed.add(sequence)

    # --- compact blocks --------------------------------------------------------------------------------------------

    def _unpacked(self, places: Array, count: int) -> tuple[Array, Array, int, list[Array | None]]:
        """Return table and places with groups for blocks, after unpacking the groups that are asked for."""
        every = places[:, None] + np.arange(count) if places.ndim == 1 else places
        groups, inverse = np.unique(every // self.group, return_inverse=True)
        chunks, held = [], []
        slots, per_block = self._table.shape[1], self.length // self.group
        for group in groups.tolist():
            number, within = divmod(group, per_block)
            chunk, kept = self._group(number // slots, number % slots, within)
            chunks.append(chunk)
            held.append(kept)
        table: Array = np.array(chunks, CHUNK)
        return table, inverse.reshape(every.shape) * self.group + every % self.group, self.group, held

    def _group(self, sequence: int, index: int, within: int) -> tuple[Chunk, Array | None]:
        """Return where a group's pieces lie, and what keeps them there."""
        pieces = self.pieces[sequence]
        if index >= len(pieces.blocks):
            return pieces.open_group(within), None
        block = pieces.block(index)
        data: Array = np.frombuffer(compact_form.unpack_group(block, within), np.uint8)
        held = min(self.group, block.pieces - within * self.group)
        start, key = address(data), 0 if block.key is None else address(block.key.data)
        return (start, start + 4 * (held + 1), key, held, data.size - 4 * (held + 1)), data

    @property
    def nbytes(self) -> int:
        keys = {key for pieces in self.pieces for key in pieces.keys_in_use} | set(self.keys.recent)
        held = sum(key.data.nbytes + _PER_HASH_BYTES for key in keys)
        tables = self._table.nbytes + self.tails.nbytes + self.keys.scratch.nbytes
        return int(sum(pieces.nbytes for pieces in self.pieces) + held + tables)


class OwnSequences(Sequences):
    """A sequence for each environment: an observation's pieces lie together."""

    shared = False

    def extend_simply(self, now: Array, last: Array, ends: Array, *, shift: int, following: bool) -> Array | None:
        self.all_changed()
        return extend(
            self.tails, now, last, ends, shift=shift, group=self.group, length=self.length, following=following
        )

    def extend(self, env: int, new: Array, before: Array | None) -> None:
        for piece in new:
            self._append(env, piece, before)
            before = piece

    def places(self, firsts: Array, envs: Array, count: int) -> Array:
        return firsts + self._bases[envs]

    def drop_before(self, firsts: Array) -> None:
        for env, (pieces, first) in enumerate(zip(self.pieces, firsts.tolist(), strict=True)):
            if first - pieces.first >= self.length and (dropped := pieces.drop_before(first)):
                self._leave(env, dropped)


class SharedSequence(Sequences):
    """One sequence for all: a piece that was seen before is not appended again."""

    shared = True

    def __init__(self, *, size: int, row: int, count: int, n_envs: int, compact: bool, pieces: int) -> None:
        super().__init__(size=size, row=row, count=count, n_envs=n_envs, compact=compact, pieces=pieces)
        self._histories = [_History() for _ in range(n_envs)]
        self._known: dict[int, int] | None = {}
        self._uses: Array = np.zeros(4, np.int64)
        self._last: Array | None = None
        self._fruitless = 0

    def snapshot(self) -> Sequences:
        twin: Any = super().snapshot()
        twin._histories = [history.snapshot() for history in self._histories]
        twin._known = None if self._known is None else self._known.copy()
        twin._uses = self._uses.copy()
        shared: SharedSequence = twin
        return shared

    def extend_simply(self, now: Array, last: Array, ends: Array, *, shift: int, following: bool) -> Array | None:
        kinds = compare(now, last, shift)
        nothing_new = (kinds == SAME) | ((kinds == STILL) & (not following))
        return np.where(nothing_new, 0, kinds + 1)

    def extend(self, env: int, new: Array, before: Array | None) -> None:
        known = sum(self._take(env, piece) for piece in new)
        if len(new) == self.count and self._known is not None:
            self._fruitless = 0 if known else self._fruitless + 1
            if self._fruitless > _FRUITLESS_WINDOWS:
                self._known = None

    def _take(self, env: int, piece: Array) -> bool:
        """Enter a piece into an environment's history; return whether it was known."""
        name = xxhash.xxh3_64_intdigest(piece) if self._known is not None else 0
        number = self._find(name, piece)
        found = number is not None
        if number is None:
            number = self._append(0, piece, self._last)
            if self._last is None:
                self._last = piece.copy()
            self._last[:] = piece
            if self._known is not None:
                self._known[name] = number
        self._use(number)
        self._histories[env].append(number)
        return found

    def _find(self, name: int, piece: Array) -> int | None:
        """Return the number of a piece that is the same to the last bit; a hash alone is not believed."""
        number = None if self._known is None else self._known.get(name)
        if number is None or self._is_gone(number):
            return None
        there: Array = np.empty((1, 1, self.size), np.uint8)
        self._bring_up_to_date()
        self._read(np.array([[number + int(self._bases[0])]]), there)
        return number if np.array_equal(there[0, 0], piece) else None

    def _is_gone(self, number: int) -> bool:
        pieces = self.pieces[0]
        index = (number - pieces.first) // self.length
        return number < pieces.first or (index < len(pieces.blocks) and pieces.blocks[index] is None)

    def _use(self, number: int) -> None:
        index = (number - self.pieces[0].first) // self.length
        if index >= self._uses.size:
            self._uses = np.concatenate([self._uses, np.zeros(max(index, 4), np.int64)])
        self._uses[index] += 1

    def places(self, firsts: Array, envs: Array, count: int) -> Array:
        base = int(self._bases[0])
        out: Array = np.empty((len(firsts), count), np.int64)
        for item, (first, env) in enumerate(zip(firsts.tolist(), envs.tolist(), strict=True)):
            out[item] = self._histories[env].numbers(first, count)
        return out + base

    def drop_before(self, firsts: Array) -> None:
        """Forget what the environments' histories no longer need, and the blocks that no history names."""
        first = self.pieces[0].first
        for history, keep in zip(self._histories, firsts.tolist(), strict=True):
            gone = history.drop_before(keep)
            if gone.size:
                self._uses -= np.bincount((gone - first) // self.length, minlength=self._uses.size)
        self._release()

    def _release(self) -> None:
        pieces = self.pieces[0]
        unused = [index for index, block in enumerate(pieces.blocks) if block is not None and self._uses[index] == 0]
        for index in unused:
            pieces.blocks[index] = None
            self._table[0, index] = np.zeros((), CHUNK)
        if unused and self._known is not None:
            self._known = {name: number for name, number in self._known.items() if not self._is_gone(number)}
        dropped = 0
        while dropped < len(pieces.blocks) and pieces.blocks[dropped] is None:
            dropped += 1
        if dropped:
            pieces.drop_before(pieces.first + dropped * self.length)
            self._uses = np.concatenate([self._uses[dropped:], np.zeros(dropped, np.int64)])
            self._leave(0, dropped)

    @property
    def nbytes(self) -> int:
        known = 0 if self._known is None else len(self._known) * _PER_HASH_BYTES
        last = 0 if self._last is None else self._last.nbytes
        return int(super().nbytes + known + last + sum(item.nbytes for item in self._histories) + self._uses.nbytes)


class _History:
    """The numbers of an environment's pieces, the oldest of which can be dropped."""

    def snapshot(self) -> _History:
        twin = copy.copy(self)
        twin._numbers = self._numbers[: self._count].copy()
        return twin

    def __init__(self) -> None:
        self._numbers: Array = np.zeros(16, np.uint32)
        self._first = self._count = 0

    def append(self, number: int) -> None:
        if self._count == self._numbers.size:
            self._numbers = np.concatenate([self._numbers, np.zeros(max(self._count // 2, 16), np.uint32)])
        self._numbers[self._count] = number
        self._count += 1

    def numbers(self, first: int, count: int) -> Array:
        start = first - self._first
        if start < 0 or start + count > self._count:
            raise CorruptBlockError(f"pieces {first} to {first + count} must be in the history, but are not")
        return self._numbers[start : start + count]

    def drop_before(self, first: int) -> Array:
        """Forget what comes before ``first``, now and then; return the numbers that were forgotten."""
        gone = first - self._first
        if gone < max(self._count // 4, 64):
            return np.zeros(0, np.int64)
        numbers: Array = self._numbers[:gone].astype(np.int64)
        self._numbers = self._numbers[gone : self._count].copy()
        self._first, self._count = first, self._count - gone
        return numbers

    @property
    def nbytes(self) -> int:
        return int(self._numbers.nbytes)

"""A column taken apart and put together again: what a store writes of it.

What is sealed comes out as the blocks and keys that the column itself holds, and nothing of it is copied. The rest is
small: numbers that describe the column, and arrays for its index and for the open ends of its sequences. What is put
together is checked first, since it may have come from anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from rlmem.errors import CorruptBlockError
from rlmem.lean.block import COMPACT, Block, Key
from rlmem.lean.column import Column
from rlmem.lean.kernels import Array
from rlmem.lean.layout import Layout
from rlmem.lean.packing import Packing
from rlmem.lean.pieces import Pieces
from rlmem.lean.rows import Rows
from rlmem.lean.sequences import Sequences, SharedSequence

_MOST: Final = 2**40
"""Neither an observation's bytes nor a column's rows are more than this: arrays of it cannot be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnParts:
    """A column as of one instant: ``head`` is plain JSON; ``blocks`` are by sequence, None where one was given back."""

    head: Mapping[str, Any]
    arrays: Mapping[str, Array]
    blocks: Sequence[Sequence[Block | None]]
    keys: Sequence[Key]


# --- taking apart ----------------------------------------------------------------------------------------------------


def take_apart(column: Column) -> ColumnParts:
    """Return the parts of a column as it is now; its writer may go on."""
    with column._lock:
        held: Rows = column.__getstate__()["_held"]
        seen = held.sequences
        extra_head, extra_arrays = _apart_shared(seen) if isinstance(seen, SharedSequence) else ({}, {})
        written = column._written
    head = _described(column, held) | {"written": written} | extra_head
    arrays = _index_of(held) | _tails_of(seen.pieces) | extra_arrays
    keys = {key.digest: key for pieces in seen.pieces for key in pieces.keys_in_use}
    keys |= {key.digest: key for key in seen.keys.recent}
    return ColumnParts(
        head=head, arrays=arrays, blocks=[[*pieces.blocks] for pieces in seen.pieces], keys=[*keys.values()]
    )


def _described(column: Column, held: Rows) -> dict[str, Any]:
    layout, packing = held.layout, held.packing
    return {
        "rows": column.rows,
        "n_envs": column.n_envs,
        "shape": [*column.shape],
        "dtype": column.dtype.str,
        "follows": column.follows,
        "compact": column.compact,
        "shared": held.sequences.shared,
        "layout": {
            "axis": layout.axis,
            "count": layout.count,
            "shift": layout.shift,
            "newest_first": layout.newest_first,
        },
        "packing": {
            "narrow": None if packing.narrow is None else packing.narrow.str,
            "values": [int(value) for value in packing.values],
        },
        "held": {"written": held.written, "kept_from": held.kept_from, "begun_at": held.begun_at},
        "length": held.sequences.length,
        "group": held.sequences.group,
        "sequences": [_sequence_head(pieces) for pieces in held.sequences.pieces],
        "recent": [key.digest.hex() for key in held.sequences.keys.recent],
    }


def _sequence_head(pieces: Pieces) -> dict[str, Any]:
    return {
        "first": pieces.first,
        "opened": pieces.opened,
        "used": _used(pieces),
        "plain": bool(pieces._plain),
        "plain_blocks": pieces._plain_blocks,
        "key": None if pieces._key is None else pieces._key.digest.hex(),
    }


def _used(pieces: Pieces) -> int:
    return int(pieces.chunk()[4])


def _index_of(held: Rows) -> dict[str, Array]:
    index = {"firsts": held.firsts, "next_firsts": held.next_firsts, "end": held._end, "last": held._last}
    return {name: array for name, array in index.items() if array is not None}


def _tails_of(every: Sequence[Pieces]) -> dict[str, Array]:
    payloads = [pieces._payload[: _used(pieces)] for pieces in every]
    offsets = [pieces._offsets[: 0 if pieces._plain else pieces.opened + 1] for pieces in every]
    return {"tails": np.concatenate(payloads), "tail_offsets": np.concatenate(offsets).astype("<u4")}


def _apart_shared(shared: SharedSequence) -> tuple[dict[str, Any], dict[str, Array]]:
    histories, known = shared._histories, shared._known
    numbers = [history._numbers[: history._count] for history in histories]
    arrays: dict[str, Array] = {"histories": np.concatenate(numbers), "uses": shared._uses}
    if shared._last is not None:
        arrays["shared_last"] = shared._last.copy()  # a snapshot has the one that is written over
    if known is not None:
        arrays["known_names"] = np.fromiter(known.keys(), np.uint64, len(known))
        arrays["known_numbers"] = np.fromiter(known.values(), np.int64, len(known))
    starts = [[history._first, history._count] for history in histories]
    return {"histories": starts, "fruitless": shared._fruitless}, arrays


# --- putting together ------------------------------------------------------------------------------------------------


def put_together(parts: ColumnParts) -> Column:
    """Return the column whose parts these are, to be read and written on; raise CorruptBlockError if they do not fit.

    Arrays are taken over, not copied, except for the open ends.
    """
    try:
        return _put_together(parts)
    except (KeyError, TypeError, ValueError, OverflowError, MemoryError, AttributeError, IndexError) as error:
        raise CorruptBlockError(f"a column's parts do not fit together: {type(error).__name__}: {error}") from error


def _put_together(parts: ColumnParts) -> Column:
    head = parts.head
    column = _empty_column(head)
    held = column._held
    _restore_index(held, head, parts.arrays)
    keys = {key.digest: key for key in parts.keys}
    seen = held.sequences
    _restore_lengths(seen, head)
    seen.keys.recent.extend(keys[bytes.fromhex(name)] for name in head["recent"])
    _must(all(key.data.size == seen.size for key in parts.keys), "a key is of another size than its pieces")
    _restore_sequences(seen, parts, keys)
    if isinstance(seen, SharedSequence):
        _restore_shared(seen, head, parts.arrays)
    _check_index(held)
    seen._find_pieces()
    return column


def _must(holds: bool, what: str) -> None:
    if not holds:
        raise CorruptBlockError(f"a column's parts do not fit together: {what}")


def _natural(value: object, *, least: int = 0) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 2**62:
        raise CorruptBlockError(f"a column's parts must have whole numbers from {least} on, but got {value!r:.40}")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise CorruptBlockError(f"a column's parts must say true or false here, but got {value!r:.40}")
    return value


def _empty_column(head: Mapping[str, Any]) -> Column:
    """Return a column as described, without rows."""
    dtype = np.dtype(head["dtype"])
    shape = tuple(_natural(side, least=1) for side in head["shape"])
    _must(dtype.kind in "biufc" and math.prod(shape) * dtype.itemsize < _MOST, "its shape cannot be")
    _must(len(head["sequences"]) == (1 if head["shared"] else head["n_envs"]), "sequences are missing")
    rows, n_envs = _natural(head["rows"], least=1), _natural(head["n_envs"], least=1)
    _must(rows * n_envs < _MOST, "its rows cannot be")
    follows, compact = _flag(head["follows"]), _flag(head["compact"])
    column = Column(rows=rows, n_envs=n_envs, shape=shape, dtype=dtype, follows=follows, compact=compact)
    column._written = _natural(head["written"])
    column._held = column._empty(
        _layout(head["layout"], shape, dtype),
        _packing(head["packing"], dtype),
        shared=_flag(head["shared"]),
        begun_at=_natural(head["held"]["begun_at"]),
    )
    return column


def _layout(head: Mapping[str, Any], shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Layout:
    axis, count, shift = (_natural(head[name]) for name in ("axis", "count", "shift"))
    _must(axis < max(len(shape), 1) and count > 0 and shift <= count, "its layout cannot be")
    _must(count == 1 or shape[axis] % count == 0, "its layout cannot be")
    newest_first = _flag(head["newest_first"])
    return Layout(shape=shape, dtype=dtype, axis=axis, count=count, shift=shift, newest_first=newest_first)


def _packing(head: Mapping[str, Any], dtype: np.dtype[np.generic]) -> Packing:
    values = tuple(_natural_word(value) for value in head["values"])
    narrow = None if head["narrow"] is None else np.dtype(head["narrow"])
    _must(len(values) <= 16 and list(values) == sorted(set(values)), "its packing cannot be")
    _must(narrow is None or (narrow.kind in "uif" and narrow.itemsize < dtype.itemsize), "its packing cannot be")
    return Packing(dtype=dtype, narrow=narrow, values=values)


def _natural_word(value: object) -> int:
    _must(isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**64, "its packing cannot be")
    return value  # type: ignore[return-value]  # which has just been seen to


def _restore_index(held: Rows, head: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    held.written, held.kept_from = (_natural(head["held"][name]) for name in ("written", "kept_from"))
    _must(held.begun_at <= held.kept_from <= held.written, "its rows are counted wrongly")
    held.firsts = _shaped(arrays["firsts"], held.firsts.shape, np.uint32)
    held._end = _shaped(arrays["end"], (held.n_envs,), np.int64)
    if "next_firsts" in arrays:
        held.next_firsts = _shaped(arrays["next_firsts"], held.firsts.shape, np.uint32)
    if "last" in arrays:
        held._last = _shaped(arrays["last"], (held.n_envs, held.layout.count, held.sequences.size), np.uint8)


def _restore_lengths(seen: Sequences, head: Mapping[str, Any]) -> None:
    """Go on with blocks and chains as long as they were: another rlmem may make new columns otherwise."""
    length, group = _natural(head["length"], least=1), _natural(head["group"], least=1)
    _must(length * (seen.size + 1) < 2**32 or length == 1, "its blocks cannot be so long")
    _must(length % group == 0 or not seen.compact, "its blocks are no whole groups")
    seen.length, seen.group = length, group
    for pieces in seen.pieces:
        pieces.length, pieces.group = length, group


def _shaped(array: Array, shape: tuple[int, ...], dtype: Any) -> Array:
    _must(array.shape == shape and array.dtype == dtype, f"an array must be {shape} of {np.dtype(dtype)}")
    return np.require(array, requirements=["C", "A", "W", "O"])


def _restore_sequences(seen: Sequences, parts: ColumnParts, keys: Mapping[bytes, Key]) -> None:
    tails, offsets = parts.arrays["tails"], parts.arrays["tail_offsets"]
    _must(tails.dtype == np.uint8 and tails.ndim == 1 and offsets.dtype == np.uint32 and offsets.ndim == 1, "its tails")
    _must(len(parts.blocks) == len(seen.pieces), "the blocks of a sequence are missing")
    used = begun = 0
    for pieces, head, blocks in zip(seen.pieces, parts.head["sequences"], parts.blocks, strict=True):
        for block in blocks:
            _check_block(block, seen)
        pieces.blocks.extend(blocks)
        pieces.first = _natural(head["first"])
        pieces._plain_blocks = _natural(head["plain_blocks"])
        pieces._key = None if head["key"] is None else keys[bytes.fromhex(head["key"])]
        stop = used + _natural(head["used"])
        count = 0 if _flag(head["plain"]) else _natural(head["opened"]) + 1
        _must(stop <= tails.size and begun + count <= offsets.size, "an open block is cut short")
        _restore_tail(pieces, head, tails[used:stop], offsets[begun : begun + count])
        used, begun = stop, begun + count
    _must(used == tails.size and begun == offsets.size, "its open blocks are longer than they say")


def _check_block(block: Block | None, seen: Sequences) -> None:
    if block is None:
        _must(seen.shared, "a block is missing")
        return
    same = (block.piece_bytes, block.pieces, block.row, block.group) == (seen.size, seen.length, seen.row, seen.group)
    _must(same and (block.kind == COMPACT) == seen.compact, "a block is of another kind")


def _restore_tail(pieces: Pieces, head: Mapping[str, Any], payload: Array, offsets: Array) -> None:
    opened, plain = _natural(head["opened"]), bool(head["plain"])
    _must(opened < pieces.length, "an open block is full")
    if plain:
        _must(payload.size == opened * pieces.size, "an open block is cut short")
    else:
        rising = offsets[0] == 0 and offsets[-1] == payload.size and not (offsets[1:] < offsets[:-1]).any()
        _must(bool(rising), "the pieces of an open block lie outside of it")
    pieces.restore_tail(plain=plain, opened=opened, payload=payload, offsets=offsets)


def _check_index(held: Rows) -> None:
    """What rows name must be there: the first and the last piece of each, in the history of its environment."""
    seen = held.sequences
    if isinstance(seen, SharedSequence):
        begins = [history._first for history in seen._histories]
        ends = [history._first + history._count for history in seen._histories]
    else:
        begins, ends = [pieces.first for pieces in seen.pieces], [pieces.end for pieces in seen.pieces]
    _must(held._end.tolist() == ends, "its histories end elsewhere than it says")
    if held.counted:
        _must(max(begins) <= held.kept_from - held.begun_at, "a row is missing")
        _must(ends == [held.written - held.begun_at] * held.n_envs, "a row is missing")
        return
    rows: Array = np.arange(max(held.written - held.rows, held.kept_from), held.written) % held.rows
    for firsts in (held.firsts, held.next_firsts):
        if firsts is not None and rows.size:
            living = firsts[rows].astype(np.int64)
            within = (living >= np.array(begins)).all() and (living + held.layout.count <= np.array(ends)).all()
            _must(bool(within), "a row lies outside of its history")


def _restore_shared(shared: SharedSequence, head: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    numbers, start = arrays["histories"], 0
    _must(numbers.dtype == np.uint32 and numbers.ndim == 1, "its histories")
    _must(len(head["histories"]) == len(shared._histories), "a history is missing")
    for history, (first, count) in zip(shared._histories, head["histories"], strict=True):
        _must(start + _natural(count) <= numbers.size, "a history is cut short")
        history._first, history._count = _natural(first), count
        history._numbers = numbers[start : start + count].copy()
        start += count
    uses = arrays["uses"]
    _must(uses.dtype == np.int64 and uses.ndim == 1 and uses.size >= len(shared.pieces[0].blocks), "its uses")
    shared._uses = uses.copy()
    shared._fruitless = _natural(head["fruitless"])
    shared._last = _shaped(arrays["shared_last"], (shared.size,), np.uint8) if "shared_last" in arrays else None
    shared._known = None
    if "known_names" in arrays:
        names, known = arrays["known_names"].tolist(), arrays["known_numbers"].tolist()
        shared._known = dict(zip(names, known, strict=True))

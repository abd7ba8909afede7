"""What `kernels.c` does, in NumPy: for machines without the compiled kernels, and for the tests to compare with."""

from __future__ import annotations

import ctypes
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]

RAW, PREV, KEY, SELF = range(4)
SAME, MOVED_ON, NEW, STILL = range(4)
MERGED_GAP: Final = 2

CHUNK: Final = np.dtype([("offsets", "u8"), ("payload", "u8"), ("key", "u8"), ("pieces", "i8"), ("bytes", "i8")])
"""Where a chunk of consecutive pieces lies in memory. Without offsets its pieces are plain, one after the other."""


TAIL: Final = ("payload", "offsets", "used", "room", "opened", "offsets_room", "plain")
"""The open end of a sequence, one number each: addresses, how far they are filled, and whether pieces lie plain."""


class Torn(ValueError):  # noqa: N818 - it says what the bytes are
    """Encoded bytes that cannot have been written by the encoder."""


def runs(base: Array, now: Array, out: Array, room: int) -> int | None:
    changed = np.flatnonzero(base != now)
    written = done = 0
    for run in np.split(changed, np.flatnonzero(np.diff(changed) > MERGED_GAP + 1) + 1) if changed.size else ():
        start, end = int(run[0]), int(run[-1]) + 1
        head = varint(start - done) + varint(end - start)
        if written + 20 + end - start > room:
            return None
        out[written : written + len(head)] = np.frombuffer(head, np.uint8)
        written += len(head)
        out[written : written + end - start] = now[start:end]
        written += end - start
        done = end
    return written


def varint(value: int) -> bytes:
    """Return a number as seven bits a byte, the lowest first."""
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def gather(
    chunks: Array, places: Array, out: Array, *, length: int, group: int, size: int, row: int, count: int
) -> int | None:
    for item, target in enumerate(out.reshape(len(out), count, size)):
        for index in range(count):
            place = int(places[item]) + index if places.ndim == 1 else int(places[item, index])
            try:
                target[index] = _piece(chunks, place, length=length, group=group, size=size, row=row)
            except Torn:
                return item
    return None


def _piece(chunks: Array, place: int, *, length: int, group: int, size: int, row: int) -> Array:
    number, index = divmod(place, length)
    if place < 0 or number >= len(chunks) or index >= chunks[number]["pieces"]:
        raise Torn
    offsets_at, payload_at, key_at, _, held = (int(value) for value in chunks[number])
    if not offsets_at:
        if (index + 1) * size > held:
            raise Torn
        return _at(payload_at + index * size, size)
    offsets = _at(offsets_at, 4 * (index + 2)).view(np.uint32)
    if offsets.max() > held:
        raise Torn
    payload = _at(payload_at, int(offsets.max()))
    key = _at(key_at, size) if key_at else None
    piece = None
    for number in range(index - index % group, index + 1):
        piece = decode(payload[offsets[number] : offsets[number + 1]], before=piece, key=key, size=size, row=row)
    if piece is None:
        raise Torn
    return piece


def _at(address: int, size: int) -> Array:
    return np.frombuffer((ctypes.c_uint8 * size).from_address(address), np.uint8)


def decode(encoded: Array, *, before: Array | None, key: Array | None, size: int, row: int) -> Array:
    """Return a piece from its encoded bytes."""
    if not encoded.size:
        raise Torn
    how, body = int(encoded[0]), encoded[1:]
    if how == RAW and body.size == size:
        return body
    if how == SELF:
        return _from_itself(body, size, row)
    base = {PREV: before, KEY: key}.get(how)
    if base is None:
        raise Torn
    piece = base.copy()
    for start, values in _runs(body, size):
        piece[start : start + values.size] = values
    return piece


def _from_itself(body: Array, size: int, row: int) -> Array:
    piece: Array = np.zeros(size, np.uint8)
    changed: Array = np.zeros(size, bool)
    for start, values in _runs(body, size):
        piece[start : start + values.size] = values
        changed[start : start + values.size] = True
    for start in range(row, size, row):
        stop = min(start + row, size)
        above = piece[start - row : stop - row]
        piece[start:stop] = np.where(changed[start:stop], piece[start:stop], above)
    return piece


def _runs(body: Array, size: int) -> list[tuple[int, Array]]:
    found, at, place, data = [], 0, 0, body.tobytes()
    while at < len(data):
        skip, at = _read_varint(data, at)
        length, at = _read_varint(data, at)
        place += skip
        if place + length > size or at + length > len(data):
            raise Torn
        found.append((place, body[at : at + length]))
        place, at = place + length, at + length
    return found


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 63:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise Torn


def extend(
    _tails: Array, now: Array, last: Array, _ends: Array, *, shift: int, group: int, length: int, following: bool
) -> Array:
    """Leave everything that is new to the caller, who knows how to append it."""
    kinds = compare(now, last, shift)
    nothing_new = (kinds == SAME) | ((kinds == STILL) & (not following))
    return np.where(nothing_new, 0, kinds + 1).astype(np.uint8)


def compare(now: Array, last: Array, shift: int) -> Array:
    same = (now == last).all(axis=(1, 2))
    moved = (now[:, : now.shape[1] - shift] == last[:, shift:]).all(axis=(1, 2)) if shift else same
    return np.where(moved, np.where(same, STILL, MOVED_ON), np.where(same, SAME, NEW)).astype(np.uint8)

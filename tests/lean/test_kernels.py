"""The compiled kernels against their NumPy twin, and both against bytes that nobody encoded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rlmem.lean import fallback, kernels
from rlmem.lean.fallback import CHUNK, KEY, MOVED_ON, NEW, PREV, RAW, SAME, SELF, STILL

Array = NDArray[Any]

GROUP = 4
GUARD_BYTES = 64
GUARD = 0xA5
VARINT_BOUNDARIES = [1, 126, 127, 128, 129, 16383, 16384, 16385]

compiled = pytest.mark.skipif(not kernels.COMPILED, reason="no compiled kernels here: `pip install -e .` builds them")

sizes = st.one_of(st.integers(1, 64), st.integers(1, 5000), st.sampled_from([n for n in VARINT_BOUNDARIES if n < 5000]))
seeds = st.integers(0, 2**32 - 1)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Array, Array]:
    """Two pieces that differ in runs, near each other and far apart."""
    lengths = st.one_of(st.integers(1, 4), st.integers(1, 40), st.sampled_from(VARINT_BOUNDARIES))
    base = np.random.default_rng(draw(seeds)).integers(0, 256, draw(sizes), np.uint8)
    if draw(st.booleans()):
        base = np.concatenate([base, np.zeros(40_000, np.uint8)])
    now, at = base.copy(), draw(st.integers(0, 8))
    for gap, length in draw(st.lists(st.tuples(lengths, lengths), max_size=12)):
        now[at : at + length] ^= np.uint8(draw(st.integers(1, 255)))
        at += length + gap
    return base, now


def written_by(runs: Any, base: Array, now: Array, room: int) -> bytes | None:
    """Return the runs that a kernel writes, after a look at the guards around them."""
    memory = np.full(room + 2 * GUARD_BYTES, GUARD, np.uint8)
    out = memory[GUARD_BYTES : GUARD_BYTES + room]
    written = runs(base, now, out, room)
    assert (memory[:GUARD_BYTES] == GUARD).all()
    assert (memory[GUARD_BYTES + room :] == GUARD).all()
    return None if written is None else out[:written].tobytes()


def with_kind(kind: int, body: bytes) -> Array:
    return np.frombuffer(bytes([kind]) + body, np.uint8)


# --- what changed ------------------------------------------------------------------------------------------------


@compiled
@given(pair=pairs(), short_by=st.integers(0, 60))
def test_both_write_the_same_runs_or_find_that_they_do_not_fit(pair: tuple[Array, Array], short_by: int) -> None:
    base, now = pair
    room = max(2 * now.size + 64 - short_by * now.size // 20, 0)
    assert written_by(kernels.runs, base, now, room) == written_by(fallback.runs, base, now, room)


@pytest.mark.parametrize("runs", [kernels.runs, fallback.runs], ids=["kernels", "fallback"])
@given(pair=pairs())
@settings(deadline=None)
def test_runs_lead_from_one_piece_to_the_other(runs: Any, pair: tuple[Array, Array]) -> None:
    base, now = pair
    body = written_by(runs, base, now, 2 * now.size + 64)
    assert body is not None
    decoded = fallback.decode(with_kind(PREV, body), before=base, key=None, size=now.size, row=1)
    assert decoded.tobytes() == now.tobytes()


@pytest.mark.parametrize("runs", [kernels.runs, fallback.runs], ids=["kernels", "fallback"])
@pytest.mark.parametrize(("gap", "n_runs"), [(1, 1), (2, 1), (3, 2), (4, 2)])
def test_a_short_gap_is_repeated_and_a_longer_one_skipped(runs: Any, gap: int, n_runs: int) -> None:
    base, now = np.zeros(64, np.uint8), np.zeros(64, np.uint8)
    now[10] = now[11 + gap] = 7
    whole = bytes([10, gap + 2, 7, *[0] * gap, 7])
    split = bytes([10, 1, 7, gap, 1, 7])
    assert written_by(runs, base, now, 128) == (whole if n_runs == 1 else split)


@pytest.mark.parametrize("runs", [kernels.runs, fallback.runs], ids=["kernels", "fallback"])
@pytest.mark.parametrize("place", [0, 127, 128, 16383, 16384, 2**21 - 1, 2**21, 3 * 2**20 - 1])
def test_a_change_far_off_in_a_large_piece(runs: Any, place: int) -> None:
    base = np.random.default_rng(1).integers(0, 256, 3 * 2**20, np.uint8)
    now = base.copy()
    now[place] ^= 1
    assert written_by(runs, base, now, 64) == fallback.varint(place) + bytes([1, now[place]])


@pytest.mark.parametrize("runs", [kernels.runs, fallback.runs], ids=["kernels", "fallback"])
def test_a_long_change_far_off_in_a_large_piece(runs: Any) -> None:
    base = np.zeros(5 * 2**20, np.uint8)
    now = base.copy()
    now[2**21 + 3 : 2**22 + 5] = 9
    length = 2**22 + 5 - (2**21 + 3)
    expected = fallback.varint(2**21 + 3) + fallback.varint(length) + bytes([9]) * length
    assert written_by(runs, base, now, now.size) == expected


@pytest.mark.parametrize("runs", [kernels.runs, fallback.runs], ids=["kernels", "fallback"])
def test_nothing_changed_takes_no_room(runs: Any) -> None:
    piece = np.arange(100, dtype=np.uint8)
    assert written_by(runs, piece, piece.copy(), 0) == b""


# --- pieces put together -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Chunks:
    """Chunks of pieces in memory. ``offsets``, ``payloads`` and ``key`` keep alive what ``table`` points to."""

    table: Array
    offsets: list[Array | None]
    payloads: list[Array]
    key: Array | None
    pieces: Array
    size: int
    row: int
    length: int

    def gather(self, how: Any, places: Array, count: int) -> tuple[int | None, Array]:
        """Return what a kernel says and what it read, after a look at the guards around it."""
        read_bytes = len(places) * count * self.size
        memory = np.full(read_bytes + 2 * GUARD_BYTES, GUARD, np.uint8)
        out = memory[GUARD_BYTES : GUARD_BYTES + read_bytes].reshape(len(places), count, self.size)
        torn = how(self.table, places, out, length=self.length, group=GROUP, size=self.size, row=self.row, count=count)
        assert (memory[:GUARD_BYTES] == GUARD).all()
        assert (memory[GUARD_BYTES + read_bytes :] == GUARD).all()
        return torn, out


def table_of(offsets: list[Array | None], payloads: list[Array], key: Array | None, held: list[int]) -> Array:
    rows = zip(offsets, payloads, held, strict=True)
    return np.array(
        [
            (
                0 if own is None else own.ctypes.data,
                body.ctypes.data,
                0 if key is None else key.ctypes.data,
                pieces,
                body.size,
            )
            for own, body, pieces in rows
        ],
        CHUNK,
    )


def encoded(piece: Array, kind: int, *, before: Array | None, key: Array, row: int) -> Array:
    """Return a piece encoded as asked, or raw where it cannot be."""
    if kind == RAW or (kind == PREV and before is None):
        return with_kind(RAW, piece.tobytes())
    above = np.zeros_like(piece)
    above[row:] = piece[:-row] if row < piece.size else 0
    base = {PREV: before, KEY: key, SELF: above}[kind]
    body = written_by(kernels.runs, base, piece, 12 * piece.size + 64)
    assert body is not None
    return with_kind(kind, body)


@st.composite
def chunks(draw: st.DrawFn) -> Chunks:
    """Chunks of encoded and of plain pieces, the last one not full."""
    size, rng = draw(sizes), np.random.default_rng(draw(seeds))
    row, length, n_chunks = draw(st.integers(1, size)), GROUP * draw(st.integers(1, 3)), draw(st.integers(1, 3))
    held = [length] * (n_chunks - 1) + [draw(st.integers(1, length))]
    key = rng.integers(0, 256, size, np.uint8)
    kinds = draw(st.lists(st.sampled_from([RAW, PREV, KEY, SELF]), min_size=sum(held), max_size=sum(held)))
    pieces = np.repeat(key[None], sum(held), 0)
    for piece in pieces:
        piece[rng.integers(0, size) :][: rng.integers(0, 40)] = rng.integers(0, 256)
    offsets: list[Array | None] = []
    payloads = []
    for number, n_pieces in enumerate(held):
        own = pieces[number * length :][:n_pieces]
        if draw(st.integers(0, 3)) == 0:
            offsets.append(None)
            payloads.append(own.copy().reshape(-1))
            continue
        bodies = [
            encoded(piece, kinds[number * length + i], before=own[i - 1] if i % GROUP else None, key=key, row=row)
            for i, piece in enumerate(own)
        ]
        offsets.append(np.cumsum([0, *(body.size for body in bodies)]).astype(np.uint32))
        payloads.append(np.concatenate(bodies))
    table = table_of(offsets, payloads, key, held)
    return Chunks(
        table=table, offsets=offsets, payloads=payloads, key=key, pieces=pieces, size=size, row=row, length=length
    )


def asked(draw: Any, n_pieces: int, *, together: bool) -> tuple[Array, int]:
    """Return places of pieces that are there, and how many make an item."""
    count = draw(st.integers(1, min(n_pieces, 6)))
    if together:
        firsts = draw(st.lists(st.integers(0, n_pieces - count), min_size=1, max_size=6))
        return np.array(firsts, np.int64), count
    row = st.lists(st.integers(0, n_pieces - 1), min_size=count, max_size=count)
    return np.array(draw(st.lists(row, min_size=1, max_size=6)), np.int64), count


@pytest.mark.parametrize("how", [kernels.gather, fallback.gather], ids=["kernels", "fallback"])
@pytest.mark.parametrize("together", [True, False], ids=["together", "anywhere"])
@given(chunks=chunks(), data=st.data())
@settings(deadline=None)
def test_what_was_encoded_is_read_back(how: Any, together: bool, chunks: Chunks, data: Any) -> None:
    places, count = asked(data.draw, len(chunks.pieces), together=together)
    every = places[:, None] + np.arange(count) if together else places
    torn, out = chunks.gather(how, places, count)
    assert torn is None
    assert out.tobytes() == chunks.pieces[every].tobytes()


@pytest.mark.parametrize("how", [kernels.gather, fallback.gather], ids=["kernels", "fallback"])
@given(chunks=chunks(), past=st.one_of(st.integers(0, 3), st.integers(0, 2**62)), before=st.booleans())
@settings(deadline=None)
def test_a_piece_that_is_not_there_is_told_by_its_item(how: Any, chunks: Chunks, past: int, before: bool) -> None:
    place = -1 - past if before else len(chunks.pieces) + past
    torn, _ = chunks.gather(how, np.array([0, place, 0], np.int64), 1)
    assert torn == 1


@pytest.mark.parametrize("how", [kernels.gather, fallback.gather], ids=["kernels", "fallback"])
def test_nothing_asked_for_is_nothing_read(how: Any) -> None:
    payload = np.zeros(8, np.uint8)
    table = table_of([None], [payload], None, [1])
    out = np.empty((0, 1, 8), np.uint8)
    assert how(table, np.zeros(0, np.int64), out, length=GROUP, group=GROUP, size=8, row=1, count=1) is None


# --- torn and hostile input --------------------------------------------------------------------------------------


@st.composite
def nonsense(draw: st.DrawFn) -> Chunks:
    """A chunk whose payload nobody encoded; its offsets stay inside of the payload, as a block's reader sees to."""
    size = draw(st.integers(1, 80))
    kinds = st.sampled_from([RAW, PREV, KEY, SELF, 4, 255])
    numbers = st.one_of(st.integers(0, 40), st.sampled_from([127, 128, 129, 255]))
    bodies = draw(st.lists(st.tuples(kinds, st.lists(numbers, max_size=size + 2)), min_size=1, max_size=2 * GROUP))
    parts = [bytes([kind, *body]) for kind, body in bodies]
    offsets = np.cumsum([0, *map(len, parts)]).astype(np.uint32)
    payload = np.frombuffer(b"".join(parts), np.uint8).copy()
    if draw(st.booleans()):  # torn: pieces that end too early, begin too late or lie the wrong way round
        others = st.integers(0, payload.size)
        offsets = np.array(draw(st.lists(others, min_size=offsets.size, max_size=offsets.size)), np.uint32)
    key = np.arange(size, dtype=np.uint8) if draw(st.booleans()) else None
    return Chunks(
        table=table_of([offsets], [payload], key, [len(parts)]),
        offsets=[offsets],
        payloads=[payload],
        key=key,
        pieces=np.zeros((len(parts), size), np.uint8),
        size=size,
        row=draw(st.integers(1, size)),
        length=2 * GROUP,
    )


@compiled
@given(chunks=nonsense(), data=st.data(), together=st.booleans())
@settings(max_examples=500)
def test_both_make_the_same_of_nonsense_and_write_nothing_outside(chunks: Chunks, data: Any, together: bool) -> None:
    places, count = asked(data.draw, len(chunks.pieces), together=together)
    torn, out = chunks.gather(kernels.gather, places, count)
    expected, there = chunks.gather(fallback.gather, places, count)
    assert torn == expected
    whole = len(places) if torn is None else torn
    assert out[:whole].tobytes() == there[:whole].tobytes()


LONGEST_VARINT = [255] * 8 + [127]  # 2^63 - 1
TOO_LONG_VARINT = [255] * 9 + [1]


@pytest.mark.parametrize("how", [kernels.gather, fallback.gather], ids=["kernels", "fallback"])
@pytest.mark.parametrize(
    "body",
    [
        pytest.param([], id="nothing"),
        pytest.param([RAW], id="raw, without its bytes"),
        pytest.param([RAW, *[0] * 33], id="raw, with a byte too many"),
        pytest.param([PREV, 0, 1, 5], id="from the one before, without one"),
        pytest.param([SELF, 33], id="half a run"),
        pytest.param([SELF, 33, 0], id="skips past the end"),
        pytest.param([SELF, 32, 1, 7], id="one byte past the end"),
        pytest.param([SELF, 0, 33, *[7] * 33], id="longer than the piece"),
        pytest.param([SELF, 0, 4, 7, 7, 7], id="longer than what follows"),
        pytest.param([SELF, *LONGEST_VARINT, 1, 7], id="skips the longest way"),
        pytest.param([SELF, 0, *LONGEST_VARINT, 7], id="the longest run"),
        pytest.param([SELF, 1, *LONGEST_VARINT, 7], id="place and length overflow"),
        pytest.param([SELF, *TOO_LONG_VARINT, 1, 7], id="a varint that does not end"),
        pytest.param([SELF, 128], id="a varint that is cut off"),
        pytest.param([4, 0, 1, 7], id="a kind that does not exist"),
    ],
)
@pytest.mark.parametrize("kind", [KEY, SELF])
def test_torn_pieces_are_told_by_their_item(how: Any, body: list[int], kind: int) -> None:
    good = bytes([KEY])
    torn_piece = bytes([kind, *body[1:]]) if body[:1] == [SELF] else bytes(body)
    offsets = np.cumsum([0, len(good), len(torn_piece)]).astype(np.uint32)
    payload, key = np.frombuffer(good + torn_piece, np.uint8).copy(), np.arange(32, dtype=np.uint8)
    if body[:1] == [PREV]:  # only the first piece of a group has none before it
        offsets, payload = np.array([0, len(torn_piece)], np.uint32), np.array(body, np.uint8)
    n_pieces = len(offsets) - 1
    torn = Chunks(
        table=table_of([offsets], [payload], key, [n_pieces]),
        offsets=[offsets],
        payloads=[payload],
        key=key,
        pieces=np.zeros((n_pieces, 32), np.uint8),
        size=32,
        row=8,
        length=GROUP,
    )
    assert torn.gather(how, np.array([n_pieces - 1, 0], np.int64), 1)[0] == 0
    if n_pieces > 1:
        assert torn.gather(how, np.array([0, 0, 1, 0], np.int64), 1)[0] == 2


@pytest.mark.parametrize("how", [kernels.gather, fallback.gather], ids=["kernels", "fallback"])
def test_a_piece_that_needs_a_key_is_torn_without_one(how: Any) -> None:
    payload, offsets = np.array([KEY], np.uint8), np.array([0, 1], np.uint32)
    table = table_of([offsets], [payload], None, [1])
    out = np.empty((1, 1, 8), np.uint8)
    assert how(table, np.zeros(1, np.int64), out, length=GROUP, group=GROUP, size=8, row=1, count=1) == 0


@pytest.mark.parametrize("how", [kernels.gather, fallback.gather], ids=["kernels", "fallback"])
@pytest.mark.parametrize("plain", [True, False], ids=["plain", "encoded"])
def test_pieces_that_end_outside_of_the_payload_are_torn(how: Any, plain: bool) -> None:
    payload, offsets = np.zeros(18, np.uint8), np.array([0, 9, 18], np.uint32)
    table = table_of([None if plain else offsets], [payload], None, [2])
    table["bytes"] = 15 if plain else 17
    out = np.empty((2, 1, 8), np.uint8)
    assert how(table, np.arange(2), out, length=GROUP, group=GROUP, size=8, row=1, count=1) == 1


# --- what an observation is to the last one ----------------------------------------------------------------------


@pytest.mark.parametrize("how", [kernels.compare, fallback.compare], ids=["kernels", "fallback"])
@given(count=st.integers(1, 8), size=st.integers(1, 200), seed=seeds, data=st.data())
def test_compare_tells_what_an_observation_is_to_the_last(
    how: Any, count: int, size: int, seed: int, data: Any
) -> None:
    shift = data.draw(st.integers(0, count - 1))
    wanted = data.draw(st.lists(st.sampled_from([SAME, STILL, MOVED_ON, NEW]), max_size=8))
    rng = np.random.default_rng(seed)
    last = rng.integers(0, 256, (len(wanted), count, size), np.uint8)
    last[[item for item, kind in enumerate(wanted) if kind == STILL]] = 7
    now = last.copy()
    for item, kind in enumerate(wanted):
        if kind == MOVED_ON:
            now[item, : count - shift] = last[item, shift:]
            now[item, count - shift :] ^= 1
        elif kind == NEW:
            now[item, 0, rng.integers(0, size)] ^= 1
    for item, kind in enumerate(how(now, last, shift)):
        same = now[item].tobytes() == last[item].tobytes()
        moved = now[item, : count - shift].tobytes() == last[item, shift:].tobytes()
        assert kind == {(True, True): STILL, (True, False): SAME, (False, True): MOVED_ON}.get((same, moved), NEW)


@compiled
@given(count=st.integers(1, 5), size=st.integers(1, 3), seed=seeds, data=st.data())
def test_both_compare_alike(count: int, size: int, seed: int, data: Any) -> None:
    shift = data.draw(st.integers(0, count - 1))
    now, last = np.random.default_rng(seed).integers(0, 2, (2, 16, count, size), np.uint8)
    assert kernels.compare(now, last, shift).tolist() == fallback.compare(now, last, shift).tolist()

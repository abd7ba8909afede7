"""Blocks of every kind: read back as they were sealed, and never read when they are not what was sealed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rlmem.errors import CorruptBlockError
from rlmem.lean import compact, fallback
from rlmem.lean.block import COMPACT, DELTA, HEADER_BYTES, MAGIC, PLAIN, Block, Key, digest, read_block, seal
from rlmem.lean.fallback import CHUNK, KEY, PREV, RAW
from rlmem.lean.kernels import gather

zstandard = pytest.importorskip("zstandard", reason="compact blocks need the extra `lean`")

Array = NDArray[Any]

GROUP: Final = 4
PIECES: Final = 10
SIZE: Final = 96
ROW: Final = 24

KINDS = {PLAIN: "plain", DELTA: "delta", COMPACT: "compact"}
FIELDS: Final = {
    "magic": range(8),
    "version": range(8, 10),
    "kind": range(10, 11),
    "nought": range(11, 12),
    "group": range(12, 16),
    "pieces": range(16, 20),
    "row": range(20, 24),
    "piece bytes": range(24, 32),
    "payload bytes": range(32, 40),
    "key digest": range(40, 56),
    "digest": range(56, 72),
}
DIGEST: Final = slice(56, 72)

every_kind = pytest.mark.parametrize("kind", KINDS, ids=KINDS.values())


def some_pieces(seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    pieces = np.repeat(rng.integers(0, 256, (1, SIZE), np.uint8), PIECES, 0)
    for number, piece in enumerate(pieces):
        piece[rng.integers(0, SIZE, 3)] = number
    return pieces


def some_key(data: Array) -> Key:
    return Key(data=data, digest=digest(data))


def encoded(pieces: Array, key: Key) -> list[bytes]:
    """Return pieces encoded in every way in turn."""
    out, bodies = np.empty(SIZE + 64, np.uint8), []
    for number, piece in enumerate(pieces):
        how = KEY if number % GROUP == 0 else (PREV, RAW, KEY)[number % 3]
        base = {PREV: pieces[number - 1], KEY: key.data}.get(how)
        body = piece.tobytes() if base is None else out[: fallback.runs(base, piece, out, out.size)].tobytes()
        bodies.append(bytes([how]) + body)
    return bodies


def joined(bodies: Sequence[bytes]) -> tuple[Array, Array]:
    offsets = np.cumsum([0, *map(len, bodies)]).astype(np.uint32)
    return offsets, np.frombuffer(b"".join(bodies), np.uint8)


def sealed(kind: int, pieces: Array, key: Key | None) -> Block:
    """Return pieces in a block of a kind. A plain block has no use for a key."""
    if kind == PLAIN:
        offsets, payload, key = np.zeros(0, np.uint32), pieces.reshape(-1), None
    else:
        assert key is not None
        offsets, payload = joined(encoded(pieces, key))
    if kind == COMPACT:
        offsets, payload = compact.pack(payload, offsets, size=SIZE, group=GROUP)
    return as_block(kind, offsets, payload, key)


def as_block(kind: int, offsets: Array, payload: Array, key: Key | None, *, pieces: int = PIECES) -> Block:
    return seal(
        kind=kind,
        group=GROUP,
        pieces=pieces,
        row=ROW,
        piece_bytes=SIZE,
        offsets=offsets,
        payload=payload,
        key=key,
    )


def pieces_of(block: Block) -> Array:
    """Decode all pieces of a block, by the book rather than by the kernels."""
    if block.kind == PLAIN:
        return block.data[HEADER_BYTES:].reshape(block.pieces, block.piece_bytes)
    pieces: list[Array] = []
    for start in range(0, block.pieces, block.group):
        before, held = None, min(block.group, block.pieces - start)
        for body in _bodies(block, start, held):
            key = None if block.key is None else block.key.data
            before = fallback.decode(body, before=before, key=key, size=block.piece_bytes, row=block.row)
            pieces.append(before)
    return np.stack(pieces)


def _bodies(block: Block, start: int, held: int) -> list[Array]:
    if block.kind == COMPACT:
        data = np.frombuffer(compact.unpack_group(block, start // block.group), np.uint8)
        offsets, payload = data[: 4 * (held + 1)].view("<u4"), data[4 * (held + 1) :]
    else:
        index = 4 * (block.pieces + 1)
        offsets = block.data[HEADER_BYTES : HEADER_BYTES + index].view("<u4")[start:]
        payload = block.data[HEADER_BYTES + index :]
    return [payload[offsets[number] : offsets[number + 1]] for number in range(held)]


def refusal(data: Array, keys: dict[bytes, Key]) -> str:
    """Return what is said of bytes that are no block."""
    with pytest.raises(CorruptBlockError) as refused:
        read_block(data, keys)
    return str(refused.value)


@pytest.fixture
def pieces() -> Array:
    return some_pieces()


@pytest.fixture
def key(pieces: Array) -> Key:
    return some_key(pieces[0] ^ np.uint8(1))


@pytest.fixture
def keys(key: Key) -> dict[bytes, Key]:
    return {key.digest: key}


# --- what every kind keeps ---------------------------------------------------------------------------------------


@every_kind
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=25, deadline=None)
def test_what_is_sealed_is_read_back(kind: int, seed: int) -> None:
    pieces = some_pieces(seed)
    key = some_key(pieces[3].copy())
    block = sealed(kind, pieces, key)
    again = read_block(np.frombuffer(block.data.tobytes(), np.uint8), {key.digest: key})
    assert (again.kind, again.group, again.pieces, again.row, again.piece_bytes) == (kind, GROUP, PIECES, ROW, SIZE)
    assert again.content_digest == block.content_digest
    assert again.key is block.key
    assert again.nbytes == block.nbytes == block.data.size
    assert pieces_of(again).tobytes() == pieces.tobytes()


@every_kind
def test_a_sealed_block_cannot_be_written(kind: int, pieces: Array, key: Key) -> None:
    with pytest.raises(ValueError, match="read-only"):
        sealed(kind, pieces, key).data[HEADER_BYTES] = 0


@every_kind
def test_the_same_content_has_the_same_bytes(kind: int, pieces: Array, key: Key) -> None:
    assert sealed(kind, pieces, key).data.tobytes() == sealed(kind, pieces.copy(), key).data.tobytes()


@every_kind
def test_a_block_begins_with_its_magic_and_ends_with_its_payload(kind: int, pieces: Array, key: Key) -> None:
    data = sealed(kind, pieces, key).data.tobytes()
    assert data.startswith(MAGIC)
    assert len(data) > HEADER_BYTES
    if kind == PLAIN:
        assert data[HEADER_BYTES:] == pieces.tobytes()


@every_kind
def test_a_block_is_read_where_it_lies_in_a_file(
    kind: int, pieces: Array, key: Key, keys: dict[bytes, Key], tmp_path: Any
) -> None:
    path = tmp_path / "block"
    path.write_bytes(b"abc" + sealed(kind, pieces, key).data.tobytes())
    assert pieces_of(read_block(np.memmap(path, np.uint8, "r", offset=3), keys)).tobytes() == pieces.tobytes()


# --- what every kind refuses -------------------------------------------------------------------------------------


@every_kind
@pytest.mark.parametrize("field", FIELDS)
def test_a_flipped_bit_of_the_header_is_found(
    kind: int, field: str, pieces: Array, key: Key, keys: dict[bytes, Key]
) -> None:
    block = sealed(kind, pieces, key)
    unnoticed = []
    for place in FIELDS[field]:
        for bit in range(8):
            data = block.data.copy()
            data[place] ^= np.uint8(1 << bit)
            try:
                read_block(data, keys)
            except CorruptBlockError as error:
                assert field == "magic" or data[DIGEST].tobytes().hex() in str(error)  # noqa: PT017
            else:
                unnoticed.append((place, bit))
    assert not unnoticed, f"{field}: read as if nothing had happened after a flip of (byte, bit) {unnoticed}"


@every_kind
def test_a_flipped_bit_of_the_body_is_found(kind: int, pieces: Array, key: Key, keys: dict[bytes, Key]) -> None:
    block = sealed(kind, pieces, key)
    for place in range(HEADER_BYTES, block.data.size):
        data = block.data.copy()
        data[place] ^= np.uint8(1 << place % 8)
        assert block.content_digest.hex() in refusal(data, keys)


@every_kind
def test_a_block_cut_off_anywhere_is_found(kind: int, pieces: Array, key: Key, keys: dict[bytes, Key]) -> None:
    block = sealed(kind, pieces, key)
    for length in range(block.data.size):
        said = refusal(block.data[:length].copy(), keys)
        assert length < HEADER_BYTES or block.content_digest.hex() in said


@every_kind
def test_a_byte_too_many_is_found(kind: int, pieces: Array, key: Key, keys: dict[bytes, Key]) -> None:
    block = sealed(kind, pieces, key)
    assert block.content_digest.hex() in refusal(np.append(block.data, np.uint8(0)), keys)


@every_kind
@given(body=st.binary(max_size=200), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=50, deadline=None)
def test_a_header_before_nonsense_is_found(kind: int, body: bytes, seed: int) -> None:
    key = some_key(some_pieces(seed)[0])
    header = sealed(kind, some_pieces(seed), key).data[:HEADER_BYTES]
    refusal(np.concatenate([header, np.frombuffer(body, np.uint8)]), {key.digest: key})


@given(body=st.binary(max_size=300), magic=st.booleans())
def test_nonsense_is_no_block(body: bytes, magic: bool) -> None:
    refusal(np.frombuffer(MAGIC * magic + body, np.uint8), {})


@pytest.mark.parametrize("kind", [DELTA, COMPACT], ids=["delta", "compact"])
def test_a_missing_key_is_named(kind: int, pieces: Array, key: Key) -> None:
    block = sealed(kind, pieces, key)
    said = refusal(block.data, {})
    assert block.content_digest.hex() in said
    assert key.digest.hex() in said


@pytest.mark.parametrize("kind", [DELTA, COMPACT], ids=["delta", "compact"])
@pytest.mark.parametrize("size", [0, SIZE - 1, SIZE + 1])
def test_a_key_of_another_size_is_refused(kind: int, size: int, pieces: Array) -> None:
    """The kernels read as many bytes of the key as a piece has."""
    other = some_key(np.zeros(size, np.uint8))
    offsets, payload = joined(encoded(pieces, some_key(pieces[0])))
    if kind == COMPACT:
        offsets, payload = compact.pack(payload, offsets, size=SIZE, group=GROUP)
    block = as_block(kind, offsets, payload, other)
    assert block.content_digest.hex() in refusal(block.data, {other.digest: other})


# --- made up, with a right digest --------------------------------------------------------------------------------


def hostile_offsets(right: Array) -> dict[str, Array]:
    last = int(right[-1])
    return {
        "the first is not 0": np.concatenate([[1], right[1:]]),
        "the last is too small": np.concatenate([right[:-1], [right[-2]]]),
        "the last is too large": np.concatenate([right[:-1], [last + 1]]),
        "one lies far outside": np.concatenate([right[:2], [2**32 - 1], right[3:]]),
        "one lies just outside": np.concatenate([right[:-2], [last + 1, last]]),
        "out of order": np.concatenate([right[:2], right[3:1:-1], right[4:]]),
        "backwards": right[::-1],
    }


@pytest.mark.parametrize("kind", [DELTA, COMPACT], ids=["delta", "compact"])
@pytest.mark.parametrize("case", hostile_offsets(np.arange(9)))
def test_offsets_that_lead_outside_are_refused(
    kind: int, case: str, pieces: Array, key: Key, keys: dict[bytes, Key]
) -> None:
    offsets, payload = joined(encoded(pieces, key))
    if kind == COMPACT:
        offsets, payload = compact.pack(payload, offsets, size=SIZE, group=GROUP)
    made_up = hostile_offsets(offsets.astype(np.int64))[case].astype(np.uint32)
    if np.array_equal(made_up, offsets):
        pytest.skip("with so few groups this is the right order")
    block = as_block(kind, made_up, payload, key)
    assert block.content_digest.hex() in refusal(block.data, keys)


def framed(*groups: tuple[Array, bytes]) -> tuple[Array, Array]:
    """Return frames as a compact block has them, from the offsets and the pieces of each group."""
    return joined([zstandard.compress(np.asarray(index, "<u4").tobytes() + body) for index, body in groups])


OUTSIDE = [
    case for case in hostile_offsets(np.arange(5)) if case not in ("the first is not 0", "the last is too small")
]


@pytest.mark.parametrize("case", OUTSIDE)
def test_offsets_inside_of_a_frame_are_no_more_believed(case: str, pieces: Array, key: Key) -> None:
    """They are known only once a group is unpacked, so it is the kernels that find them."""
    offsets, payload = joined(encoded(pieces[:GROUP], key))
    made_up = hostile_offsets(offsets.astype(np.int64))[case].astype(np.uint32)
    block = as_block(COMPACT, *framed((made_up, payload.tobytes())), key, pieces=GROUP)
    data = np.frombuffer(compact.unpack_group(read_block(block.data, {key.digest: key}), 0), np.uint8)
    start, index = data.ctypes.data, 4 * (GROUP + 1)
    table = np.array([(start, start + index, key.data.ctypes.data, GROUP, data.size - index)], CHUNK)
    out = np.empty((1, GROUP, SIZE), np.uint8)
    assert gather(table, np.zeros(1, np.int64), out, length=GROUP, group=GROUP, size=SIZE, row=ROW, count=GROUP) == 0


@pytest.mark.parametrize("length", [0, 3, 4, 4 * GROUP])
def test_a_frame_too_short_for_its_own_offsets_is_refused(length: int, key: Key) -> None:
    block = as_block(COMPACT, *joined([zstandard.compress(bytes(length))]), key, pieces=GROUP)
    with pytest.raises(CorruptBlockError, match=block.content_digest.hex()):
        compact.unpack_group(read_block(block.data, {key.digest: key}), 0)


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"no frame at all", id="no frame"),
        pytest.param(zstandard.compress(bytes(1000))[:-3], id="torn"),
        pytest.param(zstandard.compress(bytes(10**8)), id="a bomb that says its size"),
        pytest.param(zstandard.ZstdCompressor(write_content_size=False).compress(bytes(10**8)), id="a silent bomb"),
    ],
)
def test_a_frame_that_cannot_be_unpacked_is_refused(frame: bytes, key: Key) -> None:
    block = as_block(COMPACT, *joined([frame]), key, pieces=GROUP)
    with pytest.raises(CorruptBlockError, match=block.content_digest.hex()):
        compact.unpack_group(read_block(block.data, {key.digest: key}), 0)

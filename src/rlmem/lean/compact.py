"""The compact form of a block: each group of its pieces a zstd frame of its own."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rlmem.errors import CorruptBlockError, MissingExtra
from rlmem.lean.block import HEADER_BYTES, Block
from rlmem.lean.kernels import Array

if TYPE_CHECKING:
    import zstandard

LEVEL: Final = 9
"""zstd decodes at about the same speed whatever the level was; above this one, adding takes longer than it may."""


def _zstandard() -> Any:
    try:
        import zstandard
    except ImportError as error:
        raise MissingExtra(library="zstandard", extra="lean", purpose="a compact buffer") from error
    return zstandard


def pack(payload: Array, offsets: Array | None, *, size: int, group: int) -> tuple[Array, Array]:
    """Return the frames of a block's groups and where they begin: (offsets, payload)."""
    pieces = payload.size // size if offsets is None else offsets.size - 1
    if offsets is None:  # plain pieces: as if each said that it is raw
        body = np.zeros((pieces, size + 1), np.uint8)
        body[:, 1:] = payload.reshape(pieces, size)
        payload, offsets = body.reshape(-1), np.arange(pieces + 1, dtype=np.uint32) * np.uint32(size + 1)
    compressor: zstandard.ZstdCompressor = _zstandard().ZstdCompressor(level=LEVEL, write_checksum=False)
    frames = []
    for start in range(0, pieces, group):
        own = offsets[start : min(start + group, pieces) + 1]
        index = (own - own[0]).astype("<u4")
        frames.append(compressor.compress(index.tobytes() + payload[own[0] : own[-1]].tobytes()))
    begins = np.cumsum([0, *map(len, frames)]).astype(np.uint32)
    return begins, np.frombuffer(b"".join(frames), np.uint8)


def unpack_group(block: Block, group: int) -> bytes:
    """Return what a group's frame holds: the offsets of its pieces, and the pieces."""
    library, decompressor = _tools()
    try:
        unpacked: bytes = decompressor.decompress(_frame(block, group))
    except library.ZstdError as error:
        raise CorruptBlockError(f"block {block.content_digest.hex()}: group {group}: {error}") from error
    if len(unpacked) < _offsets_bytes(block, group):
        raise CorruptBlockError(f"block {block.content_digest.hex()}: group {group} is too short for its pieces")
    return unpacked


def _offsets_bytes(block: Block, group: int) -> int:
    return 4 * (min(block.group, block.pieces - group * block.group) + 1)


def check_sizes(block: Block) -> None:
    """Raise CorruptBlockError when a group says that it unpacks to more than its pieces can take, or less."""
    library, most = _zstandard(), block.group * (block.piece_bytes + 5) + 4
    for group in range(-(-block.pieces // block.group)):
        try:
            size = library.frame_content_size(_frame(block, group))
        except library.ZstdError as error:
            raise CorruptBlockError(f"block {block.content_digest.hex()}: group {group}: {error}") from error
        if not _offsets_bytes(block, group) <= size <= most:
            raise CorruptBlockError(
                f"block {block.content_digest.hex()}: group {group} says that it takes {size} bytes, which cannot be"
            )


def _frame(block: Block, group: int) -> memoryview:
    start, stop = block.data[HEADER_BYTES + 4 * group : HEADER_BYTES + 4 * group + 8].view("<u4").tolist()
    first = HEADER_BYTES + 4 * (-(-block.pieces // block.group) + 1)
    return memoryview(block.data)[first + start : first + stop]


_LOCAL: Final = threading.local()


def _tools() -> tuple[Any, Any]:
    """Return the library and this thread's decompressor: making one takes longer than using it."""
    if not hasattr(_LOCAL, "tools"):
        library = _zstandard()
        _LOCAL.tools = library, library.ZstdDecompressor()
    tools: tuple[Any, Any] = _LOCAL.tools
    return tools

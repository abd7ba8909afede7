"""Where a store's objects lie, whatever that is: named bytes that are written once, read, listed and deleted."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

from rlmem.errors import StoreError
from rlmem.store.naming import Buffer, is_allowed

PIECE_BYTES: Final = 4 * 2**20
"""What is read at a time of an object that may be large."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """An object that is there, and since when (seconds of the epoch)."""

    name: str
    nbytes: int
    modified_s: float


class Missing(Exception):  # noqa: N818 - an answer, which the caller words
    """There is no object of that name."""


class WrongSize(Exception):  # noqa: N818 - as above
    """An object is not as large as it must be."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        super().__init__(nbytes)


class Space(ABC):
    """Named bytes. What fails raises StoreUnavailable with place and cause; ``url`` is safe to show."""

    url: str
    parallel: int
    """With how many threads writing pays."""

    @abstractmethod
    def put(self, name: str, pieces: Sequence[Buffer]) -> None:
        """Write an object whole or not at all. It is durable after the next `sync`."""

    @abstractmethod
    def sync(self) -> None:
        """Return when everything that was put is durable."""

    @abstractmethod
    def read_into(self, name: str, out: memoryview) -> None:
        """Fill ``out`` with an object that is exactly as large; raise Missing or WrongSize."""

    @abstractmethod
    def size(self, name: str) -> int:
        """Return how large an object is; raise Missing."""

    @abstractmethod
    def listed(self, prefix: str) -> Iterator[Listed]:
        """Yield what is there under ``objects`` or ``snapshots``; names that a store cannot have are passed over."""

    @abstractmethod
    def delete(self, names: Iterable[str]) -> None:
        """Delete objects; those that are gone already are passed over."""

    def stream(self, name: str, nbytes: int) -> Iterator[memoryview]:
        """Yield an object of so many bytes in pieces; each is written over by the next."""
        buffer = memoryview(bytearray(min(nbytes, PIECE_BYTES)))
        if self.size(name) != nbytes:
            raise WrongSize(self.size(name))
        for start in range(0, nbytes, PIECE_BYTES):
            part = buffer[: min(PIECE_BYTES, nbytes - start)]
            self.read_part(name, start, part)
            yield part

    @abstractmethod
    def read_part(self, name: str, start: int, out: memoryview) -> None:
        """Fill ``out`` with what an object has from ``start`` on; raise Missing or WrongSize."""

    @abstractmethod
    def remove_leftovers(self, older_than_s: float) -> None:
        """Remove what interrupted writers left behind, if it is so old."""

    def check_name(self, name: str) -> str:
        """Return the name, or raise StoreError when a store cannot have it."""
        if not is_allowed(name):
            raise StoreError(f"{self.url}: {name[:80]!r} is no name that a store can have")
        return name


_BUCKETS: Final = ("s3", "gs", "memory")


def open_space(url: str, *, create: bool, options: Mapping[str, str] | None = None) -> Space:
    """Return the space that a URL or a folder's path names."""
    scheme = _scheme(url)
    if scheme in _BUCKETS:
        from rlmem.store.bucket import BucketSpace

        return BucketSpace(url, options=options or {})
    if scheme not in ("", "file"):
        known = "a folder, file://, s3://, gs:// or memory://"
        raise StoreError(f"{shown(url)}: a store must be {known}, but got {scheme}://")
    from rlmem.store.folder import FolderSpace

    if options:
        raise StoreError(f"{shown(url)}: a folder has no options, but got {', '.join(sorted(options))}")
    return FolderSpace(_folder_path(url), create=create)


def _scheme(url: str) -> str:
    match = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://", url)
    return match[1].lower() if match else ""


def _folder_path(url: str) -> str:
    if _scheme(url) != "file":
        return url
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost"):
        raise StoreError(f"{shown(url)}: a file:// URL must have three slashes, as in file:///folder")
    return unquote(parts.path)


def shown(url: str) -> str:
    """Return a URL without user, password, query and fragment: what may stand in messages and logs."""
    if not _scheme(url) or _scheme(url) == "file":
        return url
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

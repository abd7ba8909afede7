"""A store in a folder: files that appear whole or not at all, and stay.

An object is written under a temporary name, flushed to the disk, and renamed; the folder that it is renamed into is
flushed before a manifest names it. Nothing is ever changed in place.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import Final

from rlmem.errors import StoreUnavailable
from rlmem.store.naming import OBJECTS, SNAPSHOTS, Buffer, is_allowed
from rlmem.store.space import Listed, Missing, Space, WrongSize

_TEMPORARY: Final = "tmp"
_ADVICE: Final = {
    errno.ENOSPC: "the disk is full: make room, or keep fewer snapshots",
    errno.EDQUOT: "the quota is used up: make room, or keep fewer snapshots",
    errno.EACCES: "permission is missing: see who owns the folder",
    errno.EPERM: "permission is missing: see who owns the folder",
    errno.EROFS: "the file system is mounted read-only",
}


class FolderSpace(Space):
    """Files under a root folder."""

    parallel = 4

    def __init__(self, path: str, *, create: bool) -> None:
        self.root = Path(path).expanduser().absolute()
        self.url = str(self.root)
        self._lock = Lock()
        self._unsynced: set[Path] = set()
        self._folders: set[Path] = set()
        if create:
            with self._telling("create"):
                self.root.mkdir(parents=True, exist_ok=True)
                self._unsynced.add(self.root.parent)
        self._unsynced.update(self._folders_there())

    def _folders_there(self) -> Iterator[Path]:
        """Yield the folders there are: who renamed files into them may have been stopped before flushing them."""
        for name in (OBJECTS, SNAPSHOTS):
            folder = self.root / name
            if folder.is_dir():
                yield folder
                yield from (Path(entry) for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False))

    # --- writing -----------------------------------------------------------------------------------------------------

    def put(self, name: str, pieces: Sequence[Buffer]) -> None:
        target = self.root / self.check_name(name)
        with self._telling(f"write {name} to"):
            self._make(target.parent)
            self._write(target, pieces)
        with self._lock:
            self._unsynced.add(target.parent)

    def _write(self, target: Path, pieces: Sequence[Buffer]) -> None:
        self._make(self.root / _TEMPORARY)
        temporary = self.root / _TEMPORARY / f"{os.getpid()}-{secrets.token_hex(8)}"
        try:
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            try:
                for piece in pieces:
                    _write_all(handle, piece)
                os.fsync(handle)
            finally:
                os.close(handle)
            temporary.replace(target)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise

    def _make(self, folder: Path) -> None:
        if folder in self._folders and folder.is_dir():
            return
        folder.mkdir(parents=True, exist_ok=True)
        with self._lock:
            self._folders.add(folder)
            parent = folder
            while parent != self.root:
                parent = parent.parent
                self._unsynced.add(parent)

    def sync(self) -> None:
        with self._lock:
            folders, self._unsynced = self._unsynced, set()
        with self._telling("flush"):
            for folder in folders:
                _sync_folder(folder)

    def delete(self, names: Iterable[str]) -> None:
        with self._telling("delete from"):
            for name in names:
                path = self.root / self.check_name(name)
                path.unlink(missing_ok=True)
                self._unsynced.add(path.parent)
        self.sync()

    def remove_leftovers(self, older_than_s: float) -> None:
        folder = self.root / _TEMPORARY
        with self._telling("remove leftovers from"):
            for entry in os.scandir(folder) if folder.is_dir() else ():
                with contextlib.suppress(FileNotFoundError):
                    if entry.stat(follow_symlinks=False).st_mtime < time.time() - older_than_s:
                        Path(entry).unlink()

    # --- reading -----------------------------------------------------------------------------------------------------

    def read_into(self, name: str, out: memoryview) -> None:
        self._read(name, 0, out, whole=True)

    def read_part(self, name: str, start: int, out: memoryview) -> None:
        self._read(name, start, out, whole=False)

    def _read(self, name: str, start: int, out: memoryview, *, whole: bool) -> None:
        with self._telling(f"read {name} from"):
            handle = self._open(name)
            try:
                size = os.fstat(handle).st_size
                if (size != len(out) if whole else size < start + len(out)) or not _read_all(handle, start, out):
                    raise WrongSize(size)
            finally:
                os.close(handle)

    def _open(self, name: str) -> int:
        try:
            return os.open(self.root / self.check_name(name), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise Missing(name) from error

    def size(self, name: str) -> int:
        with self._telling(f"read {name} from"):
            try:
                return (self.root / self.check_name(name)).lstat().st_size
            except (FileNotFoundError, NotADirectoryError) as error:
                raise Missing(name) from error

    def listed(self, prefix: str) -> Iterator[Listed]:
        with self._telling("list"):
            for path in sorted(_files(self.root / prefix)):
                name = path.relative_to(self.root).as_posix()
                with contextlib.suppress(FileNotFoundError):
                    status = path.lstat()
                    if is_allowed(name):
                        yield Listed(name=name, nbytes=status.st_size, modified_s=status.st_mtime)

    @contextlib.contextmanager
    def _telling(self, what: str) -> Iterator[None]:
        """Say what could not be done, where, and what may help."""
        try:
            yield
        except OSError as error:
            advice = _ADVICE.get(error.errno or 0)
            cause = f"{error.strerror or error}{f': {advice}' if advice else ''}"
            raise StoreUnavailable(f"cannot {what} {self.url}: {cause}") from error


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder and of the folders right in it; symbolic links are not followed."""
    try:
        entries = [*os.scandir(folder)]
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from _files(Path(entry))
        elif entry.is_file(follow_symlinks=False):
            yield Path(entry)


def _write_all(handle: int, piece: Buffer) -> None:
    rest = memoryview(piece).cast("B")
    while rest:
        rest = rest[os.write(handle, rest) :]


def _read_all(handle: int, start: int, out: memoryview) -> bool:
    """Fill ``out`` from a place in a file; return whether there was enough."""
    while out:
        got = os.preadv(handle, [out], start)
        if not got:
            return False
        start, out = start + got, out[got:]
    return True


def _sync_folder(folder: Path) -> None:
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

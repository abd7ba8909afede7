"""A script's writing kept out of the user's folders, as far as it is done from Python in its own process.

Files opened for writing and folders made are put into a folder beside, at the same path, and are read back from
there; nothing is removed or renamed outside it. Not guarded: what C libraries write by themselves, programs that
the script starts, and workers that are not forked.
"""

from __future__ import annotations

import builtins
import io
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

_SYSTEM: Final = ("/dev", "/proc", "/sys")
_WRITING: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_LARGEST_COPY: Final = 64 * 2**20
_LOOKING: Final = ("stat", "lstat", "access", "listdir", "scandir", "chdir", "chmod", "utime")


class WriteGuard:
    """Stands between a script and the file system; ``kept_out`` is what it would have written or removed."""

    def __init__(self, folder: Path) -> None:
        self._folder = os.path.abspath(folder)  # noqa: PTH100 - resolving looks, and looking is guarded
        self._open, self._os_open, self._mkdir, self._lstat = io.open, os.open, os.mkdir, os.lstat
        self.kept_out: list[str] = []

    def install(self) -> None:
        """Guard this process from here to its end."""
        builtins.open = io.open = self.open
        os.open = self.os_open
        os.mkdir = self.mkdir
        for name in _LOOKING:
            setattr(os, name, self._looking(getattr(os, name)))
        for name in ("remove", "unlink", "rmdir"):
            setattr(os, name, self._within(getattr(os, name), paths=1))
        for name in ("rename", "replace"):
            setattr(os, name, self._within(getattr(os, name), paths=2))
        shutil.rmtree = self._within(shutil.rmtree, paths=1)  # type: ignore[assignment]

    def open(self, file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if not self._is_guarded(file):
            return self._open(file, mode, *args, **kwargs)
        return self._open(self._placed(file, writing=any(letter in mode for letter in "wax+")), mode, *args, **kwargs)

    def os_open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if dir_fd is not None or not self._is_guarded(path):
            return self._os_open(path, flags, mode, dir_fd=dir_fd)
        return self._os_open(self._placed(path, writing=bool(flags & _WRITING)), flags, mode)

    def mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        if dir_fd is not None or not self._is_guarded(path):
            self._mkdir(path, mode, dir_fd=dir_fd)
            return
        if os.path.isdir(path):  # noqa: PTH112 - pathlib would come back here
            raise FileExistsError(f"File exists: {os.fspath(path)!r}")
        self._note(path)
        self._make_folder(self._beside(path))

    def _looking(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``original``, looking at what the script has written where there is such a thing."""

        def guarded(*args: Any, **kwargs: Any) -> Any:
            if args and kwargs.get("dir_fd") is None and self._is_guarded(args[0]):
                beside = self._beside(args[0])
                if self._exists(beside) and not (original.__name__ in ("listdir", "scandir") and self._exists(args[0])):
                    return original(beside, *args[1:], **kwargs)
            return original(*args, **kwargs)

        return guarded

    def _exists(self, path: Any) -> bool:
        try:
            self._lstat(path)
        except (OSError, ValueError):
            return False
        return True

    def _within(self, original: Callable[..., Any], *, paths: int) -> Callable[..., Any]:
        """Return ``original`` for what the script itself has written, and nothing for the rest."""

        def guarded(*args: Any, **kwargs: Any) -> Any:
            if kwargs.get("dir_fd") is not None or not all(self._is_guarded(path) for path in args[:paths]):
                return original(*args, **kwargs)
            beside = [self._beside(path) for path in args[:paths]]
            if self._exists(beside[0]):
                self._make_folder(os.path.dirname(beside[-1]))  # noqa: PTH120
                return original(*beside, *args[paths:], **kwargs)
            self._note(args[0])
            return None

        return guarded

    def _is_guarded(self, path: Any) -> bool:
        """Whether a path is the user's: a name, outside the guard's own folder and the system's."""
        if not isinstance(path, str | bytes | os.PathLike):
            return False
        real = os.path.abspath(os.fsdecode(path))  # noqa: PTH100
        return not any(real == root or real.startswith(f"{root}/") for root in (self._folder, *_SYSTEM))

    def _beside(self, path: Any) -> str:
        return f"{self._folder}/files{os.path.abspath(os.fsdecode(path))}"  # noqa: PTH100

    def _placed(self, path: Any, *, writing: bool) -> Any:
        """Return where a file really is: beside once it has been written, where it says before that."""
        beside = self._beside(path)
        if self._exists(beside):
            return beside
        if not writing:
            return path
        self._note(path)
        self._make_folder(os.path.dirname(beside))  # noqa: PTH120
        if os.path.isfile(path) and os.path.getsize(path) <= _LARGEST_COPY:  # noqa: PTH113, PTH202
            self._copy(path, beside)
        return beside

    def _copy(self, source: Any, target: str) -> None:
        with self._open(source, "rb") as old, self._open(target, "wb") as new:
            new.write(old.read())

    def _make_folder(self, path: str) -> None:
        parts = path.removeprefix(self._folder).strip("/").split("/")
        for count in range(1, len(parts) + 1):
            folder = "/".join((self._folder, *parts[:count]))
            if not self._exists(folder):
                self._mkdir(folder)

    def _note(self, path: Any) -> None:
        name = os.fsdecode(path)
        if name not in self.kept_out:
            self.kept_out.append(name)

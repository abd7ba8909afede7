"""What was traced and metered, remembered by everything that determines it.

Entries are JSON files in the user's cache folder (``RLMEM_CACHE`` names another). An entry that cannot be read
counts as absent; a folder that cannot be written is done without.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path
from typing import Any, Final

_LIBRARIES: Final = ("rlmem", "torch", "numpy", "stable-baselines3", "sb3-contrib", "gymnasium")
_VARIABLES: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "MALLOC_ARENA_MAX", "GLIBC_TUNABLES", "LD_PRELOAD")
_TRACE: Final = "trace"


def remembered(kind: str, question: Mapping[str, Any], find: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what was found for this question before, or find it and remember it."""
    path = _path(kind, question)
    known = _read(path)
    if known is not None:
        return known
    found = find()
    _write(path, found)
    return found


def keep(kind: str, question: Mapping[str, Any], entry: Mapping[str, Any]) -> None:
    """Remember an entry in place of what was known for this question."""
    _write(_path(kind, question), entry)


def entries(kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Give every entry of a kind that can be read, with its key, whatever software and machine it was made with."""
    for path in sorted(cache_folder().glob(f"{kind}-*.json")):
        entry = _read(path)
        if entry is not None:
            yield path.stem.removeprefix(f"{kind}-"), entry


def versions() -> dict[str, str | None]:
    """Return the versions of the software whose memory is metered, None for what is not installed."""
    return {"python": platform.python_version(), **{name: _version(name) for name in _LIBRARIES}}


def cache_folder() -> Path:
    named = os.environ.get("RLMEM_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rlmem"


def setting(kind: str) -> dict[str, Any]:
    """Return the software and the machine that answer questions of a kind here.

    What a process takes depends on everything installed: Stable-Baselines3 imports OpenCV, TensorBoard, pandas and
    others where they are there. A trace is of tensors only.
    """
    metered = {} if kind == _TRACE else {"installed": installed_digest()}
    return metered | {
        "libraries": {name: _version(name) for name in _LIBRARIES},
        "python": platform.python_version(),
        "machine": (platform.machine(), platform.libc_ver(), os.cpu_count()),
        "variables": {name: os.environ.get(name) for name in _VARIABLES},
    }


@cache
def installed_digest() -> str:
    """Return a digest of every distribution that this interpreter finds, by name and version."""
    found = {(str(about["Name"]), str(about["Version"])) for about in (item.metadata for item in distributions())}
    return hashlib.sha256(json.dumps(sorted(found)).encode()).hexdigest()[:24]


def _path(kind: str, question: Mapping[str, Any]) -> Path:
    return cache_folder() / f"{kind}-{key(question, setting(kind))}.json"


def key(question: Mapping[str, Any], where: Mapping[str, Any]) -> str:
    """Return a digest of the question and of the setting that answers it."""
    return hashlib.sha256(json.dumps({"question": question, **where}, sort_keys=True).encode()).hexdigest()[:24]


def _version(library: str) -> str | None:
    try:
        return version(library)
    except PackageNotFoundError:
        return None


def _read(path: Path) -> dict[str, Any] | None:
    with suppress(OSError, ValueError):
        entry = json.loads(path.read_text())
        if isinstance(entry, dict):
            return entry
    return None


def _write(path: Path, entry: Mapping[str, Any]) -> None:
    """Write the entry whole or not at all."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
            json.dump(entry, file)
        Path(file.name).replace(path)

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
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

_LIBRARIES: Final = ("rlmem", "torch", "numpy", "stable-baselines3", "sb3-contrib", "gymnasium")
_VARIABLES: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "MALLOC_ARENA_MAX", "GLIBC_TUNABLES", "LD_PRELOAD")


def remembered(kind: str, question: Mapping[str, Any], find: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what was found for this question before, or find it and remember it."""
    path = cache_folder() / f"{kind}-{_key(question)}.json"
    known = _read(path)
    if known is not None:
        return known
    found = find()
    _write(path, found)
    return found


def cache_folder() -> Path:
    named = os.environ.get("RLMEM_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rlmem"


def _key(question: Mapping[str, Any]) -> str:
    """Return a digest of the question and of the software and machine that answer it."""
    setting = {
        "question": question,
        "libraries": {name: _version(name) for name in _LIBRARIES},
        "python": platform.python_version(),
        "machine": (platform.machine(), platform.libc_ver(), os.cpu_count()),
        "variables": {name: os.environ.get(name) for name in _VARIABLES},
    }
    return hashlib.sha256(json.dumps(setting, sort_keys=True).encode()).hexdigest()[:24]


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

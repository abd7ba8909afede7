"""What can go wrong, as one tree.

RlmemError                 everything rlmem raises on purpose
├── InputError             what the user gave cannot be used; commands end with exit code 2
│   ├── RunFileError       a run file: says the file, the line, what must hold and what was got
│   ├── ScriptError        a training script that cannot be read
│   └── EnvironmentReadError an environment that cannot be built or read
├── LeanBufferError        a lean buffer
│   ├── CorruptBlockError  a block whose bytes are not what was sealed; names it
│   └── MemoryLimitReached a buffer that would outgrow its `memory_limit`
├── StoreError             a store of snapshots
│   ├── CorruptObjectError an object or manifest whose bytes are not what was written; names it and an older snapshot
│   ├── SnapshotNotFound   a snapshot or a part of one that is not there
│   ├── StoreLimitReached  a snapshot that declares more than may be read
│   └── StoreUnavailable   a disk that is full, a folder not permitted, a bucket that does not answer: later it may
├── MissingExtra           a library that is not installed; names the extra that installs it
└── NotModelled            a run that rlmem understands but has no memory model for
"""

from __future__ import annotations


class RlmemError(Exception):
    """Everything rlmem raises on purpose."""


class InputError(RlmemError):
    """What the user gave cannot be used."""


class RunFileError(InputError):
    """A run file that cannot be used, with the place in it."""

    def __init__(self, message: str, *, file: str, line: int | None = None) -> None:
        self.file = file
        self.line = line
        self.reason = message
        place = file if line is None else f"{file}:{line}"
        super().__init__(f"{place}: {message}")


class ScriptError(InputError):
    """A training script that cannot be read."""


class EnvironmentReadError(InputError):
    """An environment that cannot be built or read."""


class LeanBufferError(RlmemError):
    """A lean buffer that cannot do what was asked."""


class CorruptBlockError(LeanBufferError):
    """A block whose bytes are not what was sealed."""


class MemoryLimitReached(LeanBufferError):  # noqa: N818 - it says what happened
    """A buffer that would outgrow its ``memory_limit``."""


class StoreError(RlmemError):
    """A store that cannot do what was asked."""


class CorruptObjectError(StoreError):
    """Bytes in a store that are not what was written.

    ``name`` is the object's or the manifest's; ``older`` names the newest snapshot before it that can be read, if any.
    """

    def __init__(self, message: str, *, name: str, older: str | None = None) -> None:
        self.name, self.older, self.reason = name, older, message
        super().__init__(f"{message}; {_instead(older)}")


def _instead(older: str | None) -> str:
    if older is None:
        return "no older snapshot can be read instead: take a copy of the store, if there is one"
    return f"an older snapshot can be read instead: {older}"


class SnapshotNotFound(StoreError):  # noqa: N818 - it says what happened
    """A snapshot, or a part of one, that is not there."""


class StoreLimitReached(StoreError):  # noqa: N818 - as above
    """A snapshot that declares more bytes than may be read."""


class StoreUnavailable(StoreError):  # noqa: N818 - as above
    """A store that cannot be reached or written now: what was asked may be asked again."""


class MissingExtra(RlmemError):  # noqa: N818 - it names what is missing, not a fault of the program
    """A library that is not installed."""

    def __init__(self, *, library: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {library}, which is not installed: pip install 'rlmem[{extra}]'")


class NotModelled(RlmemError):  # noqa: N818 - as above
    """A run that rlmem understands but has no memory model for."""

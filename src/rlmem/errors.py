"""What can go wrong, as one tree.

RlmemError                 everything rlmem raises on purpose
├── InputError             what the user gave cannot be used; commands end with exit code 2
│   ├── RunFileError       a run file: says the file, the line, what must hold and what was got
│   ├── ScriptError        a training script that cannot be read
│   └── EnvironmentReadError an environment that cannot be built or read
├── LeanBufferError        a lean buffer
│   ├── CorruptBlockError  a block whose bytes are not what was sealed; names it
│   └── MemoryLimitReached a buffer that would outgrow its `memory_limit`
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


class MissingExtra(RlmemError):  # noqa: N818 - it names what is missing, not a fault of the program
    """A library that is not installed."""

    def __init__(self, *, library: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {library}, which is not installed: pip install 'rlmem[{extra}]'")


class NotModelled(RlmemError):  # noqa: N818 - as above
    """A run that rlmem understands but has no memory model for."""

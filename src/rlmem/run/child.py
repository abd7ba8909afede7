"""A question asked of a child process: JSON in, JSON out, and nothing left running.

The child answers in a file of its own, so that whatever user code prints cannot disturb it and nothing that
outlives it can hold up the answer. It is ended with everything it started.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Final

import psutil

from rlmem.errors import EnvironmentReadError, MissingExtra

TIMEOUT_S: Final = 60.0
_LONGEST: Final = 1000
_EXTRAS: Final = ("gymnasium", "ale_py", "stable_baselines3", "sb3_contrib", "torch")


def ask(
    module: str,
    question: Mapping[str, Any],
    *,
    subject: str,
    timeout_s: float = TIMEOUT_S,
    started: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Return what ``python -m module`` answers; its failures are raised as clear errors about ``subject``.

    ``started`` is called with the child's process id as soon as it has one.
    """
    with TemporaryFile() as reply, TemporaryFile() as complaints:
        code = _run(module, question, reply, complaints, subject=subject, timeout_s=timeout_s, started=started)
        text, last = contents(reply), contents(complaints).strip().rpartition("\n")[2]
    if not text:
        raise EnvironmentReadError(f"the process that read {subject} died (exit code {code}): {last[:_LONGEST]}")
    answer: dict[str, Any] = json.loads(text)
    if "missing" in answer:
        raise MissingExtra(library=answer["missing"], extra="sb3", purpose=f"reading {subject}")
    if "error" in answer:
        raise EnvironmentReadError(f"{subject} could not be read: {answer['error']}")
    return answer


def contents(file: IO[bytes]) -> str:
    """Return what was written into a file, from its beginning."""
    file.seek(0)
    return file.read().decode(errors="replace")


def _run(
    module: str,
    question: Mapping[str, Any],
    reply: IO[bytes],
    complaints: IO[bytes],
    *,
    subject: str,
    timeout_s: float,
    started: Callable[[int], None] | None,
) -> int:
    path = os.pathsep.join(filter(None, (str(Path.cwd()), os.environ.get("PYTHONPATH", ""))))
    child = subprocess.Popen(
        [sys.executable, "-m", module, str(reply.fileno()), json.dumps(question)],
        pass_fds=(reply.fileno(),),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=complaints,
        env=os.environ | {"PYTHONPATH": path},
        start_new_session=True,
    )
    if started is not None:
        started(child.pid)
    code = wait_and_end(child, timeout_s=timeout_s)
    if code is None:
        raise EnvironmentReadError(f"{subject} was not read within {timeout_s:.0f} s")
    return code


def wait_and_end(child: subprocess.Popen[bytes], *, timeout_s: float) -> int | None:
    """Return the exit code of a child in a session of its own, or None where it had to be ended in time.

    Nothing that it started outlives it.
    """
    try:
        return child.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if child.returncode is None:
            end_descendants(child.pid)
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def end_descendants(pid: int) -> None:
    """Kill what a process started, also where it has a session of its own, as simulators often do."""
    with suppress(psutil.Error):
        for process in psutil.Process(pid).children(recursive=True):
            with suppress(psutil.Error):
                process.kill()


def answer(reply: Callable[[dict[str, Any]], dict[str, Any]], arguments: list[str]) -> None:
    """Answer the question on the command line: the whole of a child's main program, which ends with it."""
    file, question = int(arguments[0]), json.loads(arguments[1])
    try:
        result = reply(question)
    except ModuleNotFoundError as error:
        root = (error.name or "").partition(".")[0]
        result = {"missing": root} if root in _EXTRAS else {"error": str(error)}
    except Exception as error:  # the process edge: whatever user code raises is reported, not lost
        result = {"error": f"{type(error).__name__}: {error}"[:_LONGEST]}
    with os.fdopen(file, "wb") as stream:
        stream.write(json.dumps(result).encode())
    end_descendants(os.getpid())
    os._exit(0)  # threads and exit handlers of user code do not hold up the answer

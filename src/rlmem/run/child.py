"""A question asked of a child process: JSON in, JSON out, and nothing left running.

The child answers on a pipe of its own, so that whatever user code prints cannot disturb it, and it is
killed with everything it started.
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
from typing import Any, Final

from rlmem.errors import EnvironmentReadError, MissingExtra

TIMEOUT_S: Final = 60.0
_EXTRAS: Final = ("gymnasium", "ale_py", "stable_baselines3", "sb3_contrib", "torch")


def ask(module: str, question: Mapping[str, Any], *, subject: str, timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
    """Return what ``python -m module`` answers; its failures are raised as clear errors about ``subject``."""
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as pipe:
        code, complaints = _run(module, question, writer, subject=subject, timeout_s=timeout_s)
        text = pipe.read()
    if not text:
        last = complaints.strip().rpartition("\n")[2]
        raise EnvironmentReadError(f"the process that read {subject} died (exit code {code}): {last}")
    answer: dict[str, Any] = json.loads(text)
    if "missing" in answer:
        raise MissingExtra(library=answer["missing"], extra="sb3", purpose=f"reading {subject}")
    if "error" in answer:
        raise EnvironmentReadError(f"{subject} could not be read: {answer['error']}")
    return answer


def _run(module: str, question: Mapping[str, Any], writer: int, *, subject: str, timeout_s: float) -> tuple[int, str]:
    path = os.pathsep.join(filter(None, (str(Path.cwd()), os.environ.get("PYTHONPATH", ""))))
    try:
        child = subprocess.Popen(
            [sys.executable, "-m", module, str(writer), json.dumps(question)],
            pass_fds=(writer,),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": path},
            start_new_session=True,
        )
    finally:
        os.close(writer)
    try:
        _, complaints = child.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise EnvironmentReadError(f"{subject} was not read within {timeout_s:.0f} s") from None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    return child.returncode, complaints.decode(errors="replace")


def answer(reply: Callable[[dict[str, Any]], dict[str, Any]], arguments: list[str]) -> None:
    """Answer the question on the command line: the whole of a child's main program."""
    pipe, question = int(arguments[0]), json.loads(arguments[1])
    try:
        result = reply(question)
    except ModuleNotFoundError as error:
        root = (error.name or "").partition(".")[0]
        result = {"missing": root} if root in _EXTRAS else {"error": str(error)}
    except Exception as error:  # the process edge: whatever user code raises is reported, not lost
        result = {"error": f"{type(error).__name__}: {error}"}
    with os.fdopen(pipe, "wb") as stream:
        stream.write(json.dumps(result).encode())

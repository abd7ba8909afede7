"""The script's side of a capture: hooks set, the script run, and its model handed over at the first `learn()`."""

from __future__ import annotations

import functools
import os
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import Any, Final, NoReturn

from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.buffers import BaseBuffer
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.vec_env import SubprocVecEnv

from rlmem.sb3.callback_reading import evaluation_env
from rlmem.sb3.reading import vec_env_layers
from rlmem.sb3.weightless import weightless_arrays
from rlmem.sb3.write_guard import WriteGuard

_LONGEST: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """A model at its first `learn()`, alive, with what `learn()` was given."""

    model: BaseAlgorithm
    total_timesteps: int | None
    callback: Any
    script: Path
    notes: tuple[str, ...] = ()

    def workers(self) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """Return the processes of the environment workers once all of them have built their environments."""
        return _settled_workers(self.model.env)

    def evaluation_workers(self) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """Return those of the evaluation's environments, likewise."""
        return _settled_workers(evaluation_env(self.callback))


def _settled_workers(vec_env: Any) -> tuple[tuple[int, ...], tuple[str, ...]]:
    env = next((layer for layer in vec_env_layers(vec_env) if isinstance(layer, SubprocVecEnv)), None)
    if env is None:
        return (), ()
    notes: tuple[str, ...] = ()
    try:
        env.env_is_wrapped(object)
    except (EOFError, OSError) as error:
        notes = (f"an environment worker has ended: {type(error).__name__}",)
    return tuple(process.pid for process in env.processes if process.pid is not None), notes


class ScriptFailure(Exception):  # noqa: N818 - what became of the script, not a fault of the program
    """Why a script did not come to `learn()`, as the answer that says so."""

    def __init__(self, **answer: Any) -> None:
        super().__init__(str(answer))
        self.answer = answer


def run_until_learn(script: Path, arguments: list[str], *, folder: Path, then: Callable[[Captured], None]) -> None:
    """Run the script as the main program and call ``then`` in place of its first `learn()`.

    ``then`` must end the process: were it to return, the script would go on to train. This function comes back
    only with a ScriptFailure.
    """
    guard = WriteGuard(folder)
    built: list[str] = []
    _stop_at_learn(script, guard, then)
    _build_without_memory(built)
    run_as_main(script, arguments, guard=guard, built=built)


def run_as_main(script: Path, arguments: list[str], *, guard: WriteGuard, built: list[str]) -> NoReturn:
    """Run the script as the main program to its end, and raise how it ended: it should have been stopped before."""
    path = os.path.abspath(script)  # noqa: PTH100 - as Python itself does, without following links
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, os.path.dirname(path))  # noqa: PTH120
    sys.dont_write_bytecode = True
    guard.install()
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as stop:
        raise _exit(stop, built, _line(stop, path)) from None
    except ModuleNotFoundError as error:
        raise ScriptFailure(failure="missing", module=_missing(error), line=_line(error, path)) from None
    except EOFError as error:
        raise _eof(error, path) from None
    except BaseException as error:
        raise ScriptFailure(failure="raised", error=_summary(error), line=_line(error, path)) from None
    raise ScriptFailure(failure="no learn", built=built)


def _exit(stop: SystemExit, built: list[str], line: int | None) -> ScriptFailure:
    if isinstance(stop.code, str):
        return ScriptFailure(failure="raised", error=f"SystemExit: {stop.code}"[:_LONGEST], line=line)
    return ScriptFailure(failure="exit", code=stop.code or 0, built=built, line=line)


def _missing(error: ModuleNotFoundError) -> str:
    return (error.name or str(error)).partition(".")[0]


def _eof(error: EOFError, path: str) -> ScriptFailure:
    if "reading a line" in str(error):
        return ScriptFailure(failure="input", line=_line(error, path))
    return ScriptFailure(failure="raised", error=_summary(error), line=_line(error, path))


def _summary(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:_LONGEST]


def _line(error: BaseException, path: str) -> int | None:
    """Return the line of the script that the error came through last."""
    if isinstance(error, SyntaxError) and error.filename == path:
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    return next((frame.lineno for frame in reversed(frames) if frame.filename == path), None)


def _stop_at_learn(script: Path, guard: WriteGuard, then: Callable[[Captured], None]) -> None:
    """Hook what every `learn()` calls before anything else, also in classes that the script defines later."""

    def captured(self: BaseAlgorithm, total_timesteps: Any = None, callback: Any = None, *_: Any, **__: Any) -> Any:
        notes = [f"kept out of your folders: {name}" for name in guard.kept_out]
        steps = None if total_timesteps is None else int(total_timesteps)
        then(Captured(model=self, total_timesteps=steps, callback=callback, script=script, notes=tuple(notes)))
        raise SystemExit("the process should have ended at learn()")

    BaseAlgorithm._setup_learn = captured
    OffPolicyAlgorithm._setup_learn = captured


def _build_without_memory(built: list[str]) -> None:
    """Let models and buffers of any class build their arrays weightless, also classes that are defined later."""
    weightless = _Nested()
    _wrap_in_every_class(BaseAlgorithm, "_setup_model", weightless, lambda self: _note(built, self))
    _wrap_in_every_class(BaseBuffer, "__init__", weightless, lambda self: None)


def _note(built: list[str], model: Any) -> None:
    if type(model).__name__ not in built:
        built.append(type(model).__name__)


class _Nested:
    """Weightless arrays from the outermost entry to its exit: constructors call each other, from threads too."""

    def __init__(self) -> None:
        self._lock, self._depth = RLock(), 0
        self._arrays: Any = nullcontext()

    def __enter__(self) -> None:
        with self._lock:
            if self._depth == 0:
                self._arrays = weightless_arrays()
                self._arrays.__enter__()
            self._depth += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._depth -= 1
            if self._depth == 0:
                self._arrays.__exit__(None, None, None)


def _wrap_in_every_class(base: Any, name: str, context: _Nested, before: Callable[[Any], None]) -> None:
    """Run a method within ``context`` in ``base``, in all classes derived from it, and in those still to come."""
    for kind in (base, *_descendants(base)):
        _wrap(kind, name, context, before)
    previous = base.__dict__.get("__init_subclass__")

    def init_subclass(cls: Any, /, **kwargs: Any) -> None:
        if previous is not None:
            previous.__get__(None, cls)(**kwargs)
        else:
            super(base, cls).__init_subclass__(**kwargs)
        _wrap(cls, name, context, before)

    base.__init_subclass__ = classmethod(init_subclass)


def _descendants(base: Any) -> Iterator[Any]:
    for kind in base.__subclasses__():
        yield kind
        yield from _descendants(kind)


def _wrap(kind: Any, name: str, context: _Nested, before: Callable[[Any], None]) -> None:
    original = kind.__dict__.get(name)
    if original is None or hasattr(original, "_rlmem_original"):
        return

    @functools.wraps(original)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        before(self)
        with context:
            return original(self, *args, **kwargs)

    wrapped._rlmem_original = original  # type: ignore[attr-defined]
    setattr(kind, name, wrapped)

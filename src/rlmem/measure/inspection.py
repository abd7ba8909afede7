"""An environment inspected in a child process: user code runs there, and ends with it."""

from __future__ import annotations

import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from rlmem.errors import InputError
from rlmem.lean.inspection import FEWEST_STEPS, Inspection, inspect, inspection_from_dict
from rlmem.run.child import answer, ask
from rlmem.run.environment import build_environment
from rlmem.run.model import Env, FrameworkRun, Run
from rlmem.run.run_file import read_run

TIMEOUT_S: Final = 600.0
MOST_STEPS: Final = 10**6
_RUN_FILES: Final = (".yaml", ".yml")
_IMPORT_PATH: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


def inspect_environment(subject: str, *, steps: int) -> Inspection:
    """Return what lean buffers make of an environment: a Gymnasium id, ``module:function``, or a run file's own."""
    if not FEWEST_STEPS <= steps <= MOST_STEPS:
        raise InputError(f"{FEWEST_STEPS} ≤ steps ≤ {MOST_STEPS:.0e} must hold, but got {steps:,}")
    env, as_stored = _named(subject)
    reply = ask(
        __name__,
        {"env": asdict(env), "as_stored": as_stored, "steps": steps},
        subject=f"the environment {env.id or env.make}",
        timeout_s=TIMEOUT_S,
    )
    return inspection_from_dict(reply)


def _named(subject: str) -> tuple[Env, bool]:
    """Return the environment, and whether its observations are to be seen as a run stores them."""
    if subject.startswith("zoo:"):
        from rlmem.run.zoo import read_zoo_name

        return _of_run(read_zoo_name(subject)[0], subject), True
    if Path(subject).suffix in _RUN_FILES:
        return _of_run(read_run(subject), subject), True
    return Env(make=subject) if _IMPORT_PATH.fullmatch(subject) else Env(id=subject), False


def _of_run(run: Run, subject: str) -> Env:
    env = run.env if isinstance(run, FrameworkRun) else None
    if env is None or not (env.id or env.make):
        raise InputError(f"{subject}: `env` must name an environment by `id` or `make`: spaces cannot be stepped")
    return Env(id=env.id, make=env.make, wrappers=env.wrappers, frame_stack=env.frame_stack, normalize=env.normalize)


def _reply(question: dict[str, Any]) -> dict[str, Any]:
    """Build the environment and inspect it; runs in the child."""
    env = Env(**{**question["env"], "wrappers": tuple(question["env"]["wrappers"])})
    return inspect(_built(env, as_stored=question["as_stored"]), steps=question["steps"]).to_dict()


def _built(env: Env, *, as_stored: bool) -> Any:
    if not as_stored:
        return build_environment(env.id, env.make, env.wrappers)
    from rlmem.sb3.building import build_stored_env

    return build_stored_env(env)


if __name__ == "__main__":
    answer(_reply, sys.argv[1:])

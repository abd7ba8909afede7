"""An unmodified script that trains for real, as short as it can while every phase is gone through.

The script's own `learn()` runs, with its own callbacks and for as many timesteps as it takes to see the peak.
Where it ends the process ends, with its environment workers. What the script and its callbacks write from Python is
kept out of the user's folders as in a capture.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlmem.errors import ScriptError
from rlmem.sb3.capture import finish, run_child

if TYPE_CHECKING:
    from rlmem.sb3.script_run import ScriptFailure


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortTraining:
    """How a script's training is made short: for how many timesteps, and with which settings of its model."""

    timesteps: int
    settings: Mapping[str, Any]
    progress: str | None = None
    """A file for the timesteps that are done."""


def train_script(
    script: Path,
    arguments: list[str],
    training: ShortTraining,
    *,
    timeout_s: float,
    started: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Return what the main process had at most, in which phase, and how long it trained."""
    ended = run_child(__name__, script, arguments, timeout_s=timeout_s, options=asdict(training), started=started)
    if ended.code is None and not ended.reply:
        raise ScriptError(
            f"{script}: its training for {training.timesteps:,} timesteps was not over within {timeout_s:g} s; "
            "--most-timesteps makes that of a replay buffer shorter" + ended.last_words
        )
    return ended.answer(script, place="while it was measured")


def _reply(question: dict[str, Any], file: int) -> None:
    """Run the script and answer from the end of its first `learn()`; the child ends here either way."""
    from rlmem.sb3.script_run import ScriptFailure, run_as_main
    from rlmem.sb3.short_learn import ShortLearn
    from rlmem.sb3.write_guard import WriteGuard

    guard = WriteGuard(Path(question["folder"]))
    learn = ShortLearn(
        ShortTraining(**question["options"]),
        then=lambda answer: finish({**answer, "kept_out": guard.kept_out}, file),
    )
    learn.hook(guard)
    try:
        run_as_main(Path(question["script"]), question["arguments"], guard=guard, built=[])
    except ScriptFailure as failure:
        finish(_in_training(failure) if learn.begun else failure.answer, file)


def _in_training(failure: ScriptFailure) -> dict[str, Any]:
    """Return the failure of a script that had begun to train, in words of its own."""
    answer = failure.answer
    words = {
        "exit": f"ended with exit code {answer.get('code')}",
        "no learn": "ended without the end of learn()",
        "missing": f"imports {answer.get('module')}, which is not installed,",
        "input": "asks for input",
    }
    error = words.get(answer["failure"], f"raised {answer.get('error')}")
    return {"failure": "in training", "error": error, "line": answer.get("line")}


if __name__ == "__main__":
    # Not from here but from the module by its name: the script is about to become `__main__`.
    from rlmem.sb3 import script_training

    script_training._reply(json.loads(sys.argv[2]), int(sys.argv[1]))

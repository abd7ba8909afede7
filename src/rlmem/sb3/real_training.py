"""The child that trains a run for real, as short as it can while every phase is gone through.

Epochs repeat the same step, so one is enough; a replay buffer is filled before the first update, since
updates on the way take time and no memory more.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from rlmem.observe import file_bytes, rss_bytes
from rlmem.plan.schedule import timesteps, without_repetition
from rlmem.plan.shadow_heap import read_books
from rlmem.run import run_from_mapping
from rlmem.run.child import answer
from rlmem.run.model import FrameworkRun


def _reply(question: dict[str, Any]) -> dict[str, Any]:
    """Train, and say what the main process had at most; runs in the child."""
    from rlmem.sb3.building import build_model, build_vec_env
    from rlmem.sb3.peak_phase import PeakPhase

    run = run_from_mapping(question["run"])
    assert isinstance(run, FrameworkRun)  # noqa: S101 - only framework runs are trained
    env = build_vec_env(run.env)
    model = build_model(run, env, **without_repetition(run))
    built = _reading("built")
    phases = PeakPhase(model)
    model.learn(timesteps(run), log_interval=None, callback=_progress(question.get("progress")))
    trained = _reading("trained")
    env.close()
    return built | trained | phases.readings() | {"file_bytes": file_bytes(os.getpid())}


def _reading(when: str) -> dict[str, int]:
    """Return the resident set, and the part of it that is not the allocator's: code, interpreter, threads."""
    books, resident = read_books(), rss_bytes(os.getpid())
    return {
        f"{when}_bytes": resident,
        f"{when}_outside_heap_bytes": resident - books.bytes,
        f"{when}_in_use_bytes": books.in_use_bytes,
    }


def _progress(name: str | None) -> Any:
    """Return a callback that writes how far the training has come into a file, for whoever shows it."""
    if name is None:
        return None
    path = Path(name)
    from stable_baselines3.common.callbacks import BaseCallback

    class Progress(BaseCallback):
        def _on_step(self) -> bool:
            if self.n_calls % 200 == 0:
                path.write_text(str(self.num_timesteps))
            return True

    return Progress()


if __name__ == "__main__":
    answer(_reply, sys.argv[1:])

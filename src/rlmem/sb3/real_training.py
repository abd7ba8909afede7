"""The child that trains a run for real, as short as it can while every phase is gone through.

Epochs repeat the same step, so one is enough; a replay buffer is filled before the first update, since
updates on the way take time and no memory more.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from rlmem.measure.schedule import timesteps, without_repetition
from rlmem.observe import high_water_bytes, rss_bytes
from rlmem.plan.shadow_heap import spare_bytes
from rlmem.run import run_from_mapping
from rlmem.run.child import answer
from rlmem.run.model import FrameworkRun


def _reply(question: dict[str, Any]) -> dict[str, Any]:
    """Train, and say what the main process had at most; runs in the child."""
    from rlmem.sb3.building import build_model, build_vec_env

    run = run_from_mapping(question["run"])
    assert isinstance(run, FrameworkRun)  # noqa: S101 - only framework runs are trained
    env = build_vec_env(run.env)
    model = build_model(run, env, **without_repetition(run))
    pid = os.getpid()
    built = {
        "built_bytes": rss_bytes(pid),
        "built_high_water_bytes": high_water_bytes(pid),
        "spare_bytes": spare_bytes(),
    }
    model.learn(timesteps(run), log_interval=None, callback=_progress(question.get("progress")))
    high_water = high_water_bytes(pid)
    env.close()
    return built | {"high_water_bytes": high_water}


def _progress(path: str | None) -> Any:
    """Return a callback that writes how far the training has come into a file, for whoever shows it."""
    if path is None:
        return None
    from stable_baselines3.common.callbacks import BaseCallback

    class Progress(BaseCallback):
        def _on_step(self) -> bool:
            if self.n_calls % 200 == 0:
                with open(path, "w") as file:  # noqa: PTH123 - a hot path: no object for it
                    file.write(str(self.num_timesteps))
            return True

    return Progress()


if __name__ == "__main__":
    answer(_reply, sys.argv[1:])

"""The spaces of a real environment, read in a child process that ends with the reading."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from rlmem.run.child import TIMEOUT_S, answer, ask
from rlmem.run.gymnasium_spaces import describe
from rlmem.run.model import Env
from rlmem.run.space_reader import space_from_mapping, write_space


def read_environment(env: Env, *, timeout_s: float = TIMEOUT_S) -> Env:
    """Return ``env`` with the spaces of the real environment in it; one that has spaces is returned as it is."""
    if env.observation is not None:
        return env
    question = {"id": env.id, "make": env.make, "wrappers": list(env.wrappers)}
    reply = ask(__name__, question, subject=f"the environment {env.id or env.make}", timeout_s=timeout_s)
    return replace(
        env,
        observation=space_from_mapping(reply["observation"]),
        action=space_from_mapping(reply["action"]),
        episode_length=env.episode_length or reply["episode_length"],
    )


def _reply(question: dict[str, Any]) -> dict[str, Any]:
    """Build the environment and describe it; runs in the child."""
    env = build_environment(question["id"], question["make"], question["wrappers"])
    spec = getattr(env, "spec", None)
    return {
        "observation": write_space(describe(env.observation_space)),
        "action": write_space(describe(env.action_space)),
        "episode_length": getattr(spec, "max_episode_steps", None),
    }


def build_environment(name: str | None, make: str | None, wrappers: Iterable[str]) -> Any:
    """Return the live environment that a run names, by Gymnasium id or by import path, in its wrappers."""
    env = find(make)() if make else _registered(name or "")
    for wrapper in wrappers:
        env = find(wrapper)(env)
    return env


def _registered(name: str) -> Any:
    import gymnasium

    if name.startswith("ALE/") or "NoFrameskip" in name:
        import ale_py

        gymnasium.register_envs(ale_py)
    return gymnasium.make(name)


def find(path: str) -> Any:
    """Return the object that ``package.module:name`` names."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


if __name__ == "__main__":
    answer(_reply, sys.argv[1:])

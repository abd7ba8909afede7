"""Search a better-than-random player for each game, and keep it with its scores in `skilled_policies.json`.

Where the memory map says where ball and paddle are (Breakout, Pong), a rule that follows the ball, tuned by an
offset and a margin. Elsewhere one linear rule over the console's 128 bytes: many random ones and every constant
action, then a climb from the best. Scores are of whole games in the game's own points, four frames an action and
no-ops at the start as in training, and the ones kept come from episodes that the search never saw. An episode stops
after 18,000 frames, five minutes of play, as is usual for these games.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from itertools import product
from statistics import mean
from typing import Any

import ale_py
import gymnasium
import numpy as np
from games import GAMES
from policies import EXPLORE, SKILLED, Policy, policy_from, random_policy

FRAME_SKIP = 4
MOST_NO_OPS = 30
MOST_STEPS = 18_000 // FRAME_SKIP
TESTED_EPISODES = 10
TEST_SEED = 1_000_000
FIRST, AGAIN, FEW = range(1), range(1, 7), 8
CHASES = {"Breakout": {"target": 99, "own": 72}, "Pong": {"target": 54, "own": 51}}
UP_AND_DOWN = (2, 3)  # in both games the actions RIGHT and LEFT, whatever they do to the byte
OFFSETS = range(-16, 17, 4)
MARGINS = (1, 4, 8)

Described = dict[str, Any]


class Console:
    """One game, played in whole episodes."""

    def __init__(self, game: str) -> None:
        gymnasium.register_envs(ale_py)
        env = gymnasium.make(f"{game}NoFrameskip-v4").unwrapped
        self.ale = env.ale
        self.actions = self.ale.getMinimalActionSet()
        self.fire = env.get_action_meanings().index("FIRE") if "FIRE" in env.get_action_meanings() else None

    def score(self, policy: Policy, seed: int) -> float:
        """Points of one episode; a life begins with FIRE where the game has it, as SB3's wrapper does."""
        rng = np.random.default_rng(seed)
        self.ale.reset_game()
        total = sum(self.ale.act(self.actions[0]) for _ in range(rng.integers(1, MOST_NO_OPS + 1)))
        lives = -1
        for _ in range(MOST_STEPS):
            if self.ale.game_over():
                break
            action = policy(self.ale.getRAM(), rng)
            if self.ale.lives() != lives and self.fire is not None:
                action = self.fire
            lives = self.ale.lives()
            total += sum(self.ale.act(self.actions[action]) for _ in range(FRAME_SKIP))
        return float(total)

    def mean_score(self, policy: Policy, seeds: range) -> float:
        return mean(self.score(policy, seed) for seed in seeds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("games", nargs="*", default=GAMES, metavar="GAME", help=f"of {', '.join(GAMES)}")
    parser.add_argument("--seconds", type=float, default=40.0, help="of search for each game")
    arguments = parser.parse_args()
    found = json.loads(SKILLED.read_text())["games"] if SKILLED.exists() else {}
    for game in arguments.games:
        found[game] = _find(game, arguments.seconds)
        _write(found)
        print(f"{game:14} random {found[game]['random_score']:9.1f}  skilled {found[game]['skilled_score']:9.1f}")


def _find(game: str, seconds: float) -> Described:
    console = Console(game)
    policy = _best_chase(console, game) if game in CHASES else _best_linear(console, seconds)
    tested = range(TEST_SEED, TEST_SEED + TESTED_EPISODES)
    by_random = console.mean_score(random_policy(len(console.actions)), tested)
    by_skill = console.mean_score(policy_from(policy), tested)
    return {
        "random_score": by_random,
        "skilled_score": by_skill,
        "beats_random": by_skill > by_random,
        "policy": policy,
    }


def _best_chase(console: Console, game: str) -> Described:
    def scored(described: Described, episodes: range) -> float:
        return console.mean_score(policy_from(described), episodes)

    return _best_of_few([(scored(one, FIRST), one) for one in _chases(game, len(console.actions))], scored)[1]


def _best_of_few(seen: list[tuple[float, Any]], scored: Callable[[Any, range], float]) -> tuple[float, Any]:
    """Of those that did best in one episode, the best in others: one episode is mostly luck."""
    few = sorted(seen, key=lambda one: -one[0])[:FEW]
    return max(((scored(candidate, AGAIN), candidate) for _, candidate in few), key=lambda one: one[0])


def _chases(game: str, n_actions: int) -> Iterator[Described]:
    for up, down in (UP_AND_DOWN, UP_AND_DOWN[::-1]):
        for offset, margin in product(OFFSETS, MARGINS):
            tuned = {"offset": offset, "margin": margin, "up": up, "down": down}
            yield {"chase": CHASES[game] | tuned, "n_actions": n_actions}


def _best_linear(console: Console, seconds: float) -> Described:
    """A wide look for half the time, a closer one at the best few, and a climb in what is left."""
    rng = np.random.default_rng(0)
    started, n_actions = time.monotonic(), len(console.actions)

    def scored(weights: np.ndarray, episodes: range) -> float:
        return console.mean_score(policy_from(_described(weights)), episodes)

    seen = [(scored(weights, FIRST), weights) for weights in _constants(n_actions)]
    while time.monotonic() - started < 0.5 * seconds:
        weights = _drawn(rng, n_actions)
        seen.append((scored(weights, FIRST), weights))
    best_score, best = _best_of_few(seen, scored)
    while time.monotonic() - started < seconds:
        moved = _moved(best, rng)
        score = scored(moved, AGAIN)
        if score >= best_score:
            best_score, best = score, moved
    return _described(best)


def _constants(n_actions: int) -> Iterator[np.ndarray]:
    for action in range(n_actions):
        weights = np.zeros((n_actions, 129))
        weights[action, -1] = 100
        yield weights


def _drawn(rng: np.random.Generator, n_actions: int) -> np.ndarray:
    weights = rng.normal(0, 30, (n_actions, 129))
    weights[:, :-1] *= rng.random(128) < 0.2  # few bytes mean anything, and one rule needs few of them
    return np.rint(weights)


def _moved(weights: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.rint(weights + rng.normal(0, 20, weights.shape) * (rng.random(weights.shape) < 0.03))


def _described(weights: np.ndarray) -> Described:
    return {"linear": weights.astype(int).tolist(), "n_actions": len(weights)}


def _write(found: dict[str, Described]) -> None:
    head = {
        "made_by": "find_policies.py",
        "score": f"mean points of {TESTED_EPISODES} unseen episodes of at most {MOST_STEPS * FRAME_SKIP} frames",
        "explore": EXPLORE,
    }
    games = ",\n".join(f"{json.dumps(game)}: {json.dumps(found[game])}" for game in GAMES if game in found)
    SKILLED.write_text(f"{json.dumps(head)[:-1]},\n" + f'"games": {{\n{games}\n}}}}\n')


if __name__ == "__main__":
    main()

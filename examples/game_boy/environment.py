"""The fighting game as a Gymnasium environment, and two players to try it with.

    python examples/game_boy/environment.py --policy scripted --episodes 20

Another cartridge runs as well: `GameBoyFight(rom=Path("game.gb"))`. Nothing is known of its memory, so every reward
is 0 and no episode ends before `max_steps`, until you say what counts:

    GameBoyFight(rom=Path("game.gb"), score=lambda memory: memory[0xC0A0] / 10, over=lambda memory: memory[0xC0B0] == 0)
"""

from __future__ import annotations

import argparse
import io
import statistics
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
from rom import FULL_HEALTH, Ram, State, build

SCREEN = (144, 160, 3)
ACTIONS: tuple[str | None, ...] = (None, "left", "right", "up", "a", "b")  # nothing, walk, walk, jump, punch, block
BOOT_FRAMES = 600  # ten seconds; the emulator's own start takes one of them


class Memory(Protocol):
    """The emulator's memory: `memory[0xC100]` is a byte."""

    def __getitem__(self, address: int, /) -> Any: ...


Score = Callable[[Memory], float]
Over = Callable[[Memory], bool]


def fight_score(memory: Memory) -> float:
    """How the player stands: one for a full health bar more than the opponent's, and one for each round won."""
    health = memory[Ram.PLAYER_HEALTH] - memory[Ram.OPPONENT_HEALTH]
    return float(health / FULL_HEALTH + decimal(memory[Ram.WON]) - decimal(memory[Ram.LOST]))


def fight_over(memory: Memory) -> bool:
    """One of the two is down."""
    return bool(memory[Ram.STATE] == State.KO)


def decimal(byte: int) -> int:
    """A number that the game keeps as two decimal digits."""
    return 10 * (byte >> 4) + (byte & 15)


def emulator(rom: Path | None) -> Any:
    """PyBoy without window and sound, with the given cartridge or the one of this example."""
    if rom is not None and not rom.is_file():
        raise FileNotFoundError(
            f"`rom` must be a Game Boy cartridge file, but got {rom}, which is not there. Leave `rom` out to play the"
            " example's own game, or write that with `python examples/game_boy/rom.py FILE`"
        )
    with warnings.catch_warnings():  # it tells which SDL it found, though no window is opened
        warnings.simplefilter("ignore")
        try:
            from pyboy import PyBoy
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                "the game needs the emulator PyBoy: pip install pyboy", name=error.name
            ) from error
    cartridge = io.BytesIO(build() if rom is None else rom.read_bytes())
    return PyBoy(cartridge, window="null", sound_emulated=False, log_level="ERROR")


class GameBoyFight(gym.Env[np.ndarray, np.int64]):
    """One round against the computer, seen as the screen's pixels; the reward is the change of `score` in a step.

    An action holds one button for `frame_skip` frames, and the last of them is seen. A round ends with a knockout, or
    is cut off after `max_steps`. Resetting loads a state kept in memory and writes a new seed into the game.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 15}  # noqa: RUF012 (as in gym.Env)

    def __init__(
        self,
        rom: Path | None = None,
        *,
        frame_skip: int = 4,
        max_steps: int = 8192,
        score: Score | None = None,
        over: Over | None = None,
        boot_frames: int = BOOT_FRAMES,
        render_mode: str | None = None,
    ) -> None:
        self.observation_space = gym.spaces.Box(0, 255, SCREEN, np.uint8)
        self.action_space = gym.spaces.Discrete(len(ACTIONS))
        self.render_mode = render_mode
        self._own_game = rom is None
        self._frame_skip, self._max_steps = frame_skip, max_steps
        self._score = score or (fight_score if self._own_game else lambda memory: 0.0)
        self._over = over or (fight_over if self._own_game else lambda memory: False)
        self._emulator = emulator(rom)
        self._start = self._boot(boot_frames)
        self._held: str | None = None
        self._steps, self._standing = 0, 0.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._hold(None)
        self._emulator.load_state(io.BytesIO(self._start))
        if self._own_game:
            number = int(self.np_random.integers(1, 1 << 16))
            self._emulator.memory[Ram.RANDOM], self._emulator.memory[Ram.RANDOM + 1] = number & 0xFF, number >> 8
        self._emulator.tick(1, True)
        self._steps, self._standing = 0, self._score(self._emulator.memory)
        return self._screen(), self._info()

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._hold(ACTIONS[int(action)])
        self._emulator.tick(self._frame_skip, True)
        before, self._standing = self._standing, self._score(self._emulator.memory)
        self._steps += 1
        terminated = self._over(self._emulator.memory)
        truncated = not terminated and self._steps >= self._max_steps
        return self._screen(), self._standing - before, terminated, truncated, self._info()

    def render(self) -> np.ndarray | None:
        return self._screen() if self.render_mode == "rgb_array" else None

    def close(self) -> None:
        self._emulator.stop(save=False)

    def _boot(self, frames: int) -> bytes:
        """Run to the first moment of a fight, or for so many frames, and keep the state."""
        for _ in range(frames):
            self._emulator.tick(1, False)
            if self._own_game and self._emulator.memory[Ram.STATE] == State.FIGHT:
                break
        state = io.BytesIO()
        self._emulator.save_state(state)
        return state.getvalue()

    def _hold(self, button: str | None) -> None:
        if button == self._held:
            return
        if self._held is not None:
            self._emulator.button_release(self._held)
        if button is not None:
            self._emulator.button_press(button)
        self._held = button

    def _screen(self) -> np.ndarray:
        pixels: np.ndarray = self._emulator.screen.ndarray[:, :, :3].copy()
        return pixels

    def _info(self) -> dict[str, Any]:
        if not self._own_game:
            return {}
        return {address.name.lower(): int(self._emulator.memory[address]) for address in Ram if address != Ram.RANDOM}


def scripted(info: dict[str, Any]) -> int:
    """Walk up to the opponent and punch."""
    distance = info["opponent_x"] - info["player_x"]
    if abs(distance) <= 22:
        return ACTIONS.index("a")
    return ACTIONS.index("right" if distance > 0 else "left")


def play(env: GameBoyFight, policy: str, seed: int) -> tuple[float, int, bool]:
    """A round to its end: the sum of rewards, the steps, and whether the player won."""
    env.action_space.seed(seed)
    _, info = env.reset(seed=seed)
    total, steps, done = 0.0, 0, False
    while not done:
        action = scripted(info) if policy == "scripted" else env.action_space.sample()
        _, reward, terminated, truncated, info = env.step(np.int64(action))
        total, steps, done = total + reward, steps + 1, terminated or truncated
    return total, steps, bool(info.get("won"))


def main() -> None:
    """Play some rounds and say how they went."""
    parser = argparse.ArgumentParser(description="Play rounds of the fighting game.")
    parser.add_argument("--rom", type=Path, help="another cartridge; its rewards are 0 (see the top of this file)")
    parser.add_argument("--policy", choices=("random", "scripted"), default="random")
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--max-steps", type=int, default=8192)
    arguments = parser.parse_args()
    if arguments.rom and arguments.policy == "scripted":
        parser.error("--policy scripted knows only the example's own game; take --policy random with --rom")
    try:
        env = GameBoyFight(arguments.rom, max_steps=arguments.max_steps)
    except (FileNotFoundError, ModuleNotFoundError) as error:
        parser.error(str(error))
    rounds = [play(env, arguments.policy, seed) for seed in range(arguments.episodes)]
    env.close()
    returns, lengths, won = zip(*rounds, strict=True)
    print(f"{arguments.policy}: {sum(won)} of {len(won)} rounds won, return {statistics.mean(returns):.2f} on average")
    print(f"steps in a round: {min(lengths)} to {max(lengths)}, median {statistics.median(lengths):.0f}")


if __name__ == "__main__":
    main()

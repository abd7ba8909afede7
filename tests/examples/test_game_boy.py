"""The Game Boy example: the cartridge that it writes, and the environment around it."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "game_boy"
MODULES = ("art", "assembler", "rom", "environment")

np = pytest.importorskip("numpy")
pytest.importorskip("gymnasium")
# Not importorskip: importing it warns about SDL, and warnings are errors here.
needs_emulator = pytest.mark.skipif(importlib.util.find_spec("pyboy") is None, reason="pyboy is not installed")


def _load(name: str, patch: pytest.MonkeyPatch) -> ModuleType:
    """A module of the example, which other examples may have under the same name."""
    patch.syspath_prepend(str(EXAMPLE))
    for other in MODULES:
        patch.delitem(sys.modules, other, raising=False)
    return importlib.import_module(name)


@pytest.fixture(scope="module")
def environment():
    with pytest.MonkeyPatch.context() as patch:
        yield _load("environment", patch)
        for name in MODULES:
            sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def rom(environment):
    return sys.modules["rom"]


@pytest.fixture(scope="module")
def assembler(environment):
    return sys.modules["assembler"]


@pytest.fixture
def env(environment):
    made = environment.GameBoyFight()
    yield made
    made.close()


def _play(env, actions, seed):
    frames = [env.reset(seed=seed)[0]]
    for action in actions:
        frames.append(env.step(action)[0])
    return np.stack(frames)


@pytest.mark.parametrize(
    ("line", "encoded"),
    [
        ("ld a, 3", "3e03"),
        ("ld [PLACE], a", "ea34c1"),
        ("ld a, [PLACE-$34]", "fa00c1"),
        ("ldh [$40], a", "e040"),
        ("ld [hl], b", "70"),
        ("add a, [hl]", "86"),
        ("cp 144", "fe90"),
        ("bit 7, h", "cb7c"),
        ("swap a", "cb37"),
        ("push af", "f5"),
        ("jr nz, here", "20fe"),
        ("call c, here", "dc0000"),
    ],
)
def test_instructions_are_encoded_as_the_processor_reads_them(assembler, line, encoded):
    program = assembler.Assembler({"PLACE": 0xC134})
    program.code(f"here:\n    {line} ; and a comment")
    assert program.link().hex().startswith(encoded)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("ld a, b, c", "is no instruction"),
        ("ld a, MISSING", "`MISSING` is neither a number nor a known name in `ld a, MISSING`"),
        ("ld a, 256", "0 <= operand < 256 must hold, but got 256 in `ld a, 256`"),
        ("jr 200", "-128 <= operand < 128 must hold"),
        ("twice:\ntwice:", "`twice` is defined twice"),
    ],
)
def test_what_cannot_be_assembled_is_named(assembler, source, message):
    program = assembler.Assembler({})

    def assemble():
        program.code(source)
        program.link()

    with pytest.raises(assembler.AssemblyError, match=message):
        assemble()


def test_the_cartridge_is_the_same_every_time_and_its_checksums_hold(rom):
    image = rom.build()
    assert image == rom.build()
    assert len(image) == 32 * 1024
    assert sum(image[0x134:0x14E]) + 0x19 & 0xFF == 0, "the header's checksum"
    assert int.from_bytes(image[0x14E:0x150], "big") == sum(image) - sum(image[0x14E:0x150]) & 0xFFFF
    assert image[0x147:0x14A] == bytes(3), "no banks, 32 KiB, no memory of its own"
    assert image[0x104:0x134] == bytes(48), "nobody else's logo"


def test_the_program_writes_the_cartridge(rom, tmp_path):
    path = tmp_path / "fight.gb"
    subprocess.run([sys.executable, EXAMPLE / "rom.py", path], check=True, capture_output=True)
    assert path.read_bytes() == rom.build()


@needs_emulator
def test_it_boots_into_a_fight_with_two_fighters_on_the_screen(env, rom):
    screen, info = env.reset(seed=0)
    assert info["state"] == rom.State.FIGHT
    assert info["player_health"] == info["opponent_health"] == rom.FULL_HEALTH
    assert info["player_x"] < info["opponent_x"]
    assert screen.shape == (144, 160, 3)
    assert screen.dtype == np.uint8
    fighters = screen[88:120, :, 0]
    player, opponent = (fighters[:, x : x + 16] for x in (info["player_x"], info["opponent_x"]))
    assert (player == 255).sum() > 50, "the player is light"
    assert (opponent == 0).sum() > 150, "the opponent is dark"


@needs_emulator
def test_buttons_move_the_player(env, environment, rom):
    press = {name: environment.ACTIONS.index(name) for name in environment.ACTIONS}
    start = env.reset(seed=0)[1]["player_x"]
    assert env.step(press["left"])[4]["player_x"] == start - 4
    assert env.step(press["right"])[4]["player_x"] == start
    assert env.step(press["b"])[4]["player_pose"] == rom.Pose.BLOCK
    assert env.step(press[None])[4]["player_pose"] == rom.Pose.IDLE
    assert env.step(press["a"])[4]["player_pose"] == rom.Pose.PUNCH
    env.reset(seed=0)
    heights = [env.step(press["up"] if i == 0 else press[None])[4]["player_height"] for i in range(12)]
    assert 30 <= max(heights) <= rom.JUMP_HEIGHT
    assert heights[-1] == 0


@needs_emulator
def test_nobody_leaves_the_screen_and_a_reward_is_the_change_of_health_or_of_rounds(env, rom):
    env.action_space.seed(1)
    _, info = env.reset(seed=1)
    total, done = 0.0, False
    while not done:
        _, reward, done, truncated, info = env.step(env.action_space.sample())
        total += reward
        assert not truncated
        for who in ("player", "opponent"):
            assert rom.RULES["LEFT_WALL"] <= info[f"{who}_x"] <= rom.RULES["RIGHT_WALL"]
    assert min(info["player_health"], info["opponent_health"]) == 0
    health = (info["player_health"] - info["opponent_health"]) / rom.FULL_HEALTH
    assert total == pytest.approx(health + info["won"] - info["lost"])
    assert {info["won"], info["lost"]} == {0, 1}


@needs_emulator
def test_a_new_round_begins_after_a_knockout(env, rom):
    env.reset(seed=2)
    done = False
    while not done:
        _, _, done, _, info = env.step(0)
    assert (info["lost"], info["round"]) == (1, 1)
    for _ in range((rom.RULES["KO_FRAMES"] + rom.RULES["READY_FRAMES"]) // 4 + 1):
        info = env.step(0)[4]
    assert (info["lost"], info["round"], info["state"]) == (1, 2, rom.State.FIGHT)
    assert info["player_health"] == rom.FULL_HEALTH


@needs_emulator
def test_walking_up_and_punching_beats_pressing_anything(env, environment):
    returns = {
        policy: sum(environment.play(env, policy, seed)[0] for seed in range(5)) for policy in ("random", "scripted")
    }
    assert returns["scripted"] > returns["random"] + 2.5, "half a point a round"


@needs_emulator
def test_a_seed_gives_the_same_frames_again_also_from_a_held_button(env, environment):
    actions = np.random.default_rng(0).integers(0, 6, 60)
    first = _play(env, actions, seed=7)
    env.step(environment.ACTIONS.index("right"))
    assert np.array_equal(_play(env, actions, seed=7), first)
    assert not np.array_equal(_play(env, actions, seed=8), first)
    other = environment.GameBoyFight()
    assert np.array_equal(_play(other, actions, seed=7), first), "in another emulator too"
    other.close()


@needs_emulator
def test_gymnasium_finds_nothing_wrong(environment):
    from gymnasium.utils.env_checker import check_env

    env = environment.GameBoyFight(render_mode="rgb_array")
    check_env(env, skip_render_check=True)
    assert env.render().shape == (144, 160, 3)
    env.close()


@needs_emulator
def test_four_stacked_frames_are_what_the_run_file_says(environment):
    pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack, VecTransposeImage

    envs = VecTransposeImage(VecFrameStack(DummyVecEnv([environment.GameBoyFight]), n_stack=4))
    assert envs.reset().shape == (1, 12, 144, 160)
    assert envs.step(np.array([2]))[0].dtype == np.uint8
    assert envs.action_space.n == 6
    envs.close()


@needs_emulator
@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_it_runs_in_a_worker_process(env, environment, method):
    # Gymnasium's workers, which start as those of Stable-Baselines3 do, but do not import torch.
    from gymnasium.vector import AsyncVectorEnv

    envs = AsyncVectorEnv([environment.GameBoyFight], context=method)
    assert np.array_equal(envs.reset(seed=[3])[0][0], env.reset(seed=3)[0])
    assert np.array_equal(envs.step(np.array([2]))[0][0], env.step(2)[0])
    envs.close()


@needs_emulator
def test_another_cartridge_runs_without_rewards_until_told_what_counts(environment, rom, tmp_path):
    path = tmp_path / "other.gb"
    path.write_bytes(rom.build())
    env = environment.GameBoyFight(path, max_steps=3, boot_frames=150)
    env.reset(seed=0)
    steps = [env.step(2) for _ in range(3)]
    assert [step[1:] for step in steps] == [(0.0, False, False, {}), (0.0, False, False, {}), (0.0, False, True, {})]
    env.close()
    env = environment.GameBoyFight(path, boot_frames=150, score=lambda memory: memory[0xC100], over=lambda memory: True)
    env.reset(seed=0)
    assert env.step(2)[1:3] == (4, True), "four pixels to the right"
    env.close()


def test_a_missing_cartridge_says_what_to_do(environment):
    with pytest.raises(FileNotFoundError, match=r"`rom` must be .* but got nowhere\.gb, .*rom\.py FILE`"):
        environment.GameBoyFight(Path("nowhere.gb"))


def test_a_missing_emulator_says_what_to_do(environment, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyboy", None)
    with pytest.raises(ModuleNotFoundError, match="pip install pyboy"):
        environment.GameBoyFight()

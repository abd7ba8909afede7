"""Writes a fighting game for the Game Boy, made for this example: `python examples/game_boy/rom.py fight.gb`.

You are the light fighter on the left. Left and right walk, up jumps, A punches, B blocks; the dark fighter follows
a simple rule with a random generator. Who has no health left loses the round, and a new one begins. The cartridge
is a plain one of 32 KiB. Its logo area is empty: emulators with an open boot ROM (PyBoy) start it, a real Game Boy
does not.
"""

from __future__ import annotations

import sys
from enum import IntEnum
from pathlib import Path

from art import FIRST_BACKGROUND_TILE, background_map, background_tiles, object_tiles
from assembler import ROM_BYTES, Assembler


class Ram(IntEnum):
    """Where the game keeps what an agent may want to know. One byte each, except RANDOM."""

    FRAME = 0xC000  # counts up, 60 a second
    STATE = 0xC001  # a State
    WAIT = 0xC002  # frames until the state ends, in READY and KO
    WON = 0xC003  # rounds, in decimal: 0x12 is twelve
    LOST = 0xC004
    ROUND = 0xC005  # from 1 on, in decimal
    RANDOM = 0xC006  # two bytes, the state of the generator: write any number but 0 to seed it
    PLAYER_X = 0xC100  # left edge in pixels
    PLAYER_HEIGHT = 0xC101  # above the floor, in pixels
    PLAYER_HEALTH = 0xC102
    PLAYER_POSE = 0xC103  # a Pose
    OPPONENT_X = 0xC200
    OPPONENT_HEIGHT = 0xC201
    OPPONENT_HEALTH = 0xC202
    OPPONENT_POSE = 0xC203


class State(IntEnum):
    """What the game is doing."""

    READY = 0  # the fighters stand; a fight begins
    FIGHT = 1
    KO = 2  # one is down; a new round follows


class Pose(IntEnum):
    """What a fighter is doing."""

    IDLE = 0
    WALK = 1
    PUNCH = 2
    BLOCK = 3
    HURT = 4
    DOWN = 5


FULL_HEALTH = 64
JUMP_FRAMES = 36
JUMP_HEIGHT = 34
ENTRY, VBLANK_VECTOR, HEADER, START = 0x100, 0x40, 0x134, 0x150
TITLE = b"RLMEM FIGHT"
PROGRAM = Path(__file__).with_name("fight.asm")

RULES = {
    "FULL_HEALTH": FULL_HEALTH,
    "DAMAGE": 6,
    "BLOCKED_DAMAGE": 1,
    "REACH": 24,
    "CLOSEST": 14,  # fighters on the floor do not walk into each other
    "SHOVE": 6,
    "LEFT_WALL": 2,
    "RIGHT_WALL": 142,
    "PLAYER_START": 36,
    "OPPONENT_START": 108,
    "JUMP_FRAMES": JUMP_FRAMES,
    "PUNCH_FRAMES": 24,
    "PUNCH_LANDS": 16,  # frames before the end of the punch
    "HURT_FRAMES": 14,
    "MERCY_FRAMES": 30,  # after a hit, nothing hits
    "THINK_FRAMES": 4,  # the opponent keeps a decision for 4 to 11 frames
    "READY_FRAMES": 30,
    "KO_FRAMES": 90,
}

# A fighter is a page of memory, so that h (or d) says which fighter and l (or e) which field.
FIELDS = ("X", "HEIGHT", "HEALTH", "POSE", "CLOCK", "FACING", "AIR", "MERCY", "INPUT")
MEMORY = {
    "PLAYER": 0xC1,
    "OPPONENT": 0xC2,
    "OBJECTS": 0xC300,  # copied to the screen's own object memory on every frame
    "OBJECTS_PAGE": 0xC3,
    "THINK": 0xC008,  # frames until the opponent decides anew
    "TOP": 0xC010,  # from here on: notes of the drawing routines
    "BACK": 0xC011,
    "FRONT": 0xC012,
    "REACHED": 0xC013,
    "BODY": 0xC014,
    "LEGS": 0xC015,
    "ATTRIBUTES": 0xC016,
    "SCORES": 0xC040,  # the two upper rows of the screen, copied on every frame
    "BARS": 0xC060,
    "STACK": 0xE000,
}
INPUTS = {"RIGHT": 0x01, "LEFT": 0x02, "UP": 0x04, "A": 0x10, "B": 0x20}
HARDWARE = {
    "JOYPAD": 0x00,
    "INTERRUPTS": 0x0F,
    "LCDC": 0x40,
    "SCY": 0x42,
    "SCX": 0x43,
    "LY": 0x44,
    "DMA": 0x46,
    "BGP": 0x47,
    "OBP0": 0x48,
    "OBP1": 0x49,
    "ENABLED": 0xFF,
    "HIGH_RAM": 0xFF80,
    "TILES": 0x8000,
    "BACKGROUND_TILES": 0x8000 + 16 * FIRST_BACKGROUND_TILE,
    "MAP": 0x9800,
}


def jump_arc() -> bytes:
    """How high a fighter is, by the frames that are left of the jump: a parabola."""
    frames = range(JUMP_FRAMES)
    return bytes(round(4 * JUMP_HEIGHT * left * (JUMP_FRAMES - left) / JUMP_FRAMES**2) for left in frames)


def plans(**shares: int) -> bytes:
    """Sixteen inputs, of which the opponent takes one at random; LEFT is towards the player."""
    buttons = {"wait": 0, "come": INPUTS["LEFT"], "go": INPUTS["RIGHT"], "punch": INPUTS["A"], "block": INPUTS["B"]}
    buttons |= {"leap": INPUTS["LEFT"] | INPUTS["UP"], "jump": INPUTS["UP"]}
    table = bytes(buttons[name] for name, share in shares.items() for _ in range(share))
    assert len(table) == 16
    return table


def captions(numbers: dict[str, int]) -> bytes:
    """The top row of the screen: whose score is whose."""
    text = " YOU            CPU "
    return bytes(numbers["SKY" if character == " " else f"GLYPH_{character}"] for character in text)


def pose_drawings(numbers: dict[str, int]) -> bytes:
    """Body and legs for each pose."""
    bodies = ["BODY_IDLE", "BODY_IDLE", "BODY_PUNCH", "BODY_BLOCK", "BODY_HURT", "NOTHING"]
    legs = ["LEGS_STAND", "LEGS_STAND", "LEGS_STRIDE", "LEGS_STAND", "LEGS_STAND", "LEGS_FALLEN"]
    return bytes(numbers[name] for pair in zip(bodies, legs, strict=True) for name in pair)


def constants(*groups: dict[str, int]) -> dict[str, int]:
    """All names of the program; none may mean two things."""
    merged: dict[str, int] = {}
    for group in groups:
        assert not merged.keys() & group.keys(), merged.keys() & group.keys()
        merged |= group
    return merged


def with_header(image: bytes) -> bytes:
    """The image with its title and its two checksums, which say that it is whole."""
    cartridge = bytearray(image)
    cartridge[HEADER : HEADER + len(TITLE)] = TITLE
    checksum = 0
    for byte in cartridge[HEADER:0x14D]:
        checksum = (checksum - byte - 1) & 0xFF
    cartridge[0x14D] = checksum
    cartridge[0x14E:0x150] = (sum(cartridge) & 0xFFFF).to_bytes(2, "big")
    return bytes(cartridge)


def build() -> bytes:
    """The cartridge, 32,768 bytes, the same on every call."""
    objects, object_numbers = object_tiles()
    scenery, scenery_numbers = background_tiles()
    sizes = {"OBJECT_TILES_BYTES": len(objects), "BACKGROUND_TILES_BYTES": len(scenery)}
    enums = {name: value.value for kind in (Ram, State, Pose) for name, value in kind.__members__.items()}
    fields = {name: i for i, name in enumerate(FIELDS)}
    names = constants(enums, fields, RULES, MEMORY, INPUTS, HARDWARE, object_numbers, scenery_numbers, sizes)
    program = Assembler(names)
    program.org(VBLANK_VECTOR)
    program.code("reti")
    program.org(ENTRY)
    program.code("nop\njp start")
    program.org(START)
    program.code(PROGRAM.read_text())
    program.data("jump_arc", jump_arc())
    program.data("pose_drawings", pose_drawings(object_numbers))
    program.data("captions", captions(scenery_numbers))
    program.data("empty_bars", bytes([scenery_numbers["SKY"]] * 20))
    program.org(0x1000)
    program.data("near_plans", plans(punch=8, block=3, go=2, jump=1, wait=2))
    program.data("far_plans", plans(come=11, wait=1, leap=2, go=1, punch=1))
    program.data("object_tiles", objects)
    program.data("background_tiles", scenery)
    program.data("background_map", background_map(scenery_numbers))
    return with_header(program.link())


def main() -> None:
    """Write the cartridge to the file that is named."""
    if len(sys.argv) != 2:
        raise SystemExit("usage: rom.py FILE, for example fight.gb")
    path = Path(sys.argv[1])
    path.write_bytes(build())
    print(f"{path}: {ROM_BYTES:,} bytes")


if __name__ == "__main__":
    main()

"""A two-pass assembler for the Game Boy's processor, as much of it as a small game needs.

    program = Assembler({"LIVES": 0xC000})
    program.org(0x150)
    program.code('''
    start:
        ld a, 3
        ld [LIVES], a
    .wait:                  ; a label with a dot belongs to the label above it
        jr .wait
    ''')
    image = program.link()

Numbers are decimal or `$hex`; an operand is a sum of numbers, constants and labels (`SCREEN+32`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

ROM_BYTES = 0x8000
REGISTERS = ("b", "c", "d", "e", "h", "l", "[hl]", "a")
PAIRS = ("bc", "de", "hl", "sp")
CONDITIONS = ("nz", "z", "nc", "c")
ARITHMETIC = ("add a,", "adc a,", "sub", "sbc a,", "and", "xor", "or", "cp")
SHIFTS = ("rlc", "rrc", "rl", "rr", "sla", "sra", "swap", "srl")
OPERAND_BYTES = {"n8": 1, "e8": 1, "n16": 2}
OPERAND = re.compile(r"\b(n8|e8|n16)\b")


class AssemblyError(ValueError):
    """A line of the program has no meaning; the message says which line and why."""


def _instructions() -> Iterator[tuple[str, bytes]]:
    """Every known form with its opcode; `n8`, `n16` and `e8` (a relative jump) stand for operands."""
    plain = {"nop": 0x00, "halt": 0x76, "ret": 0xC9, "reti": 0xD9, "di": 0xF3, "ei": 0xFB, "daa": 0x27, "cpl": 0x2F}
    loads = {"ld [bc], a": 0x02, "ld [de], a": 0x12, "ld [hl+], a": 0x22, "ld [hl-], a": 0x32}
    loads |= {"ld a, [bc]": 0x0A, "ld a, [de]": 0x1A, "ld a, [hl+]": 0x2A, "ld a, [hl-]": 0x3A}
    loads |= {"ldh [n8], a": 0xE0, "ldh a, [n8]": 0xF0, "ld [n16], a": 0xEA, "ld a, [n16]": 0xFA}
    jumps = {"jr e8": 0x18, "jp n16": 0xC3, "jp hl": 0xE9, "call n16": 0xCD}
    for form, opcode in (plain | loads | jumps).items():
        yield form, bytes([opcode])
    for i, condition in enumerate(CONDITIONS):
        forms = {f"jr {condition}, e8": 0x20, f"jp {condition}, n16": 0xC2}
        forms |= {f"call {condition}, n16": 0xC4, f"ret {condition}": 0xC0}
        for form, opcode in forms.items():
            yield form, bytes([opcode + 8 * i])
    for i, pair in enumerate(PAIRS):
        forms = {f"ld {pair}, n16": 0x01, f"inc {pair}": 0x03, f"add hl, {pair}": 0x09, f"dec {pair}": 0x0B}
        stacked = "af" if pair == "sp" else pair
        forms |= {f"pop {stacked}": 0xC1, f"push {stacked}": 0xC5}
        for form, opcode in forms.items():
            yield form, bytes([opcode + 16 * i])
    yield from _register_instructions()


def _register_instructions() -> Iterator[tuple[str, bytes]]:
    for i, register in enumerate(REGISTERS):
        yield f"inc {register}", bytes([0x04 + 8 * i])
        yield f"dec {register}", bytes([0x05 + 8 * i])
        yield f"ld {register}, n8", bytes([0x06 + 8 * i])
        for j, source in enumerate(REGISTERS):
            if register != "[hl]" or source != "[hl]":  # that opcode is halt
                yield f"ld {register}, {source}", bytes([0x40 + 8 * i + j])
        for j, verb in enumerate(ARITHMETIC):
            yield f"{verb} {register}", bytes([0x80 + 8 * j + i])
        for j, verb in enumerate(SHIFTS):
            yield f"{verb} {register}", bytes([0xCB, 8 * j + i])
        for j, verb in enumerate(("bit", "res", "set"), start=1):
            for bit in range(8):
                yield f"{verb} {bit}, {register}", bytes([0xCB, 0x40 * j + 8 * bit + i])
    for j, verb in enumerate(ARITHMETIC):
        yield f"{verb} n8", bytes([0xC6 + 8 * j])


INSTRUCTIONS = dict(_instructions())
WITH_OPERAND = [
    (re.compile(OPERAND.sub(r"([^][,]+)", re.escape(form))), match[1], opcode)
    for form, opcode in INSTRUCTIONS.items()
    if (match := OPERAND.search(form))
]


class Assembler:
    """Code and data are laid down in turn; `link` fills in the operands, when all labels are known."""

    def __init__(self, constants: Mapping[str, int]) -> None:
        self._symbols = dict(constants)
        self._image = bytearray(ROM_BYTES)
        self._here = 0
        self._scope = ""
        self._operands: list[tuple[int, str, str, str]] = []  # where, its kind, the expression, the source line

    def org(self, address: int) -> None:
        """What follows is laid down from this address on."""
        self._here = address

    def data(self, label: str, content: bytes) -> None:
        """Lay down bytes under a label."""
        self._label(label)
        self._emit(content)

    def code(self, source: str) -> None:
        """Lay down instructions, one a line; a line may also be a label, and `;` begins a comment."""
        for line in source.splitlines():
            text = " ".join(line.partition(";")[0].split())
            if text.endswith(":"):
                self._label(text[:-1])
            elif text:
                self._instruction(text)

    def link(self) -> bytes:
        """The finished image."""
        for where, kind, expression, line in self._operands:
            size = OPERAND_BYTES[kind]
            value = self._value(expression, line) - (where + 1 if kind == "e8" else 0)
            low, high = (-128, 128) if kind == "e8" else (0, 1 << 8 * size)
            if not low <= value < high:
                raise AssemblyError(f"{low} <= operand < {high} must hold, but got {value} in `{line}`")
            self._image[where : where + size] = value.to_bytes(size, "little", signed=kind == "e8")
        return bytes(self._image)

    def _label(self, name: str) -> None:
        full = self._scope + name if name.startswith(".") else name
        self._scope = full.partition(".")[0]
        if full in self._symbols:
            raise AssemblyError(f"`{full}` is defined twice")
        self._symbols[full] = self._here

    def _instruction(self, text: str) -> None:
        if text in INSTRUCTIONS:
            self._emit(INSTRUCTIONS[text])
            return
        for pattern, kind, opcode in WITH_OPERAND:
            if match := pattern.fullmatch(text):
                self._emit(opcode)
                expression = re.sub(r"(?<!\w)\.", f"{self._scope}.", match[1])
                self._operands.append((self._here, kind, expression, text))
                self._emit(bytes(OPERAND_BYTES[kind]))
                return
        raise AssemblyError(f"`{text}` is no instruction that this assembler knows")

    def _emit(self, content: bytes) -> None:
        self._image[self._here : self._here + len(content)] = content
        self._here += len(content)
        if len(self._image) != ROM_BYTES:
            raise AssemblyError(f"the program must end before ${ROM_BYTES:X}, but got to ${self._here:X}")

    def _value(self, expression: str, line: str) -> int:
        total = 0
        for sign, term in re.findall(r"([+-]?) ?([^+-]+)", expression):
            total += (-1 if sign == "-" else 1) * self._term(term.strip(), line)
        return total

    def _term(self, term: str, line: str) -> int:
        if term.startswith("$"):
            return int(term[1:], 16)
        if term.isdecimal():
            return int(term)
        if term not in self._symbols:
            raise AssemblyError(f"`{term}` is neither a number nor a known name in `{line}`")
        return self._symbols[term]

"""One mapping of a run file, read key by key; every complaint says file, line, what must hold and what was got."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

from rlmem.errors import InputError, RunFileError
from rlmem.run.document import MAX_DIGITS, Node, Scalar, Value
from rlmem.units import parse_bytes

T = TypeVar("T")

LARGEST: Final = 10**15
"""The largest number a run file may hold: beyond it no size is meant, only a slip of the finger."""


class Section:
    """A mapping that is read key by key; ``finish`` complains about the keys nobody asked for."""

    def __init__(self, node: Node, *, name: str, file: str) -> None:
        self.name = name
        self.file = file
        self.line = node.line
        self._asked: list[str] = []
        if not isinstance(node.value, dict):
            raise self.error(f"{self._title()} must be a mapping, but got {kind(node.value)}", node)
        self._nodes = node.value

    def __contains__(self, key: str) -> bool:
        return key in self._nodes

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self._nodes)

    @property
    def given(self) -> frozenset[str]:
        """The keys that have a value; looking does not count as asking."""
        return frozenset(key for key, node in self._nodes.items() if node.value is not None)

    def node(self, key: str) -> Node | None:
        """Return the node under ``key``; a null counts as absent."""
        self._asked.append(key)
        node = self._nodes.get(key)
        return None if node is None or node.value is None else node

    def required(self, key: str) -> Node:
        node = self.node(key)
        if node is None:
            raise self.error(f"{self._title()} must have `{key}`")
        return node

    def integer(self, key: str, *, low: int = 1, high: int = LARGEST) -> int | None:
        node = self.node(key)
        return None if node is None else self.as_integer(node, key, low=low, high=high)

    def number(self, key: str) -> float | None:
        node = self.node(key)
        if node is None:
            return None
        value = node.value
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
            raise self.wrong(key, "a number", node)
        try:
            return float(value)
        except OverflowError:
            raise self.wrong(key, "a number", node) from None

    def boolean(self, key: str) -> bool | None:
        node = self.node(key)
        if node is None:
            return None
        if not isinstance(node.value, bool):
            raise self.wrong(key, "true or false", node)
        return node.value

    def text(self, key: str) -> str | None:
        node = self.node(key)
        return None if node is None else self.as_text(node, key)

    def choice(self, key: str, options: Iterable[str]) -> str | None:
        node = self.node(key)
        return None if node is None else self.as_choice(node, key, options)

    def size(self, key: str) -> int | None:
        """Return bytes: ``16GB``, ``500 MiB`` or a plain number."""
        node = self.node(key)
        if node is None:
            return None
        if isinstance(node.value, bool) or not isinstance(node.value, int | str):
            raise self.wrong(key, "a size such as 16GB", node)
        try:
            return parse_bytes(node.value)
        except InputError as error:
            raise self.error(f"{self._title(key)}: {error}", node) from None

    def section(self, key: str) -> Section | None:
        node = self.node(key)
        return None if node is None else self.inner(node, key)

    def inner(self, node: Node, key: str) -> Section:
        name = f"{self.name}.{key}" if self.name else key
        return Section(node, name=name, file=self.file)

    def items(self, key: str) -> tuple[Node, ...]:
        """Return the elements of a list, or one value as a list of one."""
        node = self.node(key)
        if node is None:
            return ()
        return tuple(node.value) if isinstance(node.value, list) else (node,)

    def list_of(self, key: str, read: Callable[[Section], T]) -> tuple[T, ...]:
        """Return a list of mappings, each read and finished."""
        node = self.node(key)
        if node is None:
            return ()
        if not isinstance(node.value, list):
            raise self.wrong(key, "a list", node)
        return tuple(self._finished(self.inner(item, f"{key}[{index}]"), read) for index, item in enumerate(node.value))

    @staticmethod
    def _finished(section: Section, read: Callable[[Section], T]) -> T:
        value = read(section)
        section.finish()
        return value

    def as_integer(self, node: Node, key: str, *, low: int = 1, high: int = LARGEST) -> int:
        value = node.value
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.wrong(key, "a whole number", node)
        if not low <= value <= high:
            raise self.error(f"{low} ≤ {self._title(key)} ≤ {high:.0e} must hold, but got {_short(value)}", node)
        return value

    def as_text(self, node: Node, key: str) -> str:
        value = node.value
        long = node.text is None and isinstance(value, int) and abs(value) >= 10**MAX_DIGITS
        if value is None or long or isinstance(value, dict | list | bool):
            raise self.wrong(key, "text", node)
        return str(value) if node.text is None else node.text  # as it is written: version 2.10 is not 2.1

    def as_choice(self, node: Node, key: str, options: Iterable[str]) -> str:
        allowed = tuple(options)
        if node.value not in allowed:
            guess = nearest(str(node.value), allowed)
            listing = ", ".join(allowed)
            raise self.error(f"{self._title(key)} must be one of {listing}, but got {_quote(node.value)}{guess}", node)
        return str(node.value)

    def finish(self) -> None:
        """Complain about the first key that nobody asked for."""
        for key, node in self._unasked():
            raise self.unknown(key, node)

    def rest(self) -> Iterator[tuple[str, Node]]:
        """Give the keys nobody has asked for, and take them as asked for."""
        for key, node in tuple(self._unasked()):
            self._asked.append(key)
            yield key, node

    def _unasked(self) -> Iterator[tuple[str, Node]]:
        return ((key, node) for key, node in self._nodes.items() if key not in self._asked)

    def unknown(self, key: str, node: Node, known: Iterable[str] = ()) -> RunFileError:
        """Return the complaint about a key, with the nearest one that was asked for or is known."""
        guess = nearest(key, (word for word in (*self._asked, *known) if word != key))
        return self.error(f"unknown key `{key}` in {self._title()}{guess}", node)

    def wrong(self, key: str, expected: str, node: Node) -> RunFileError:
        return self.error(f"{self._title(key)} must be {expected}, but got {kind(node.value)}", node)

    def error(self, message: str, node: Node | None = None) -> RunFileError:
        return RunFileError(message, file=self.file, line=(node.line if node else self.line) or None)

    def _title(self, key: str = "") -> str:
        path = ".".join(filter(None, (self.name, key)))
        return f"`{path}`" if path else "the run file"


def nearest(word: str, known: Iterable[str]) -> str:
    """Return ``; did you mean `x`?`` for the nearest known word, or nothing."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean `{close[0]}`?" if close else ""


def kind(value: Value) -> str:
    """Say what a value is, as a person would."""
    match value:
        case dict():
            return "a mapping"
        case list():
            return "a list"
        case None:
            return "nothing"
        case _:
            return _quote(value)


def _quote(value: Value | Scalar) -> str:
    if isinstance(value, dict | list):
        return kind(value)
    return _short(value) if isinstance(value, int | float) else repr(value)[:60]


def _short(number: float) -> str:
    if isinstance(number, int) and abs(number) >= 10**16:
        return f"{'-' if number < 0 else ''}10^{int(math.log10(abs(number)))} or more"
    return str(number)

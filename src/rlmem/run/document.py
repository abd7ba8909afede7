"""YAML read as plain nodes that know their line, within bounds that hostile files cannot break.

Only mappings, lists and plain scalars are taken. Tags, merge keys, duplicate keys and aliases that
expand without end are refused: a run file is data, and small.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import yaml
from yaml.composer import ComposerError

from rlmem.errors import RunFileError

MAX_FILE_BYTES: Final = 2**20
MAX_NODES: Final = 20_000
MAX_DEPTH: Final = 40
MAX_DIGITS: Final = 100

Scalar: TypeAlias = str | int | float | bool | None
Value: TypeAlias = "Scalar | list[Node] | dict[str, Node]"

_CORE_TAGS: Final = {f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "seq", "map")}
_MISFITS: Final = (ValueError, KeyError, IndexError, OverflowError)
"""What PyYAML lets through when a scalar is not of the kind that it or its tag looks like."""
_EXPONENT: Final = re.compile(r"[+-]?\d[\d_]*(\.\d*)?[eE][+-]?\d+")


@dataclass(frozen=True, slots=True)
class Node:
    """One value of a file, the line it begins on, and how it is written there where it is no list or mapping."""

    value: Value
    line: int
    text: str | None = None


def read_document(path: Path) -> Node:
    """Return the file's one document."""
    text = _read_text(path)
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        if root is None:
            raise RunFileError("a run file must describe a run, but the file is empty", file=str(path))
        return _Expansion(loader, str(path)).node(root, depth=0)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        problem = " ".join(filter(None, (error.context, error.problem)))
        raise RunFileError(f"not valid YAML: {problem}", file=str(path), line=mark.line + 1 if mark else None) from None
    except RecursionError:
        raise RunFileError("not valid YAML: nested too deeply", file=str(path)) from None
    except (yaml.YAMLError, *_MISFITS) as error:
        raise RunFileError(f"not valid YAML: {' '.join(str(error).split())}", file=str(path)) from None


def as_node(value: Any) -> Node:
    """Return plain values as nodes without a line, for what comes from a program and not from a file."""
    inner: Value
    if isinstance(value, Mapping):
        inner = {str(key): as_node(item) for key, item in value.items()}
    elif isinstance(value, list | tuple):
        inner = [as_node(item) for item in value]
    else:
        inner = value
    return Node(inner, 0)


def _read_text(path: Path) -> str:
    try:
        if path.is_dir():
            raise RunFileError("a run file must be a file, but this is a directory", file=str(path))
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise RunFileError(f"a run file is at most 1 MiB, but this has {size / 2**20:.0f} MiB", file=str(path))
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise RunFileError("no such file", file=str(path)) from None
    except (OSError, ValueError) as error:
        raise RunFileError(f"cannot be read: {error}", file=str(path)) from None
    if len(data) > MAX_FILE_BYTES:
        raise RunFileError("a run file is at most 1 MiB, but this is longer", file=str(path))
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RunFileError(
            f"a run file must be UTF-8 text, but {error.reason} at byte {error.start}", file=str(path)
        ) from None


class _Loader(yaml.SafeLoader):
    """Stops at the first value too many, before the rest of a large file is parsed."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._composed = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self._composed += 1
        if self._composed > MAX_NODES:
            raise ComposerError(problem=f"more than {MAX_NODES:,} values", problem_mark=self.get_mark())
        return super().compose_node(parent, index)


class _Expansion:
    """Turns YAML's node graph into a tree, counting as it goes."""

    def __init__(self, loader: yaml.SafeLoader, file: str) -> None:
        self._loader = loader
        self._file = file
        self._count = 0
        self._open: set[int] = set()

    def node(self, node: yaml.Node, *, depth: int) -> Node:
        line = node.start_mark.line + 1
        self._count += 1
        if self._count > MAX_NODES or depth > MAX_DEPTH:
            raise self._error("the file expands to too many or too deeply nested values", line)
        if id(node) in self._open:
            raise self._error("an alias must not contain itself", line)
        if node.tag not in _CORE_TAGS:
            raise self._error(f"tags are not allowed in a run file, but got {_show_tag(node.tag)}", line)
        self._open.add(id(node))
        value = self._value(node, depth=depth + 1)
        self._open.discard(id(node))
        return Node(value, line, str(node.value) if isinstance(node, yaml.ScalarNode) else None)

    def _value(self, node: yaml.Node, *, depth: int) -> Value:
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, depth=depth)
        if isinstance(node, yaml.SequenceNode):
            return [self.node(item, depth=depth) for item in node.value]
        assert isinstance(node, yaml.ScalarNode)  # noqa: S101 - YAML has no fourth kind of node
        return self._scalar(node)

    def _mapping(self, node: yaml.MappingNode, *, depth: int) -> dict[str, Node]:
        mapping: dict[str, Node] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise self._error("a key must be a word, but got a list or mapping", line)
            key = str(key_node.value)
            if key == "<<":
                raise self._error("merge keys (<<) are not allowed in a run file", line)
            if key in mapping:
                raise self._error(f"the key `{key}` stands twice in one mapping", line)
            mapping[key] = self.node(value_node, depth=depth)
        return mapping

    def _scalar(self, node: yaml.ScalarNode) -> Scalar:
        text = str(node.value)
        if len(text) > MAX_DIGITS and node.tag.endswith(":int"):
            raise self._error("a number must have fewer digits", node.start_mark.line + 1)
        if node.style is None and _EXPONENT.fullmatch(text):
            return _whole(float(text.replace("_", "")))  # YAML 1.1 takes 1e6 for a string; people mean a million
        try:
            value = self._loader.construct_object(node)
        except _MISFITS:
            raise self._error(f"{text[:60]!r} is not {_show_tag(node.tag)}", node.start_mark.line + 1) from None
        return value  # type: ignore[no-any-return]

    def _error(self, message: str, line: int) -> RunFileError:
        return RunFileError(message, file=self._file, line=line)


def _whole(number: float) -> int | float:
    return int(number) if number.is_integer() else number


def _show_tag(tag: str | None) -> str:
    return f"!!{tag.rpartition(':')[2]}" if tag and tag.startswith("tag:yaml.org") else str(tag)

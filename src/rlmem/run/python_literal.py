"""Python expressions of plain values, parsed and never evaluated: ``dict(net_arch=[64], activation_fn=nn.ReLU)``."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any, Final

LONGEST: Final = 10_000


@dataclass(frozen=True, slots=True)
class Dotted:
    """A name such as ``nn.ReLU``, kept as it is written."""

    name: str

    def __str__(self) -> str:
        return self.name


def read_literal(text: str) -> Any:
    """Return the value of a literal, of ``dict(…)`` and of names, which stay names; anything else is a ValueError."""
    if len(text) > LONGEST:
        raise ValueError(f"has more than {LONGEST:,} characters")
    try:
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError(f"{text[:60]!r} is no Python expression") from None


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=bool() | int() | float() | str() | None as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_value(item) for item in items]
        case ast.Dict(keys=keys, values=values):
            return {_key(key): _value(value) for key, value in zip(keys, values, strict=True)}
        case ast.Call(func=ast.Name(id="dict"), args=[], keywords=keywords):
            return {_keyword(keyword): _value(keyword.value) for keyword in keywords}
        case ast.Name() | ast.Attribute():
            return Dotted(_dotted(node))
        case _:
            raise ValueError(f"got {ast.unparse(node)[:60]!r}")


def _key(node: ast.expr | None) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    raise ValueError("a key is not a word")


def _keyword(keyword: ast.keyword) -> str:
    if keyword.arg is None:
        raise ValueError("got ** in a dict")
    return keyword.arg


def _dotted(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=inner, attr=name) if not name.startswith("_"):
            return f"{_dotted(inner)}.{name}"
        case _:
            raise ValueError(f"got {ast.unparse(node)[:60]!r}")

"""A syntax tree with the ways up and across that rules need: parents, scopes, imports, uses of a name.

Names are followed by scope and spelling, not by execution. Where that leaves a doubt, the rules stay silent.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Scope: TypeAlias = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef

FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_SCOPES: Final = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_PRINTERS: Final = frozenset({"print", "pprint", "repr", "str", "type", "id", "len", "isinstance", "hash"})
_LOG_METHODS: Final = frozenset({"debug", "info", "warning", "warn", "error", "log", "critical", "exception"})


@dataclass(frozen=True, slots=True)
class Binding:
    """A call whose result is bound to a plain name, and the scope that the name belongs to."""

    name: str
    call: ast.Call
    scope: Scope


class Syntax:
    """One script's tree, indexed once."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.nodes = tuple(ast.walk(tree))
        self.parent: dict[ast.AST, ast.AST] = {
            child: node for node in self.nodes for child in ast.iter_child_nodes(node)
        }
        self.imports = dict(_imports(self.nodes))
        self.bindings = tuple(self._bindings())
        self._reads = _reads(self.nodes)
        self._methods = {call.func.attr for call in self.calls() if isinstance(call.func, ast.Attribute)}
        self._shared = {
            name for node in self.nodes if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names
        }
        self.functions: dict[str, Function] = {node.name: node for node in self.nodes if isinstance(node, FUNCTIONS)}
        self.classes = {node.name for node in self.nodes if isinstance(node, ast.ClassDef)}

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """Give the nodes around ``node``, the nearest first."""
        while (node := self.parent.get(node, self.tree)) is not self.tree:
            yield node
        yield self.tree

    def scope(self, node: ast.AST) -> Scope:
        return next(item for item in self.ancestors(node) if isinstance(item, _SCOPES))

    def calls(self) -> Iterator[ast.Call]:
        return (node for node in self.nodes if isinstance(node, ast.Call))

    def origin(self, node: ast.AST) -> str:
        """Return the dotted name that an expression stands for, imports resolved; empty where it is no name."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        parts.append(self.imports.get(node.id, node.id))
        return ".".join(reversed(parts))

    def _bindings(self) -> Iterator[Binding]:
        """Give every call that is bound to a plain name, also under a condition and in a tuple."""
        for node in self.nodes:
            for target, value in _assigned(node):
                if isinstance(target, ast.Name):
                    for call in _possible_calls(value):
                        yield Binding(target.id, call, self.scope(node))

    def loads(self, name: str, scope: Scope) -> Iterator[ast.Name]:
        """Give the places that read ``name``; for a name declared global or nonlocal, anywhere in the script."""
        anywhere = isinstance(scope, ast.Module) or name in self._shared
        for node in self._reads.get(name, ()):
            if anywhere or scope in self.ancestors(node):
                yield node

    def calls_method(self, name: str) -> bool:
        """Whether the script calls a method of that name on anything."""
        return name in self._methods

    def looks_itself_up(self) -> bool:
        """Whether the script reads its names in a way that a syntax tree does not show."""
        hidden = {"locals", "globals", "eval", "exec", "vars"}
        return any(isinstance(call.func, ast.Name) and call.func.id in hidden for call in self.calls())

    def is_only_shown(self, node: ast.AST) -> bool:
        """Whether the value goes no further than a print, a log line or a question about it."""
        for item in self.ancestors(node):
            if isinstance(item, ast.Call) and node is not item.func:
                return is_display(item)
            if isinstance(item, ast.Yield | ast.YieldFrom | ast.Await | ast.NamedExpr):
                return False
            if isinstance(item, ast.stmt):
                return isinstance(item, ast.Expr)
            node = item
        return False


def _reads(nodes: tuple[ast.AST, ...]) -> dict[str, list[ast.Name]]:
    reads: dict[str, list[ast.Name]] = {}
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            reads.setdefault(node.id, []).append(node)
    return reads


def is_display(call: ast.Call) -> bool:
    """Whether a call shows its arguments and does nothing else with them."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr in _LOG_METHODS
    return isinstance(call.func, ast.Name) and call.func.id in _PRINTERS


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((item.value for item in call.keywords if item.arg == name), None)


def has_open_keywords(call: ast.Call) -> bool:
    """Whether a call has ``**options``, whose names a syntax tree does not show."""
    return any(item.arg is None for item in call.keywords)


def _imports(nodes: tuple[ast.AST, ...]) -> Iterator[tuple[str, str]]:
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield (alias.asname, alias.name) if alias.asname else (alias.name.split(".")[0],) * 2
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)


def _assigned(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        yield node.target, node.value
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _paired(target, node.value)


def _paired(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Give target and value, element by element where both are tuples of one length."""
    groups = (ast.Tuple, ast.List)
    if isinstance(target, groups) and isinstance(value, groups) and len(target.elts) == len(value.elts):
        yield from zip(target.elts, value.elts, strict=True)
    else:
        yield target, value


def _possible_calls(value: ast.expr) -> Iterator[ast.Call]:
    if isinstance(value, ast.Call):
        yield value
    elif isinstance(value, ast.IfExp):
        yield from (item for item in (value.body, value.orelse) if isinstance(item, ast.Call))

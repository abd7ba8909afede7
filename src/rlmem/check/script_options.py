"""Command-line options that a script parses, and whether it ever hands their values on."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from rlmem.check.syntax import FUNCTIONS, Function, Syntax, is_display, keyword

_PARSE: Final = ("parse_args", "parse_known_args", "parse_intermixed_args")


@dataclass(frozen=True, slots=True)
class Unused:
    """An option that is parsed and not passed on: the expression of its value, and the line that declares it."""

    value: str
    line: int


def unused_argparse(syntax: Syntax, option: str) -> Iterator[Unused]:
    """Give the option of an argument parser whose value is never handed on."""
    declared = [call for call in syntax.calls() if _declares(call, "add_argument", option)]
    if not declared:
        return
    namespaces = _Namespaces(syntax)
    if not namespaces.names or namespaces.escape():
        return
    for call in declared:
        name = _destination(call, option)
        if name is not None and not _is_handed_on(syntax, namespaces.reads(name)):
            yield Unused(f"{min(namespaces.names)}.{name}", call.lineno)


def unused_click(syntax: Syntax, option: str) -> Iterator[Unused]:
    """Give the option of a click command whose parameter is never handed on."""
    for function in syntax.functions.values():
        for decorator in function.decorator_list:
            if not (isinstance(decorator, ast.Call) and _declares(decorator, "option", option)):
                continue
            name = _click_name(decorator, option)
            if name in _parameters(function) and not _is_handed_on(syntax, syntax.loads(name, function)):
                yield Unused(name, decorator.lineno)


class _Namespaces:
    """The names that hold parsed arguments: results of parse_args, and parameters that they are passed to."""

    def __init__(self, syntax: Syntax) -> None:
        self._syntax = syntax
        self._parsers = set(_PARSE)
        self.names: set[str] = set()
        while self._grow():
            pass

    def _grow(self) -> bool:
        """Follow parsed arguments one step further; False when nothing new was found."""
        before = (len(self._parsers), len(self.names))
        for node in self._values():
            self._follow(node)
        return before != (len(self._parsers), len(self.names))

    def _values(self) -> Iterator[ast.AST]:
        """Give the expressions that are parsed arguments: calls of a parser, and reads of a name that holds them."""
        for node in self._syntax.nodes:
            held = isinstance(node, ast.Name) and node.id in self.names and isinstance(node.ctx, ast.Load)
            if held or (isinstance(node, ast.Call) and _called(node) in self._parsers):
                yield node

    def _follow(self, value: ast.AST) -> None:
        parent = self._syntax.parent[value]
        if isinstance(parent, ast.Assign):
            self.names.update(_first_names(parent.targets))
        elif isinstance(parent, ast.AnnAssign) and isinstance(parent.target, ast.Name):
            self.names.add(parent.target.id)
        elif isinstance(parent, ast.Return):
            scope = self._syntax.scope(parent)
            if isinstance(scope, FUNCTIONS):
                self._parsers.add(scope.name)
        elif parameter := self._parameter(value):
            self.names.add(parameter)

    def _parameter(self, value: ast.AST) -> str | None:
        """Return the parameter of one of the script's own functions that takes the value, or None."""
        parent = self._syntax.parent[value]
        call = self._syntax.parent[parent] if isinstance(parent, ast.keyword) else parent
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or value is call.func:
            return None
        function = self._syntax.functions.get(call.func.id)
        if function is None:
            return None
        if isinstance(parent, ast.keyword):
            return parent.arg if parent.arg in _parameters(function) else None
        position = next(index for index, item in enumerate(call.args) if item is value)
        names = _parameters(function)
        return names[position] if position < len(names) else None

    def escape(self) -> bool:
        """Whether parsed arguments go where the script's text does not show what becomes of them."""
        return any(self._escapes(value) for value in self._values())

    def _escapes(self, value: ast.AST) -> bool:
        parent = self._syntax.parent[value]
        if isinstance(parent, ast.Attribute):
            return parent.attr == "__dict__"
        if isinstance(parent, ast.Assign):
            return not any(_first_names(parent.targets))
        if isinstance(parent, ast.AnnAssign):
            return not isinstance(parent.target, ast.Name)
        if isinstance(parent, ast.Return | ast.Expr | ast.Compare | ast.FormattedValue):
            return False
        if isinstance(parent, ast.Call) and is_display(parent):
            return False
        return self._parameter(value) is None

    def reads(self, name: str) -> Iterator[ast.expr]:
        """Give the places that read one parsed value."""
        for value in self._values():
            parent = self._syntax.parent[value]
            if isinstance(parent, ast.Attribute) and parent.attr == name and isinstance(parent.ctx, ast.Load):
                yield parent


def _is_handed_on(syntax: Syntax, reads: Iterator[ast.expr]) -> bool:
    """Whether a value is read for more than showing it; one that is bound to a name is followed to that name."""
    for read in reads:
        if syntax.is_only_shown(read):
            continue
        statement = syntax.parent[read]
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        if not isinstance(target, ast.Name):
            return True
        if any(not syntax.is_only_shown(use) for use in syntax.loads(target.id, syntax.scope(read))):
            return True
    return False


def _called(call: ast.Call) -> str | None:
    """Return the last part of what is called: ``parse_args`` of ``parser.parse_args()``."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else None


def _declares(call: ast.Call, method: str, option: str) -> bool:
    return _called(call) == method and option in _strings(call)


def _strings(call: ast.Call) -> list[str]:
    return [item.value for item in call.args if isinstance(item, ast.Constant) and isinstance(item.value, str)]


def _destination(call: ast.Call, option: str) -> str | None:
    """Return the attribute that argparse stores the value under, or None where the text does not show it."""
    given = keyword(call, "dest")
    if given is None:
        first = next(name for name in _strings(call) if name.startswith("--"))
        return first.lstrip("-").replace("-", "_")
    return given.value if isinstance(given, ast.Constant) and isinstance(given.value, str) else None


def _click_name(decorator: ast.Call, option: str) -> str:
    """Return click's parameter name: the one given without dashes, else the option's own."""
    plain = (name for name in _strings(decorator) if not name.startswith("-"))
    return next(plain, option.lstrip("-").replace("-", "_"))


def _parameters(function: Function) -> list[str]:
    arguments = function.args
    return [item.arg for item in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]


def _first_names(targets: list[ast.expr]) -> Iterator[str]:
    """Give plain targets, and the first of a tuple, as in ``args, rest = parser.parse_known_args()``."""
    for target in targets:
        first = target.elts[0] if isinstance(target, ast.Tuple) and target.elts else target
        if isinstance(first, ast.Name):
            yield first.id

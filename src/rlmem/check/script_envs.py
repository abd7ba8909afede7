"""Environments that a script creates, wraps, hands around and closes, or does not."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from rlmem.check.syntax import Binding, Syntax, is_display, keyword
from rlmem.run.algorithms import ALGORITHMS

_VECTORS: Final = ("SubprocVecEnv", "DummyVecEnv", "AsyncVectorEnv", "SyncVectorEnv")
_WITH_WORKERS: Final = ("SubprocVecEnv", "AsyncVectorEnv")
_MAKERS: Final = ("make_vec_env", "make_atari_env")
_GYMS: Final = ("gym.make", "gymnasium.make", "gym.make_vec", "gymnasium.make_vec")
_BORROWERS: Final = frozenset(
    {"EvalCallback", "MaskableEvalCallback", "evaluate_policy", "check_env", "set_env", "load"}
)
_LIBRARIES: Final = ("stable_baselines3", "sb3_contrib", "gymnasium.wrappers", "gym.wrappers")


_Wrappers: TypeAlias = dict[tuple[ast.AST, str], set[str]]


@dataclass(frozen=True, slots=True)
class Unclosed:
    """An environment that nothing closes."""

    name: str
    made_by: str
    line: int
    workers: bool


def unclosed(syntax: Syntax) -> Iterator[Unclosed]:
    """Give the environments whose every use is in sight and none of them closes it."""
    told: set[tuple[int, str]] = set()
    closing, wrappers = _scopes_closing_unnamed(syntax), _wrappers(syntax)
    for binding in syntax.bindings:
        key, made = (id(binding.scope), binding.name), _innermost(syntax, binding.call)
        if key in told or not _is_environment(syntax, made) or isinstance(binding.scope, ast.ClassDef):
            continue
        names = _wrapped_names(wrappers, binding)
        uses = [use for name in names for use in syntax.loads(name, binding.scope)]
        if binding.scope in closing or any(_is_settled(syntax, use) for use in uses):
            continue
        told.update((id(binding.scope), name) for name in names)
        yield Unclosed(binding.name, ast.unparse(made.func), binding.call.lineno, _has_workers(syntax, made))


def _innermost(syntax: Syntax, call: ast.Call) -> ast.Call:
    """Return the call inside wrappers that are written around it: ``VecFrameStack(SubprocVecEnv(…), 4)``."""
    while _is_wrapper(syntax, call) and call.args and isinstance(call.args[0], ast.Call):
        call = call.args[0]
    return call


def _is_environment(syntax: Syntax, call: ast.Call) -> bool:
    origin = syntax.origin(call.func)
    return origin in _GYMS or origin.rpartition(".")[2] in (*_VECTORS, *_MAKERS)


def _has_workers(syntax: Syntax, call: ast.Call) -> bool:
    chosen = keyword(call, "vec_env_cls")
    made = chosen if chosen is not None else call.func
    return syntax.origin(made).rpartition(".")[2] in _WITH_WORKERS


def _wrappers(syntax: Syntax) -> _Wrappers:
    """Return, for each name in each scope, the names that wrappers around it are bound to."""
    wrappers: _Wrappers = {}
    for binding in syntax.bindings:
        if _is_wrapper(syntax, binding.call):
            for inner in _arguments(binding.call):
                wrappers.setdefault((binding.scope, inner), set()).add(binding.name)
    return wrappers


def _wrapped_names(wrappers: _Wrappers, binding: Binding) -> set[str]:
    """Return the names of the environment and of the wrappers around it, in its scope."""
    names, fresh = {binding.name}, {binding.name}
    while fresh:
        fresh = set().union(*(wrappers.get((binding.scope, name), set()) for name in fresh)) - names
        names |= fresh
    return names


def _arguments(call: ast.Call) -> set[str]:
    values = (*call.args, *(item.value for item in call.keywords))
    return {value.id for value in values if isinstance(value, ast.Name)}


def _is_wrapper(syntax: Syntax, call: ast.Call) -> bool:
    origin = syntax.origin(call.func)
    name = origin.rpartition(".")[2]
    return name.startswith("Vec") or name.endswith("Wrapper") or (name == "Monitor" or _is_library(origin, "wrappers"))


def _is_library(origin: str, part: str) -> bool:
    return origin.startswith(_LIBRARIES) and part in origin


def _scopes_closing_unnamed(syntax: Syntax) -> set[ast.AST]:
    """Return the scopes that close what they do not name, as ``model.get_env().close()`` does."""
    return {
        scope
        for node in syntax.nodes
        if isinstance(node, ast.Attribute) and node.attr == "close" and not isinstance(node.value, ast.Name)
        for scope in syntax.ancestors(node)
    }


def _is_settled(syntax: Syntax, use: ast.Name) -> bool:
    """Whether a use closes the environment or hands it to code that might."""
    parent = syntax.parent[use]
    if isinstance(parent, ast.Attribute):
        return parent.attr in ("close", "__exit__")
    if isinstance(parent, ast.keyword):
        parent = syntax.parent[parent]
    if isinstance(parent, ast.Call):
        return use is not parent.func and not _only_borrows(syntax, parent)
    return not isinstance(parent, ast.Compare | ast.Expr | ast.FormattedValue | ast.Subscript | ast.If | ast.UnaryOp)


def _only_borrows(syntax: Syntax, call: ast.Call) -> bool:
    """Whether the call is known to leave closing to the script."""
    if is_display(call) or _is_wrapper(syntax, call):
        return True
    name = call.func.attr if isinstance(call.func, ast.Attribute) else syntax.origin(call.func).rpartition(".")[2]
    return name in _BORROWERS or name in ALGORITHMS

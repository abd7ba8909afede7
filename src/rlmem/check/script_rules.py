"""Rules about what a training script creates and then does not use, close or carry on."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from rlmem.check.model import INFO, WARNING, Finding, Script, ScriptRule
from rlmem.check.script_envs import unclosed
from rlmem.check.script_options import Unused, unused_argparse, unused_click
from rlmem.check.syntax import FUNCTIONS, Binding, Syntax, has_open_keywords, keyword

_FRAMEWORKS: Final = ("stable_baselines3", "sb3_contrib", "sbx", "rl_zoo3")
_RESET_POSITION: Final = 4
"""Where `reset_num_timesteps` stands among the arguments of `learn`."""

_Loop = ast.For | ast.AsyncFor | ast.While


class UnregisteredCallback(ScriptRule):
    code = "RLM050"
    title = "a callback is created and never registered"
    severity = WARNING

    def check(self, script: Script) -> Iterator[Finding]:
        syntax = Syntax(script.tree)
        if syntax.looks_itself_up():
            return
        for binding in syntax.bindings:
            if _is_callback(syntax, binding.call) and _is_forgotten(syntax, binding):
                yield self.finding(
                    f"`{binding.name}` ({ast.unparse(binding.call.func)}) is created and then passed to nothing: "
                    "it never runs",
                    f"add it to learn: model.learn(…, callback=[…, {binding.name}]); or remove it with the "
                    "environments it was given, which take memory all the same",
                    line=binding.call.lineno,
                )


class IgnoredDevice(ScriptRule):
    code = "RLM051"
    title = "--device is parsed and not passed on"
    severity = WARNING

    def check(self, script: Script) -> Iterator[Finding]:
        syntax = Syntax(script.tree)
        unused: tuple[Unused, ...] = (*unused_argparse(syntax, "--device"), *unused_click(syntax, "--device"))
        for option in unused:
            yield self.finding(
                f"--device is parsed, but `{option.value}` is handed to nothing: the algorithm takes its own default, "
                "which is the GPU where there is one",
                f"pass it on: PPO(…, device={option.value})",
                line=option.line,
            )


class UnclosedEnvironment(ScriptRule):
    code = "RLM052"
    title = "an environment is never closed"
    severity = INFO

    def check(self, script: Script) -> Iterator[Finding]:
        syntax = Syntax(script.tree)
        if not syntax.calls_method("learn") or syntax.looks_itself_up():
            return
        for env in unclosed(syntax):
            left = (
                "its worker processes and their memory stay until the main process ends"
                if env.workers
                else "what it holds (emulator, window, files) stays until the process ends"
            )
            yield self.finding(
                f"`{env.name}` is created by {env.made_by} and never closed: {left}",
                f"{env.name}.close() when training is over, in a `finally` if it may fail",
                line=env.line,
            )


class RestartedCounting(ScriptRule):
    code = "RLM053"
    title = "learn in a loop starts counting from zero each time"
    severity = WARNING

    def check(self, script: Script) -> Iterator[Finding]:
        syntax = Syntax(script.tree)
        if not any(origin.startswith(_FRAMEWORKS) for origin in syntax.imports.values()):
            return
        for call in syntax.calls():
            if _resets_in_loop(syntax, call):
                model = ast.unparse(call.func).removesuffix(".learn")
                yield self.finding(
                    f"`{model}.learn` runs in a loop and resets num_timesteps each time: learning-rate and exploration "
                    "schedules start over, logs overlap, and checkpoints named by timestep overwrite each other",
                    f"{model}.learn(…, reset_num_timesteps=False) from the second time on",
                    line=call.lineno,
                )


def _is_callback(syntax: Syntax, call: ast.Call) -> bool:
    origin = syntax.origin(call.func)
    module, _, name = origin.rpartition(".")
    if not name[:1].isupper():
        return False
    return name.endswith("Callback") or (module.startswith(_FRAMEWORKS) and module.endswith("callbacks"))


def _is_forgotten(syntax: Syntax, binding: Binding) -> bool:
    """Whether nothing takes the callback. At module level of a script that trains nothing, others may import it."""
    if isinstance(binding.scope, ast.ClassDef):
        return False
    if isinstance(binding.scope, ast.Module) and not syntax.calls_method("learn"):
        return False
    siblings = _names_of(syntax, binding.call) or {binding.name}
    return not any(_is_taken(syntax, use) for name in siblings for use in syntax.loads(name, binding.scope))


def _names_of(syntax: Syntax, call: ast.Call) -> set[str]:
    """Return every name that one call is bound to, as in ``a = b = EvalCallback(…)``."""
    statement = next((item for item in syntax.ancestors(call) if isinstance(item, ast.Assign)), None)
    targets = statement.targets if statement else []
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _is_taken(syntax: Syntax, use: ast.Name) -> bool:
    """Whether a use hands the callback on. Setting or reading its attributes, testing or printing it does not."""
    parent = syntax.parent[use]
    if isinstance(parent, ast.Attribute):
        above = syntax.parent[parent]
        return isinstance(above, ast.Call) and above.func is parent
    if isinstance(parent, ast.Compare | ast.FormattedValue | ast.UnaryOp | ast.Assert):
        return False
    if isinstance(parent, ast.If | ast.While):
        return False
    return not syntax.is_only_shown(use)


def _resets_in_loop(syntax: Syntax, call: ast.Call) -> bool:
    if not (isinstance(call.func, ast.Attribute) and call.func.attr == "learn" and (call.args or call.keywords)):
        return False
    model = call.func.value
    if not isinstance(model, ast.Name | ast.Attribute) or has_open_keywords(call) or not _resets(call):
        return False
    loops = _loops_around(syntax, call)
    return bool(loops) and not _is_own_class(syntax, model) and not any(_makes(loop, model) for loop in loops)


def _resets(call: ast.Call) -> bool:
    given = keyword(call, "reset_num_timesteps")
    if given is None and len(call.args) > _RESET_POSITION:
        given = call.args[_RESET_POSITION]
    if given is None:
        return not any(isinstance(item, ast.Starred) for item in call.args)
    return isinstance(given, ast.Constant) and given.value is True


def _loops_around(syntax: Syntax, call: ast.Call) -> list[_Loop]:
    """Return the loops that repeat the call, within its own function."""
    loops: list[_Loop] = []
    inside: ast.AST = call
    for item in syntax.ancestors(call):
        if isinstance(item, (*FUNCTIONS, ast.Lambda, ast.ClassDef)):
            break
        if isinstance(item, _Loop) and inside in item.body:
            loops.append(item)
        inside = item
    return loops


def _makes(loop: _Loop, model: ast.expr) -> bool:
    """Whether a loop binds the model anew each time round, itself or as its own variable."""
    wanted = ast.unparse(model)
    stored = (ast.Name, ast.Attribute)
    return any(
        isinstance(node, stored) and isinstance(node.ctx, ast.Store) and ast.unparse(node) == wanted
        for node in ast.walk(loop)
    )


def _is_own_class(syntax: Syntax, model: ast.expr) -> bool:
    """Whether the model is an object of a class that the script defines: its `learn` may be anything."""
    if not isinstance(model, ast.Name):
        return False
    makers = [syntax.origin(binding.call.func) for binding in syntax.bindings if binding.name == model.id]
    return any(maker in syntax.classes for maker in makers)


RULES: Final = (UnregisteredCallback(), IgnoredDevice(), UnclosedEnvironment(), RestartedCounting())

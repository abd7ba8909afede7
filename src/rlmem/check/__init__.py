"""What is wrong with a run's settings or its script, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rlmem.check import buffer_rules, limit_rules, machine_rules, rollout_rules, saving_rules, script_rules
from rlmem.check.model import SEVERITIES, Finding, PlanRule, Rule, Script, ScriptRule
from rlmem.check.script import parse_script, read_script
from rlmem.errors import InputError
from rlmem.plan import Plan
from rlmem.run.section import nearest

_PLAN_RULES: Final[tuple[PlanRule, ...]] = (
    *rollout_rules.RULES,
    *buffer_rules.RULES,
    *saving_rules.RULES,
    *machine_rules.RULES,
    *limit_rules.RULES,
)
_SCRIPT_RULES: Final[tuple[ScriptRule, ...]] = script_rules.RULES

RULES: Final[tuple[Rule, ...]] = tuple(sorted((*_PLAN_RULES, *_SCRIPT_RULES), key=lambda rule: rule.code))
"""Every rule, by code."""


def check_plan(plan: Plan) -> tuple[Finding, ...]:
    """Return what the rules have to say about a run and its plan, the gravest first."""
    return in_order(finding for rule in _PLAN_RULES for finding in rule.check(plan))


def check_script(script: Script) -> tuple[Finding, ...]:
    """Return what the rules have to say about a training script, the gravest first."""
    return in_order(finding for rule in _SCRIPT_RULES for finding in rule.check(script))


def select(
    findings: Iterable[Finding], select: tuple[str, ...] = (), ignore: tuple[str, ...] = ()
) -> tuple[Finding, ...]:
    """Return the findings whose code begins with one of ``select`` (all, if it is empty) and none of ``ignore``."""
    for prefix in (*select, *ignore):
        _require_known(prefix)
    return tuple(
        finding
        for finding in findings
        if (not select or finding.code.startswith(select)) and not finding.code.startswith(ignore)
    )


def _require_known(prefix: str) -> None:
    codes = [rule.code for rule in RULES]
    if not prefix or not any(code.startswith(prefix) for code in codes):
        guess = nearest(prefix.upper(), codes)
        raise InputError(f"a rule must be a code such as RLM001 or the beginning of one, but got {prefix!r}{guess}")


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings with the gravest first."""
    return tuple(sorted(findings, key=lambda found: (SEVERITIES.index(found.severity), found.code, found.line or 0)))


__all__ = [
    "RULES",
    "Finding",
    "Rule",
    "Script",
    "check_plan",
    "check_script",
    "in_order",
    "parse_script",
    "read_script",
    "select",
]

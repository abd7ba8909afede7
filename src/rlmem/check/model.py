"""What a check has to say, and what a rule is."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

from rlmem.plan import Plan
from rlmem.run.model import FrameworkRun

ERROR: Final = "error"
WARNING: Final = "warning"
INFO: Final = "info"
SEVERITIES: Final = (ERROR, WARNING, INFO)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing a check has to say: what is wrong, what to do, and the bytes at stake."""

    code: str
    severity: str
    message: str
    advice: str
    bytes: int | None = None
    line: int | None = None

    @property
    def page(self) -> str:
        return f"docs/rules/{self.code}.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A training script's syntax tree. It is read and never run."""

    path: str
    tree: ast.Module


class Rule(ABC):
    """One rule: its code, its title, and a pure check."""

    code: ClassVar[str]
    title: ClassVar[str]
    severity: ClassVar[str]

    def finding(
        self,
        message: str,
        advice: str,
        *,
        size: int | None = None,
        line: int | None = None,
        severity: str | None = None,
    ) -> Finding:
        """Return a finding of this rule; ``severity`` where the case differs from the rule's own."""
        graveness = severity or self.severity
        return Finding(code=self.code, severity=graveness, message=message, advice=advice, bytes=size, line=line)


class PlanRule(Rule):
    """A rule that looks at a run, its plan and the machine."""

    @abstractmethod
    def check(self, plan: Plan) -> Iterator[Finding]: ...


class FrameworkRule(PlanRule):
    """A rule about runs of a framework, of some families of algorithms; it passes over all others."""

    families: ClassVar[tuple[str, ...]] = ("on-policy", "off-policy", "search")
    stock_only: ClassVar[bool] = False
    """Whether it speaks of plain arrays, or of a plan without a sample, and has nothing to say of lean buffers."""

    def check(self, plan: Plan) -> Iterator[Finding]:
        run = plan.run
        if isinstance(run, FrameworkRun) and run.spec.family in self.families and self._speaks_of(run):
            yield from self.check_run(plan, run)

    def _speaks_of(self, run: FrameworkRun) -> bool:
        return not (self.stock_only and run.buffer.is_lean)

    @abstractmethod
    def check_run(self, plan: Plan, run: FrameworkRun) -> Iterator[Finding]: ...


class ScriptRule(Rule):
    """A rule that looks at a training script."""

    @abstractmethod
    def check(self, script: Script) -> Iterator[Finding]: ...

"""Findings for people: the count first, then each with what is wrong, what to do and what is at stake."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from rlmem.check.model import SEVERITIES, Finding
from rlmem.units import format_bytes

_STYLE: Final = {"error": "bold red", "warning": "bold yellow", "info": "bold blue"}


def findings_report(findings: Iterable[Finding]) -> RenderableType:
    """Return all findings under a line that counts them."""
    listed = tuple(findings)
    parts: list[RenderableType] = [_count(listed)]
    for finding in listed:
        parts += [Text(), *_finding(finding)]
    return Group(*parts)


def _count(findings: tuple[Finding, ...]) -> Text:
    counts = Counter(finding.severity for finding in findings)
    if not counts:
        return Text("Nothing found.", style="bold green")
    words = (
        f"{counts[name]} {name}{'s' if counts[name] > 1 and name != 'info' else ''}"
        for name in SEVERITIES
        if counts[name]
    )
    return Text(", ".join(words), style="bold")


def _finding(finding: Finding) -> tuple[RenderableType, ...]:
    head = Text.assemble((finding.severity, _STYLE[finding.severity]), f" {finding.code}")
    if finding.line is not None:
        head.append(f" line {finding.line}")
    if finding.bytes:
        head.append(f"  {format_bytes(finding.bytes)} at stake", style="bold")
    body = Text.assemble(finding.message, "\n", (finding.advice, "green"), "\n", (finding.page, "dim"))
    return head, Padding(body, (0, 0, 0, 2))

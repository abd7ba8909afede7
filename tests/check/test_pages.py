"""Every rule has its page, the page's example has the fault it describes, and the index has every rule."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlmem.check import RULES, Finding, Rule, check_plan, check_script, parse_script
from rlmem.machine import budget_machine
from rlmem.plan import make_plan
from rlmem.run import run_from_mapping

PAGES = Path(__file__).parents[2] / "docs" / "rules"
EXAMPLE = re.compile(r"^```(yaml|python)\n(.+?)^```$", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| \[(RLM\d{3})\]\((RLM\d{3})\.md\) \| (\w+) \| (.+) \|$", re.MULTILINE)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_a_page_for_each_rule(rule: Rule) -> None:
    lines = (PAGES / f"{rule.code}.md").read_text().splitlines()
    assert lines[0] == f"# {rule.code}: {rule.title}"
    assert 15 <= len(lines) <= 40
    assert "## What to do" in lines


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_the_example_on_the_page_has_the_fault(rule: Rule, plan_of: Any) -> None:
    ((language, text),) = EXAMPLE.findall((PAGES / f"{rule.code}.md").read_text())
    findings = check_script(parse_script(text)) if language == "python" else _check_run_file(text, plan_of)
    assert rule.code in {finding.code for finding in findings}


def _check_run_file(text: str, plan_of: Any) -> tuple[Finding, ...]:
    """Check a run on a machine of 8 cores, with the memory that the run file gives or with plenty."""
    run = run_from_mapping(yaml.safe_load(text))
    machine = budget_machine(plan_of().machine, ram_bytes=run.budget.ram_bytes, vram_bytes=run.budget.vram_bytes)
    return check_plan(make_plan(run, machine))


def test_no_page_without_a_rule() -> None:
    assert {path.stem for path in PAGES.glob("RLM*.md")} == {rule.code for rule in RULES}


def test_the_index_lists_the_rules() -> None:
    rows = ROW.findall((PAGES / "README.md").read_text())
    assert rows == [(rule.code, rule.code, rule.severity, rule.title) for rule in RULES]

"""The table of rules, and choosing among findings."""

from __future__ import annotations

import pytest

from rlmem.check import RULES, Finding, select
from rlmem.errors import InputError

FOUND = tuple(
    Finding(code=code, severity="info", message="m", advice="a") for code in ("RLM001", "RLM010", "RLM012", "RLM050")
)


def _codes(*arguments: tuple[str, ...]) -> list[str]:
    return [item.code for item in select(FOUND, *arguments)]


def test_rules_have_codes_of_their_own_in_order() -> None:
    codes = [rule.code for rule in RULES]
    assert codes == sorted(set(codes))
    assert len(codes) == 30


@pytest.mark.parametrize(
    ("chosen", "ignored", "left"),
    [
        ((), (), ["RLM001", "RLM010", "RLM012", "RLM050"]),
        (("RLM01",), (), ["RLM010", "RLM012"]),
        (("RLM001", "RLM05"), (), ["RLM001", "RLM050"]),
        ((), ("RLM01", "RLM001"), ["RLM050"]),
        (("RLM",), ("RLM012",), ["RLM001", "RLM010", "RLM050"]),
        (("RLM033",), (), []),
    ],
)
def test_codes_are_chosen_by_how_they_begin(chosen: tuple[str, ...], ignored: tuple[str, ...], left: list[str]) -> None:
    assert _codes(chosen, ignored) == left


@pytest.mark.parametrize("prefix", ["RML013", "rlm013", "RLM13"])
def test_unknown_codes_name_the_nearest(prefix: str) -> None:
    with pytest.raises(InputError, match="did you mean `RLM013`"):
        select(FOUND, (prefix,))
    with pytest.raises(InputError, match="did you mean `RLM013`"):
        select(FOUND, (), (prefix,))


@pytest.mark.parametrize("prefix", ["", "E501", "RLM9"])
def test_what_is_no_code(prefix: str) -> None:
    with pytest.raises(InputError, match="a rule must be a code such as RLM001"):
        select(FOUND, (prefix,))

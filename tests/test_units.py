"""Sizes: what is parsed is exact, what is printed can be parsed again."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlmem.errors import InputError
from rlmem.units import MAX_BYTES, format_bytes, parse_bytes

EXACT = {
    "16GB": 16 * 10**9,
    "16 GiB": 16 * 2**30,
    "16gb": 16 * 10**9,
    "16gib": 16 * 2**30,
    "1.5 GiB": 3 * 2**29,
    "0.1GB": 10**8,
    "1048576": 2**20,
    "1_000_000": 10**6,
    "1,000,000 B": 10**6,
    " 5 kB ": 5000,
    "3KiB": 3072,
    "7 TB": 7 * 10**12,
    "7TiB": 7 * 2**40,
    "2PB": 2 * 10**15,
    "0": 0,
    "0.3 B": 0,
    "8191PiB": 8191 * 2**50,
    "1." + "9" * 10_000: 1,
}


@pytest.mark.parametrize(("text", "size"), EXACT.items(), ids=[text[:12] for text in EXACT])
def test_exact(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@given(
    number=st.integers(0, 8 * 10**6),
    unit=st.sampled_from([("GB", 10**9), ("GiB", 2**30), ("MB", 10**6), ("KiB", 2**10)]),
)
def test_whole_numbers_are_exact(number: int, unit: tuple[str, int]) -> None:
    name, factor = unit
    assert parse_bytes(f"{number}{name}") == parse_bytes(f"{number} {name.lower()}") == number * factor


@given(size=st.integers(0, MAX_BYTES))
def test_plain_bytes_are_themselves(size: int) -> None:
    assert parse_bytes(size) == parse_bytes(str(size)) == size


@given(size=st.integers(0, 7 * 2**60) | st.integers(0, 2**20))
def test_what_is_printed_can_be_parsed(size: int) -> None:
    """Two decimals below ten, one above: at most half of the last digit is lost."""
    text = format_bytes(size)
    lost = abs(parse_bytes(text) - size)
    if size < 1024:
        assert lost == 0
        return
    number, unit = text.split()
    last_digit = parse_bytes(f"1 {unit}") / 10 ** len(number.partition(".")[2])
    assert lost <= last_digit / 2 + 1
    assert lost <= size * 0.006


@given(size=st.integers(1024, MAX_BYTES))
def test_printed_numbers_are_short(size: int) -> None:
    assert re.fullmatch(r"\d\.\d\d [KMGTPE]iB|\d{2,4}\.\d [KMGTPE]iB", format_bytes(size))
    assert float(format_bytes(size).split()[0]) < 1024


@given(small=st.integers(0, MAX_BYTES), more=st.integers(0, 2**40))
def test_printing_keeps_the_order(small: int, more: int) -> None:
    def value(size: int) -> float:
        number, unit = format_bytes(size).split()
        return float(number) * parse_bytes(f"1 {unit}")

    assert value(small) <= value(small + more)


def test_formatted() -> None:
    assert format_bytes(0) == "0 B"
    assert format_bytes(1023) == "1023 B"
    assert format_bytes(1024) == "1.00 KiB"
    assert format_bytes(112_403_873_792) == "104.7 GiB"
    assert format_bytes(2**20 - 1) == "1.00 MiB"
    assert format_bytes(10 * 2**30 - 1) == "10.0 GiB"
    assert format_bytes(-(2**31)) == "-2.00 GiB"


GARBAGE = [
    "",
    " ",
    "GB",
    "16 XB",
    "16G B",
    "-1",
    "-5GB",
    "+5GB",
    "1e9",
    "1.GB",
    ".5GB",
    "1..5GB",
    "1.5.5",
    "NaN",
    "inf",
]
GARBAGE += ["0x10", "16GBit", "16 GB GB", "٣GB", "１６GB", "16\x00GB", "1 000 MB", "8EiB", "9EB" * 1000, "9" * 10_000]
GARBAGE += ["9223372036854775808", "16GB\n16GB"]


@pytest.mark.parametrize("text", GARBAGE, ids=lambda text: repr(text[:12]))
def test_garbage(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_bytes(text)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "size", [-1, MAX_BYTES + 1, 10**30, -(10**30), 10**5000], ids=["-1", "8 EiB", "10^30", "-10^30", "10^5000"]
)
def test_numbers_that_are_no_sizes(size: int) -> None:
    with pytest.raises(InputError, match="between 0 and 8 EiB"):
        parse_bytes(size)


@given(text=st.text())
def test_any_text(text: str) -> None:
    try:
        size = parse_bytes(text)
    except InputError:
        return
    assert 0 <= size <= MAX_BYTES

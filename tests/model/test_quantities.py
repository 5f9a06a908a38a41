"""Sizes, shares and durations: one reader, one printer (cases C16 and C20)."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.errors import QuantityError
from cotenant.model.quantities import (
    GIB,
    MIB,
    format_bytes,
    format_duration,
    format_milli,
    parse_bytes,
    parse_duration,
    parse_milli,
)

MODEST = settings(max_examples=200, deadline=None)


@pytest.mark.parametrize(
    ("text", "mib", "echo"),
    [
        ("80GiB", 81_920, "81,920 MiB"),
        ("80GB", 76_294, "76,294 MiB"),
        ("79.6GiB", 81_511, "81,511 MiB"),
        ("81559MiB", 81_559, "81,559 MiB"),
        ("80g", 81_920, "81,920 MiB"),
        ("80 GiB", 81_920, "81,920 MiB"),
    ],
)
def test_the_requests_of_case_16(text: str, mib: int, echo: str) -> None:
    device = 81_559 * MIB
    size = parse_bytes(text)
    assert math.ceil(size / MIB) == mib
    assert (size <= device) == (mib <= 81_559)
    assert format_bytes(size) == echo


def test_a_bare_number_needs_a_unit_from_the_name_of_its_field() -> None:
    with pytest.raises(QuantityError, match="no unit; write 81559MiB"):
        parse_bytes("81559")
    with pytest.raises(QuantityError, match="no unit"):
        parse_bytes(81559)
    assert parse_bytes("81559", unit="MiB") == parse_bytes(81559, unit="MiB") == 81_559 * MIB
    # A suffix in the value wins over the unit of the field.
    assert parse_bytes("1GiB", unit="MiB") == GIB


def test_si_and_iec_suffixes_mean_what_they_say() -> None:
    assert [parse_bytes(f"1{s}") for s in ("B", "kB", "MB", "GB", "TB")] == [1, 10**3, 10**6, 10**9, 10**12]
    assert [parse_bytes(f"1{s}") for s in ("KiB", "MiB", "GiB", "TiB")] == [2**10, 2**20, 2**30, 2**40]
    assert [parse_bytes(f"1{s}") for s in ("k", "m", "g", "t", "Ki", "Mi", "Gi", "Ti")] == [
        2**10,
        2**20,
        2**30,
        2**40,
    ] * 2


@pytest.mark.parametrize(
    "text", ["", "GiB", "-1GiB", "1GiBs", "1e400GiB", "nanMiB", "1,5GiB", "0x10MiB", "1_000MiB", "½GiB", True]
)
def test_what_is_no_size_is_refused(text: object) -> None:
    with pytest.raises(QuantityError):
        parse_bytes(text)  # type: ignore[arg-type]


@MODEST
@given(st.integers(0, 2**20))
def test_whole_sizes_are_exact(count: int) -> None:
    assert parse_bytes(f"{count}MiB") == count * MIB
    assert parse_bytes(f"{count}GB") == count * 10**9
    assert parse_bytes(count, unit="B") == count


@MODEST
@given(st.floats(0.001, 1e6))
def test_sizes_round_up(value: float) -> None:
    size = parse_bytes(f"{value:.6f}MiB")
    assert 0 <= size - float(f"{value:.6f}") * MIB < 1


@MODEST
@given(st.integers(1, 2**24).map(lambda mib: mib * MIB))
def test_a_printed_size_reads_back(size: int) -> None:
    assert parse_bytes(format_bytes(size).replace(",", "")) == size


def test_small_sizes_print_as_bytes() -> None:
    assert format_bytes(0) == "0 MiB"
    assert format_bytes(1000) == "1,000 B"


@pytest.mark.parametrize(
    ("given", "milli"),
    [
        ("40%", 400),
        ("0.4", 400),
        (0.4, 400),
        ("400m", 400),
        (1, 1000),
        ("100%", 1000),
        ("0.3333", 333),
        (0.18, 180),
        ("0.0005", 1),
    ],
)
def test_shares(given: str | float, milli: int) -> None:
    if given == "0.0005":
        # Half a thousandth rounds to the even neighbour, which is nothing.
        with pytest.raises(QuantityError, match="smallest share"):
            parse_milli(given)
        return
    assert parse_milli(given) == milli


def test_the_sums_of_case_20() -> None:
    assert 10 * parse_milli(0.1) == 1000  # (a) ten tenths make one
    assert 3 * parse_milli(0.3333) <= 1000 - 1  # (b) and leave room for the smallest share
    assert 5 * parse_milli(0.18) <= 1000 < 6 * parse_milli(0.18)  # (c) five on each device
    with pytest.raises(QuantityError, match=r"below the smallest share, 0\.001 of a device"):
        parse_milli(0.00001)  # (d)
    assert parse_milli(0.1) + parse_milli(0.2) + parse_milli(0.7) == 1000  # (e)


@pytest.mark.parametrize("text", ["", "%", "-0.1", "0", "0%", "nan", "40 percent", "1/3", True])
def test_what_is_no_share_is_refused(text: object) -> None:
    with pytest.raises(QuantityError):
        parse_milli(text)  # type: ignore[arg-type]


@MODEST
@given(st.integers(1, 1000))
def test_a_printed_share_reads_back(milli: int) -> None:
    assert parse_milli(format_milli(milli).split(" ")[0]) == milli
    assert parse_milli(f"{milli}m") == parse_milli(milli / 1000) == milli


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("15min", 900),
        ("15m", 900),
        ("2h", 7200),
        ("1.5d", 129_600),
        ("1w", 604_800),
        ("250ms", 0.25),
        ("1-02:00:00", 93_600),
        ("2-00:00", 172_800),
        ("01:00:00", 3600),
        ("90:30", 5430),
        ("00:00:01.5", 1.5),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "-5s", "s", "1:2:3:4", "5 parsecs", "1e400s", True])
def test_what_is_no_duration_is_refused(text: object) -> None:
    with pytest.raises(QuantityError):
        parse_duration(text)  # type: ignore[arg-type]


def test_a_bare_duration_needs_a_unit_from_its_field() -> None:
    assert parse_duration(5, unit="min") == 300


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (93_600, "1d 2h"),
        (903, "15m 3s"),
        (0.5, "0.5s"),
        (59.9, "59.9s"),
        (3600, "1h"),
        (-90, "-1m 30s"),
        (math.nan, "n/a"),
    ],
)
def test_durations_print_in_their_largest_two_units(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@MODEST
@given(st.integers(0, 10**8))
def test_a_printed_duration_reads_back_to_within_its_smaller_unit(seconds: int) -> None:
    read = sum(parse_duration(part) for part in format_duration(seconds).split(" "))
    unit = 3600 if seconds >= 86400 else 60 if seconds >= 3600 else 1
    assert 0 <= seconds - read < unit


@pytest.mark.parametrize("parse", [parse_bytes, parse_milli, parse_duration])
@pytest.mark.parametrize("text", ["1e308TiB", "1e308%", "1e308w", "9e307"])
def test_sizes_beyond_all_numbers_are_refused_in_words(parse: Callable[[str], float], text: str) -> None:
    try:
        assert math.isfinite(parse(text))
    except QuantityError as error:
        assert text in str(error)

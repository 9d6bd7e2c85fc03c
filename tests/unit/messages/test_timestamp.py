"""Timestamps: what is read, what is refused, how they are rendered."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inkgrove.core.errors import BadTimestamp
from inkgrove.messages import Timestamp, parse_timestamp, render_timestamp, timestamp_from_seconds


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        ("2020-05-22T11:58:50+0000", "2020-05-22T11:58:50Z"),
        ("2020-05-22T11:58:50Z", "2020-05-22T11:58:50Z"),
        ("2020-05-22t11:58:50z", "2020-05-22T11:58:50Z"),
        ("2020-05-22T11:58:50.1Z", "2020-05-22T11:58:50.100000Z"),
        ("2020-05-22T11:58:50.000000Z", "2020-05-22T11:58:50Z"),
        ("2020-05-22T11:58:50.123456+02:00", "2020-05-22T09:58:50.123456Z"),
        ("2020-05-22T11:58:50-00:00", "2020-05-22T11:58:50Z"),
        ("2020-12-31T23:59:59-23:59", "2021-01-01T23:58:59Z"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
        ("0001-01-01T00:00:00-00:01", "0001-01-01T00:01:00Z"),
        ("9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999999Z"),
    ],
)
def test_timestamp_is_read_and_rendered_in_utc(text: str, rendered: str) -> None:
    assert str(parse_timestamp(text)) == rendered


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2020-05-22",
        "2020-05-22T11:58:50",
        "2020-05-22 11:58:50Z",
        "2020-05-22T11:58Z",
        "2020-05-22T11:58:60Z",
        "2020-05-22T24:00:00Z",
        "2020-02-30T00:00:00Z",
        "2020-05-22T11:58:50.1234567Z",
        "2020-05-22T11:58:50.Z",
        "2020-05-22T11:58:50,5Z",
        "2020-05-22T11:58:50+24:00",
        "2020-05-22T11:58:50+00:60",
        "2020-05-22T11:58:50+00",
        "2020-W21-5T11:58:50Z",
        "20200522T115850Z",
        "0000-01-01T00:00:00Z",
        "0001-01-01T00:00:00+00:01",
        "9999-12-31T23:59:59-00:01",
        "12020-05-22T11:58:50Z",
        "２020-05-22T11:58:50Z",
        "2020-05-22T11:58:50Z\n",
    ],
)
def test_text_that_is_no_timestamp_is_refused(text: str) -> None:
    with pytest.raises(BadTimestamp):
        parse_timestamp(text)


@given(st.integers(-62135596800000000, 253402300799999999))
def test_rendering_and_parsing_are_inverse(microseconds: int) -> None:
    value = Timestamp(microseconds)
    assert parse_timestamp(render_timestamp(value)) == value


@given(st.floats(-1e10, 1e10))
def test_seconds_round_half_even_to_microseconds(seconds: float) -> None:
    from fractions import Fraction

    exact = Fraction(seconds) * 1_000_000
    rounded = timestamp_from_seconds(seconds).microseconds
    assert abs(exact - rounded) <= Fraction(1, 2)
    if abs(exact - rounded) == Fraction(1, 2):
        assert rounded % 2 == 0


def test_seconds_are_unix_seconds() -> None:
    assert str(timestamp_from_seconds(1363896240)) == f"{datetime.fromtimestamp(1363896240, UTC):%Y-%m-%dT%H:%M:%SZ}"


@pytest.mark.parametrize("seconds", [253402300800, -62135596801, 1e300])
def test_seconds_beyond_the_years_are_refused(seconds: float) -> None:
    with pytest.raises(BadTimestamp):
        timestamp_from_seconds(seconds)

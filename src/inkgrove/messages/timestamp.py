"""Moments in time: UTC microseconds, parsed strictly and rendered in one way (docs/protocol.md sections 3 and 4)."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction

from inkgrove.core.errors import BadTimestamp

_FORM = re.compile(
    r"\d{4}-\d\d-\d\d[Tt]([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?([Zz]|[+-]([01]\d|2[0-3]):?[0-5]\d)", re.ASCII
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PLAIN_EPOCH = _EPOCH.replace(tzinfo=None)
_MICROSECOND = timedelta(microseconds=1)
_FIRST = (datetime(1, 1, 1, tzinfo=UTC) - _EPOCH) // _MICROSECOND
_LAST = (datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC) - _EPOCH) // _MICROSECOND


@dataclass(frozen=True, slots=True, order=True)
class Timestamp:
    """Microseconds since 1970-01-01T00:00:00Z, in the years 0001 to 9999."""

    microseconds: int

    def __post_init__(self) -> None:
        if not _FIRST <= self.microseconds <= _LAST:
            raise BadTimestamp("the moment is outside the years 0001 to 9999")

    def __str__(self) -> str:
        return render_timestamp(self)


def parse_timestamp(text: str) -> Timestamp:
    """Parse a date and time with an offset: RFC 3339, and `+HHMM` too; raises `BadTimestamp`."""
    if _FORM.fullmatch(text) is None:
        raise BadTimestamp(f"{text[:60]!r} is not of the form YYYY-MM-DDTHH:MM:SS[.ffffff] with Z or an offset")
    try:
        moment = datetime.fromisoformat(text.upper())
    except ValueError as err:
        raise BadTimestamp(f"{text!r} is no moment: {err}") from err
    since = moment - _EPOCH
    return Timestamp((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds)


def timestamp_from_seconds(seconds: int | float) -> Timestamp:
    """Return the moment of seconds since 1970 (CBOR tag 1), rounded half-even to microseconds."""
    return Timestamp(round(Fraction(seconds) * 1_000_000))


def render_timestamp(value: Timestamp) -> str:
    """Render as `YYYY-MM-DDTHH:MM:SSZ`, with exactly six fraction digits if there are any."""
    return f"{(_PLAIN_EPOCH + timedelta(0, 0, value.microseconds)).isoformat()}Z"

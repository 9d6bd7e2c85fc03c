"""A single range of bytes (RFC 9110 section 14) and the conditions on an ETag (section 13)."""

import re
from typing import Final, NamedTuple

from inkgrove.node.errors import BadRange

_RANGE: Final = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")


class ByteRange(NamedTuple):
    """From the first byte up to, and without, the end."""

    first: int
    end: int


def parse_range(header: str | None, size: int) -> ByteRange | None:
    """The range that is asked for; None for everything, also where there is no header or one of another form."""
    match = _RANGE.fullmatch(header.strip()) if header is not None else None
    if match is None or match.group(0) == "bytes=-":
        return None  # several ranges too: the whole is a valid answer to them
    first, last = match.groups()
    if first and last and int(last) < int(first):
        return None
    found = ByteRange(int(first), min(int(last) + 1, size) if last else size) if first else None
    if found is None:
        found = ByteRange(max(0, size - int(last)), size)
    if found.first >= found.end:
        raise BadRange(f"the blob has {size} bytes", size=size)
    return found


def matches_etag(header: str | None, etag: str) -> bool:
    """Whether a list of ETags, as If-None-Match has it, names this one."""
    if header is None:
        return False
    named = {item.strip().removeprefix("W/") for item in header.split(",")}
    return "*" in named or etag in named

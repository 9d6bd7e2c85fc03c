"""The links of a log as a picture: entries in a row, backlinks below the line, lipmaa links as arcs above it.

docs/protocol.md section 2. The shapes are computed here; the template writes them as SVG with a title and a text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from inkgrove.core import has_lipmaa_link, lipmaa, shortest_path

_STEP: Final = 22
_LEFT: Final = 24
_RADIUS: Final = 4


@dataclass(frozen=True, slots=True)
class EntryDot:
    """An entry in the picture."""

    number: int
    x: float
    is_labelled: bool
    is_on_path: bool


@dataclass(frozen=True, slots=True)
class LipmaaArc:
    """A lipmaa link, as the path of an SVG curve."""

    source: int
    target: int
    path: str
    is_on_path: bool


@dataclass(frozen=True, slots=True)
class LinkPicture:
    """All shapes of the picture, and its text for those who cannot see it."""

    width: float
    height: float
    line: float
    """The height at which the entries stand."""
    dots: Sequence[EntryDot]
    arcs: Sequence[LipmaaArc]
    steps: Sequence[tuple[float, float]]
    """The backlinks that lie on the shortest path."""
    text: str


def draw_links(first: int, last: int) -> LinkPicture | None:
    """Draw the links of the entries from `first` to `last`; None if there are no such entries."""
    if last < first:
        return None
    path = shortest_path(last, 1)
    on_path = set(pairwise(path))
    numbers = range(first, last + 1)
    positions = {number: _LEFT + _STEP * (number - first) for number in numbers}
    links = [(n, lipmaa(n)) for n in numbers if has_lipmaa_link(n)]
    longest = max((_span(n, target, first) for n, target in links), default=1)
    line = 20 + min(150, longest * _STEP / 2.6)
    arcs = [_arc(n, target, first, positions, line, (n, target) in on_path) for n, target in links]
    dots = [EntryDot(n, positions[n], n in (first, last) or n % 5 == 0 or _is_hub(n), n in path) for n in numbers]
    steps = [(positions[n], positions[n - 1]) for n in numbers if n > first and (n, n - 1) in on_path]
    shown = ", ".join(f"{n} to {target}" for n, target in links)
    hops = " → ".join(map(str, path))
    text = (
        f"Every entry links to the one before it. Lipmaa links, which jump further: {shown or 'none yet'}."
        f" The shortest way from entry {last} to entry 1: {hops}."
    )
    return LinkPicture(_LEFT * 2 + _STEP * (last - first), line + 34, line, dots, arcs, steps, text)


def _is_hub(number: int) -> bool:
    return number in (1, 4, 13, 40, 121)


def _span(source: int, target: int, first: int) -> int:
    return source - max(target, first - 1)


def _arc(source: int, target: int, first: int, positions: Mapping[int, float], line: float, on_path: bool) -> LipmaaArc:
    start = positions[source]
    end = positions.get(target, 4.0)  # further back than the picture goes
    rise = min(line - 14, abs(start - end) / 2.6)
    top = line - _RADIUS
    path = f"M{start:g},{top:g} C{start:g},{top - rise * 1.3:g} {end:g},{top - rise * 1.3:g} {end:g},{top:g}"
    return LipmaaArc(source, target, path, on_path)

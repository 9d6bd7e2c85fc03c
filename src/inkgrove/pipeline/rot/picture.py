"""Pictures of rot: how fresh copies are over the runs, and what a fungus leaves behind; drawn as SVG.

A picture is boxes of one ink, the darker the more, and labels.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal
from xml.sax.saxutils import escape

_INK: Final = "#2f5d3a"
_TEXT_INK: Final = "#444444"
_WIDTH: Final = 640
_TOP: Final = 34
_GAP: Final = 12


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle; a share of 1 is full ink."""

    x: float
    y: float
    width: float
    height: float
    share: float


@dataclass(frozen=True, slots=True)
class Label:
    """A line of text on its baseline."""

    x: float
    y: float
    text: str
    anchor: Literal["start", "middle", "end"] = "start"


@dataclass(frozen=True, slots=True)
class Picture:
    """What is drawn, in the order of drawing."""

    width: int
    height: int
    title: str
    boxes: Sequence[Box]
    labels: Sequence[Label]


def draw_freshness(runs: Sequence[tuple[int, Sequence[int]]]) -> Picture:
    """A column for each run, from rotten at the bottom to fresh at the top; the darker, the more copies."""
    left, height, title = 56, 200, "freshness of copies over the runs; the darker, the more copies"
    bottom = _TOP + height
    told = [(tick, bins) for tick, bins in runs if sum(bins)]
    # A few runs do not fill the width: a column that wide is no column.
    width = min((_WIDTH - _GAP - left) / max(len(told), 1), 48)
    boxes, labels = [], [Label(left, 20, title)]
    for number, (tick, bins) in enumerate(told):
        step, x = height / len(bins), left + number * width
        for place, count in enumerate(bins):
            if count:
                boxes.append(Box(x, bottom - (place + 1) * step, width - 1, step - 1, shade(count, max(bins))))
        if number % -(-len(told) // 16) == 0:
            labels.append(Label(x + width / 2, bottom + 18, str(tick), "middle"))
    labels += [Label(left - 8, _TOP + 10, "fresh", "end"), Label(left - 8, bottom - 2, "rotten", "end")]
    labels.append(Label(left - 8, bottom + 18, "run", "end"))
    if not told:
        labels.append(Label(left + 20, _TOP + 60, "no run has looked at any copies yet"))
    return Picture(_WIDTH, bottom + 30, title, boxes, labels)


def shade(count: int, most: int) -> float:
    """How dark: by the root, so that a few copies show beside many."""
    return 0.1 + 0.9 * float((count / most) ** 0.5)


def draw_remains(title: str, rows: Sequence[tuple[str, Sequence[float]]]) -> Picture:
    """A line for each name: the history from old on the left to new on the right; dark is what is still held."""
    line, left = 26, 100
    right = _WIDTH - _GAP
    boxes, labels = [], [Label(left, 20, title)]
    for number, (name, shares) in enumerate(rows):
        y, width = _TOP + number * line, (right - left) / max(len(shares), 1)
        labels.append(Label(left - 8, y + 14, name, "end"))
        boxes.append(Box(left, y, right - left, line - 6, 0.06))
        boxes += [Box(left + n * width, y, width, line - 6, share) for n, share in enumerate(shares) if share > 0]
    bottom = _TOP + len(rows) * line
    labels += [Label(left, bottom + 12, "oldest"), Label(right, bottom + 12, "newest", "end")]
    return Picture(_WIDTH, bottom + 24, title, boxes, labels)


def render_svg(picture: Picture) -> str:
    """The picture as SVG, on white: it is looked at on dark pages too."""
    width, height = picture.width, picture.height
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
            f' viewBox="0 0 {width} {height}" role="img">',
            f"<title>{escape(picture.title)}</title>",
            f'<path d="M0 0H{width}V{height}H0Z" fill="#fff"/>',
            f'<g fill="{_INK}" shape-rendering="crispEdges">',
            *map(_box, picture.boxes),
            f'</g><g font-family="sans-serif" font-size="12" fill="{_TEXT_INK}">',
            *map(_label, picture.labels),
            "</g></svg>\n",
        ]
    )


def _box(box: Box) -> str:
    size = f'width="{max(box.width, 0.5):.2f}" height="{max(box.height, 0.5):.2f}"'
    return f'<rect x="{box.x:.2f}" y="{box.y:.2f}" {size} fill-opacity="{min(box.share, 1):.2f}"/>'


def _label(label: Label) -> str:
    anchor = "" if label.anchor == "start" else f' text-anchor="{label.anchor}"'
    return f'<text x="{label.x:.1f}" y="{label.y:.1f}"{anchor}>{escape(label.text)}</text>'

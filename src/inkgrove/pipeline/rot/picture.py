"""Pictures of rot as SVG, drawn by hand: how fresh copies are over the runs, and what a fungus leaves behind."""

from collections.abc import Sequence
from typing import Final
from xml.sax.saxutils import escape

_WIDTH: Final = 640
_HEIGHT: Final = 240
_LEFT: Final = 48
_BOTTOM: Final = 28
_INK: Final = "#2f5d3a"
_TEXT: Final = 'font-family="sans-serif" font-size="11" fill="#444"'


def draw_freshness(runs: Sequence[tuple[int, Sequence[int]]]) -> str:
    """A column for each run, from rotten at the bottom to fresh at the top; the darker, the more copies."""
    told = [(tick, bins) for tick, bins in runs if sum(bins)]
    parts = []
    width = (_WIDTH - _LEFT) / max(len(told), 1)
    for number, (tick, bins) in enumerate(told):
        most = max(bins)
        step = (_HEIGHT - _BOTTOM) / len(bins)
        for place, count in enumerate(bins):
            if count:
                x, y = _LEFT + number * width, _HEIGHT - _BOTTOM - (place + 1) * step
                parts.append(_box(x, y, width - 1, step - 1, 0.15 + 0.85 * count / most))
        if number % max(1, len(told) // 12) == 0:
            parts.append(_label(_LEFT + number * width, _HEIGHT - 10, str(tick)))
    parts += [_label(4, 14, "fresh"), _label(4, _HEIGHT - _BOTTOM, "rotten"), _label(4, _HEIGHT - 10, "run")]
    if not told:
        parts.append(_label(_LEFT + 20, 60, "no run has looked at any copies yet"))
    return _document(_WIDTH, _HEIGHT, "Freshness of copies over the runs", parts)


def draw_remains(title: str, rows: Sequence[tuple[str, Sequence[float]]]) -> str:
    """A line for each name: the history from old on the left to new on the right; dark is what is still held."""
    line, left = 26, 110
    parts = []
    for number, (name, shares) in enumerate(rows):
        y = 8 + number * line
        parts.append(_label(4, y + 14, name))
        width = (_WIDTH - left) / max(len(shares), 1)
        parts.append(_box(left, y, _WIDTH - left, line - 8, 0.06))
        parts += [_box(left + n * width, y, width, line - 8, share) for n, share in enumerate(shares) if share > 0]
    height = 8 + len(rows) * line + 20
    parts += [_label(left, height - 6, "oldest"), _label(_WIDTH - 40, height - 6, "newest")]
    return _document(_WIDTH, height, title, parts)


def _box(x: float, y: float, width: float, height: float, share: float) -> str:
    size = f'width="{max(width, 0.5):.2f}" height="{max(height, 0.5):.2f}"'
    return f'<rect x="{x:.2f}" y="{y:.2f}" {size} fill="{_INK}" fill-opacity="{min(share, 1):.2f}"/>'


def _label(x: float, y: float, text: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {_TEXT}>{escape(text)}</text>'


def _document(width: int, height: int, title: str, parts: Sequence[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">'
    return "\n".join([head, f"<title>{escape(title)}</title>", *parts, "</svg>"]) + "\n"

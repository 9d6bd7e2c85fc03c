"""Pictures of rot as PNG: pixels and a small face of letters, so that no library of drawing is needed."""

import struct
import zlib
from collections.abc import Iterator
from typing import Final

from inkgrove.pipeline.rot.picture import INK, TEXT_INK, Label, Picture

SCALE: Final = 2
"""Pixels for each unit of a picture."""
_DOT: Final = 2
"""Pixels for each dot of a letter."""
_STEP: Final = 6 * _DOT
_BASELINE: Final = 7
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuv"

_LETTERS: Final = {
    # Nine lines of five dots from the top, each a digit of base 32; the baseline is under the seventh.
    "a": "00e1fhf00", "b": "ggmphhu00", "c": "00ehghe00", "d": "11djhhf00", "e": "00ehvge00", "f": "698s88800",
    "g": "00fhhhf1e", "h": "ggmphhh00", "i": "40c444e00", "j": "2062222ic", "k": "ggikoki00", "l": "c44444e00",
    "m": "00qllll00", "n": "00mphhh00", "o": "00ehhhe00", "p": "00uhhhugg", "q": "00fhhhf11", "r": "00mpggg00",
    "s": "00fge1u00", "t": "88s889600", "u": "00hhhjd00", "v": "00hhha400", "w": "00hhlla00", "x": "00ha4ah00",
    "y": "00hhhhf1e", "z": "00v248v00", "0": "ehjlphe00", "1": "4c4444e00", "2": "eh1248v00", "3": "v2421he00",
    "4": "26aiv2200", "5": "vgu11he00", "6": "68guhhe00", "7": "v12488800", "8": "ehhehhe00", "9": "ehhf12c00",
    " ": "000000000", "-": "0000e0000", ",": "00000c480", ";": "00cc0c480", ".": "00000cc00", ":": "00cc0cc00",
}  # fmt: skip


def render_png(picture: Picture) -> bytes:
    """The picture as PNG, on white; capitals are written small, and what is no known letter is left blank."""
    width, height = picture.width * SCALE, picture.height * SCALE
    lines = [bytearray(b"\xff" * 3 * width) for _ in range(height)]
    for box in picture.boxes:
        # Both ends are rounded, so that boxes that meet leave no gap.
        left, right = _pixels(box.x, box.x + box.width, width)
        top, bottom = _pixels(box.y, box.y + box.height, height)
        colour = bytes(round(255 - (255 - part) * min(box.share, 1)) for part in INK)
        for line in lines[top:bottom]:
            line[3 * left : 3 * right] = colour * (right - left)
    for label in picture.labels:
        for x, y in _dots(label):
            if 0 <= x < width and 0 <= y < height:
                lines[y][3 * x : 3 * x + 3] = bytes(TEXT_INK)
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\x00" + line for line in lines), 9)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head) + _chunk(b"IDAT", pixels) + _chunk(b"IEND", b"")


def _pixels(start: float, end: float, limit: int) -> tuple[int, int]:
    first = min(max(round(start * SCALE), 0), limit)
    return first, min(max(round(end * SCALE), first), limit)


def _dots(label: Label) -> Iterator[tuple[int, int]]:
    """The pixels that a text covers."""
    text = label.text.lower()
    before = {"start": 0.0, "middle": 0.5, "end": 1.0}[label.anchor] * len(text) * _STEP
    left, top = round(label.x * SCALE - before), round(label.y * SCALE) - _BASELINE * _DOT
    for number, letter in enumerate(text):
        for row, digit in enumerate(_LETTERS.get(letter, _LETTERS[" "])):
            for column in range(5):
                if _DIGITS.index(digit) >> (4 - column) & 1:
                    x, y = left + number * _STEP + column * _DOT, top + row * _DOT
                    yield from ((x + across, y + down) for across in range(_DOT) for down in range(_DOT))


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

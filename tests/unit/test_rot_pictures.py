"""Pictures of rot: every run and every fungus is in them, as SVG and as pixels."""

import struct
import zlib

from inkgrove.pipeline.rot.picture import Box, Label, Picture, draw_freshness, draw_remains, render_svg
from inkgrove.pipeline.rot.png import render_png


def test_pictures_show_every_run_and_every_fungus() -> None:
    drawn = render_svg(draw_freshness([(1, [0, 3, 1]), (2, [4, 0, 0]), (3, [])]))
    assert drawn.count("<rect") == 3
    assert ">1</text>" in drawn
    assert "no run has looked" in render_svg(draw_freshness([]))
    remains = render_svg(draw_remains("What <each> leaves", [("fifo", [0.0, 1.0]), ("rot", [0.5, 0.5])]))
    assert remains.count("<rect") == 2 + 3
    assert "What &lt;each&gt; leaves" in remains


def test_pixels_are_those_of_the_boxes_and_letters() -> None:
    boxes = [Box(1, 1, 2, 1, 1.0), Box(3, 1, 1, 1, 0.5)]
    picture = Picture(8, 12, "a title", boxes, [Label(0, 11, "L"), Label(100, 11, "beyond the edge")])
    width, height, lines = read_png(render_png(picture))
    assert (width, height) == (16, 24)
    white, ink, half, text = (255, 255, 255), (0x2F, 0x5D, 0x3A), (151, 174, 156), (0x44, 0x44, 0x44)
    assert lines[2] == lines[3] == [white] * 2 + [ink] * 4 + [half] * 2 + [white] * 8
    assert [line[:10] for line in lines[8:10]] == [[white] * 2 + [text] * 4 + [white] * 4] * 2  # the top of an l
    assert [line[:10] for line in lines[20:22]] == [[white] * 2 + [text] * 6 + [white] * 2] * 2  # and its foot
    assert {pixel for line in lines[22:] for pixel in line} == {white}


def read_png(content: bytes) -> tuple[int, int, list[list[tuple[int, ...]]]]:
    """Width, height and pixels of an image without filters; every chunk is checked."""
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, place = {}, 8
    while place < len(content):
        size, name = struct.unpack(">I4s", content[place : place + 8])
        chunks[name] = content[place + 8 : place + 8 + size]
        (check,) = struct.unpack(">I", content[place + 8 + size : place + 12 + size])
        assert check == zlib.crc32(name + chunks[name])
        place += 12 + size
    width, height, *form = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert form == [8, 2, 0, 0, 0]
    pixels = zlib.decompress(chunks[b"IDAT"])
    lines = [pixels[n * (1 + 3 * width) :][: 1 + 3 * width] for n in range(height)]
    assert {line[0] for line in lines} == {0}
    return width, height, [[tuple(line[n : n + 3]) for n in range(1, 1 + 3 * width, 3)] for line in lines]

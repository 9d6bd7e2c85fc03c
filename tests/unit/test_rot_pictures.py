"""Pictures of rot: every run and every fungus is in them, as SVG."""

from inkgrove.pipeline.rot.picture import draw_freshness, draw_remains, render_svg


def test_pictures_show_every_run_and_every_fungus() -> None:
    drawn = render_svg(draw_freshness([(1, [0, 3, 1]), (2, [4, 0, 0]), (3, [])]))
    assert drawn.count("<rect") == 3
    assert ">1</text>" in drawn
    assert "no run has looked" in render_svg(draw_freshness([]))
    remains = render_svg(draw_remains("What <each> leaves", [("fifo", [0.0, 1.0]), ("rot", [0.5, 0.5])]))
    assert remains.count("<rect") == 2 + 3
    assert "What &lt;each&gt; leaves" in remains

"""The picture of a log's links."""

from inkgrove.pages.link_picture import draw_links


def test_picture_has_every_link_and_marks_the_shortest_way() -> None:
    picture = draw_links(1, 13)
    assert picture is not None
    assert [(arc.source, arc.target) for arc in picture.arcs] == [(4, 1), (8, 4), (12, 8), (13, 4)]
    assert [dot.number for dot in picture.dots if dot.is_on_path] == [1, 4, 13]
    assert [(arc.source, arc.target) for arc in picture.arcs if arc.is_on_path] == [(4, 1), (13, 4)]
    assert picture.steps == []
    assert "The shortest way from entry 13 to entry 1: 13 → 4 → 1." in picture.text


def test_link_that_leads_out_of_the_picture_goes_to_its_edge() -> None:
    picture = draw_links(10, 14)
    assert picture is not None
    (far,) = (arc for arc in picture.arcs if arc.target == 4)
    assert far.path.endswith(f"4,{picture.line - 4:g}")


def test_log_without_entries_has_no_picture() -> None:
    assert draw_links(1, 0) is None

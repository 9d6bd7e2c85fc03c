"""How a stream is doing: the last batch and the last trouble, each noted beside the other."""

from pathlib import Path

from inkgrove.store.pulse import Pulse, Trouble, note_batch, note_trouble, read_pulse
from inkgrove.store.view_store import STREAM, open_views
from tests.support.races import begin_before_commit


def test_batch_and_trouble_are_kept_beside_each_other(place: Path | str) -> None:
    with open_views(place) as views:
        read, write = views.database.read, views.database.write
        assert read(lambda connection: read_pulse(connection, STREAM)) == Pulse()
        assert Pulse().rate is None
        write(lambda connection: note_batch(connection, STREAM, at=5_000_000, moved=300, micros=2_000_000))
        trouble = Trouble(6_000_000, "pipeline.spark-failed", "it went away")
        write(lambda connection: note_trouble(connection, STREAM, trouble))
        write(lambda connection: note_batch(connection, STREAM, at=9_000_000, moved=50, micros=500_000))
        found = read(lambda connection: read_pulse(connection, STREAM))
        assert found == Pulse(9_000_000, 50, 500_000, trouble)
        assert found.rate == 100.0


def test_first_batch_and_first_trouble_come_at_the_same_moment(place: Path | str) -> None:
    trouble = Trouble(6_000_000, "pipeline.spark-failed", "it went away")
    with open_views(place) as views:
        begin_before_commit(
            views.database,
            lambda connection: note_batch(connection, STREAM, at=5_000_000, moved=300, micros=2_000_000),
            lambda: views.database.write(lambda connection: note_trouble(connection, STREAM, trouble)),
        )
        found = views.database.read(lambda connection: read_pulse(connection, STREAM))
    assert found == Pulse(5_000_000, 300, 2_000_000, trouble)

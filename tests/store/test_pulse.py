"""How a stream is doing: the last batch and the last trouble, each noted beside the other."""

from pathlib import Path

from inkgrove.store.views import (
    STREAM,
    PipelineFailure,
    StreamStatus,
    open_views,
    read_stream_status,
    record_batch,
    record_pipeline_failure,
)
from tests.support.races import begin_before_commit


def test_batch_and_trouble_are_kept_beside_each_other(place: Path | str) -> None:
    with open_views(place) as views:
        read, write = views.database.read, views.database.write
        assert read(lambda connection: read_stream_status(connection, STREAM)) == StreamStatus()
        assert StreamStatus().rate is None
        write(lambda connection: record_batch(connection, STREAM, at=5_000_000, moved=300, micros=2_000_000))
        trouble = PipelineFailure(6_000_000, "pipeline.spark-failed", "it went away")
        write(lambda connection: record_pipeline_failure(connection, STREAM, trouble))
        write(lambda connection: record_batch(connection, STREAM, at=9_000_000, moved=50, micros=500_000))
        found = read(lambda connection: read_stream_status(connection, STREAM))
        assert found == StreamStatus(9_000_000, 50, 500_000, trouble)
        assert found.rate == 100.0


def test_first_batch_and_first_trouble_come_at_the_same_moment(place: Path | str) -> None:
    trouble = PipelineFailure(6_000_000, "pipeline.spark-failed", "it went away")
    with open_views(place) as views:
        begin_before_commit(
            views.database,
            lambda connection: record_batch(connection, STREAM, at=5_000_000, moved=300, micros=2_000_000),
            lambda: views.database.write(lambda connection: record_pipeline_failure(connection, STREAM, trouble)),
        )
        found = views.database.read(lambda connection: read_stream_status(connection, STREAM))
    assert found == StreamStatus(5_000_000, 300, 2_000_000, trouble)

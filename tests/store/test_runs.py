"""Runs: one process at a time does each kind of work, and only the stages of dead runs are swept away."""

import multiprocessing
from collections.abc import Iterator
from pathlib import Path

import pytest

from inkgrove.core.errors import AlreadyRunning
from inkgrove.store.db import ExclusiveWork, hold_work_lock, is_work_running, start_pipeline_run
from inkgrove.store.views import ViewStore, drop_leftovers, drop_stages, find_stage_url, open_stage, open_views
from tests.store import writers
from tests.store.postgres import PostgresServer
from tests.support.processes import wait_until


@pytest.fixture
def views(place: Path | str) -> Iterator[ViewStore]:
    opened = open_views(place)
    yield opened
    opened.close()


def stage_of(views: ViewStore, number: int) -> str:
    stage = open_stage(find_stage_url(views.database.url), str(number), {})
    stage.write("messages", [(1, 1, b"one")])
    stage.finish()
    return stage.name


def is_there(views: ViewStore, stage: str) -> bool:
    if not views.database.is_postgresql:
        return Path(stage).exists()
    with views.database.reading() as connection:
        return connection.dialect.has_schema(connection, stage)


def test_each_kind_of_work_is_done_by_one_run_at_a_time(views: ViewStore) -> None:
    first, second = start_pipeline_run(views.database), start_pipeline_run(views.database)
    first.begin(ExclusiveWork.STREAM)
    first.begin(ExclusiveWork.STREAM)
    second.begin(ExclusiveWork.REBUILD)
    with pytest.raises(AlreadyRunning, match="keeps these views up to date"):
        second.begin(ExclusiveWork.STREAM)
    with pytest.raises(AlreadyRunning, match="rebuilds a view"), hold_work_lock(first, ExclusiveWork.REBUILD):
        pass
    first.end(ExclusiveWork.STREAM)
    second.begin(ExclusiveWork.STREAM)
    second.close()
    with hold_work_lock(first, ExclusiveWork.STREAM), hold_work_lock(first, ExclusiveWork.REBUILD):
        first.check()
    first.close()


def test_it_is_seen_from_outside_whether_work_is_being_done(views: ViewStore) -> None:
    assert not is_work_running(views.database, ExclusiveWork.STREAM)
    run = start_pipeline_run(views.database)
    run.begin(ExclusiveWork.STREAM)
    assert is_work_running(views.database, ExclusiveWork.STREAM)
    assert not is_work_running(views.database, ExclusiveWork.REBUILD)
    run.end(ExclusiveWork.STREAM)
    assert not is_work_running(views.database, ExclusiveWork.STREAM)
    run.close()


def test_only_the_stages_of_dead_runs_are_swept_away(views: ViewStore) -> None:
    living, dead, sweeper = (start_pipeline_run(views.database) for _ in range(3))
    stages = {run.number: stage_of(views, run.number) for run in (living, dead, sweeper)}
    dead.close()
    drop_leftovers(views.database, sweeper)
    assert [is_there(views, stage) for stage in stages.values()] == [True, False, True]
    drop_stages(views.database, list(stages.values()))
    assert not is_there(views, stages[living.number])
    living.close()
    sweeper.close()


def test_what_a_killed_process_did_is_free_again(views: ViewStore, place: Path | str) -> None:
    spawn = multiprocessing.get_context("spawn")
    mine, theirs = spawn.Pipe()
    process = spawn.Process(target=writers.hold_stream, args=(place, theirs))
    process.start()
    number, stage = mine.recv()
    run = start_pipeline_run(views.database)
    with pytest.raises(AlreadyRunning):
        run.begin(ExclusiveWork.STREAM)
    drop_leftovers(views.database, run)
    assert is_there(views, stage)
    process.kill()
    process.join()
    wait_until(lambda: run.is_dead(number), seconds=10)  # PostgreSQL notices the death of a client a little later
    run.begin(ExclusiveWork.STREAM)
    drop_leftovers(views.database, run)
    assert not is_there(views, stage)
    run.close()
    mine.close()
    if isinstance(place, Path):
        assert [file.name for file in place.glob("inkgrove_run_*")] == []


def test_locks_are_taken_again_after_the_server_was_restarted(postgres: PostgresServer) -> None:
    server = PostgresServer(postgres.programs)
    try:
        views = open_views(server.create_database("restarts"))
        run, other = start_pipeline_run(views.database), start_pipeline_run(views.database)
        run.begin(ExclusiveWork.STREAM)
        server.stop()
        server.start()
        run.check()
        other.check()
        with pytest.raises(AlreadyRunning):
            other.begin(ExclusiveWork.STREAM)
        assert not other.is_dead(run.number)
        run.close()
        other.close()
        views.close()
    finally:
        server.remove()

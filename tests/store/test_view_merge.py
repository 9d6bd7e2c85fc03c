"""Stages into views without Spark: what is built, replaced, left alone, and what readers see of it."""

import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, func, inspect, select

from inkgrove.core import hash_yamf
from inkgrove.core.limits import MAX_STORED_INTEGER
from inkgrove.messages import SchemaId
from inkgrove.store.db import hold_merge_lock
from inkgrove.store.views import (
    KEEP_SECONDS,
    View,
    ViewState,
    ViewStore,
    begin_build,
    builds,
    correct_build,
    count_rows,
    count_visible_outcomes,
    drop_left_builds,
    drop_stages,
    drop_view,
    find_stage_url,
    has_undone_cascade,
    index_build,
    load_build,
    merge_stages,
    open_merge_transaction,
    open_stage,
    open_stages,
    open_views,
    read_all_rows,
    read_visible_outcomes,
    swap_view,
)
from tests.support.logs import key
from tests.support.races import begin_before_commit

FIELDS = (("a", "text"), ("to", "relation"))
AUTHOR = key(1).public
STATE = ViewState("notes", "f1", [], None)
Tables = dict[str, list[tuple[Any, ...]]]


def entry(seq_num: int) -> bytes:
    return bytes(hash_yamf(f"entry {seq_num}".encode()))


def row(seq_num: int, text: str, last: int | None = None, log: int = 7) -> tuple[Any, ...]:
    changed = (entry(last), None, None, None, f"[{last}, {seq_num}]") if last else (None, None, None, None, None)
    return (entry(seq_num), bytes(AUTHOR), 1, seq_num, last or seq_num, *changed, log, text, None)


def outcome(seq_num: int, what: str, code: str, reason: str | None = None, log: int = 7) -> tuple[Any, ...]:
    return (log, seq_num, entry(seq_num), bytes(AUTHOR), 1, what, code, reason)


class Bench:
    """The views of one schema, filled by hand."""

    def __init__(self, views: ViewStore) -> None:
        self.views = views
        self.schema_id = SchemaId(key(50).public, 10)
        views.sync([self.schema_id])

    @property
    def view(self) -> View:
        return self.views.views()[self.schema_id]

    def stage(self, tables: Tables) -> str:
        made = open_stage(find_stage_url(self.views.database.url), "me", {self.view.id: FIELDS})
        for name, rows in tables.items():
            made.write(name, rows)
        made.finish()
        return made.name

    def build(self, tables: Tables, *corrections: Tables, now: float = 0) -> None:
        old = self.view
        cascades = {"to": old.id}
        new = self.views.database.write(lambda c: begin_build(c, old, "me", FIELDS, cascades))
        stages = [self.stage(tables)]
        with open_merge_transaction(self.views.database, stages) as (connection, names):
            load_build(connection, open_stages(connection, names, {new.id: FIELDS}), new)
            index_build(connection, new)
        for correction in corrections:
            stages.append(self.stage(correction))
            with open_merge_transaction(self.views.database, stages[-1:]) as (connection, names):
                correct_build(connection, open_stages(connection, names, {new.id: FIELDS}), new)
        with self.views.database.writing() as connection:
            swap_view(connection, old, new, STATE, now)
        drop_stages(self.views.database, stages)

    def merge(self, *stages: Tables) -> int:
        names = [self.stage(tables) for tables in stages]
        with open_merge_transaction(self.views.database, names) as (connection, schemas):
            staged = open_stages(connection, schemas, {self.view.id: FIELDS})
            written = merge_stages(connection, staged, [self.view], "forward")
        drop_stages(self.views.database, names)
        return written

    def loosens(self, tables: Tables) -> bool:
        name = self.stage(tables)
        with open_merge_transaction(self.views.database, [name]) as (connection, schemas):
            staged = open_stages(connection, schemas, {self.view.id: FIELDS})
            found = has_undone_cascade(connection, staged, [self.view])
        drop_stages(self.views.database, [name])
        return found

    def rows(self) -> dict[int, str]:
        with self.views.database.reading() as connection:
            return {item.seq_num: item.fields["a"] for item in read_all_rows(connection, self.view)}

    def outcomes(self) -> dict[int, tuple[str, str, str]]:
        with self.views.database.reading() as connection:
            found = read_visible_outcomes(connection, self.view, limit=100)
        return {item.seq_num: (item.outcome, item.code, item.reason) for item in found}


APPLIED = ("applied", "applied", "The message did what it says.")


@pytest.fixture
def bench(place: Path | str) -> Iterator[Bench]:
    views = open_views(place)
    yield Bench(views)
    views.close()


def first(view: int) -> Tables:
    return {
        f"rows_{view}": [row(1, "one"), row(2, "two", last=3), row(9, "elsewhere", log=8)],
        f"outcomes_{view}": [
            outcome(3, "applied", "applied"),
            outcome(4, "quarantined", "instance.wrong-type", "not a text"),
            outcome(5, "pending", "instance.create-not-held"),
        ],
    }


def dirty(view: int, seq_nums: list[int], create_seqs: list[int]) -> Tables:
    return {
        "groups": [(7, create_seq) for create_seq in create_seqs],
        "messages": [(7, seq_num, entry(seq_num)) for seq_num in seq_nums],
        "log_views": [(7, view), (7, 0)],
    }


def test_row_stands_for_the_outcome_of_its_create(bench: Bench) -> None:
    bench.build(first(bench.view.id))
    assert bench.rows() == {1: "one", 2: "two", 9: "elsewhere"}
    assert bench.outcomes() == {
        1: APPLIED,
        2: APPLIED,
        3: APPLIED,
        4: ("quarantined", "instance.wrong-type", "not a text"),
        5: ("pending", "instance.create-not-held", "The create's entry or payload is not held."),
        9: APPLIED,
    }
    with bench.views.database.reading() as connection:
        assert count_visible_outcomes(connection, bench.view) == {"applied": 4, "quarantined": 1, "pending": 1}
        assert [item.seq_num for item in read_visible_outcomes(connection, bench.view, only="pending", limit=100)] == [
            5
        ]
        assert [item.seq_num for item in read_visible_outcomes(connection, bench.view, only="applied", limit=3)] == [
            1,
            2,
            3,
        ]
        assert read_visible_outcomes(connection, None, limit=100) == []


def test_provenance_that_is_not_stored_is_that_of_the_create(bench: Bench) -> None:
    bench.build(first(bench.view.id))
    with bench.views.database.reading() as connection:
        one, two = sorted(read_all_rows(connection, bench.view), key=lambda item: item.seq_num)[:2]
    assert (one.last_hash, one.field_seq_nums) == (entry(1), {"a": 1, "to": 1})
    assert (two.last_hash, two.field_seq_nums) == (entry(3), {"a": 3, "to": 2})


def test_merge_replaces_the_dirty_groups_and_nothing_else(bench: Bench) -> None:
    number = bench.view.id
    bench.build(first(number))
    news = {
        **dirty(number, [2, 3, 6], [2]),
        f"rows_{number}": [row(2, "changed", last=6)],
        f"outcomes_{number}": [outcome(3, "applied", "applied"), outcome(6, "applied", "applied")],
    }
    for _ in range(2):
        assert bench.merge(news) == 1
        assert bench.rows() == {1: "one", 2: "changed", 9: "elsewhere"}
        assert sorted(bench.outcomes()) == [1, 2, 3, 4, 5, 6, 9]


def test_whole_log_folded_anew_leaves_nothing_of_the_old(bench: Bench) -> None:
    number = bench.view.id
    bench.build(first(number))
    news: Tables = {"whole": [(7,)], "log_views": [(7, number), (7, 0)], f"rows_{number}": [row(2, "two")]}
    assert bench.merge(news) == 1
    assert bench.rows() == {2: "two", 9: "elsewhere"}
    assert sorted(bench.outcomes()) == [2, 9]


def test_outcomes_behind_the_end_of_a_log_go(bench: Bench) -> None:
    number = bench.view.id
    bench.build(first(number))
    assert sorted(bench.outcomes()) == [1, 2, 3, 4, 5, 9]
    # From entry 5 on the log is invalid: what stands there keeps its outcomes.
    bench.merge({**dirty(number, [3], [3]), "ends": [(7, 3, 4)]})
    assert sorted(bench.outcomes()) == [1, 2, 5, 9]
    bench.merge({**dirty(number, [3], [3]), "ends": [(7, 3, MAX_STORED_INTEGER)]})
    assert sorted(bench.outcomes()) == [1, 2, 9]


def test_message_leaves_those_of_no_schema_when_it_gets_one(bench: Bench) -> None:
    number = bench.view.id
    bench.build(first(number))
    bench.merge({**dirty(number, [6], [6]), "outcomes_0": [outcome(6, "quarantined", "cbor.truncated", "cut off")]})
    with bench.views.database.reading() as connection:
        assert count_visible_outcomes(connection, None) == {"quarantined": 1}
    bench.merge(
        {**dirty(number, [6], [6]), f"outcomes_{number}": [outcome(6, "quarantined", "cbor.truncated", "cut off")]}
    )
    with bench.views.database.reading() as connection:
        assert count_visible_outcomes(connection, None) == {}
    assert bench.outcomes()[6][0] == "quarantined"


def test_build_is_corrected_before_it_is_shown(bench: Bench) -> None:
    number = bench.view.id
    correction = {**dirty(number, [1], [1]), f"rows_{number}": [row(1, "corrected")]}
    bench.build(first(number), correction)
    assert bench.rows() == {1: "corrected", 2: "two", 9: "elsewhere"}


def test_rows_go_with_what_they_point_to_and_a_deletion_taken_back_is_noticed(bench: Bench) -> None:
    number = bench.view.id
    edges = [(number, entry(2), False, number, entry(1), 7, 2), (number, entry(9), False, number, entry(2), 8, 9)]
    bench.build({**first(number), "edges": edges})
    gone = {**dirty(number, [1, 6], [1]), "deleted": [(number, entry(1), 7, 1)]}
    assert not bench.loosens(gone)
    bench.merge(gone)
    assert bench.rows() == {}
    assert not bench.loosens(gone)
    assert bench.loosens({**dirty(number, [1], [1]), f"rows_{number}": [row(1, "one")]})
    assert bench.loosens({**dirty(number, [2], [2]), f"rows_{number}": [row(2, "two")]})


def test_reader_that_began_before_a_swap_finds_its_table(bench: Bench) -> None:
    number = bench.view.id
    bench.build(first(number))
    with bench.views.database.reading() as connection:
        before = bench.view
        if not bench.views.database.is_postgresql:
            count_rows(connection, before)  # a reader of SQLite begins with its first look
        bench.build({f"rows_{number}": [row(1, "new")]}, now=100)
        assert count_rows(connection, before) == 3
    assert bench.rows() == {1: "new"}
    for now, names in ((100 + KEEP_SECONDS - 1, 2), (100 + KEEP_SECONDS, 1)):
        with bench.views.database.writing() as connection:
            drop_left_builds(connection, lambda _: True, now)
            found = inspect(connection).get_table_names()
            tables = [name for name in found if re.fullmatch(rf"view_{number}_rows_\d+", name)]
            changes = [name for name in found if re.fullmatch(rf"view_{number}_rows_\d+_changes", name)]
        assert len(changes) == len(tables)
        assert len(tables) == names


def test_turns_do_not_overlap(bench: Bench) -> None:
    order = []
    with hold_merge_lock(bench.views.database):

        def other() -> None:
            with hold_merge_lock(bench.views.database):
                order.append("other")

        thread = threading.Thread(target=other)
        thread.start()
        thread.join(0.3)
        order.append("first")
    thread.join(10)
    assert order == ["first", "other"]


# Several pipelines at the same moment


def test_left_builds_are_dropped_by_two_at_once(bench: Bench) -> None:
    database, old = bench.views.database, bench.view
    database.write(lambda connection: begin_build(connection, old, "dead", FIELDS, {}))

    def drop(connection: Connection) -> None:
        drop_left_builds(connection, lambda _: False, 0)

    begin_before_commit(database, drop, lambda: database.write(drop))
    assert database.read(lambda connection: connection.scalar(select(func.count()).select_from(builds))) == 0


def test_view_of_a_schema_that_is_registered_no_more_is_dropped_by_two_at_once(bench: Bench) -> None:
    bench.build(first(bench.view.id))
    views, view = bench.views, bench.view
    with ThreadPoolExecutor(1) as pool:
        with hold_merge_lock(views.database), views.database.writing() as connection:
            drop_view(connection, view)
            beside = pool.submit(views.sync, [])
            wait([beside], timeout=0.5)
        assert beside.result() == {}

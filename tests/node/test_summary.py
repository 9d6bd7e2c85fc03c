"""Summaries over HTTP: exact over what the caller sees, cooked over what the caller could see, each marked."""

import struct
from pathlib import Path
from typing import Any

from sqlalchemy import insert, select, update

from inkgrove.core import Hash, parse_hash
from inkgrove.store.db import EVERYTHING, PUBLIC, copies, entries, logs, schemas, summaries
from inkgrove.store.logs import register_schema
from tests.support.nodes import Person, RunningNode
from tests.support.plain_views import build_views
from tests.support.publishing import create, make_schema, refusal, schema_id


def quantile_sketch(value: float) -> bytes:
    """A KLL sketch that has seen one value."""
    return struct.pack("<BBBBHBBd", 2, 2, 15, 4, 200, 8, 0, value)


def distinct_sketch(*coupons: int) -> bytes:
    """An HLL sketch that has seen a few values."""
    return struct.pack(f"<8B{len(coupons)}I", 2, 1, 7, 12, 3, 8, len(coupons), 8, *coupons)


def put_cooked(node: RunningNode, schema: str, reader: bytes, field: str, **facts: Any) -> None:
    wanted = schema_id(schema)
    number = select(schemas.c.id).where(schemas.c.author == wanted.author, schemas.c.log_id == wanted.log_id)
    row = {"run": 1, "reader": reader, "owner": b"o" * 32, "month": "2026-10", "field": field, "bytes": 0}
    row |= {"first": b"f", "last": b"l", **facts}

    def work(connection: Any) -> None:
        connection.execute(insert(summaries), {**row, "schema": connection.scalar(number)})

    node.node.database.write(work)


def test_summary_is_exact_and_cooked_for_whoever_asks(tmp_path: Path) -> None:
    with (
        RunningNode(tmp_path, tmp_path) as node,
        Person(node, "jane.haiku.ink") as jane,
        Person(node, "john.haiku.ink") as john,
    ):
        schema = make_schema(jane)
        node.node.store.write(register_schema, schema_id(schema))
        for stars in (1, 2, 6):
            create(jane, schema, fields={"subject": f"s{stars % 2}", "stars": stars}, access={"mode": "public"})
        create(jane, schema, fields={"stars": 100})
        build_views(node.node)
        put_cooked(node, schema, PUBLIC, "", count=1, bytes=500)
        put_cooked(node, schema, PUBLIC, "stars", count=1, sum=4.0, min=4.0, max=4.0, quantiles=quantile_sketch(4.0))
        put_cooked(node, schema, john.id, "", count=2, bytes=700)
        put_cooked(node, schema, john.id, "stars", count=1, sum=50.0, min=50.0, max=50.0, quantiles=quantile_sketch(50))
        put_cooked(node, schema, john.id, "subject", count=2, distinct=distinct_sketch(3 << 26 | 7, 1 << 26 | 9))
        put_cooked(node, schema, EVERYTHING, "", count=99)

        found = node.anybody.get("/views/slothmail/summary").json()
        assert found["exact"]["count"] == 3
        stars = found["exact"]["fields"]["stars"]
        assert (stars["count"], stars["sum"], stars["mean"], stars["min"], stars["max"]) == (3, 9.0, 3.0, 1.0, 6.0)
        assert stars["quantiles"] == {"0.25": 1.0, "0.50": 2.0, "0.75": 6.0}
        assert stars["rank_error"] == 0
        assert found["exact"]["fields"]["subject"] == {"count": 3, "distinct": 2, "distinct_error": 0.0}
        assert (found["cooked"]["count"], found["cooked"]["bytes"], found["cooked"]["months"]) == (1, 500, ["2026-10"])
        assert found["cooked"]["fields"]["stars"]["rank_error"] == 0.0165
        assert found["together"]["count"] == 4
        assert found["together"]["fields"]["stars"]["mean"] == 13 / 4

        of_john = john.get(f"/views/{schema}/summary").json()
        assert (of_john["exact"]["count"], of_john["cooked"]["count"]) == (3, 3)
        assert of_john["cooked"]["fields"]["stars"]["sum"] == 54.0
        assert of_john["cooked"]["fields"]["subject"] == {"count": 2, "distinct": 2, "distinct_error": 0.0325}
        assert jane.get(f"/views/{schema}/summary").json()["exact"]["fields"]["stars"]["sum"] == 109.0
        assert refusal(john.get("/views/nothing/summary")) == (404, "view.unknown")


def test_copy_that_was_fetched_again_counts_once(tmp_path: Path) -> None:
    with RunningNode(tmp_path, tmp_path) as node, Person(node, "jane.haiku.ink") as jane:
        schema = make_schema(jane)
        node.node.store.write(register_schema, schema_id(schema))
        names = [create(jane, schema, fields={"stars": n}, access={"mode": "public"})["instance"] for n in (1, 2)]
        build_views(node.node)
        cooked: Hash = parse_hash(names[0])

        def work(connection: Any) -> None:
            entry = connection.execute(
                select(entries.c.log, entries.c.seq_num, entries.c.schema)
                .join_from(entries, logs)
                .where(entries.c.hash == cooked)
            ).one()
            row = {"instance": cooked, "log": entry.log, "create_seq": entry.seq_num, "schema": entry.schema}
            row |= {"arrival": 1, "noted": 0, "born": 1, "bytes": 1, "freshness": 1.0, "reads": 0.0}
            connection.execute(insert(copies), {**row, "step": "full", "changed": 0, "fetched": 1})

        node.node.database.write(work)
        assert node.anybody.get(f"/views/{schema}/summary").json()["exact"]["count"] == 2
        mark = update(copies).where(copies.c.instance == cooked).values(cooked=1)
        node.node.database.write(lambda connection: connection.execute(mark))
        assert node.anybody.get(f"/views/{schema}/summary").json()["exact"]["fields"]["stars"]["sum"] == 2.0

"""Reading over HTTP: single answers, refusals, waiting, and streams that end and go on."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from sqlalchemy import select

from inkgrove.core import Hash
from inkgrove.messages import Access
from inkgrove.node.errors import OutOfScope
from inkgrove.node.identity import Caller, SchemaScope
from inkgrove.node.reading import (
    ViewQuery,
    list_outcomes,
    list_views,
    query_view,
    render_cursor,
    render_position,
    show_instance,
    subscribe_to_view,
)
from inkgrove.pipeline.views import Materialiser
from inkgrove.store.logs import Offset, newest_offset
from inkgrove.store.views import change_counts
from tests.spark.conftest import spark  # noqa: F401  (fixture)
from tests.support.errors import raises
from tests.support.reading import MAILS, PEOPLE, World, running_node

PUBLIC = Access("public")


@pytest.fixture
def world(place: Path | str, tmp_path: Path, spark: SparkSession) -> Iterator[World]:  # noqa: F811
    materialiser = Materialiser(spark, str(place))
    with running_node(place, tmp_path) as node:
        yield World(node, materialiser)
    materialiser.close()


def read_events(world: World, last_id: str, count: int = 1000) -> list[tuple[str, str, Any]]:
    """Events until the stream has had nothing to tell three times, for a loaded machine looks late, or that many."""
    events: list[tuple[str, str, Any]] = []
    quiet = 0
    with world.node.anybody.stream("GET", "/views/mail/changes", headers={"Last-Event-ID": last_id}) as stream:
        assert stream.status_code == 200
        facts: dict[str, str] = {}
        for line in stream.iter_lines():
            quiet += line == ": still here"
            if quiet == 3 or len(events) == count:
                break
            name, _, value = line.partition(": ")
            if line:
                facts[name] = value
            elif "event" in facts:
                events.append((facts["event"], facts["id"], json.loads(facts["data"])))
                facts = {}
    return events


def test_instances_and_pages_say_what_they_should(world: World) -> None:
    mary = world.create("mary", PEOPLE, {"name": "Mary"}, access=PUBLIC)
    hidden = world.create("mary", PEOPLE, {"name": "Secret"})
    mail = world.create("jane", MAILS, {"subject": "one", "size": 1, "sender": bytes(mary)}, access=PUBLIC)
    world.update(mail, {"subject": "two"})
    world.create("jane", MAILS, {"subject": "three", "size": 3, "sender": bytes(hidden)}, access=PUBLIC)
    world.catch_up()
    anybody = world.node.anybody

    shown = anybody.get(f"/instances/{mail}").json()
    assert shown["fields"]["subject"] == "two"
    assert (shown["seq_num"], shown["last_seq_num"]) == (1, 2)
    assert (shown["provenance"]["subject"], shown["provenance"]["size"]) == (2, 1)
    then = anybody.get(f"/instances/{mail}?as_of=1").json()
    assert (then["fields"]["subject"], then["last_seq_num"], then["last_hash"]) == ("one", 1, mail.hex())
    history = anybody.get(f"/instances/{mail}/history").json()["history"]
    assert [(item["kind"], item["fields"].get("subject"), item["outcome"]) for item in history] == [
        ("create", "one", "applied"),
        ("update", "two", "applied"),
    ]
    rows = anybody.get("/views/mail?expand=sender&fields=subject&sort=size").json()["rows"]
    assert [row["expanded"]["sender"] and row["expanded"]["sender"]["fields"] for row in rows] == [
        {"name": "Mary"},
        None,
    ]
    for wrong, code in {
        "/views/mail?where=nothing:eq:1": "input.bad-filter",
        "/views/mail?where=size:eq:one": "input.bad-filter",
        "/views/mail?where=size:eq:9223372036854775808": "input.bad-filter",
        "/views/mail?where=subject:eq:%00": "request.bad-address",
        '/views/mail?where=subject:in:["\\u0000"]': "input.bad-filter",
        "/views/mail?where=weight:eq:nan": "input.bad-filter",
        "/views/mail?where=sender:lt:00": "input.bad-filter",
        "/views/mail?where=size": "input.bad-filter",
        '/views/mail?where=subject:in:["\\ud800"]': "input.bad-filter",
        "/views/mail?sort=to": "input.bad-filter",
        "/views/mail?sort=size,size": "input.bad-filter",
        "/views/mail?expand=subject": "input.bad-filter",
        "/views/mail?fields=nothing": "input.bad-filter",
        "/views/mail?cursor=abc": "view.bad-cursor",
        f"/views/mail?sort=nothing&cursor={render_cursor([('nothing', False)], ['a', b''])}": "input.bad-filter",
        f"/views/mail?sort=to&cursor={render_cursor([('to', False)], [None, b''])}": "input.bad-filter",
        f"/views/mail?sort=to&cursor={render_cursor([('to', False)], ['a', b''])}": "view.bad-cursor",
        "/views/mail?limit=0": "request.invalid",
        "/views/mail?at_least=abc": "request.invalid",
        "/views/nothing": "view.unknown",
        f"/views/{'00' * 32}/99999999999999999999": "request.invalid",
        "/instances/00": "view.unknown-instance",
        f"/instances/{hidden}": "view.unknown-instance",
    }.items():
        assert anybody.get(wrong).json()["code"] == code, wrong
    # A cursor belongs to its order.
    cursor = anybody.get("/views/mail?limit=1&sort=size").json()["cursor"]
    assert anybody.get(f"/views/mail?limit=1&sort=-size&cursor={cursor}").json()["code"] == "view.bad-cursor"


def test_service_reads_only_schemas_that_it_was_granted(world: World) -> None:
    person = world.create("mary", PEOPLE, {"name": "Mary"}, access=PUBLIC)
    mail = world.create("jane", MAILS, {"subject": "one", "sender": bytes(person)})
    world.catch_up()
    node, jane = world.node.node, world.people["jane"].id
    service = Caller(jane, grant=1, scopes=frozenset({SchemaScope(MAILS, "read")}))
    assert [row.instance for row in query_view(node, service, "mail", ViewQuery()).rows] == [mail]
    assert show_instance(node, service, mail)[1].fields["subject"] == "one"
    assert {item.view.name: item.rows for item in list_views(node, service, with_count=True)[0]} == {
        "mail": 1,
        "person": None,
    }
    for refused in (
        lambda: query_view(node, service, "person", ViewQuery()),
        lambda: query_view(node, service, "mail", ViewQuery(expand=["sender"])),
        lambda: show_instance(node, service, person),
        lambda: subscribe_to_view(node, service, "person", None),
        lambda: list_outcomes(node, service, "person", only=None, cursor=None, limit=10),
    ):
        with pytest.raises(OutOfScope):
            refused()
    # What the identity itself may not see, no service learns of.
    hers = Caller(world.people["mary"].id, grant=2)
    with raises("view.unknown-instance"):
        show_instance(node, hers, mail)


@pytest.mark.both_databases
def test_reader_waits_for_a_write_and_not_for_ever(world: World) -> None:
    world.create("jane", MAILS, {"subject": "one"}, access=PUBLIC)
    token = render_position(world.node.node.vault, world.materialiser.store.read(newest_offset))
    behind = world.people["admin"].client.get("/views").json()["freshness"]
    assert (behind["is_current"], behind["behind"] > 0) == (False, True)
    world.catch_up()
    assert len(world.node.anybody.get(f"/views/mail?at_least={token}").json()["rows"]) == 1
    later = render_position(world.node.node.vault, Offset(2**62, 2**62))
    late = world.node.anybody.get(f"/views/mail?at_least={later}")
    assert (late.status_code, late.json()["code"], late.headers["retry-after"]) == (503, "view.behind", "1")


@pytest.mark.both_databases
def test_stream_goes_on_after_any_event_and_tells_each_change_once(world: World) -> None:
    world.create("jane", MAILS, {"subject": "before"}, access=PUBLIC)
    world.catch_up()
    start = world.node.anybody.get("/views/mail").json()["changes"]
    mails: list[Hash] = [world.create("jane", MAILS, {"size": n}, access=PUBLIC) for n in range(5)]
    world.catch_up()
    world.update(mails[0], {"size": 10})
    world.catch_up()
    whole = read_events(world, start)
    assert [patch[0]["op"] for _, _, patch in whole] == ["add"] * 5 + ["replace"]
    assert {patch[0]["path"] for _, _, patch in whole} == {f"/rows/{mail.hex()}" for mail in mails}
    for number, (_, event_id, _) in enumerate(whole):
        assert [patch for _, _, patch in read_events(world, event_id)] == [patch for _, _, patch in whole[number + 1 :]]
    # A rebuild cannot be told change by change.
    world.materialiser.rebuild(MAILS)
    assert [(name, patch) for name, _, patch in read_events(world, whole[-1][1])] == [("reset", [])]
    # Nor can what was not kept, or what somebody made up.
    assert [name for name, _, _ in read_events(world, "made-up")] == ["reset"]
    with world.node.node.views.database.reading() as connection:
        assert connection.execute(select(change_counts.c.newest)).scalars().all() != []


def test_stream_ends_with_the_token_and_with_the_node(world: World) -> None:
    world.catch_up()
    jane = world.people["jane"].client
    ended: list[Any] = []

    def follow(client: Any) -> None:
        with client.stream("GET", "/views/mail/changes", timeout=20) as stream:
            started.set()
            for _ in stream.iter_lines():
                pass
        ended.append(True)

    for end in (lambda: jane.delete("/sessions/current"), world.node.node.stopping.set):
        started = threading.Event()
        client = jane if not ended else world.node.anybody
        thread = threading.Thread(target=follow, args=(client,))
        thread.start()
        assert started.wait(10)
        end()
        thread.join(10)
        assert not thread.is_alive()
    assert ended == [True, True]


def test_only_the_administrator_says_what_is_materialised(world: World) -> None:
    address = f"/views/{MAILS}"
    assert world.node.anybody.put(address).status_code == 401
    assert world.people["jane"].client.put(address).status_code == 403
    admin = world.people["admin"].client
    assert admin.put(address).json()["is_new"] is False
    assert admin.delete(address).status_code == 204
    assert admin.delete(address).json()["code"] == "view.unknown"
    assert admin.put(address).json()["is_new"] is True

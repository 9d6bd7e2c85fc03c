"""What identities of one node do to each other, by the rules that hold between nodes (docs/protocol.md 7.6 and 8.6)."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from examples.demo.ports import free_port
from inkgrove.node.publishing import local_delivery as requests
from inkgrove.node.settings import NodeSettings
from inkgrove.store.federation import waiting_recipients
from inkgrove.store.logs import register_schema
from tests.support.nodes import Person, RunningNode
from tests.support.plain_views import build_views
from tests.support.publishing import create, make_schema, schema_id

pytestmark = pytest.mark.both_databases

MERGE = {"Content-Type": "application/merge-patch+json"}


@dataclass
class Town:
    """A node, and a schema that everybody there uses."""

    node: RunningNode
    stack: ExitStack
    schema: str = ""

    def person(self, name: str) -> Person:
        return self.stack.enter_context(Person(self.node, f"{name}.haiku.ink"))

    def build(self) -> None:
        build_views(self.node.node)


@pytest.fixture
def town(place: Path | str, tmp_path: Path) -> Iterator[Town]:
    dead = (f"*.dead.ink=127.0.0.1:{free_port()}",)
    settings = NodeSettings(registration="open", domains=("haiku.ink",), replication_seconds=0, resolve=dead)
    with RunningNode(place, tmp_path, settings) as node, ExitStack() as stack:
        town = Town(node, stack)
        town.schema = make_schema(town.person("author"))
        node.node.store.write(register_schema, schema_id(town.schema))
        yield town


def change(person: Person, instance: str, **change: Any) -> None:
    answer = person.patch(f"/instances/{instance}", json=change, headers=MERGE)
    assert answer.status_code == 200, answer.text


def test_who_blocks_somebody_sees_no_later_changes_of_theirs(town: Town) -> None:
    jane, john, carol = town.person("jane"), town.person("john"), town.person("carol")
    mail = create(jane, town.schema, fields={"subject": "kind"}, recipients=["john.haiku.ink"])["instance"]
    public = create(jane, town.schema, fields={"subject": "all"}, access={"mode": "public"})["instance"]
    others = create(carol, town.schema, fields={"subject": "hers"}, recipients=["john.haiku.ink"])["instance"]
    for sender in (jane, carol):
        assert john.post(f"/me/requests/{sender.id.hex()}", json={"decision": "accept"}).status_code == 200
    town.build()
    assert john.get(f"/instances/{mail}").json()["fields"]["subject"] == "kind"
    assert john.put("/me/followers/jane.haiku.ink", json={"state": "blocked"}).status_code == 200
    change(jane, mail, fields={"subject": "unkind"})
    town.build()
    assert john.get(f"/instances/{mail}").status_code == 404
    assert "unkind" not in john.get(f"/views/{town.schema}").text
    assert john.get(f"/instances/{others}").status_code == 200  # of somebody else's nothing is lost
    assert john.get(f"/instances/{public}").status_code == 200  # as for anybody
    # Neither sending it again nor lifting the block shows it; what is sent then is new.
    assert jane.post(f"/instances/{mail}/share", json={"recipients": ["john.haiku.ink"]}).status_code == 200
    assert john.get(f"/instances/{mail}").status_code == 404
    assert john.delete("/me/followers/jane.haiku.ink").status_code == 204
    assert john.get(f"/instances/{mail}").status_code == 404
    assert john.get("/me/requests").json() == {"requests": []}


def test_what_was_passed_on_is_its_owners_when_somebody_is_blocked(town: Town) -> None:
    """Between nodes neither a blocked sender nor a blocked owner gets anything in."""
    jane, john, carol = town.person("jane"), town.person("john"), town.person("carol")
    assert carol.put("/me/senders/jane.haiku.ink").status_code == 200
    assert john.put("/me/senders/carol.haiku.ink").status_code == 200
    mail = create(jane, town.schema, fields={"subject": "kind"}, recipients=["carol.haiku.ink"])["instance"]
    town.build()
    assert carol.post(f"/instances/{mail}/pass-on", json={"recipients": ["john.haiku.ink"]}).status_code == 200
    assert john.get(f"/instances/{mail}").status_code == 200
    assert john.put("/me/followers/jane.haiku.ink", json={"state": "blocked"}).status_code == 200
    assert john.get(f"/instances/{mail}").status_code == 404
    assert carol.get(f"/instances/{mail}").status_code == 200


def test_sender_sees_that_it_arrived_once_a_relation_says_so(town: Town) -> None:
    """To accept or to refuse from the box is told to nobody, as between nodes; nothing of it goes over the network."""
    jane, john = town.person("jane"), town.person("john")
    mails = [create(jane, town.schema, recipients=["john.haiku.ink"])["instance"] for _ in range(3)]

    def states() -> list[str]:
        answers = (jane.get(f"/instances/{mail}/deliveries").json()["deliveries"] for mail in mails)
        return [item["state"] for deliveries in answers for item in deliveries]

    for mail, decision in zip(mails, ("accept", "refuse"), strict=False):
        assert john.post(f"/me/requests/{jane.id.hex()}/{mail}", json={"decision": decision}).status_code == 200
    assert states() == ["held"] * 3
    john.put("/me/following/jane.haiku.ink", json={})
    assert jane.put("/me/followers/john.haiku.ink", json={"state": "accepted"}).status_code == 200
    assert states() == ["delivered"] * 3
    assert town.node.node.database.read(waiting_recipients) == []
    assert john.get("/me/requests").json() == {"requests": []}
    town.build()
    assert {john.get(f"/instances/{mail}").status_code for mail in mails} == {200}


def test_box_is_not_filled_by_what_its_owner_cannot_see(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "MAX_REQUESTS", 6)
    monkeypatch.setattr(requests, "MAX_REQUESTS_OF_SENDER", 3)
    victim, honest = town.person("victim"), town.person("honest")
    waiting = create(honest, town.schema, recipients=["victim.haiku.ink"])["instance"]
    for number in range(2):
        thrown_away = town.person(f"x{number}")
        for _ in range(3):
            mail = create(thrown_away, town.schema, recipients=["victim.haiku.ink"])["instance"]
            change(thrown_away, mail, access={"mode": "self"})
    later = create(honest, town.schema, recipients=["victim.haiku.ink"])["instance"]
    (delivery,) = honest.get(f"/instances/{later}/deliveries").json()["deliveries"]
    assert (delivery["state"], delivery["code"]) == ("held", None)
    (request,) = victim.get("/me/requests").json()["requests"]
    assert [item["instance"] for item in request["instances"]] == [waiting, later]
    # What can be seen still fills it.
    for number in range(2, 7):
        mail = create(sender := town.person(f"x{number}"), town.schema, recipients=["victim.haiku.ink"])["instance"]
    (delivery,) = sender.get(f"/instances/{mail}/deliveries").json()["deliveries"]
    assert (delivery["state"], delivery["code"]) == ("refused", "federation.request-box-full")
    assert sum(len(item["instances"]) for item in victim.get("/me/requests").json()["requests"]) == 6


@pytest.mark.parametrize("mode", ["closed", "relations"])
def test_copy_goes_to_nobody_who_is_not_found_yet_without_a_word(town: Town, mode: str) -> None:
    jane, john = town.person("jane"), town.person("john")
    john.put("/me/following/jane.haiku.ink", json={})
    assert jane.put("/me/followers/john.haiku.ink", json={"state": "accepted"}).status_code == 200
    sent = {"recipients": ["john.haiku.ink"]} if mode == "closed" else {}
    source = create(jane, town.schema, fields={"subject": "for few"}, access={"mode": mode}, **sent)["instance"]
    town.build()
    recipients = ["jane.haiku.ink", "x.dead.ink"]
    by_hand = {"schema": town.schema, "fields": {"subject": "for few"}, "copied_from": source}
    for path, facts in ((f"/instances/{source}/copy", {}), ("/instances", by_hand)):
        answer = john.post(path, json={**facts, "recipients": recipients})
        assert (answer.status_code, answer.json().get("code")) == (409, "publish.shows-source"), path
        answer = john.post(path, json={**facts, "recipients": recipients}, params={"source": "show"})
        assert (answer.status_code, answer.json()["not_found_yet"]) == (201, ["x.dead.ink"])


@pytest.mark.parametrize("end", ["narrowed", "deleted"])
def test_copy_shows_nothing_that_its_source_shows_no_longer_though_the_view_is_behind(town: Town, end: str) -> None:
    jane, john = town.person("jane"), town.person("john")
    assert john.put("/me/senders/jane.haiku.ink").status_code == 200
    source = create(jane, town.schema, fields={"subject": "secret"}, recipients=["john.haiku.ink"])["instance"]
    town.build()
    if end == "narrowed":
        change(jane, source, access={"mode": "self"})
    else:
        assert jane.delete(f"/instances/{source}").status_code == 200
    for facts in ({}, {"access": {"mode": "public"}}):
        answer = john.post(f"/instances/{source}/copy", json=facts)
        assert (answer.status_code, answer.json().get("code")) == (404, "view.unknown-instance")
    assert jane.post(f"/instances/{source}/copy", json={}).status_code == (201 if end == "narrowed" else 404)

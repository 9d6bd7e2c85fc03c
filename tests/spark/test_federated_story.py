"""Ink's own example, played by five real node processes with a pipeline for each: after each step everybody sees what
they should see, and every view is what the oracle makes of what its node holds.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyspark.sql import SparkSession

from examples.demo.ports import free_port
from inkgrove.core import IdentityId
from inkgrove.node.runtime import Node
from inkgrove.node.settings import NodeSettings
from inkgrove.pipeline.views import Materialiser
from inkgrove.reference import fold_views
from inkgrove.store.logs import register_schema
from tests.support.federated import until
from tests.support.node_processes import Serving
from tests.support.nodes import PASSWORD
from tests.support.publishing import create, make_schema, schema_id
from tests.support.views import expected, held_by, materialised
from tests.unit.schema.test_oracle import exact

HOMES = {"jane": "a", "john": "b", "mary": "b", "alice": "c", "bob": "d", "carol": "e"}


@dataclass
class Story:
    """Five nodes, six people; what is said has a subject, and that is what is compared."""

    serving: dict[str, Serving]
    stores: dict[str, Node]
    """The same stores, opened by the test beside the processes that serve them."""
    pipelines: dict[str, Materialiser]
    people: dict[str, httpx.Client] = field(default_factory=dict)
    ids: dict[str, IdentityId] = field(default_factory=dict)
    schema: str = ""

    def fqdn(self, name: str) -> str:
        return f"{name}.{HOMES[name]}.ink"

    def move_in(self, name: str) -> None:
        client = self.serving[HOMES[name]].client
        created = client.post("/identities", json={"fqdn": self.fqdn(name), "password": PASSWORD})
        assert created.status_code == 201, created.text
        self.ids[name] = IdentityId.fromhex(created.json()["id"])
        token = client.post("/sessions", json={"fqdn": self.fqdn(name), "password": PASSWORD}).json()["token"]
        headers = {"Authorization": f"Bearer {token}"}
        self.people[name] = httpx.Client(base_url=client.base_url, headers=headers, timeout=60)

    def follow(self, follower: str, followee: str) -> None:
        asked = self.people[follower].put(f"/me/following/{self.fqdn(followee)}", json={})
        assert asked.json() == {"state": "requested"}, asked.text
        path = f"/me/followers/{self.fqdn(follower)}"
        assert self.people[followee].put(path, json={"state": "accepted"}).json() == {"state": "accepted"}

    def delivered(self, sender: str, instance: str, **states: str) -> None:
        """Wait until deliveries are where they should be."""
        expected = {self.fqdn(name): state for name, state in states.items()}

        def found() -> dict[str, str]:
            answer = self.people[sender].get(f"/instances/{instance}/deliveries").json()
            return {item["fqdn"]: item["state"] for item in answer["deliveries"]}

        until(lambda: found() == expected, f"{expected} was to be, {found()} is")

    def find_schema(self, *letters: str) -> None:
        """Nodes find the schema by themselves once something names it, and materialise it because they are told to."""
        wanted = schema_id(self.schema)
        for letter in letters:
            store = self.stores[letter].store
            until(lambda store=store: store.heights().get(wanted, 0) == 2)  # type: ignore[misc]
            store.write(register_schema, wanted)

    def sees(self, name: str | None, letter: str) -> set[str]:
        """What somebody reads from the view of a node; None is anybody."""
        client = self.people[name] if name is not None else self.serving[letter].client
        answer = client.get(f"/views/{self.schema}")
        if answer.status_code == 404:
            return set()
        assert answer.status_code == 200, answer.text
        return {row["fields"]["subject"] for row in answer.json()["rows"]}

    def compare(self, wanted: dict[str, set[str]], anybody: dict[str, set[str]] | None = None) -> None:
        """The views of all nodes, each read by those who live there and by anybody, and what each node holds at all."""
        for letter, pipeline in self.pipelines.items():
            pipeline.catch_up()
            views = materialised(pipeline)
            assert exact(views) == exact(expected(pipeline))
            here = [name for name, home in HOMES.items() if home == letter]
            seen = {name: self.sees(name, letter) for name in here}
            assert seen == {name: wanted[name] for name in here}
            assert self.sees(None, letter) == (anybody or {}).get(letter, set())
            rows = views[schema_id(self.schema)]["rows"].values() if schema_id(self.schema) in views else ()
            assert {row["fields"]["subject"] for row in rows} == set().union(*seen.values())


@pytest.fixture
def story(spark: SparkSession, tmp_path: Path) -> Iterator[Story]:
    letters = sorted(set(HOMES.values()))
    ports = {letter: free_port() for letter in letters}
    resolve = ",".join(f"*.{letter}.ink=127.0.0.1:{port}" for letter, port in ports.items())
    with ExitStack() as stack:
        settings = {"registration": "open", "resolve": resolve}
        serving = {
            letter: stack.enter_context(Serving(tmp_path / letter, {**settings, "domains": f"{letter}.ink"}, port=port))
            for letter, port in ports.items()
        }
        stores: dict[str, Node] = {}
        pipelines: dict[str, Materialiser] = {}
        for letter in letters:
            home = tmp_path / letter
            stores[letter] = Node(home, NodeSettings(), home=home)
            stack.callback(stores[letter].close)
            pipelines[letter] = Materialiser(spark, str(home))
            stack.callback(pipelines[letter].close)
        told = Story(serving, stores, pipelines)
        for name in HOMES:
            told.move_in(name)
            stack.callback(told.people[name].close)
        yield told


@pytest.mark.thorough
def test_jane_writes_to_john_and_alice_who_passes_it_on_to_bob_while_carol_follows(story: Story) -> None:
    jane, nothing = story.people["jane"], set[str]()
    story.schema = make_schema(jane)
    story.find_schema("a")
    for follower in ("john", "alice", "carol"):
        story.follow(follower, "jane")
    story.compare(dict.fromkeys(HOMES, nothing))

    # jane sends to john and alice; mary lives with john and sees nothing of it.
    letter = [story.fqdn("john"), story.fqdn("alice")]
    mail = create(jane, story.schema, fields={"subject": "Hello!"}, recipients=letter)["instance"]
    story.delivered("jane", mail, john="delivered", alice="delivered")
    story.find_schema("b", "c")
    after = dict.fromkeys(HOMES, nothing) | {name: {"Hello!"} for name in ("jane", "john", "alice")}
    story.compare(after)

    # alice passes it on to bob, who does not know her yet.
    assert passed_on(story, "alice", mail, "bob").status_code == 200
    story.delivered("alice", mail, bob="held")
    story.compare(after)
    path = f"/me/requests/{story.ids['alice'].hex()}"
    assert story.people["bob"].post(path, json={"decision": "accept"}).json() == {"instances": [mail]}
    story.find_schema("d")
    story.compare(after | {"bob": {"Hello!"}})
    # jane knows nothing of bob.
    story.delivered("jane", mail, john="delivered", alice="delivered")

    # carol follows what is public, and so do the others who follow; bob does not.
    post = create(jane, story.schema, fields={"subject": "To all"}, access={"mode": "public"})["instance"]
    story.delivered("jane", post, john="delivered", alice="delivered", carol="delivered")
    story.find_schema("e")
    public = {letter: {"To all"} for letter in "abce"}
    story.compare(
        {
            "jane": {"Hello!", "To all"},
            "john": {"Hello!", "To all"},
            "mary": {"To all"},
            "alice": {"Hello!", "To all"},
            "bob": {"Hello!"},
            "carol": {"To all"},
        },
        public,
    )

    # jane changes her letter: the change follows to everyone who has it, bob included.
    change = {"fields": {"subject": "Hello! ...friend"}}
    headers = {"Content-Type": "application/merge-patch+json"}
    assert jane.patch(f"/instances/{mail}", json=change, headers=headers).status_code == 200
    until(lambda: "Hello! ...friend" in subjects(story.stores["d"], story.schema))
    story.delivered("jane", mail, john="delivered", alice="delivered")
    both = {"Hello! ...friend", "To all"}
    changed = {"jane": both, "john": both, "alice": both, "bob": {"Hello! ...friend"}}
    story.compare({"mary": {"To all"}, "carol": {"To all"}, **changed}, public)

    # And deletes it: it goes everywhere, what is public stays.
    assert jane.delete(f"/instances/{mail}").status_code == 200
    until(lambda: not subjects(story.stores["d"], story.schema))
    story.delivered("jane", mail, john="delivered", alice="delivered")
    story.compare({name: {"To all"} for name in HOMES} | {"bob": nothing}, public)


def passed_on(story: Story, by: str, instance: str, to: str) -> httpx.Response:
    return story.people[by].post(f"/instances/{instance}/pass-on", json={"recipients": [story.fqdn(to)]})


def subjects(node: Node, schema: str) -> set[Any]:
    views = fold_views(held_by(node.store))
    return {row.fields["subject"] for view in views if view.schema == schema_id(schema) for row in view.rows}

"""People on many nodes who publish, share and follow while the network is bad and nodes fall over, all by a seed."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from sqlalchemy import select

from inkgrove.core import Hash, IdentityId, parse_hash
from inkgrove.core.errors import InkgroveError
from inkgrove.federation.errors import FederationError
from inkgrove.federation.peers import PeerRequest
from inkgrove.federation.sharing import (
    DELIVERIES_PATH,
    accept_sender,
    accept_waiting,
    discard_waiting,
    drop_sender,
    release_waiting,
)
from inkgrove.messages import (
    Access,
    FieldChange,
    SchemaId,
    SchemaMeta,
    SchemaMigration,
    decode_delivery,
    encode_message,
)
from inkgrove.node.identity import RelationMove, move_relation
from inkgrove.node.publishing import ChangeInstance, CreateInstance, DeleteInstance, PassOnInstance, ShareInstance
from inkgrove.store.db import shares
from inkgrove.store.federation import (
    RemoteIdentity,
    add_peer,
    count_waiting_deliveries,
    find_remote_identity,
    list_move_recipients,
    list_requests,
)
from inkgrove.store.logs import find_entry
from inkgrove.store.node import put_relation_state
from tests.simulation.nodes import Person, SimulatedNode, copy_store
from tests.simulation.oracle import Oracle
from tests.simulation.virtual import FAIR, FOUL, Network, VirtualLoop
from tests.support.logs import LogBuilder, key

SCHEMA = SchemaId(key(200).public, 1)
MODES = ("none", "listed", "listed", "closed", "relations", "public", "public", "self")
NAMES = ("ann", "ben", "cid")


@dataclass(frozen=True, slots=True)
class Plan:
    """What is simulated."""

    seed: int
    nodes: int = 20
    operations: int = 2000
    pause: float = 0.5
    """The usual seconds between two operations."""


class World:
    """One run."""

    def __init__(self, plan: Plan, template: Path, home: Path, loop: VirtualLoop) -> None:
        self.plan = plan
        self.rng = Random(plan.seed)
        self.loop = loop
        self.network = Network(loop, Random(self.rng.random()))
        self.network.arrived = self._note_arrival
        self.oracle = Oracle()
        self.nodes: dict[str, SimulatedNode] = {}
        self.people: list[Person] = []
        self.by_id: dict[IdentityId, Person] = {}
        self.reached: dict[str, dict[Hash, set[Hash]]] = {}
        """By node and instance: the entry of every payload that was ever sent there, taken in or not."""
        self.living: dict[IdentityId, list[Hash]] = {}
        self.done: Counter[str] = Counter()
        self.failures: list[BaseException] = []
        self.is_healed = False
        loop.set_exception_handler(self._note_failure)
        schema = LogBuilder(key(200))
        for message in (SchemaMeta("note"), SchemaMigration((FieldChange("text", "create", "text"),))):
            schema.append(encode_message(message))
        for number in range(plan.nodes):
            domain = f"n{number}.ink"
            copy_store(template, home / domain)
            node = SimulatedNode(domain, home / domain, self.network, loop, Random(self.rng.random()))
            self.nodes[domain] = node
            self.reached[domain] = defaultdict(set)
            node.on_relation = partial(self.oracle.related, domain)
            node.start()
            node.node.store.ingest([(e.encoded, p) for e, p in zip(schema.entries, schema.payloads, strict=True)])
            for name in NAMES[: self.rng.choice((1, 1, 2, 3))]:
                self._settle_in(node, node.add_person(name))

    def _settle_in(self, node: SimulatedNode, person: Person) -> None:
        self.people.append(person)
        self.by_id[person.id] = person
        self.living[person.id] = []
        self.oracle.domains[person.id] = node.domain

    def _note_failure(self, _loop: Any, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.failures.append(error if error is not None else AssertionError(context["message"]))

    def _note_arrival(self, _sender: str, receiver: str, request: PeerRequest) -> None:
        if not request.url.endswith(DELIVERIES_PATH):
            return
        for parcel in decode_delivery(request.body).parcels:
            for recipient in parcel.recipients:
                assert self.oracle.domains[recipient] == receiver, "a node is told of people elsewhere"
            payloads = {payload for _, payload in parcel.entries if payload is not None}
            self.reached[receiver][parcel.instance] |= {entry for entry in map(self.entry_of.get, payloads) if entry}

    # How it goes

    entry_of: dict[bytes, Hash]

    async def run(self) -> None:
        """Everything, up to the point where nothing is left to be delivered."""
        self.entry_of = {}
        await self._acquaint()
        self._choose_peers()
        self.network.weather = FOUL
        chaos = [asyncio.create_task(self._crashes()), asyncio.create_task(self._partitions())]
        asked: set[asyncio.Task[Any]] = set()
        for _ in range(self.plan.operations):
            await asyncio.sleep(self.rng.expovariate(1 / self.plan.pause))
            person = self.rng.choice(self.people)
            node = self.nodes[person.domain]
            if node.is_up:
                task = node.begin(self._do_something(node, person))
                asked.add(task)
                task.add_done_callback(asked.discard)
            else:
                self.done["nobody there"] += 1
        for task in chaos:
            task.cancel()
        await self._heal()

    async def _heal(self) -> None:
        self.is_healed = True
        self.network.weather = FAIR
        self.network.islands.clear()
        for node in self.nodes.values():
            node.crash_rate = 0.0
            if not node.is_up:
                node.start()
        await asyncio.sleep(400)  # whatever is still on its way arrives
        await self._wait_for_deliveries()
        await asyncio.sleep(
            200
        )  # everybody has replicated what is the last word by now, and what that brings is sent on
        await self._wait_for_deliveries()
        await self._ask_again()
        await asyncio.sleep(60)

    async def _wait_for_deliveries(self) -> None:
        until = self.loop.time() + 6 * 3600
        while self.loop.time() < until and any(
            node.node.database.read(count_waiting_deliveries) or node.node.database.read(list_move_recipients)
            for node in self.nodes.values()
        ):
            await asyncio.sleep(60)

    async def _ask_again(self) -> None:
        """Who follows asks again: that brings both sides in line."""
        for (domain, follower, followee), history in sorted(self.oracle.relations.items()):
            if history[-1][1] is not None and self.by_id[follower].domain == domain:
                await self._move(self.nodes[domain], self.by_id[follower], self.by_id[followee], "request")

    def stop(self) -> None:
        for node in self.nodes.values():
            if node.is_up:
                node.crash()

    async def _acquaint(self) -> None:
        for one in self.people:
            for other in self.rng.sample(self.people, min(4, len(self.people))):
                if one is not other:
                    for me, they in ((one, other), (other, one)):
                        node = self.nodes[me.domain]
                        await node.discovery.find(they.fqdn)
                        node.node.database.write(lambda c: put_relation_state(c, one.id, other.id, "accepted", 0))  # noqa: B023
                        node.notice_relations()

    def _choose_peers(self) -> None:
        for node in self.nodes.values():
            for person in self.rng.sample(self.people, self.rng.choice((0, 1, 1, 2))):
                if person.domain != node.domain:
                    node.node.database.write(lambda c: add_peer(c, person.fqdn, 0))  # noqa: B023
                    self.oracle.peers.add((node.domain, person.domain))

    async def _crashes(self) -> None:
        for node in self.nodes.values():
            node.crash_rate = 0.0004
        while True:
            await asyncio.sleep(self.rng.expovariate(1 / 15))
            down = [node for node in self.nodes.values() if not node.is_up]
            if down and self.rng.random() < 0.7:
                self.rng.choice(down).start()
            elif len(down) < len(self.nodes) // 3:
                node = self.rng.choice(list(self.nodes.values()))
                if node.is_up:
                    self.done["crash"] += 1
                    node.crash()

    async def _partitions(self) -> None:
        while True:
            await asyncio.sleep(self.rng.expovariate(1 / 60))
            domains = list(self.nodes)
            self.network.islands.append(set(self.rng.sample(domains, self.rng.randint(1, len(domains) // 2))))
            self.done["partition"] += 1
            await asyncio.sleep(self.rng.uniform(5, 60))
            self.network.islands.clear()

    # What people do

    async def _do_something(self, node: SimulatedNode, person: Person) -> None:
        deeds: tuple[tuple[int, Callable[[SimulatedNode, Person], Coroutine[Any, Any, None]]], ...] = (
            (30, self._create),
            (18, self._update),
            (8, self._change_access),
            (6, self._delete),
            (8, self._share),
            (12, self._pass_on),
            (6, self._follow_somebody),
            (7, self._answer_somebody),
            (5, self._decide_requests),
            (1, self._drop_sender),
        )
        (deed,) = self.rng.choices([deed for _, deed in deeds], [weight for weight, _ in deeds])
        name = deed.__name__.strip("_")
        try:
            await deed(node, person)
            self.done[name] += 1
        except InkgroveError as error:
            self.done[f"{name}: {error.code}"] += 1

    async def _names(self, node: SimulatedNode, person: Person, most: int) -> list[str]:
        """Some other people, whose nodes are asked who they are if that is not known yet."""
        others = [other for other in self.rng.sample(self.people, self.rng.randint(0, most)) if other is not person]
        for other in others:
            await node.discovery.find(other.fqdn)
        return [other.fqdn for other in others]

    def _ids(self, names: list[str]) -> list[IdentityId]:
        wanted = set(names)
        return [person.id for person in self.people if person.fqdn in wanted]

    async def _access(self, node: SimulatedNode, person: Person) -> tuple[Any, Access | None]:
        mode: Any = self.rng.choice(MODES)
        if mode == "none":
            return None, None
        if mode != "closed":
            return {"mode": mode}, Access(mode)
        names = await self._names(node, person, 3)
        by_name = {other.fqdn: other.id for other in self.people}
        return {"mode": mode, "to": names}, Access(mode, tuple(by_name[name] for name in names))

    async def _create(self, node: SimulatedNode, person: Person) -> None:
        access, word = await self._access(node, person)
        names = await self._names(node, person, 4)
        if word is not None and word.mode in ("self", "closed", "relations"):
            names = []
        if not node.is_up:
            return
        work = CreateInstance(str(SCHEMA), {"text": str(self.rng.random())}, access, None, names)
        body = node.publish(person, work).body
        instance = parse_hash(body["instance"])
        self._note_said(node, person, body, word, is_delete=False)
        if names:
            self.oracle.shared(instance, self._ids(names))
        self.living[person.id].append(instance)

    def _note_said(
        self, node: SimulatedNode, person: Person, body: dict[str, Any], word: Access | None, *, is_delete: bool
    ) -> None:
        entry = parse_hash(body["entry"])
        stored = node.node.store.read(find_entry, entry)
        assert stored is not None
        assert stored.payload is not None
        self.entry_of[stored.payload] = entry
        self.oracle.published(
            person.id, parse_hash(body["instance"]), body["seq_num"], entry, word, is_delete=is_delete
        )

    def _own(self, person: Person) -> Hash | None:
        living = self.living[person.id]
        # What is new is spoken of more often.
        return living[-min(len(living), int(self.rng.expovariate(0.2)) + 1)] if living else None

    async def _update(self, node: SimulatedNode, person: Person) -> None:
        instance = self._own(person)
        if instance is None:
            return
        text = str(self.rng.random())
        body = node.publish(person, ChangeInstance(instance, lambda old: {**old, "fields": {"text": text}})).body
        self._note_said(node, person, body, None, is_delete=False)

    async def _change_access(self, node: SimulatedNode, person: Person) -> None:
        instance = self._own(person)
        access, word = await self._access(node, person)
        if instance is None or word is None or not node.is_up:
            return
        work = ChangeInstance(instance, lambda old: {**old, "access": access}, "show")
        body = node.publish(person, work).body
        if body["changed"]:
            self._note_said(node, person, body, word, is_delete=False)

    async def _delete(self, node: SimulatedNode, person: Person) -> None:
        instance = self._own(person)
        if instance is not None:
            body = node.publish(person, DeleteInstance(instance)).body
            self._note_said(node, person, body, None, is_delete=True)
            self.living[person.id].remove(instance)

    async def _share(self, node: SimulatedNode, person: Person) -> None:
        instance = self._own(person)
        names = await self._names(node, person, 3)
        if instance is not None and names and node.is_up:
            node.publish(person, ShareInstance(instance, names))
            self.oracle.shared(instance, self._ids(names))

    async def _pass_on(self, node: SimulatedNode, person: Person) -> None:
        names = await self._names(node, person, 3)
        if not names or not node.is_up:
            return
        query = select(shares.c.instance).where(shares.c.identity == person.id).order_by(shares.c.instance)
        received = [Hash(item) for item in node.node.database.read(lambda c: c.scalars(query).all())]
        received = [item for item in received if self.oracle.stories[item].owner != person.id]
        if self.rng.random() < 0.3:  # what came by replication, or could have
            now = self.oracle.time
            public = (item for item, story in self.oracle.stories.items() if story.mode_at(now)[0] == "public")
            received = [item for item in public if self.oracle.stories[item].owner != person.id]
        if received:
            instance = self.rng.choice(received)
            node.publish(person, PassOnInstance(instance, names))
            self.oracle.passed_on(instance, person.id, self._ids(names))

    # Relations, as the routes move them

    async def _move(self, node: SimulatedNode, person: Person, other: Person, move: RelationMove) -> None:
        """A move, which is told now or later; those of a follower need that the other was once found."""
        known = await self._find(node, other)
        pair = (person.id, other.id) if move in ("request", "end") else (other.id, person.id)
        state = move_relation(node.node, *pair, move, tells=True)
        node.notice_relations()
        if other.domain != node.domain:
            try:
                await node.tell(person.id, known)
            except FederationError:
                self.done["not taken"] += 1
        if move == "accept" and state == "accepted" and node.is_up:
            release_waiting(node.node, person.id, other.id)
            node.outbox.wake()

    async def _find(self, node: SimulatedNode, other: Person) -> RemoteIdentity:
        try:
            return await node.discovery.find(other.fqdn)
        except FederationError:
            known = node.node.database.read(lambda c: find_remote_identity(c, other.id))
            if known is None:
                raise
            return known

    async def _follow_somebody(self, node: SimulatedNode, person: Person) -> None:
        other = self.rng.choice(self.people)
        if other is person:
            return
        await self._move(node, person, other, "end" if self.rng.random() < 0.2 else "request")

    async def _answer_somebody(self, node: SimulatedNode, person: Person) -> None:
        asking = [
            self.by_id[follower]
            for (domain, follower, followee), history in self.oracle.relations.items()
            if domain == node.domain and followee == person.id and history[-1][1] == "requested"
        ]
        moves: list[RelationMove] = ["accept", "accept", "accept", "refuse", "block", "remove"]
        move = self.rng.choice(moves)
        other = self.rng.choice(asking) if asking and self.rng.random() < 0.8 else self.rng.choice(self.people)
        if other is not person:
            await self._move(node, person, other, move)

    async def _decide_requests(self, node: SimulatedNode, person: Person) -> None:
        waiting = node.node.database.read(lambda c: list_requests(c, person.id))
        if not waiting:
            return
        chosen = self.rng.choice(waiting)
        via, one = chosen.via, self.rng.choice((chosen.instance, None))
        match self.rng.choice(("take", "take", "from now on", "from now on", "forget")):
            case "take":
                accept_waiting(node.node, person.id, via, one)
            case "from now on":
                accept_sender(node.node, person.id, via)
                self.oracle.takes_from(person.id, via, is_so=True)
            case "forget":
                discard_waiting(node.node, person.id, via, one)
                self.oracle.has_refused(person.id, via)
        node.outbox.wake()
        node.notice_relations()

    async def _drop_sender(self, node: SimulatedNode, person: Person) -> None:
        senders = self.oracle.taken_from(person.id)
        if senders:
            sender = self.rng.choice(senders)
            drop_sender(node.node, person.id, sender)
            self.oracle.takes_from(person.id, sender, is_so=False)

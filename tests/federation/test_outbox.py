"""The outbox in virtual time: a crash anywhere loses and doubles nothing, and bad nodes delay nobody."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from inkgrove.core import IdentityId, parse_hash
from inkgrove.federation.errors import PeerUnreachable
from inkgrove.federation.peers import PeerRequest, PeerResponse
from inkgrove.federation.sharing import DELIVERIES_PATH, accept_waiting, discard_waiting, release_waiting
from inkgrove.messages import DELIVERY_FORMAT, FieldChange, SchemaMeta, SchemaMigration, cbor, encode_message
from inkgrove.node.identity import move_relation
from inkgrove.node.publishing import ChangeInstance, CreateInstance, DeleteInstance, ShareInstance, find_held_instance
from inkgrove.node.runtime import Node, load_node_key
from inkgrove.store.federation import (
    QueueBackoff,
    add_sender,
    count_waiting_deliveries,
    list_move_recipients,
    list_requests,
    pending_of,
    put_backoff,
    read_backoffs,
    states_of,
)
from inkgrove.store.logs import find_log
from inkgrove.store.node import RelationState, find_relation_state, put_relation_state, shares_of
from tests.simulation.nodes import SETTINGS, VAULT, Person, SimulatedNode, copy_store
from tests.simulation.virtual import Handler, Network, VirtualLoop
from tests.simulation.world import SCHEMA
from tests.support.logs import LogBuilder, key


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty store."""
    place = tmp_path_factory.mktemp("template")
    Node(place, SETTINGS, home=place, vault=VAULT).close()
    return place


class Nodes:
    """jane on node a and somebody on each other node, who all know her."""

    def __init__(self, loop: VirtualLoop, template: Path, home: Path, letters: Sequence[str]) -> None:
        self.loop = loop
        self.network = Network(loop, Random(1))
        self.nodes: dict[str, SimulatedNode] = {}
        self.people: dict[str, Person] = {}
        self.failures: list[Any] = []
        loop.set_exception_handler(lambda _, context: self.failures.append(context))
        schema = LogBuilder(key(200))
        for message in (SchemaMeta("note"), SchemaMigration((FieldChange("text", "create", "text"),))):
            schema.append(encode_message(message))
        for number, letter in enumerate(letters):
            domain = f"{letter}.ink"
            copy_store(template, home / letter)
            node = SimulatedNode(domain, home / letter, self.network, loop, Random(number))
            node.start()
            node.node.store.ingest([(e.encoded, p) for e, p in zip(schema.entries, schema.payloads, strict=True)])
            self.nodes[letter] = node
            self.people[letter] = node.add_person("jane" if letter == "a" else "john")

    async def acquaint(self) -> None:
        jane = self.people["a"]
        for letter, person in self.people.items():
            if letter != "a":
                node = self.nodes[letter].node
                node.database.write(lambda c, me=person.id: put_relation_state(c, me, jane.id, "accepted", 0))  # type: ignore[misc]
                await self.nodes[letter].discovery.find(jane.fqdn)
                await self.nodes["a"].discovery.find(person.fqdn)

    def publish(self, work: Any) -> dict[str, Any]:
        return self.nodes["a"].publish(self.people["a"], work).body

    def send(self, text: str, letters: Sequence[str]) -> str:
        names = [self.people[letter].fqdn for letter in letters]
        instance: str = self.publish(CreateInstance(str(SCHEMA), {"text": text}, None, None, names))["instance"]
        return instance

    async def deliver(self, text: str, letters: Sequence[str]) -> str:
        mail = self.send(text, letters)
        await self.settled()
        return mail

    async def share(self, instance: str, letter: str) -> None:
        self.publish(ShareInstance(parse_hash(instance), [self.people[letter].fqdn]))
        await self.settled()

    def estrange(self, letter: str, state: RelationState) -> None:
        """Let somebody be no friend of jane's any more: she has asked to follow them, and this is how that stands."""
        jane, other = self.people["a"].id, self.people[letter].id
        for pair in ((other, jane), (jane, other)):
            self.nodes[letter].node.database.write(lambda c, pair=pair: put_relation_state(c, *pair, state, 0))  # type: ignore[misc, call-arg]

    def boxed(self, letter: str) -> list[str]:
        """The instances of jane's that wait in somebody's box."""
        found = self.nodes[letter].node.database.read(lambda c: list_requests(c, self.people[letter].id))
        return [item.instance.hex() for item in found]

    def states(self, instance: str) -> dict[str, str]:
        found = self.nodes["a"].node.database.read(lambda c: states_of(c, parse_hash(instance)))
        names = {person.id: letter for letter, person in self.people.items()}
        return {names[item.recipient]: item.state for item in found}

    def messages(self, letter: str, instance: str) -> int:
        held = self.nodes[letter].node.database.read(lambda c: find_held_instance(c, parse_hash(instance)))
        return len(held.messages) if held is not None else 0

    async def settled(self) -> None:
        """Wait until nothing is to be delivered; whoever has fallen over stands up again."""
        for _ in range(1000):
            for node in self.nodes.values():
                if not node.is_up:
                    node.start()
            if not self.nodes["a"].node.database.read(count_waiting_deliveries):
                return
            await asyncio.sleep(5)
        raise AssertionError(self.nodes["a"].node.database.read(read_backoffs))

    def stop(self) -> None:
        for node in self.nodes.values():
            if node.is_up:
                node.crash()


@contextmanager
def playing(
    template: Path, home: Path, letters: Sequence[str]
) -> Iterator[tuple[Nodes, Callable[[Coroutine[Any, Any, Any]], Any]]]:
    loop = VirtualLoop()
    asyncio.set_event_loop(loop)

    async def make() -> Nodes:
        made = Nodes(loop, template, home, letters)
        await made.acquaint()
        return made

    nodes = loop.run_until_complete(make())
    try:
        yield nodes, loop.run_until_complete
    finally:
        nodes.stop()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        asyncio.set_event_loop(None)
    assert nodes.failures == []


# Crashes


@pytest.mark.parametrize("falling", ["a", "b"])
def test_crash_between_any_two_steps_loses_and_doubles_nothing(template: Path, tmp_path: Path, falling: str) -> None:
    """A message, a change and the end of it; before each step that the sender or the receiver takes, it falls over."""
    step = 0
    with playing(template, tmp_path, "ab") as (nodes, play):
        while True:
            step += 1
            node = nodes.nodes[falling]
            node.steps_left = step

            async def deliver() -> tuple[str, str]:
                ended = nodes.send("short-lived", "b")
                mail = nodes.send("Hello", "b")
                await nodes.settled()
                nodes.publish(ChangeInstance(parse_hash(mail), lambda old: {**old, "fields": {"text": "Hello again"}}))
                nodes.publish(DeleteInstance(parse_hash(ended)))
                await nodes.settled()
                return mail, ended

            mail, ended = play(deliver())
            assert (nodes.messages("b", mail), nodes.messages("b", ended)) == (2, 2), step
            assert (nodes.states(mail), nodes.states(ended)) == ({"b": "delivered"}, {"b": "delivered"}), step
            there = nodes.nodes["b"].node
            instance = parse_hash(mail)
            assert there.database.read(lambda c, of=instance: shares_of(c, of)) == [nodes.people["b"].id], step  # type: ignore[misc]
            # Whoever lives through all of it took fewer steps than that.
            if node.steps_left:
                break
        assert step > 8
        assert there.store.read(find_log, nodes.people["a"].key, 1).held == 4 * step  # type: ignore[union-attr]


# Bad nodes


def test_dead_and_slow_nodes_delay_nobody(template: Path, tmp_path: Path) -> None:
    """The time until five honest nodes have twenty messages is the same with a dead and a slow node among them."""
    honest = "bcdef"

    async def measure(nodes: Nodes, letters: str) -> float:
        begun = nodes.loop.time()
        mails = []
        for number in range(20):
            mails.append(nodes.send(f"number {number}", letters))
            await asyncio.sleep(0.5)
        while not all(nodes.states(mail)[letter] == "delivered" for mail in mails[-1:] for letter in honest):
            await asyncio.sleep(0.1)
        assert all(nodes.messages(letter, mail) == 1 for mail in mails for letter in honest)
        return nodes.loop.time() - begun

    with playing(template, tmp_path, f"a{honest}yz") as (nodes, play):
        alone = play(measure(nodes, honest))
        handle = nodes.network.handlers["y.ink"]

        async def slowly(request: PeerRequest) -> PeerResponse:
            await asyncio.sleep(19)  # a second before it is given up
            return await handle(request)

        nodes.network.handlers["y.ink"] = slowly
        nodes.nodes["z"].crash()
        beside = play(measure(nodes, f"yz{honest}"))
        assert beside < 1.1 * alone
        assert beside < 15


def test_more_slow_nodes_than_are_served_at_once_delay_nobody(template: Path, tmp_path: Path) -> None:
    slow = [f"s{number}" for number in range(40)]
    with playing(template, tmp_path, ["a", "b", *slow]) as (nodes, play):

        async def measure() -> float:
            begun, mail = nodes.loop.time(), nodes.send("Hello", "b")
            async with asyncio.timeout(600):
                while nodes.states(mail)["b"] != "delivered":
                    await asyncio.sleep(0.1)
            return nodes.loop.time() - begun

        def slowed(handle: Handler) -> Handler:
            async def slowly(request: PeerRequest) -> PeerResponse:
                if request.url.endswith(DELIVERIES_PATH):
                    await asyncio.sleep(19)
                return await handle(request)

            return slowly

        async def deliver() -> None:
            alone = await measure()
            for letter in slow:
                nodes.network.handlers[f"{letter}.ink"] = slowed(nodes.network.handlers[f"{letter}.ink"])
            mail = nodes.send("Hello, slow ones", slow)
            await asyncio.sleep(0.5)
            assert await measure() < 6, "it is not known yet who is slow"
            for _ in range(5):
                nodes.send("Hello again", slow)
                await asyncio.sleep(30)
                assert await measure() < 1.5 * alone
            await nodes.settled()
            assert set(nodes.states(mail).values()) == {"delivered"}

        play(deliver())


def test_node_that_answers_garbage_is_tried_less_and_less(template: Path, tmp_path: Path) -> None:
    answers = [
        PeerResponse(200, (), b"\xff\xff"),
        PeerResponse(
            200,
            (),
            cbor.encode(
                {"form": DELIVERY_FORMAT, "receipts": [{"instance": 2**40, "recipient": 1, "fate": "accepted"}]}
            ),
        ),
        PeerResponse(429, (("Retry-After", "9" * 5000),), b""),
        PeerResponse(503, (("Retry-After", "999999999"),), b""),
        PeerResponse(200, (), cbor.encode({"form": DELIVERY_FORMAT, "receipts": None})),
    ]
    tried: list[float] = []
    with playing(template, tmp_path, "abz") as (nodes, play):
        handle = nodes.network.handlers["z.ink"]

        async def garble(request: PeerRequest) -> PeerResponse:
            if not request.url.endswith(DELIVERIES_PATH):
                return await handle(request)
            tried.append(nodes.loop.time())
            return answers[len(tried) % len(answers)]

        async def deliver() -> str:
            nodes.network.handlers["z.ink"] = garble
            mail = nodes.send("Hello", "bz")
            await asyncio.sleep(20)
            assert nodes.states(mail) == {"b": "delivered", "z": "waiting"}
            await asyncio.sleep(20_000)
            assert nodes.states(mail) == {"b": "delivered", "z": "waiting"}
            nodes.network.handlers["z.ink"] = handle
            await nodes.settled()
            return mail

        mail = play(deliver())
        assert nodes.messages("z", mail) == 1
        assert 8 < len(tried) < 30
        waits = [later - earlier for earlier, later in pairwise(tried)]
        assert max(waits[-3:]) > 20 * max(waits[:2])


def test_node_that_asks_for_patience_gets_it(template: Path, tmp_path: Path) -> None:
    tried: list[float] = []
    with playing(template, tmp_path, "az") as (nodes, play):
        handle = nodes.network.handlers["z.ink"]

        async def be_busy(request: PeerRequest) -> PeerResponse:
            if not request.url.endswith(DELIVERIES_PATH):
                return await handle(request)
            tried.append(nodes.loop.time())
            return await handle(request) if len(tried) > 1 else PeerResponse(429, (("Retry-After", "700"),), b"")

        async def deliver() -> str:
            nodes.network.handlers["z.ink"] = be_busy
            return await nodes.deliver("Hello", "z")

        mail = play(deliver())
        assert nodes.states(mail) == {"z": "delivered"}
    first, second = tried
    assert 700 <= second - first < 750


def test_queue_that_failed_by_a_wrong_clock_does_not_wait_for_that_time(template: Path, tmp_path: Path) -> None:
    with playing(template, tmp_path, "az") as (nodes, play):
        sender, year = nodes.nodes["a"].node, 365 * 86_400_000_000
        there = load_node_key(nodes.nodes["z"].node).public
        target = f"node {there.hex()}"
        ahead = QueueBackoff(1, sender.clock() + year, sender.clock() + year, "the clock was wrong")
        sender.database.write(lambda connection: put_backoff(connection, target, ahead))
        mail = play(nodes.deliver("Hello", "z"))
        assert nodes.states(mail) == {"z": "delivered"}


def test_what_waits_too_long_is_given_up_by_its_own_age(template: Path, tmp_path: Path) -> None:
    with playing(template, tmp_path, "az") as (nodes, play):
        sender = nodes.nodes["a"].node
        sender.settings = replace(sender.settings, give_up_seconds=20_000)
        nodes.nodes["z"].crash()

        async def deliver() -> None:
            early = nodes.send("early", "z")
            await asyncio.sleep(15_000)
            late = nodes.send("late", "z")
            while nodes.states(early)["z"] == "waiting":
                await asyncio.sleep(60)
            assert (nodes.states(early), nodes.states(late)) == ({"z": "given-up"}, {"z": "waiting"})
            (state,) = sender.database.read(lambda c: states_of(c, parse_hash(early)))
            assert state.code == "federation.unreachable"
            await nodes.settled()  # it stands up again
            assert (nodes.messages("z", early), nodes.messages("z", late)) == (0, 1)
            await nodes.share(early, "z")
            assert (nodes.states(early), nodes.messages("z", early)) == ({"z": "delivered"}, 1)

        play(deliver())


def test_instance_that_changes_all_the_time_keeps_nobody_else_out(template: Path, tmp_path: Path) -> None:
    with playing(template, tmp_path, "ab") as (nodes, play):
        here, john = nodes.nodes["a"], nodes.people["b"]
        ben = here.add_person("ben")

        async def deliver() -> None:
            await nodes.nodes["b"].discovery.find(ben.fqdn)
            ticker = await nodes.deliver("0", "b")

            async def tick() -> None:
                for number in range(1, 500):
                    new = {"fields": {"text": str(number)}}
                    nodes.publish(ChangeInstance(parse_hash(ticker), lambda old, new=new: {**old, **new}))  # type: ignore[misc]
                    await asyncio.sleep(0.02)

            ticking = asyncio.create_task(tick())
            await asyncio.sleep(0.5)
            create = CreateInstance(str(SCHEMA), {"text": "from ben"}, None, None, [john.fqdn])
            letter = here.publish(ben, create).body["instance"]
            await asyncio.sleep(2)
            assert not ticking.done()
            assert nodes.states(letter) == {"b": "held"}
            await ticking
            await nodes.settled()
            assert (nodes.states(ticker), nodes.messages("b", ticker)) == ({"b": "delivered"}, 500)

        play(deliver())


def test_what_changes_often_is_given_up_all_the_same(template: Path, tmp_path: Path) -> None:
    with playing(template, tmp_path, "az") as (nodes, play):
        sender = nodes.nodes["a"].node
        sender.settings = replace(sender.settings, give_up_seconds=20_000)
        nodes.nodes["z"].crash()

        async def change() -> None:
            mail = nodes.send("Hello", "z")
            number = 0
            for number in range(12):
                await asyncio.sleep(3_000)
                if nodes.states(mail) == {"z": "given-up"}:
                    break
                new = {"fields": {"text": str(number)}}
                nodes.publish(ChangeInstance(parse_hash(mail), lambda old, new=new: {**old, **new}))  # type: ignore[misc]
            assert 6 <= number <= 9
            nodes.publish(ChangeInstance(parse_hash(mail), lambda old: {**old, "fields": {"text": "at last"}}))
            assert nodes.states(mail) == {"z": "waiting"}, "a new message tries again"
            await nodes.settled()
            assert (nodes.states(mail), nodes.messages("z", mail)) == ({"z": "delivered"}, number + 2)

        play(change())


def test_node_that_is_dead_for_months_is_still_tried_and_given_up(template: Path, tmp_path: Path) -> None:
    with playing(template, tmp_path, "az") as (nodes, play):
        sender = nodes.nodes["a"].node
        nodes.nodes["z"].crash()

        async def deliver() -> None:
            mail = nodes.send("Hello", "z")
            await asyncio.sleep(60)
            for target, trouble in sender.database.read(read_backoffs).items():
                old = replace(trouble, failures=5000, next_try=0)
                sender.database.write(lambda c, target=target, old=old: put_backoff(c, target, old))  # type: ignore[misc]
            before = nodes.network.tried
            await asyncio.sleep(20_000)
            failures = [trouble.failures for trouble in sender.database.read(read_backoffs).values()]
            assert 5000 < max(failures) < 5020
            assert nodes.network.tried - before < 40
            sender.settings = replace(sender.settings, give_up_seconds=1000)
            await asyncio.sleep(6_000)
            assert nodes.states(mail) == {"z": "given-up"}
            assert sender.database.read(read_backoffs)
            await asyncio.sleep(2 * 86_400)
            assert not sender.database.read(read_backoffs), "nothing waits for it any more"

        play(deliver())


def test_what_nobody_expected_stops_one_node_for_a_while_and_no_other(template: Path, tmp_path: Path) -> None:
    tried: list[float] = []
    with playing(template, tmp_path, "abz") as (nodes, play):
        send = nodes.network.send

        async def stumble(sender: str, request: PeerRequest) -> PeerResponse:
            if request.url == f"https://john.z.ink{DELIVERIES_PATH}":
                tried.append(nodes.loop.time())
                if len(tried) < 4:
                    raise ZeroDivisionError("what nobody expected")
            return await send(sender, request)

        async def deliver() -> None:
            nodes.network.send = stumble  # type: ignore[method-assign]
            mail = nodes.send("Hello", "bz")
            await asyncio.sleep(20)
            assert nodes.states(mail) == {"b": "delivered", "z": "waiting"}
            await nodes.settled()
            assert nodes.states(mail) == {"b": "delivered", "z": "delivered"}

        play(deliver())
    assert len(tried) == 4
    assert all(30 <= later - earlier < 60 for earlier, later in pairwise(tried))


def test_lost_answers_are_asked_for_again_and_change_nothing(template: Path, tmp_path: Path) -> None:
    with playing(template, tmp_path, "ab") as (nodes, play):
        handle = nodes.network.handlers["b.ink"]
        taken: list[int] = []

        async def silent(request: PeerRequest) -> PeerResponse:
            answer = await handle(request)
            taken.append(answer.status)
            if len(taken) < 4:
                raise PeerUnreachable("the answer is lost")
            return answer

        async def deliver() -> str:
            nodes.network.handlers["b.ink"] = silent
            mail = nodes.send("Hello", "b")
            await nodes.settled()
            return mail

        mail = play(deliver())
        assert nodes.messages("b", mail) == 1
        assert taken[:4] == [200] * 4
        held = nodes.nodes["b"].node.store.read(find_log, nodes.people["a"].key, 1)
        assert held is not None
        assert held.held == 1


def test_move_is_not_lost_when_a_proxy_fails_for_a_moment(template: Path, tmp_path: Path) -> None:
    with playing(template, tmp_path, "ab") as (nodes, play):
        here, there = nodes.nodes["a"], nodes.nodes["b"]
        jane, john = nodes.people["a"], nodes.people["b"]
        here.node.database.write(lambda c: put_relation_state(c, john.id, jane.id, "accepted", 0))
        handle = nodes.network.handlers["a.ink"]

        async def fail(request: PeerRequest) -> PeerResponse:
            return PeerResponse(502, (), b"Bad Gateway")

        async def move() -> None:
            await asyncio.sleep(3700)  # what john's node knows of jane has expired
            nodes.network.handlers["a.ink"] = fail
            move_relation(here.node, john.id, jane.id, "remove", tells=True)
            here.outbox.wake()
            await asyncio.sleep(20)
            assert there.node.database.read(lambda c: find_relation_state(c, john.id, jane.id)) == "accepted"
            nodes.network.handlers["a.ink"] = handle
            await asyncio.sleep(600)

        play(move())
        assert there.node.database.read(lambda c: find_relation_state(c, john.id, jane.id)) is None
        assert here.node.database.read(list_move_recipients) == []


# Sent again


def test_what_was_refused_goes_again_to_those_whom_it_is_shared_with_again(template: Path, tmp_path: Path) -> None:
    with playing(template, tmp_path, "abc") as (nodes, play):
        nodes.estrange("b", "blocked")
        mail = play(nodes.deliver("Hello", "bc"))
        assert nodes.states(mail) == {"b": "refused", "c": "delivered"}
        nodes.estrange("b", "accepted")
        play(nodes.share(mail, "c"))
        assert nodes.states(mail) == {"b": "refused", "c": "delivered"}  # nobody has asked for that one
        play(nodes.share(mail, "b"))
        assert nodes.states(mail) == {"b": "delivered", "c": "delivered"}
        assert nodes.messages("b", mail) == 1


def test_request_that_was_refused_waits_again_when_it_is_shared_again(template: Path, tmp_path: Path) -> None:
    with playing(template, tmp_path, "ab") as (nodes, play):
        nodes.estrange("b", "refused")
        jane, john, there = nodes.people["a"].id, nodes.people["b"].id, nodes.nodes["b"].node
        mail = play(nodes.deliver("Hello", "b"))
        assert (nodes.states(mail), nodes.boxed("b")) == ({"b": "held"}, [mail])
        discard_waiting(there, john, jane)
        assert nodes.boxed("b") == []
        play(nodes.share(mail, "b"))
        assert (nodes.states(mail), nodes.boxed("b")) == ({"b": "held"}, [mail])
        accept_waiting(there, john, jane)
        assert nodes.messages("b", mail) == 1


def test_change_brings_what_was_refused_before_even_if_others_there_have_a_part(template: Path, tmp_path: Path) -> None:
    """A refusal is told to nobody, and what a node holds for one identity need not be all that another should have."""
    with playing(template, tmp_path, "ab") as (nodes, play):
        nodes.estrange("b", "refused")
        jane, john, there = nodes.people["a"], nodes.people["b"], nodes.nodes["b"]
        nodes.people["ann"] = ann = there.add_person("ann")

        def put(me: IdentityId, state: RelationState) -> None:
            there.node.database.write(lambda c: put_relation_state(c, jane.id, me, state, 0))

        async def change(text: str) -> None:
            nodes.publish(ChangeInstance(parse_hash(mail), lambda old: {**old, "fields": {"text": text}}))
            await nodes.settled()

        put(ann.id, "accepted")
        play(nodes.nodes["a"].discovery.find(ann.fqdn))
        mail = play(nodes.deliver("Hello", ["ann"]))
        put(ann.id, "blocked")
        play(change("Hello again"))
        assert nodes.messages("b", mail) == 1
        play(nodes.share(mail, "b"))
        assert nodes.boxed("b") == [mail]
        discard_waiting(there.node, john.id, jane.id)
        put(john.id, "accepted")
        play(change("Hello for the third time"))
        assert nodes.states(mail) == {"ann": "refused", "b": "delivered"}
        assert nodes.messages("b", mail) == 3


def test_share_is_not_lost_while_the_receipt_of_the_one_before_is_under_way(template: Path, tmp_path: Path) -> None:
    with playing(template, tmp_path, "ab") as (nodes, play):
        nodes.estrange("b", "refused")
        jane, john, there = nodes.people["a"].id, nodes.people["b"].id, nodes.nodes["b"].node
        handle = nodes.network.handlers["b.ink"]
        sent: list[str] = []

        async def refuse_once(request: PeerRequest) -> PeerResponse:
            answer = await handle(request)
            if request.url.endswith(DELIVERIES_PATH):
                (mail,) = nodes.boxed("b")
                sent.append(mail)
                if len(sent) == 1:
                    discard_waiting(there, john, jane)
                    nodes.publish(ShareInstance(parse_hash(mail), [nodes.people["b"].fqdn]))
            return answer

        nodes.network.handlers["b.ink"] = refuse_once
        mail = play(nodes.deliver("Hello", "b"))
        assert sent == [mail, mail]
        assert (nodes.states(mail), nodes.boxed("b")) == ({"b": "held"}, [mail])


def test_receipt_that_is_older_than_the_word_of_the_recipient_does_not_count(template: Path, tmp_path: Path) -> None:
    with playing(template, tmp_path, "ab") as (nodes, play):
        nodes.estrange("b", "refused")
        jane, john, there = nodes.people["a"].id, nodes.people["b"].id, nodes.nodes["b"]
        handle = nodes.network.handlers["b.ink"]

        async def accept_first(request: PeerRequest) -> PeerResponse:
            answer = await handle(request)
            if request.url.endswith(DELIVERIES_PATH) and nodes.boxed("b"):
                move_relation(there.node, jane, john, "accept", tells=True)
                release_waiting(there.node, john, jane)
                there.outbox.wake()
                await asyncio.sleep(5)  # jane's node is told of it before it hears what became of its request
            return answer

        nodes.network.handlers["b.ink"] = accept_first
        mail = play(nodes.deliver("Hello", "b"))
        assert (nodes.states(mail), nodes.messages("b", mail)) == ({"b": "delivered"}, 1)


# Names that are not found at once


def test_name_that_was_not_found_is_looked_for_until_it_is_or_its_time_is_over(template: Path, tmp_path: Path) -> None:
    with playing(template, tmp_path, "ab") as (nodes, play):
        here, there = nodes.nodes["a"], nodes.nodes["b"]
        here.node.settings = replace(here.node.settings, give_up_seconds=20_000)
        mary = there.add_person("mary")  # of whom jane's node has never heard
        there.node.database.write(lambda c: add_sender(c, mary.id, nodes.people["a"].id, 0))
        there.crash()
        names = ["mary.b.ink", "nobody.b.ink", "mary.gone.ink"]

        def send(access: Any = None, later: Sequence[str] = names) -> str:
            work = CreateInstance(str(SCHEMA), {"text": "Hello"}, access, None, (), pending_names=later)
            body = nodes.publish(work)
            assert body["not_found_yet"] == sorted(later)
            instance: str = body["instance"]
            return instance

        def pending(mail: str) -> dict[str, tuple[str, str | None]]:
            found = here.node.database.read(lambda c: pending_of(c, parse_hash(mail), nodes.people["a"].id))
            return {item.name: (item.state, item.code) for item in found}

        mail, public, ended, closed = send(), send({"mode": "public"}), send(), send()
        not_yet = ("waiting", "federation.not-found-yet")
        assert pending(mail) == dict.fromkeys(names, not_yet)
        play(asyncio.sleep(600))
        assert pending(mail) == dict.fromkeys(names, not_yet)
        # Meanwhile one has ended, and another is for somebody else now.
        nodes.publish(DeleteInstance(parse_hash(ended)))
        only = {"mode": "closed", "to": [nodes.people["b"].fqdn]}
        nodes.publish(ChangeInstance(parse_hash(closed), lambda old: {**old, "access": only}, "show"))

        async def start() -> None:
            there.start()
            await asyncio.sleep(8_000)

        play(start())
        nobody = {"nobody.b.ink": ("refused", "federation.no-identity-there"), "mary.gone.ink": not_yet}
        assert pending(mail) == pending(public) == nobody
        assert pending(closed) == {**nobody, "mary.b.ink": ("refused", "federation.not-addressed")}
        assert [nodes.messages("b", item) for item in (mail, public, ended)] == [1, 1, 0]
        shown = there.node.database.read(lambda c: [shares_of(c, parse_hash(item)) for item in (mail, public, closed)])
        assert shown == [[mary.id], [mary.id], [nodes.people["b"].id]]
        play(asyncio.sleep(30_000))
        assert pending(mail)["mary.gone.ink"] == ("given-up", "federation.unreachable")
        # To send it again looks again.
        nodes.publish(ShareInstance(parse_hash(mail), (), ["mary.gone.ink"]))
        assert pending(mail)["mary.gone.ink"] == not_yet

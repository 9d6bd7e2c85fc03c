"""Nodes that mean no good: what they send and what they answer is refused with a code, and nobody else suffers."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import httpx
import pytest

from examples.demo.ports import free_port
from inkgrove.core import Hash, IdentityId, certificate_pool, decode_entry, hash_entry, identity_of
from inkgrove.core.limits import MAX_PAYLOAD_BYTES
from inkgrove.federation.errors import BadAnswer
from inkgrove.federation.peers import HttpTransport, PeerRequest, PeerResponse, sign_request
from inkgrove.federation.sharing import DELIVERIES_PATH, read_receipts, receive_parcel
from inkgrove.messages import (
    DELIVERY_FORMAT,
    DELIVERY_MEDIA_TYPE,
    MAX_DELIVERY_ENTRIES,
    MAX_PARCEL_RECIPIENTS,
    MAX_PARCELS,
    Create,
    Delete,
    Delivery,
    FieldChange,
    Message,
    Parcel,
    SchemaMeta,
    SchemaMigration,
    SchemaVersion,
    cbor,
    decode_delivery,
    encode_delivery,
    encode_message,
)
from inkgrove.node.identity import create_identity
from inkgrove.node.publishing import DeliveryDecision, find_held_instance
from inkgrove.node.runtime import Node, load_node_key
from inkgrove.node.settings import NodeSettings
from inkgrove.reference import fold_views
from inkgrove.store.logs import find_fork_proof, find_log, read_entries
from inkgrove.store.node import put_relation_state
from tests.support.errors import raises
from tests.support.federated import federation, until, wait_for
from tests.support.logs import LogBuilder, key, resign
from tests.support.peers import run
from tests.support.publishing import create, make_schema
from tests.support.replication import held
from tests.support.views import held_by

SCHEMA = SchemaVersion(key(7).public, 1, 2)
JANE = identity_of(key(1).public)

# Forks


def forked() -> tuple[LogBuilder, LogBuilder]:
    """Two histories of one log that part after its first entry: one for john, another for alice."""
    one = LogBuilder()
    one.append(encode_message(Create(SCHEMA, {"text": "Hello, all"})))
    other = LogBuilder()
    other.entries, other.payloads = one.entries[:], one.payloads[:]
    one.append(encode_message(Create(SCHEMA, {"text": "Hello, john"})))
    other.append(encode_message(Create(SCHEMA, {"text": "Hello, alice"})))
    return one, other


def parcel(log: LogBuilder, seq_num: int, to: IdentityId) -> Parcel:
    entries = [
        (log.entry(n).encoded, log.payloads[n - 1] if n == seq_num else None)
        for n in certificate_pool(seq_num, len(log.entries))
    ]
    return Parcel(log.hash(seq_num), (to,), entries)


def texts(node: Node) -> set[object]:
    """The rows of a node."""
    schema = LogBuilder(key(7))
    for message in (SchemaMeta("note"), SchemaMigration((FieldChange("text", "create", "text"),))):
        schema.append(encode_message(message))
    node.store.ingest([(e.encoded, p) for e, p in zip(schema.entries, schema.payloads, strict=True)])
    views = fold_views(held_by(node.store), [SCHEMA.schema_id])
    return {row.fields["text"] for view in views for row in view.rows}


def test_forks_shown_to_different_nodes_come_to_light_when_they_meet(node: Node, tmp_path: Path) -> None:
    one, other = forked()
    away = Node(tmp_path / "away", NodeSettings(), home=tmp_path / "away", clock=node.clock)
    try:
        john = create_identity(node, "john.b.ink", None).id
        alice = create_identity(away, "alice.c.ink", None).id
        for place, who in ((node, john), (away, alice)):
            place.database.write(lambda c, who=who: put_relation_state(c, who, JANE, "accepted", 0))  # type: ignore[misc]
        node.database.write(lambda c: put_relation_state(c, john, alice, "accepted", 0))
        for place, log, who in ((node, one, john), (away, other, alice)):
            for seq_num in (1, 2):
                (receipt,) = receive_parcel(place, JANE, parcel(log, seq_num, who))
                assert receipt.decision is DeliveryDecision.ACCEPTED
        assert texts(node) == {"Hello, all", "Hello, john"}
        assert texts(away) == {"Hello, all", "Hello, alice"}
        # alice passes hers on to john.
        (receipt,) = receive_parcel(node, alice, parcel(other, 2, john))
        assert (receipt.decision, receipt.code) == (DeliveryDecision.REFUSED, "log.forked")
        assert texts(node) == {"Hello, all"}  # neither branch counts
        proof = node.store.read(find_fork_proof, key(1).public, 1)
        assert proof is not None
        # And nothing that is said later in either of them.
        one.append(encode_message(Create(SCHEMA, {"text": "Hello again"})))
        (receipt,) = receive_parcel(node, JANE, parcel(one, 3, john))
        assert (receipt.decision, receipt.code) == (DeliveryDecision.REFUSED, "log.forked")
        assert texts(node) == {"Hello, all"}
        # What proves it to john's node proves it to hers.
        away.store.ingest([(item.entry.encoded, None) for item in node.store.read(read_entries, key(1).public, 1)])
        assert texts(away) == {"Hello, all"}
    finally:
        away.close()


def branches() -> dict[str, LogBuilder]:
    """Histories that part after a note: one goes on, one deletes it at once, one says something else before that."""
    trunk = LogBuilder()
    trunk.append(encode_message(Create(SCHEMA, {"text": "I regret this"})))
    said: dict[str, list[Message]] = {
        "goes on": [Create(SCHEMA, {"text": "More"})],
        "deletes": [Delete(trunk.hash(1), SCHEMA)],
        "deletes later": [Create(SCHEMA, {"text": "Other"}), Delete(1)],
    }
    built = {name: LogBuilder() for name in said}
    for name, log in built.items():
        log.entries, log.payloads = trunk.entries[:], trunk.payloads[:]
        for message in said[name]:
            log.append(encode_message(message))
    return built


@pytest.mark.parametrize("other", ["deletes", "deletes later"])
@pytest.mark.parametrize("is_delete_first", [True, False])
@pytest.mark.parametrize("is_fork_known", [True, False])
def test_delete_in_any_branch_counts_whatever_came_first(
    node: Node, other: str, is_delete_first: bool, is_fork_known: bool
) -> None:
    john = create_identity(node, "john.b.ink", None).id
    node.database.write(lambda c: put_relation_state(c, john, JANE, "accepted", 0))
    one, ending = branches()["goes on"], branches()[other]
    delete = parcel(ending, len(ending.entries), john)
    parcels = [parcel(one, 2, john), Parcel(one.hash(1), delete.recipients, delete.entries)]
    assert receive_parcel(node, JANE, parcel(one, 1, john))[0].decision is DeliveryDecision.ACCEPTED
    if is_fork_known:  # as a proof tells it, without payloads
        for log in (one, ending):
            node.store.ingest([(entry.encoded, None) for entry in log.entries])
    for item in reversed(parcels) if is_delete_first else parcels:
        receive_parcel(node, JANE, item)
    assert texts(node) == set()
    # Both again: nothing of the branches is taken, and the second time no more than the first.
    before = [(item.hash, item.payload) for item in node.store.read(read_entries, key(1).public, 1)]
    for item in parcels:
        assert receive_parcel(node, JANE, item)[0].code == "log.forked"
    assert [(item.hash, item.payload) for item in node.store.read(read_entries, key(1).public, 1)] == before
    instance = node.database.read(lambda c: find_held_instance(c, one.hash(1)))
    assert instance is not None
    assert instance.is_deleted  # so nobody gets it from here


def test_one_delete_behind_a_fork_is_kept_of_an_instance(node: Node) -> None:
    john = create_identity(node, "john.b.ink", None).id
    node.database.write(lambda c: put_relation_state(c, john, JANE, "accepted", 0))
    one, ending = branches()["goes on"], branches()["deletes"]
    for seq_num in (1, 2):
        receive_parcel(node, JANE, parcel(one, seq_num, john))
    for _ in range(5):
        ending.append(encode_message(Delete(1)))
    for seq_num in range(2, 8):
        delete = parcel(ending, seq_num, john)
        receive_parcel(node, JANE, Parcel(one.hash(1), delete.recipients, delete.entries))
    payloads = [item.payload for item in node.store.read(read_entries, key(1).public, 1) if item.payload is not None]
    assert sorted(payloads) == sorted([*one.payloads, ending.payloads[1]])


# Lies about sizes


def lie_in(log: LogBuilder, payload: bytes, *, via: IdentityId, to: IdentityId, node: Node) -> str | None:
    """Deliver an entry that says that its payload, of 64 KiB or more, has 5 bytes; the code of the receipt."""
    unsigned = log.append(payload).encoded[:-64]
    told = decode_entry(resign(log.secret, unsigned[:-70] + b"\x05" + unsigned[-66:] + bytes(64)))
    assert (told.payload_size, len(payload) > 0xFFFF) == (5, True)
    pool = [(entry.encoded, None) for entry in log.entries[:-1]]
    (receipt,) = receive_parcel(node, via, Parcel(hash_entry(told), (to,), [*pool, (told.encoded, payload)]))
    return receipt.code


def test_lies_of_strangers_and_lies_to_nobody_leave_nothing(node: Node) -> None:
    john, friend = create_identity(node, "john.b.ink", None).id, identity_of(key(30).public)
    node.database.write(lambda c: put_relation_state(c, john, friend, "accepted", 0))
    known = LogBuilder(key(31))
    known.append(encode_message(Create(SCHEMA, {"text": "Hello"})))
    node.store.ingest([(known.entry(1).encoded, known.payloads[0])])
    before = held(node)
    nobody = IdentityId(bytes(32))
    for log, via, to in (
        (LogBuilder(key(32)), JANE, john),
        (LogBuilder(key(33)), friend, nobody),
        (LogBuilder(key(34)), friend, john),  # nothing of the log is here that it could do harm to
        (LogBuilder(key(31)), friend, nobody),
        (known, JANE, john),
    ):
        assert lie_in(log, b"x" * 100_000, via=via, to=to, node=node) == "payload.size-mismatch"
        assert held(node) == before
    known.entries, known.payloads = known.entries[:1], known.payloads[:1]
    assert lie_in(known, b"x" * 100_000, via=friend, to=john, node=node) == "payload.size-mismatch"
    state = node.store.read(find_log, key(31).public, 1)
    assert state is not None
    assert state.standing.lied_at == 2


def test_payload_above_the_limit_is_refused_before_it_is_hashed(node: Node) -> None:
    john = create_identity(node, "john.b.ink", None).id
    node.database.write(lambda c: put_relation_state(c, john, JANE, "accepted", 0))
    log = LogBuilder()
    log.append(encode_message(Create(SCHEMA, {"text": "Hello"})))
    assert receive_parcel(node, JANE, parcel(log, 1, john))[0].decision is DeliveryDecision.ACCEPTED
    before = held(node)
    too_large = b"x" * (MAX_PAYLOAD_BYTES + 1)
    assert lie_in(log, too_large, via=JANE, to=john, node=node) == "message.too-large"
    entries = [(log.entry(1).encoded, too_large)]  # it is not even asked whose payload it is
    assert receive_parcel(node, JANE, Parcel(log.hash(1), (john,), entries))[0].code == "message.too-large"
    assert held(node) == before


# Deliveries that are too large


@pytest.mark.parametrize(
    ("parcels", "recipients", "entries"),
    [
        (MAX_PARCELS + 1, 1, 1),
        (1, MAX_PARCEL_RECIPIENTS + 1, 1),
        (1, 1, MAX_DELIVERY_ENTRIES + 1),
        (0, 1, 1),
        (1, 0, 1),
        (1, 1, 0),
    ],
)
def test_delivery_with_too_much_or_nothing_in_it_is_refused(parcels: int, recipients: int, entries: int) -> None:
    one = Parcel(Hash(b"\x00\x40" + bytes(64)), (JANE,) * recipients, [(b"entry", None)] * entries)
    body = encode_delivery(Delivery(JANE, [one] * parcels))
    with raises("parcel.bad"):
        decode_delivery(body)


# What a node answers


@pytest.mark.parametrize(
    "receipts",
    [
        [{"instance": 2**40, "recipient": bytes(32), "fate": "accepted"}],
        [{"instance": bytes(66), "recipient": 2**40, "fate": "accepted"}],
        [{"instance": [0], "recipient": bytes(32), "fate": "accepted"}],
        [{"instance": bytes(66), "fate": "accepted"}],
        [{"recipient": bytes(32), "instance": bytes(66)}],
        ["accepted"],
        [["fate"]],
        [None],
        {"fate": "accepted"},
        None,
        7,
    ],
)
def test_garbage_in_place_of_receipts_is_a_bad_answer(receipts: cbor.Value) -> None:
    with pytest.raises(BadAnswer):
        read_receipts(PeerResponse(200, (), cbor.encode({"form": DELIVERY_FORMAT, "receipts": receipts})))


@pytest.mark.parametrize(
    "body", [b"", b"\xff" * 100, b"<html>", b"\x81" * 5000, cbor.encode([DELIVERY_FORMAT]), cbor.encode({})]
)
def test_bytes_that_are_no_receipts_at_all_are_a_bad_answer(body: bytes) -> None:
    with pytest.raises(BadAnswer):
        read_receipts(PeerResponse(200, (), body))


@pytest.mark.parametrize(
    ("said", "wait"),
    [
        ("30", 30),
        ("999999999", 3600),
        ("9" * 5000, None),
        ("-1", None),
        ("soon", None),
        ("٣", None),
        ("1e9", None),
        ("Mon, 16 Nov 2026 10:01:30 GMT", 90),
        ("Mon, 16 Nov 2026 09:00:00 GMT", 0),
        ("Mon, 16 Nov 9999 09:00:00 GMT", 3600),
        ("Mon, 99 Nov 2026 09:00:00 GMT", None),
    ],
)
def test_nobody_makes_a_node_wait_for_ever(said: str, wait: int | None) -> None:
    with pytest.raises(BadAnswer) as caught:
        read_receipts(PeerResponse(429, (("Retry-After", said), ("Date", "Mon, 16 Nov 2026 10:00:00 GMT")), b""))
    assert caught.value.data["retry_after"] == wait


# Over the network


@pytest.fixture
def mallory(tmp_path: Path) -> Iterator[tuple[int, list[bytes]]]:
    """A server at *.eve.ink that answers whatever comes with garbage, each time other garbage; its port."""
    heard: list[bytes] = []
    answers = [
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n\xff\xff\xff\xff",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n{",
        b"HTTP/1.1 429 No\r\nRetry-After: " + b"9" * 5000 + b"\r\nContent-Length: 0\r\n\r\n",
        b"\x00\x01\x02 garbage\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/\r\nContent-Length: 0\r\n\r\n",
        b"",
    ]
    server = socket.create_server(("127.0.0.1", free_port()))
    server.settimeout(0.1)
    is_over = False

    def serve() -> None:
        while not is_over:
            try:
                connection, _ = server.accept()
            except TimeoutError:
                continue
            with connection:
                connection.settimeout(2)
                heard.append(connection.recv(65536))
                connection.sendall(answers[len(heard) % len(answers)])

    thread = Thread(target=serve, daemon=True)
    thread.start()
    yield server.getsockname()[1], heard
    is_over = True
    thread.join()
    server.close()


def signed(node: Node, sender: str, to: str, body: bytes, *, age: int = 0) -> PeerRequest:
    """A delivery as a node signs it, now or some seconds ago."""
    request = PeerRequest("POST", f"https://{to}{DELIVERIES_PATH}", (("Content-Type", DELIVERY_MEDIA_TYPE),), body)
    now = node.clock() - age * 1_000_000
    return sign_request(request, load_node_key(node), sender=sender, now=now, nonce=node.random_bytes(16).hex())


def test_hostile_requests_are_refused_while_honest_ones_are_served(
    tmp_path: Path, mallory: tuple[int, list[bytes]]
) -> None:
    port, heard = mallory
    with federation(tmp_path, "ab", resolve=(f"*.eve.ink=127.0.0.1:{port}",), body_seconds=2) as them:
        jane, john = them.person("jane", "a"), them.person("john", "b")
        them.acquaint(jane, john)
        schema = make_schema(jane)
        first = create(jane, schema, recipients=["john.b.ink"])["instance"]
        wait_for(jane, first, john_b="delivered")
        node, target = them.nodes["a"].node, them.nodes["b"]
        before = them.count_entries("b")

        def send(*requests: PeerRequest) -> list[tuple[int, str]]:
            async def work() -> list[PeerResponse]:
                async with HttpTransport(node.settings) as transport:
                    return [await transport.send(request) for request in requests]

            answers = run(work())
            return [(answer.status, httpx.Response(200, content=answer.body).json()["code"]) for answer in answers]

        # Replayed, stale, from the future, for somebody else, by a name that proves nothing.
        packed = them.pack("a", first)
        body = encode_delivery(Delivery(jane.id, [Parcel(packed.instance, (john.id,), packed.entries)]))
        good = signed(node, "jane.a.ink", "john.b.ink", body)
        run(_send(node, good))
        assert send(
            good,
            signed(node, "jane.a.ink", "john.b.ink", body, age=200),
            signed(node, "jane.a.ink", "john.b.ink", body, age=-90),
            signed(node, "nobody.a.ink", "john.b.ink", body),
        ) == [
            (409, "federation.replayed-request"),
            (401, "federation.stale-request"),
            (401, "federation.future-request"),
            (403, "federation.sender-unproved"),
        ]
        refused = send(signed(node, "mallory.eve.ink", "john.b.ink", body))
        assert refused[0][1] in ("federation.sender-unproved", "federation.sender-unreachable")
        # Larger than anybody takes: refused by what it announces, before it is sent.
        with socket.create_connection(("127.0.0.1", target.port), timeout=10) as connection:
            head = f"POST {DELIVERIES_PATH} HTTP/1.1\r\nHost: john.b.ink\r\nContent-Type: {DELIVERY_MEDIA_TYPE}\r\n"
            connection.sendall(f"{head}Content-Length: {10**9}\r\n\r\n".encode())
            assert b"request.too-large" in connection.recv(65536)
        # A body that never ends to arrive, on many connections; honest deliveries go on meanwhile.
        slow = [socket.create_connection(("127.0.0.1", target.port), timeout=20) for _ in range(20)]
        for connection in slow:
            connection.sendall(f"{head}Content-Length: 100000\r\n\r\n".encode() + b"x")
        begun = time.monotonic()
        mail = create(jane, schema, recipients=["john.b.ink"])["instance"]
        wait_for(jane, mail, john_b="delivered")
        took = time.monotonic() - begun
        for connection in slow:
            assert b"request.too-slow" in connection.recv(65536)
            connection.close()
        assert took < 15
        # Who answers nothing but garbage is not found, each time, and is looked for again later.
        for _ in range(3):
            answer = jane.post("/instances", json={"schema": schema, "recipients": ["mallory.eve.ink"], "fields": {}})
            assert (answer.status_code, answer.json()["not_found_yet"]) == (201, ["mallory.eve.ink"])
        until(lambda: heard)
        assert them.count_entries("b") == before + 1


async def _send(node: Node, request: PeerRequest) -> PeerResponse:
    async with HttpTransport(node.settings) as transport:
        return await transport.send(request)


def test_node_that_sends_too_much_is_told_when_to_come_again(tmp_path: Path) -> None:
    with federation(tmp_path, "ab", peer_bytes_per_minute=5_000) as them:
        jane, john = them.person("jane", "a"), them.person("john", "b")
        answers = [them.send_as(jane, john, b"\xff" * 4_000) for _ in range(2)]
        # The quota is one of a minute by the clock, and a minute may have just begun.
        answers += [them.send_as(jane, john, b"\xff" * 4_000)] if answers[-1].status != 429 else []
        assert answers[0].status == 422
        assert (answers[-1].status, httpx.Response(200, content=answers[-1].body).json()["code"]) == (
            429,
            "federation.quota-used-up",
        )
        assert 0 < int(answers[-1].header("retry-after") or "") <= 61

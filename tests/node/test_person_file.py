"""The file of a person: all goes out and comes in again; a file in which something is wrong changes nothing."""

import random
from base64 import b64encode
from collections.abc import Iterator
from hashlib import blake2b
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from inkgrove.core import IdentityId, PublicKey, parse_hash, sign_entry, sign_next
from inkgrove.core.errors import PersonFileError
from inkgrove.messages import Create, Delete, KeyOf, SchemaVersion, encode_message, write_entry_pairs
from inkgrove.messages.person_file import (
    MAX_RECORD_BYTES,
    SEAL_SIZE,
    decode_head,
    decode_record,
    encode_head,
    encode_record,
    encode_seal,
)
from inkgrove.node.errors import IdentityError
from inkgrove.node.identity import show_quota
from inkgrove.node.person_file import import_person, seal_secret, write_person_file
from inkgrove.node.publishing import list_waiting_requests
from inkgrove.node.runtime import Node
from inkgrove.node.settings import NodeSettings
from inkgrove.reference import fold_views
from inkgrove.store.logs import count_table_rows, find_entry, find_log, read_next_entry, register_schema
from inkgrove.store.node import (
    HostedIdentity,
    add_identity,
    add_shares,
    find_identity,
    find_relation_state,
    put_relation_state,
    shares_of,
)
from tests.store.postgres import PostgresServer
from tests.support.logs import LogBuilder, key
from tests.support.nodes import PASSWORD, RunningNode
from tests.support.publishing import create, make_schema, schema_id
from tests.support.templates import open_node
from tests.support.tiers import amount
from tests.support.views import held_by

pytestmark = pytest.mark.both_databases
_NUMBERS = count(1)
PICTURE = b"\x89PNG a picture of a sloth" * 60_000
SETTINGS = NodeSettings(registration="open", domains=("haiku.ink",))


@pytest.fixture
def elsewhere(request: pytest.FixtureRequest, place: Path | str, tmp_path: Path) -> Iterator[Node]:
    """Another node, on the same kind of database."""
    home = tmp_path / "elsewhere"
    where: Path | str = home
    if isinstance(place, str):
        server: PostgresServer = request.getfixturevalue("postgres")
        where = server.create_store(f"elsewhere{next(_NUMBERS)}")
    node = open_node(where, SETTINGS, home)
    yield node
    node.close()


class World:
    """Jane and John on one node, with everything that a file can hold."""

    def __init__(self, running: RunningNode) -> None:
        self.running, self.node = running, running.node
        people = {name: running.create(f"{name}.haiku.ink") for name in ("jane", "john", "judy")}
        self.ids = {name: IdentityId.fromhex(item["id"]) for name, item in people.items()}
        self.jane, self.john, self.judy = (running.sign_in(f"{name}.haiku.ink") for name in people)
        assert self.jane.put("/me/senders/john.haiku.ink").status_code == 200
        assert self.john.put("/me/senders/jane.haiku.ink").status_code == 200
        self.schema, self.foreign = make_schema(self.jane), make_schema(self.john, "poems")
        blob = self.jane.post("/blobs", content=PICTURE, headers={"Content-Type": "image/png"}).json()
        self.own = create(self.jane, self.schema, fields={"subject": "A sloth", "picture": blob})["instance"]
        patch: dict[str, Any] = {
            "content": b'{"fields": {"stars": 5}}',
            "headers": {"Content-Type": "application/merge-patch+json"},
        }
        assert self.jane.patch(f"/instances/{self.own}", **patch).status_code == 200
        self.secret = create(self.jane, self.schema, fields={"subject": "For me"}, access={"mode": "self"})["instance"]
        self.of_john = create(self.jane, self.foreign, fields={"subject": "In John's form"})["instance"]
        gone = create(self.jane, self.schema, fields={"subject": "Gone"})["instance"]
        assert self.jane.delete(f"/instances/{gone}").status_code == 200
        self.sent = create(self.jane, self.schema, fields={"subject": "To John"}, recipients=["john.haiku.ink"])
        picture = self.john.post("/blobs", content=b"John's picture", headers={"Content-Type": "image/png"}).json()
        self.picture = picture["hash"]
        self.received = create(
            self.john, self.schema, fields={"subject": "To Jane", "picture": picture}, recipients=["jane.haiku.ink"]
        )["instance"]
        self.boxed = create(self.judy, self.schema, fields={"subject": "Hello"}, recipients=["jane.haiku.ink"])
        self.post = create(self.judy, self.schema, fields={"subject": "News"}, access={"mode": "relations"})["instance"]
        self.node.database.write(lambda c: put_relation_state(c, self.ids["jane"], self.ids["judy"], "accepted", 5))
        self.node.database.write(lambda c: put_relation_state(c, self.ids["john"], self.ids["jane"], "accepted", 6))
        self.blob = blob["hash"]

    def write(self, path: Path, name: str = "jane", **more: Any) -> Path:
        with path.open("wb") as file:
            write_person_file(self.node, self.ids[name], file, **more)
        return path


@pytest.fixture
def world(running: RunningNode) -> World:
    return World(running)


def host(node: Node, world: World, name: str = "jane") -> None:
    """Let somebody live on another node, as whoever moves there does."""
    hosted = world.node.database.read(lambda c: find_identity(c, world.ids[name]))
    assert hosted is not None
    node.database.write(lambda c: add_identity(c, HostedIdentity(hosted.id, hosted.fqdn, hosted.key, None, 1), None))


def rows_of(node: Node, schema: str) -> dict[str, Any]:
    """The rows of a view by the oracle, from all that the store holds."""
    node.store.write(register_schema, schema_id(schema))
    (view,) = (
        item for item in fold_views(held_by(node.store), [schema_id(schema)]) if item.schema == schema_id(schema)
    )
    return {row.instance.hex(): (row.fields, row.access) for row in view.rows}


def test_everything_comes_in_again_on_another_node(world: World, elsewhere: Node, tmp_path: Path) -> None:
    path = world.write(tmp_path / "jane.person")
    host(elsewhere, world)
    report = import_person(elsewhere, path)
    assert not report.refused
    assert report.lives_here
    jane = world.ids["jane"]
    ours, theirs = rows_of(world.node, world.schema), rows_of(elsewhere, world.schema)
    # Judy's mail waits in the request box on both nodes, here as an entry besides.
    del ours[world.boxed["instance"]]
    assert theirs == ours
    assert rows_of(elsewhere, world.foreign) == rows_of(world.node, world.foreign)
    assert elsewhere.blobs.path_of(parse_hash(world.blob)).read_bytes() == PICTURE
    assert elsewhere.blobs.path_of(parse_hash(world.picture)).read_bytes() == b"John's picture"
    shared = elsewhere.database.read(lambda c: shares_of(c, parse_hash(world.sent["instance"])))
    assert shared == [world.ids["john"]]
    for instance in (world.received, world.post):
        assert elsewhere.store.read(shares_of, parse_hash(instance)) == [jane]
    # The first document is not counted where it was signed; what a file brings is counted whole.
    assert show_quota(elsewhere, jane).used.entries == show_quota(world.node, jane).used.entries + 1
    assert show_quota(elsewhere, jane).used.blob_bytes == len(PICTURE)
    assert elsewhere.receivers.names() == {"john.haiku.ink", "judy.haiku.ink"}
    # That Judy has accepted Jane is Judy's word: she is asked again.
    assert elsewhere.database.read(lambda c: find_relation_state(c, jane, world.ids["judy"])) == "requested"
    assert elsewhere.database.read(lambda c: find_relation_state(c, world.ids["john"], jane)) == "accepted"


def rebuild(path: Path, target: Path, change: Any) -> Path:
    """Write a file again with other records, sealed as if it had always been so; `change` gets and gives a list."""
    data, bodies, offset = path.read_bytes()[:-SEAL_SIZE], [], 0
    while offset < len(data):
        head, size = decode_head(data[offset : offset + 5])
        bodies.append(data[offset + head : offset + head + size])
        offset += head + size
    written = b"".join(encode_head(len(body)) + body for body in change(bodies))
    target.write_bytes(written + encode_seal(len(written), blake2b(written).digest()))
    return target


def kinds(bodies: list[bytes]) -> list[str]:
    return [decode_record(body)["kind"] for body in bodies]


def tables_of(node: Node) -> dict[str, int]:
    """How many rows every table has."""
    return dict(node.database.read(count_table_rows))


def refuse(node: Node, path: Path, **more: Any) -> str:
    """The code with which a file is refused; nothing has changed by it."""
    before, blobs = tables_of(node), sorted(node.blobs.directory.rglob("*"))
    with pytest.raises(PersonFileError) as refused:
        import_person(node, path, **more)
    assert tables_of(node) == before
    assert sorted(node.blobs.directory.rglob("*")) == blobs
    return refused.value.code


def test_an_import_that_is_done_again_changes_nothing(world: World, elsewhere: Node, tmp_path: Path) -> None:
    path = world.write(tmp_path / "jane.person")
    host(elsewhere, world)
    import_person(elsewhere, path)
    before, used = tables_of(elsewhere), show_quota(elsewhere, world.ids["jane"]).used
    report = import_person(elsewhere, path)
    assert report.new["entries"] == report.new["copies"] == report.new["blobs"] == 0
    assert report.known["entries"] > 5
    assert tables_of(elsewhere) == before
    assert show_quota(elsewhere, world.ids["jane"]).used == used


def test_rows_wait_until_the_identity_lives_there(world: World, elsewhere: Node, tmp_path: Path) -> None:
    path = world.write(tmp_path / "jane.person")
    report = import_person(elsewhere, path)
    assert not report.lives_here
    assert report.waiting["relations"] == 2
    assert report.new["copies"] == 2
    host(elsewhere, world)
    report = import_person(elsewhere, path)
    assert report.lives_here
    assert not report.waiting
    assert report.new["relations"] == 2
    assert report.new["requests"] == 1


def test_a_file_that_is_cut_off_anywhere_is_refused(world: World, elsewhere: Node, tmp_path: Path) -> None:
    path, cut = world.write(tmp_path / "jane.person"), tmp_path / "cut.person"
    data = path.read_bytes()
    chance = random.Random(5)
    for size in [0, 1, 4, 40, len(data) - 1, len(data) - SEAL_SIZE, *(chance.randrange(len(data)) for _ in range(20))]:
        cut.write_bytes(data[:size])
        assert refuse(elsewhere, cut) == "file.cut-off", size


def test_a_file_with_any_flipped_bit_is_refused(world: World, elsewhere: Node, tmp_path: Path) -> None:
    path, flipped = world.write(tmp_path / "jane.person"), tmp_path / "flipped.person"
    data = path.read_bytes()
    chance = random.Random(6)
    ends = [*range(60), *(len(data) - n for n in range(1, SEAL_SIZE + 1))]
    places = chance.sample(ends, amount(20, len(ends))) + chance.sample(range(len(data)), amount(20, 200))
    for place in places:
        changed = bytearray(data)
        changed[place] ^= 1 << chance.randrange(8)
        flipped.write_bytes(changed)
        code = refuse(elsewhere, flipped)
        assert code in ("file.changed", "file.unknown-form", "file.cut-off"), (place, code)
        if 300 < place < len(data) - SEAL_SIZE:
            assert code == "file.changed", place


def test_records_that_were_changed_and_sealed_again_are_refused(world: World, elsewhere: Node, tmp_path: Path) -> None:
    path, target = world.write(tmp_path / "jane.person"), tmp_path / "other.person"

    def code(change: Any) -> str:
        return refuse(elsewhere, rebuild(path, target, change))

    def replaced(kind: str, **values: Any) -> Any:
        def change(bodies: list[bytes]) -> list[bytes]:
            number = kinds(bodies).index(kind)
            record = decode_record(bodies[number]) | values
            return [*bodies[:number], encode_record(**record), *bodies[number + 1 :]]

        return change

    def without(kind: str) -> Any:
        def change(bodies: list[bytes]) -> list[bytes]:
            number = kinds(bodies).index(kind)
            return [*bodies[:number], *bodies[number + 1 :]]

        return change

    assert import_person(elsewhere, rebuild(path, target, lambda bodies: bodies)).known is not None
    for kind in ("entries", "log", "copy", "rows", "blob", "bytes", "end"):
        assert code(without(kind)) == "file.changed", kind
        assert code(replaced(kind, more=1)) == "file.changed", kind
    assert code(lambda bodies: [bodies[0], *reversed(bodies[1:])]) == "file.changed"
    assert code(lambda bodies: [*bodies, bodies[-1]]) == "file.changed"
    assert code(lambda bodies: bodies[:1]) == "file.changed"
    assert code(lambda bodies: [bodies[0], *bodies]) == "file.changed"
    # Bombs: lengths and counts beyond the file, deep nesting, what is no map.
    assert code(replaced("log", count=2**62, height=2**62)) == "file.changed"
    assert code(replaced("log", height=2**70)) == "file.changed"
    assert code(replaced("blob", size=2**62)) == "file.changed"
    assert code(lambda bodies: [bodies[0], b"\x81" * 100_000, *bodies[1:]]) == "file.changed"
    assert code(lambda bodies: [bodies[0], b"\xbb" + b"\xff" * 8, *bodies[1:]]) == "file.changed"
    assert code(lambda bodies: [bodies[0], b"\x9a\xff\xff\xff\xff", *bodies[1:]]) == "file.changed"
    assert code(lambda bodies: [bodies[0], b"", *bodies[1:]]) == "file.changed"
    large = encode_record("bytes", bytes=bytes(MAX_RECORD_BYTES))
    assert code(lambda bodies: [bodies[0], large, *bodies[1:]]) == "file.changed"
    assert code(lambda bodies: [b"\xa0", *bodies[1:]]) == "file.unknown-form"
    assert code(replaced("person", form="inkgrove person 2")) == "file.unknown-form"
    assert code(replaced("person", identity=bytes(32))) == "file.changed"


def test_a_file_with_another_signature_is_refused(world: World, elsewhere: Node, tmp_path: Path) -> None:
    path, target = world.write(tmp_path / "jane.person"), tmp_path / "other.person"

    def forge(bodies: list[bytes]) -> list[bytes]:
        number = max(n for n, kind in enumerate(kinds(bodies)) if kind == "entries")
        record = decode_record(bodies[number])
        entry, *payload = record["entries"][0]
        record["entries"][0] = [entry[:-1] + bytes([entry[-1] ^ 1]), *payload]
        return [*bodies[:number], encode_record(**record), *bodies[number + 1 :]]

    assert refuse(elsewhere, rebuild(path, target, forge)) == "file.changed"


def test_the_file_of_somebody_else_is_refused(world: World, elsewhere: Node, tmp_path: Path) -> None:
    path = world.write(tmp_path / "jane.person")
    assert refuse(elsewhere, path, expected=world.ids["john"]) == "file.not-yours"
    johns = world.write(tmp_path / "john.person", "john")
    target = tmp_path / "mixed.person"

    def mix(bodies: list[bytes]) -> list[bytes]:
        """Put a log of John, which is not log 0, among those of Jane."""
        taken: list[bytes] = []

        def take(others: list[bytes]) -> list[bytes]:
            taken.extend(others)
            return others

        rebuild(johns, tmp_path / "unused.person", take)
        number = next(
            n for n, body in enumerate(taken) if decode_record(body)["kind"] == "log" and decode_record(body)["log_id"]
        )
        place = kinds(bodies).index("copy")
        return [*bodies[:place], *taken[number : number + 2], *bodies[place:]]

    assert refuse(elsewhere, rebuild(path, target, mix)) == "file.not-yours"


def test_an_older_file_is_refused_unless_that_is_wanted(world: World, elsewhere: Node, tmp_path: Path) -> None:
    older = world.write(tmp_path / "older.person")
    create(world.jane, world.schema, fields={"subject": "Newer"})
    import_person(elsewhere, world.write(tmp_path / "newer.person"))
    assert refuse(elsewhere, older) == "file.older"
    assert import_person(elsewhere, older, allow_older=True).new["entries"] == 0


def test_a_file_that_would_fork_a_log_is_refused(world: World, elsewhere: Node, tmp_path: Path) -> None:
    older = world.write(tmp_path / "older.person")
    import_person(elsewhere, older)
    mine = create(world.jane, world.schema, fields={"subject": "Here"})
    # Somebody who has the key signs the same place elsewhere.
    secret = world.node.secret_key(PublicKey.fromhex(mine["author"]))
    following = elsewhere.store.read(read_next_entry, secret.public, mine["log_id"])
    payload = encode_message(Create(SchemaVersion(*schema_id(world.schema), 2), {"subject": "There"}))
    (receipt,) = elsewhere.store.ingest([(sign_next(secret, payload, following).encoded, payload)])
    assert receipt.error is None
    assert refuse(elsewhere, world.write(tmp_path / "newer.person")) == "file.forks"


def test_rows_of_a_file_give_nothing_that_is_not_its_owners_to_give(
    world: World, elsewhere: Node, tmp_path: Path
) -> None:
    """A file that was made up: Jane says that others accepted her, and that things were sent to her."""
    host(elsewhere, world)
    import_person(elsewhere, world.write(tmp_path / "john.person", "john"))
    jane, john, judy = (world.ids[name] for name in ("jane", "john", "judy"))
    path, target = world.write(tmp_path / "jane.person"), tmp_path / "made-up.person"
    johns = parse_hash(
        create(world.john, world.schema, fields={"subject": "Not for Jane"}, access={"mode": "self"})["instance"]
    )
    import_person(elsewhere, world.write(tmp_path / "john2.person", "john"))
    made_up: dict[str, list[Any]] = {
        "relations": [[jane, john, "accepted", None, 1], [judy, john, "accepted", None, 1]],
        "shares": [[johns, jane, 1]],
        "deliveries": [[johns, judy, 1, 0, "waiting", None, 1, 1]],
        "pending": [["judy.haiku.ink", johns, "waiting", None, 1, 1]],
        "pins": [[johns, 1]],
    }

    def change(bodies: list[bytes]) -> list[bytes]:
        own = [body for body in bodies if decode_record(body)["kind"] in ("person", "log", "entries")]
        own = [body for body in own if decode_record(body).get("of") != "schema"]
        first = next(n for n, body in enumerate(own) if n > 2 and decode_record(body)["kind"] == "log")
        rows = [encode_record("rows", table=name, rows=values) for name, values in made_up.items()]
        counts = {"logs": 1, "entries": 1, **{name: len(values) for name, values in made_up.items()}}
        return [*own[:first], *rows, encode_record("end", counts=counts)]

    report = import_person(elsewhere, rebuild(path, target, change))
    assert report.refused == {"relations": 1, "shares": 1, "deliveries": 1, "pending": 1, "pins": 1}
    assert elsewhere.database.read(lambda c: find_relation_state(c, jane, john)) == "requested"
    assert elsewhere.database.read(lambda c: find_relation_state(c, judy, john)) is None
    assert elsewhere.database.read(lambda c: shares_of(c, johns)) == []


def test_people_of_the_node_follow_nobody_and_see_nothing_because_a_file_says_so(
    world: World, elsewhere: Node, tmp_path: Path
) -> None:
    """Judy lives there, and wants nothing of Jane: what Jane says that she has sent her waits in Judy's box."""
    host(elsewhere, world)
    host(elsewhere, world, "judy")
    jane, judy, own, sent = world.ids["jane"], world.ids["judy"], parse_hash(world.own), parse_hash(world.of_john)
    made_up: dict[str, list[Any]] = {
        "relations": [[judy, jane, "accepted", None, 1]],
        "shares": [[own, judy, 1], [sent, judy, 1]],
        "deliveries": [[sent, judy, 1, 0, "waiting", None, 1, 1]],
    }

    def change(bodies: list[bytes]) -> list[bytes]:
        others = [n for n, body in enumerate(bodies) if decode_record(body)["kind"] in ("person", "log", "entries")]
        end = decode_record(bodies[-1])["counts"]
        counts = {name: end[name] for name in ("logs", "entries", "schemas") if name in end}
        rows = [encode_record("rows", table=name, rows=values) for name, values in made_up.items()]
        counts |= {name: len(values) for name, values in made_up.items()}
        return [*(bodies[n] for n in others), *rows, encode_record("end", counts=counts)]

    path = rebuild(world.write(tmp_path / "jane.person"), tmp_path / "made-up.person", change)
    for _ in range(2):
        report = import_person(elsewhere, path)
        assert report.refused == {"relations": 1, "shares": 2}
        assert elsewhere.database.read(lambda c: find_relation_state(c, judy, jane)) is None
        for instance in (own, sent):
            assert elsewhere.database.read(lambda c, item=instance: shares_of(c, item)) == []  # type: ignore[misc]
        assert [item.instance for item in list_waiting_requests(elsewhere, judy)] == [sent]


def test_a_copy_that_its_owner_keeps_to_others_is_not_given(world: World, elsewhere: Node, tmp_path: Path) -> None:
    closed = create(
        world.john, world.schema, fields={"subject": "Closed"}, access={"mode": "closed"}, recipients=["judy.haiku.ink"]
    )["instance"]
    jane = world.ids["jane"]
    world.node.database.write(lambda c: add_shares(c, [(parse_hash(closed), jane)], 1))
    host(elsewhere, world)
    report = import_person(elsewhere, world.write(tmp_path / "jane.person"))
    assert report.refused == {"federation.not-addressed": 1}
    assert elsewhere.database.read(lambda c: shares_of(c, parse_hash(closed))) == []


def test_a_part_of_a_copy_without_its_content_opens_nothing(world: World, elsewhere: Node, tmp_path: Path) -> None:
    """Jane knows the entry of something of John's from a pool, and signs that it has ended: that is no copy of it."""
    host(elsewhere, world)
    hidden = parse_hash(create(world.john, world.schema, fields={"subject": "Not for Jane"})["instance"])
    import_person(elsewhere, world.write(tmp_path / "john.person", "john"))
    held = world.node.database.read(lambda c: find_entry(c, hidden))
    assert held is not None
    payload = encode_message(Delete(hidden, SchemaVersion(*schema_id(world.schema), 1)))
    end = sign_entry(key(77), payload, log_id=1, seq_num=1)

    def change(bodies: list[bytes]) -> list[bytes]:
        first = kinds(bodies).index("copy")
        made_up = encode_record(
            "copy",
            instance=bytes(hidden),
            create=held.entry.encoded,
            entries=write_entry_pairs([(end.encoded, payload)]),
        )
        return [*bodies[:first], made_up, *bodies[first:]]

    path = rebuild(world.write(tmp_path / "jane.person"), tmp_path / "made-up.person", change)
    assert refuse(elsewhere, path) == "file.changed"
    assert elsewhere.database.read(lambda c: shares_of(c, hidden)) == []


def test_the_secret_comes_in_only_with_its_passphrase(world: World, elsewhere: Node, tmp_path: Path) -> None:
    jane = world.ids["jane"]
    hosted = world.node.database.read(lambda c: find_identity(c, jane))
    assert hosted is not None
    key_of_jane = world.node.secret_key(hosted.key)
    sealed = seal_secret(world.node, key_of_jane, "a long enough passphrase")
    path = world.write(tmp_path / "jane.person", secret=sealed)
    assert key_of_jane.seed not in path.read_bytes()
    assert refuse(elsewhere, path, passphrase="another long passphrase") == "file.bad-passphrase"
    assert refuse(elsewhere, world.write(tmp_path / "plain.person"), passphrase="x" * 20) == "file.bad-passphrase"
    report = import_person(elsewhere, path, passphrase="a long enough passphrase")
    assert report.is_hosted_now
    assert report.lives_here
    assert elsewhere.secret_key(hosted.key).seed == key_of_jane.seed
    # Others may hold more than the file: nothing is signed before they were asked.
    assert elsewhere.signing.read_behind_state() is not None
    with pytest.raises(IdentityError, match="fewer than 12"):
        seal_secret(world.node, key_of_jane, "short")


def test_logs_with_branches_and_revoked_keys_come_in_as_evidence(world: World, elsewhere: Node, tmp_path: Path) -> None:
    """A further key that was revoked, whose log is forked besides."""
    further = LogBuilder(key(21), log_id=0)
    further.append(encode_message(KeyOf(world.ids["jane"])))
    signed = {
        "entry": b64encode(further.entries[0].encoded).decode(),
        "payload": b64encode(further.payloads[0] or b"").decode(),
    }
    assert world.jane.post("/me/keys", json={**signed, "password": PASSWORD}).status_code in (200, 201)
    log = LogBuilder(key(21), log_id=1)
    for number in range(4):
        fields = {"subject": f"From the phone {number}"}
        log.append(encode_message(Create(SchemaVersion(*schema_id(world.schema), 2), fields)))
    world.node.store.ingest([(e.encoded, p) for e, p in zip(log.entries, log.payloads, strict=True)])
    twin = LogBuilder(key(21), log_id=1)
    for number in range(2):
        fields = {"subject": f"From the phone {number}" if number == 0 else "A branch"}
        twin.append(encode_message(Create(SchemaVersion(*schema_id(world.schema), 2), fields)))
    world.node.store.ingest([(twin.entries[1].encoded, twin.payloads[1])])
    assert world.jane.delete(f"/me/keys/{key(21).public.hex()}").status_code == 200
    import_person(elsewhere, world.write(tmp_path / "jane.person"))
    ours, theirs = (node.store.read(find_log, key(21).public, 1) for node in (world.node, elsewhere))
    assert ours is not None
    assert theirs is not None
    assert (theirs.standing, theirs.is_pinned, theirs.aside) == (ours.standing, ours.is_pinned, ours.aside)
    assert (ours.is_pinned, ours.aside) == (True, 1)  # whoever revokes a key pins the branch that came first
    assert rows_of(elsewhere, world.schema).keys() == rows_of(world.node, world.schema).keys() - {
        world.boxed["instance"]
    }

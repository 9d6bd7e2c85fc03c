"""Who may take which name and id: the matrix of docs/security.md, cell by cell, and the attacks that it answers.

Node a has the domain a.ink, node b is somebody else's. Names under own.example lead to node a as well, those under
dead.ink to nobody. Under names that begin with `two` node a is led to b, although they are under its domain.
"""

import shutil
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path

import httpx
import pytest

from examples.demo.ports import free_port
from inkgrove.core import IdentityId, SecretKey, decode_entry, identity_of, parse_public_key
from inkgrove.core.errors import EntryError, InkgroveError
from inkgrove.federation.peers import Discovery, HttpTransport, choose_sender_name, well_known_of
from inkgrove.messages import IdentityDocument, adoption_claim, encode_message
from inkgrove.node.errors import BadPassword, TooManyAttempts, UnknownIdentity
from inkgrove.node.identity import (
    IdentityRecord,
    KeyProof,
    SignedMessage,
    adopt_proved,
    apply_identity_log,
    bind_administrators,
    change_identity,
    check_key_proof,
    create_identity,
    find_own_name_holder,
    new_challenge,
    read_adoption,
    register_identity,
    show_identity,
    sign_in,
)
from inkgrove.node.publishing import find_recipients
from inkgrove.node.runtime import Node
from inkgrove.node.settings import NodeSettings
from inkgrove.store.federation import RemoteIdentity, find_remote_identity, put_remote_identity
from inkgrove.store.logs import read_entries, register_schema
from inkgrove.store.node import check_name, find_bound
from tests.support.adopting import bring, prove, signed
from tests.support.command import inkgrove
from tests.support.errors import raises
from tests.support.logs import LogBuilder, key
from tests.support.nodes import PASSWORD, Person, RunningNode
from tests.support.peers import run
from tests.support.plain_views import build_views
from tests.support.publishing import create as create_instance
from tests.support.publishing import make_schema, schema_id

NUMBERS = count(1)
LISTED = tuple(f"{word}{number}.a.ink" for word in ("boss", "twoboss") for number in range(20))
DAY = 86_400_000_000


def new_key() -> SecretKey:
    return SecretKey.from_seed(next(NUMBERS).to_bytes(32, "big"))


class World:
    """Two nodes, and names in every state."""

    def __init__(self, folder: Path, place: Path | str, stack: ExitStack) -> None:
        here, there = free_port(), free_port()
        leads = [f"two{word}{number}.a.ink=127.0.0.1:{there}" for word in ("n", "boss") for number in range(20)]
        leads += [f"*.{domain}=127.0.0.1:{here}" for domain in ("a.ink", "own.example")]
        leads += [f"*.b.ink=127.0.0.1:{there}", f"*.dead.ink=127.0.0.1:{free_port()}"]
        common = NodeSettings(registration="open", resolve=tuple(leads), replication_seconds=0)
        for letter in "ab":
            (folder / letter).mkdir()
        settings = replace(common, domains=("a.ink",), administrators=LISTED)
        self.a = stack.enter_context(RunningNode(place, folder / "a", settings, here))
        self.b = stack.enter_context(RunningNode(folder / "b", folder / "b", common, there))
        self.stack = stack
        self.reserved = iter(LISTED[:20])
        self.reserved_there = iter(LISTED[20:])

    def person(self, fqdn: str) -> Person:
        return self.stack.enter_context(Person(self.a, fqdn))

    def find(self, fqdn: str) -> RemoteIdentity:
        """Who node a finds under a name."""

        return self.find_with(self.a.settings, fqdn)

    def find_with(self, settings: NodeSettings, fqdn: str) -> RemoteIdentity:
        """The same with other settings of the network."""

        async def work() -> RemoteIdentity:
            async with HttpTransport(settings) as transport:
                return await Discovery(self.a.node, transport).find(fqdn)

        return run(work())

    def claim_there(self, fqdn: str) -> IdentityId:
        """Let node b say that somebody lives there under a name."""
        return create_identity(self.b.node, fqdn, None).id


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("names")
    place: Path | str = folder / "a"
    if request.param == "postgresql":
        place = request.getfixturevalue("postgres").create_store(f"names{next(NUMBERS)}")
    with ExitStack() as stack:
        yield World(folder, place, stack)


class Restored:
    """A home that lives on after a backup, and what is left of it when that is put back."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.time = folder, 1_000 * DAY
        self.settings = NodeSettings(domains=("a.ink",), administrators=("boss.a.ink",))
        self.node = self._open()
        self.known: dict[bytes, list[tuple[bytes, bytes | None]]] = {}

    def _open(self) -> Node:
        return Node(self.folder / "home", self.settings, home=self.folder / "home", clock=lambda: self.time)

    def back_up(self) -> None:
        self.node.close()
        shutil.copytree(self.folder / "home", self.folder / "backup")
        self.node = self._open()

    def restore(self, *remembered: IdentityRecord) -> None:
        """Put the backup back a week later, and fetch what peers hold of log 0 of some."""
        self.time += 7 * DAY
        fetched = [
            (item.entry.encoded, item.payload)
            for identity in remembered
            for item in self.node.store.read(read_entries, identity.key, 0)
        ]
        self.node.close()
        shutil.rmtree(self.folder / "home")
        shutil.copytree(self.folder / "backup", self.folder / "home")
        self.node = self._open()
        assert self.node.signing.read_behind_state() is not None
        bind_administrators(self.node)  # as every start does
        self.node.store.ingest(fetched)
        for identity in remembered:
            self.node.database.write(lambda c, author=identity.key: apply_identity_log(c, author))  # type: ignore[misc]
        self.node.signing.resume()

    def own(self, fqdn: str) -> IdentityId | None:
        found = self.node.database.read(lambda connection: find_own_name_holder(connection, self.node, fqdn))
        return None if found is None else found.id

    def registration(self, fqdn: str) -> str:
        try:
            register_identity(self.node, fqdn, None)
        except InkgroveError as error:
            return error.code
        return "taken"


@pytest.fixture
def restored(tmp_path: Path) -> Iterator[Restored]:
    home = Restored(tmp_path)
    yield home
    home.node.close()


# States of names: each makes a new one, and says who has or had it


def own_domain(_world: World) -> str:
    return f"n{next(NUMBERS)}.a.ink"


def foreign_domain(_world: World) -> str:
    return f"n{next(NUMBERS)}.dead.ink"


def leads_here(_world: World) -> str:
    return f"n{next(NUMBERS)}.own.example"


def known_elsewhere(world: World) -> str:
    fqdn = f"n{next(NUMBERS)}.b.ink"
    world.claim_there(fqdn)
    world.find(fqdn)
    return fqdn


def reserved(world: World) -> str:
    return next(world.reserved)


def just_left(world: World) -> str:
    fqdn, other = (f"n{next(NUMBERS)}.a.ink" for _ in range(2))
    assert world.person(fqdn).patch("/me", json={"fqdn": other}).status_code == 200
    return fqdn


def administrators(world: World) -> str:
    fqdn = next(world.reserved)
    world.person(fqdn)
    return fqdn


# Ways to take one: each gives "taken", or the code of the refusal


def outcome(answer: httpx.Response) -> str:
    return "taken" if answer.is_success else str(answer.json()["code"])


def by_registration(world: World, fqdn: str) -> str:
    return outcome(world.a.anybody.post("/identities", json={"fqdn": fqdn, "password": PASSWORD}))


def by_rename(world: World, fqdn: str) -> str:
    return outcome(world.person(f"n{next(NUMBERS)}.a.ink").patch("/me", json={"fqdn": fqdn}))


def by_adoption(world: World, fqdn: str) -> str:
    log = LogBuilder(new_key(), log_id=0)
    item = signed(log, IdentityDocument(fqdn, f"https://{fqdn}"))
    return outcome(bring(world.a.anybody, log, fqdn, item))


def by_command(world: World, fqdn: str) -> str:
    where = ["--home", str(world.a.home), *(["--store", world.a.place] if isinstance(world.a.place, str) else [])]
    done = inkgrove("identity", "create", fqdn, "--no-password", "--json", *where)
    if done.returncode == 0:
        return "taken"
    return next(word.strip("[]().,:\"'") for word in done.stderr.split() if "identity." in word)


MATRIX = {
    # state: (registration, rename, adoption, command)
    own_domain: ("taken", "taken", "taken", "taken"),
    foreign_domain: ("identity.foreign-name", "identity.foreign-name", "identity.foreign-name", "taken"),
    leads_here: ("taken", "taken", "taken", "taken"),
    known_elsewhere: ("identity.name-elsewhere",) * 4,
    reserved: ("identity.reserved-name", "identity.reserved-name", "identity.reserved-name", "taken"),
    just_left: ("identity.name-left",) * 4,
    administrators: ("identity.exists",) * 4,
}
WAYS = (by_registration, by_rename, by_adoption, by_command)


@pytest.mark.parametrize(
    ("state", "way", "expected"),
    [(state, way, cell) for state, cells in MATRIX.items() for way, cell in zip(WAYS, cells, strict=True)],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_name_is_taken_only_by_whom_it_is_for(
    world: World, state: Callable[[World], str], way: Callable[[World, str], str], expected: str
) -> None:
    assert way(world, state(world)) == expected


# Discovery: what another node says of a name. Node b claims each of them, and the network leads node a there.

TWO = iter(range(20))


def left_there(world: World) -> str:
    fqdn = f"twon{next(TWO)}.a.ink"
    assert world.person(fqdn).patch("/me", json={"fqdn": f"n{next(NUMBERS)}.a.ink"}).status_code == 200
    return fqdn


FOUND: dict[str, tuple[Callable[[World], str], str]] = {
    "own domain": (lambda world: world.person(f"twon{next(TWO)}.a.ink").fqdn, "hosted"),
    "foreign domain": (lambda _world: f"n{next(NUMBERS)}.b.ink", "elsewhere"),
    "known elsewhere": (known_elsewhere, "elsewhere"),
    "reserved": (lambda world: next(world.reserved_there), "elsewhere"),
    "just left": (left_there, "elsewhere"),
    "administrator's": (lambda world: world.person(next(world.reserved_there)).fqdn, "hosted"),
}


@pytest.mark.parametrize("state", FOUND)
def test_name_is_found_where_it_is_for(world: World, state: str) -> None:
    make, expected = FOUND[state]
    fqdn = make(world)
    there = show_identity(world.b.node, fqdn).id if state == "known elsewhere" else world.claim_there(fqdn)
    found = world.find(fqdn)
    with world.a.node.database.reading() as connection:
        own, bound = find_own_name_holder(connection, world.a.node, fqdn), find_bound(connection, fqdn)
    assert found.id == (own.id if expected == "hosted" and own is not None else there)
    assert bound != there  # whoever lives elsewhere has no rights here


# 1 Anybody became any identity that lives elsewhere


def published(world: World, fqdn: str) -> tuple[dict[str, str], str]:
    """Entry 1 of log 0 of somebody on node b, which anybody can fetch, and their key."""
    found = world.b.anybody.get("/.well-known/inkgrove", headers={"host": fqdn}).json()
    return found["log"][0], world.b.anybody.get(f"/identities/{fqdn}").json()["key"]


def test_nobody_hosts_an_identity_without_its_key(world: World) -> None:
    fqdn = f"n{next(NUMBERS)}.b.ink"
    world.claim_there(fqdn)
    world.find(fqdn)
    entry, public = published(world, fqdn)
    challenge = world.a.anybody.post("/identities/challenges", json={"key": public}).json()["challenge"]
    body = {"fqdn": fqdn, "password": PASSWORD, "signed": entry}
    forged = {"challenge": challenge, "signature": key(9).sign(challenge.encode()).hex()}
    for proof in ({}, {"proof": forged}, {"proof": {"challenge": "x", "signature": "00" * 64}}):
        answer = world.a.anybody.post("/identities", json={**body, **proof})
        assert (answer.status_code, answer.json()["code"]) == (403, "identity.unproved")
    assert world.a.anybody.post("/sessions", json={"fqdn": fqdn, "password": PASSWORD}).status_code == 401
    assert world.find(fqdn).id == identity_of(parse_public_key(public))


def test_challenge_counts_once_for_one_key_one_entry_and_one_node(world: World) -> None:
    fqdn = own_domain(world)
    log = LogBuilder(new_key(), log_id=0)
    item = signed(log, IdentityDocument(fqdn, f"https://{fqdn}"))
    entry, other = log.entries[0].encoded, key(39)
    good = prove(world.a.anybody, log.secret, entry, fqdn)
    wrong = {
        "another key signed": {**good, "signature": other.sign(b"anything").hex()},
        "for another key": prove(world.a.anybody, other, entry, fqdn),
        "for another entry": prove(world.a.anybody, log.secret, entry + b"x", fqdn),
        "for another name": prove(world.a.anybody, log.secret, entry, "n0.a.ink"),
        "for another endpoint": prove(world.a.anybody, log.secret, entry, fqdn, "https://elsewhere.ink"),
        "of another node": prove(world.b.anybody, log.secret, entry, fqdn),
    }
    for what, proof in wrong.items():
        assert outcome(bring(world.a.anybody, log, fqdn, item, **proof)) == "identity.unproved", what
    assert outcome(bring(world.a.anybody, log, fqdn, item, **good)) == "taken"
    assert outcome(bring(world.a.anybody, log, fqdn, item, **good)) == "identity.unproved"  # used
    assert outcome(bring(world.a.anybody, log, fqdn, item)) == "identity.exists"


def test_challenge_ends_soon_and_is_no_entry(restored: Restored) -> None:
    node, secret = restored.node, key(5)
    document = IdentityDocument("jane.a.ink", "https://jane.a.ink")
    challenge = new_challenge(node, secret.public)
    claim = adoption_claim(identity_of(secret.public), document.fqdn, document.endpoint, b"entry", challenge.text)
    with pytest.raises(EntryError):
        decode_entry(claim + secret.sign(claim))
    proof = KeyProof(challenge.text, secret.sign(claim))
    for time in (challenge.expires, challenge.expires - 301_000_000):  # too late; made by a clock that was wrong
        restored.time = time
        with raises("identity.unproved"):
            check_key_proof(node, secret.public, document, b"entry", proof)
    restored.time = challenge.expires - 1
    check_key_proof(node, secret.public, document, b"entry", proof)


def test_identity_that_lives_elsewhere_is_refused_until_its_document_names_this_node(world: World) -> None:
    there, here = f"n{next(NUMBERS)}.b.ink", f"n{next(NUMBERS)}.a.ink"
    log = LogBuilder(new_key(), log_id=0)
    first = signed(log, IdentityDocument(there, f"https://{there}"))
    create = read_adoption(there, SignedMessage(b64decode(first["entry"]), b64decode(first["payload"])))
    adopt_proved(world.b.node, None, SignedMessage(*map(b64decode, first.values())), *create, leads_here=True)
    writer = world.person(f"n{next(NUMBERS)}.a.ink")
    schema = make_schema(writer)
    mail = create_instance(writer, schema, access={"mode": "closed"}, recipients=[there])["instance"]
    assert outcome(bring(world.a.anybody, log, there, first)) == "identity.lives-elsewhere"
    stale = LogBuilder(log.secret, log_id=0)
    again = signed(stale, IdentityDocument(here, f"https://{here}"))  # would fork log 0, and end the identity
    assert outcome(bring(world.a.anybody, stale, here, again)) == "identity.lives-elsewhere"
    second = signed(log, IdentityDocument(here, f"https://{here}"))
    assert outcome(bring(world.a.anybody, log, here, second)) == "taken"
    world.a.node.store.write(register_schema, schema_id(schema))
    build_views(world.a.node)
    assert world.a.sign_in(here).get(f"/instances/{mail}").status_code == 200  # addressed to them before


# 2 Any hosted identity took any foreign name


def test_document_from_elsewhere_gives_a_hosted_identity_no_name(world: World) -> None:
    """Log 0 comes in by many ways: replication, bundles, discovery. None of them is a way around the rules."""
    fqdn, wanted = own_domain(world), next(world.reserved)
    log = LogBuilder(new_key(), log_id=0)
    assert outcome(bring(world.a.anybody, log, fqdn, signed(log, IdentityDocument(fqdn, f"https://{fqdn}")))) == "taken"
    moved = _next(log, wanted)
    world.a.node.store.ingest([(moved.entry, moved.payload)])
    world.a.node.database.write(lambda connection: apply_identity_log(connection, log.secret.public))
    assert world.a.anybody.get(f"/identities/{wanted}").status_code == 404
    me = world.a.sign_in(fqdn)
    again = {"entry": b64encode(moved.entry).decode(), "payload": b64encode(moved.payload).decode()}
    assert outcome(me.patch("/me", json={"signed": again})) == "identity.reserved-name"
    free = own_domain(world)
    third = _next(log, free)
    world.a.node.store.ingest([(third.entry, third.payload)])
    again = {"entry": b64encode(third.entry).decode(), "payload": b64encode(third.payload).decode()}
    assert me.patch("/me", json={"signed": again}).json()["fqdn"] == free  # held already, and taken now
    assert world.a.anybody.get(f"/identities/{free}").status_code == 200


def test_who_has_moved_elsewhere_speaks_for_the_node_no_longer(restored: Restored) -> None:
    log = LogBuilder(key(5), log_id=0)
    first, moved = _next(log, "aa.a.ink"), _next(log, "aa.b.ink")
    entry, document = read_adoption("aa.a.ink", first)
    adopt_proved(restored.node, None, first, entry, document, leads_here=False)
    register_identity(restored.node, "jane.a.ink", None)
    assert choose_sender_name(restored.node) == "aa.a.ink"
    restored.node.store.ingest([(moved.entry, moved.payload)])
    restored.node.database.write(lambda connection: apply_identity_log(connection, entry.author))
    assert choose_sender_name(restored.node) == "jane.a.ink"


@pytest.mark.parametrize("fqdn", ["a.ink", "x.y.a.ink", "w.x.y.a.ink"])
def test_people_take_names_of_one_label_below_a_domain(world: World, fqdn: str) -> None:
    """Although all that is below leads to the node."""
    assert by_registration(world, fqdn) == "identity.reserved-name"


def test_name_that_led_here_is_somebody_elses_once_it_leads_there(world: World) -> None:
    fqdn = leads_here(world)
    jane = world.person(own_domain(world))
    assert jane.patch("/me", json={"fqdn": fqdn}).status_code == 200
    assert world.find(fqdn).id == jane.id
    node = world.a.node
    # The check is a day old; the world leads here still.
    node.database.write(lambda connection: check_name(connection, fqdn, node.clock() - DAY))
    assert world.find(fqdn).id == jane.id
    there = create_identity(world.b.node, fqdn, None).id
    resolve = (f"{fqdn}=127.0.0.1:{world.b.port}", *node.settings.resolve)
    before, node.settings = node.settings, replace(node.settings, resolve=resolve)
    try:
        node.database.write(lambda connection: check_name(connection, fqdn, node.clock() - DAY))
        assert world.find_with(node.settings, fqdn).id == there
        found = node.database.read(lambda connection: find_recipients(connection, [fqdn]))
        assert found == [there]
    finally:
        node.settings = before


# 3 Administrator by rename


def test_rights_stay_with_the_id_when_the_name_goes(world: World) -> None:
    fqdn, other = next(world.reserved), own_domain(world)
    boss, jane = world.person(fqdn), world.person(own_domain(world))
    assert (administers(boss), administers(jane)) == (True, False)
    assert boss.patch("/me", json={"fqdn": other}).status_code == 200
    assert outcome(jane.patch("/me", json={"fqdn": fqdn})) == "identity.name-left"
    assert administers(boss)  # under the other name
    assert outcome(boss.patch("/me", json={"fqdn": fqdn})) == "taken"  # theirs to take back
    assert not administers(jane)


def administers(person: Person) -> bool:
    answer = person.put(f"/views/{key(1).public.hex()}/1")
    assert answer.status_code in (200, 403), answer.text
    return answer.status_code == 200


def test_rights_are_not_bound_a_second_time(restored: Restored) -> None:
    boss = create_identity(restored.node, "boss.a.ink", None)
    change_identity(restored.node, boss.id, fqdn="chief.a.ink")
    restored.time += 100 * DAY  # longer than the name is kept
    assert restored.registration("boss.a.ink") == "identity.reserved-name"
    later = create_identity(restored.node, "boss.a.ink", None)
    bind_administrators(restored.node)
    bound = restored.node.database.read(lambda connection: find_bound(connection, "boss.a.ink"))
    assert (bound, later.id == boss.id) == (boss.id, False)


# Names that were left


def test_left_name_is_free_after_a_while_and_never_sooner(restored: Restored) -> None:
    jane = register_identity(restored.node, "jane.a.ink", None)
    change_identity(restored.node, jane.id, fqdn="joan.a.ink")
    restored.time += restored.settings.left_name_seconds * 1_000_000 - 1
    assert restored.registration("jane.a.ink") == "identity.name-left"
    restored.time += 1
    assert restored.registration("jane.a.ink") == "taken"


def test_nobody_keeps_many_names_by_leaving_them(restored: Restored) -> None:
    jane = register_identity(restored.node, "n0.a.ink", None)
    for number in range(1, 6):
        change_identity(restored.node, jane.id, fqdn=f"n{number}.a.ink")
    with raises("identity.too-many-names"):
        change_identity(restored.node, jane.id, fqdn="n6.a.ink")
    change_identity(restored.node, jane.id, fqdn="n1.a.ink")  # one that is kept for them anyway
    restored.time += 91 * DAY
    change_identity(restored.node, jane.id, fqdn="n6.a.ink")


# A clock that was wrong once


def test_name_that_was_left_by_a_wrong_clock_is_not_kept_for_years(restored: Restored) -> None:
    jane = register_identity(restored.node, "jane.a.ink", None)
    right, restored.time = restored.time, restored.time + 3650 * DAY
    change_identity(restored.node, jane.id, fqdn="joan.a.ink")
    restored.time = right
    assert restored.registration("jane.a.ink") == "identity.name-left"
    restored.time += 91 * DAY
    assert restored.registration("jane.a.ink") == "taken"


def test_sign_ins_that_a_wrong_clock_counted_lock_nobody_out(restored: Restored) -> None:
    create_identity(restored.node, "jane.a.ink", PASSWORD)
    right, restored.time = restored.time, restored.time + 365 * DAY
    for _ in range(12):
        with pytest.raises((BadPassword, TooManyAttempts)):
            sign_in(restored.node, "jane.a.ink", "not this one", "192.0.2.1")
    restored.time = right
    assert sign_in(restored.node, "jane.a.ink", PASSWORD, "192.0.2.1")


def test_what_a_wrong_clock_found_elsewhere_is_asked_for_again(world: World) -> None:
    fqdn = known_elsewhere(world)
    node = world.a.node
    known = node.database.read(lambda connection: find_remote_identity(connection, fqdn))
    assert known is not None
    year = 365 * DAY
    ahead = replace(known, node_key=key(3).public, fetched=known.fetched + year, expires=known.expires + year)
    node.database.write(lambda connection: put_remote_identity(connection, ahead))
    assert world.find(fqdn).node_key == known.node_key


# A restored home: what was so when the backup was made, and is not any more


def test_restored_home_gives_no_name_of_its_domain_back_that_was_left(restored: Restored) -> None:
    jane = register_identity(restored.node, "jane.a.ink", None)
    restored.back_up()
    change_identity(restored.node, jane.id, fqdn="joan.a.ink")
    restored.restore(jane)
    assert (restored.own("joan.a.ink"), restored.own("jane.a.ink")) == (jane.id, None)
    with pytest.raises(UnknownIdentity):
        well_known_of(restored.node, "jane.a.ink")


def test_restored_home_asks_the_world_anew_for_a_foreign_name(restored: Restored) -> None:
    jane = register_identity(restored.node, "jane.own.example", None, leads_here=True)
    assert restored.own("jane.own.example") == jane.id
    restored.back_up()
    restored.restore()
    assert restored.own("jane.own.example") is None


def test_restored_home_does_not_speak_for_who_has_moved_elsewhere(restored: Restored) -> None:
    log = LogBuilder(key(5), log_id=0)
    first = _next(log, "jane.a.ink")
    entry, document = read_adoption("jane.a.ink", first)
    jane = adopt_proved(restored.node, None, first, entry, document, leads_here=False)
    restored.back_up()
    moved = _next(log, "jane.b.ink")
    restored.node.store.ingest([(moved.entry, moved.payload)])
    restored.restore(jane)
    assert restored.own("jane.a.ink") is None
    with pytest.raises(UnknownIdentity):
        well_known_of(restored.node, "jane.a.ink")
    with raises("identity.lives-elsewhere"):
        adopt_proved(restored.node, None, first, entry, document, leads_here=False)


def test_restored_home_keeps_reserved_names(restored: Restored) -> None:
    register_identity(restored.node, "jane.a.ink", None)
    restored.back_up()
    create_identity(restored.node, "boss.a.ink", None)
    restored.restore()
    assert restored.registration("boss.a.ink") == "identity.reserved-name"


def test_restored_home_keeps_a_name_that_was_left_since(restored: Restored) -> None:
    jane = register_identity(restored.node, "jane.a.ink", None)
    restored.back_up()
    change_identity(restored.node, jane.id, fqdn="joan.a.ink")
    restored.restore(jane)
    assert restored.registration("jane.a.ink") == "identity.name-left"


def test_restored_home_gives_no_rights_to_who_had_the_name_before(restored: Restored) -> None:
    restored.settings = replace(restored.settings, administrators=())
    restored.back_up()  # opened again without the list
    jane = register_identity(restored.node, "boss.a.ink", None)
    shutil.rmtree(restored.folder / "backup")
    restored.back_up()
    change_identity(restored.node, jane.id, fqdn="joan.a.ink")
    restored.settings = replace(restored.settings, administrators=("boss.a.ink",))
    restored.restore(jane)
    bind_administrators(restored.node)
    assert restored.node.database.read(lambda connection: find_bound(connection, "boss.a.ink")) is None


def _next(log: LogBuilder, fqdn: str) -> SignedMessage:
    payload = encode_message(IdentityDocument(fqdn, f"https://{fqdn}"))
    return SignedMessage(log.append(payload).encoded, payload)

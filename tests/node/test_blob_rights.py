"""The right to a blob follows from the messages in the log store: no view is asked, and none need be there."""

from typing import Any

import httpx
import pytest
from sqlalchemy import insert

from inkgrove.core import IdentityId, parse_hash
from inkgrove.messages import Access, Create, Delete, RevokedLog, Timestamp, Update, encode_message
from inkgrove.node.blobs import instances_naming, update_blob_references
from inkgrove.node.identity import ANYBODY, Caller
from inkgrove.node.runtime import Node
from inkgrove.store.db import shares
from inkgrove.store.logs import register_schema, set_key_ends, unregister_schema
from inkgrove.store.node import put_relation_state
from inkgrove.store.views import gone
from tests.support.albums import Album
from tests.support.logs import LogBuilder, key
from tests.support.nodes import RunningNode
from tests.support.publishing import create, make_schema

PICTURE = b"\x89PNG a picture of a sloth"
NAMES = ("jane", "john", "judy")


@pytest.fixture
def people(running: RunningNode) -> dict[str, dict[str, Any]]:
    return {name: running.create(f"{name}.haiku.ink") for name in NAMES}


@pytest.fixture
def clients(running: RunningNode, people: dict[str, Any]) -> dict[str, httpx.Client]:
    return {"nobody": running.anybody, **{name: running.sign_in(f"{name}.haiku.ink") for name in people}}


@pytest.fixture
def album(running: RunningNode) -> Album:
    """An album that no view is built of, and of whose messages the node is told nothing but by its store."""
    album = Album(running.node, note=False)
    running.node.store.write(unregister_schema, album.schema_id)
    return album


def upload(client: httpx.Client, content: bytes = PICTURE) -> dict[str, Any]:
    answer = client.post("/blobs", content=content, headers={"Content-Type": "image/png"})
    assert answer.status_code == 201, answer.text
    blob: dict[str, Any] = answer.json()
    return blob


def readers(clients: dict[str, httpx.Client], blob: dict[str, Any]) -> set[str]:
    return {name for name, client in clients.items() if client.get(f"/blobs/{blob['hash']}").status_code == 200}


def identity(person: dict[str, Any]) -> IdentityId:
    return IdentityId(bytes.fromhex(person["id"]))


def test_blob_of_a_shared_instance_is_read_though_its_schema_is_not_materialised(
    clients: dict[str, httpx.Client],
) -> None:
    assert clients["john"].put("/me/senders/jane.haiku.ink").status_code < 300  # else her mail waits for his word
    schema = make_schema(clients["jane"])
    blob = upload(clients["jane"])
    shared = create(clients["jane"], schema, fields={"picture": blob}, recipients=["john.haiku.ink"])["instance"]
    assert readers(clients, blob) == {"jane", "john"}
    assert clients["jane"].delete(f"/instances/{shared}").status_code == 200
    assert readers(clients, blob) == {"jane"}


def test_newest_word_on_access_counts_at_once(
    clients: dict[str, httpx.Client], people: dict[str, Any], album: Album
) -> None:
    blob = upload(clients["jane"])
    instance = album.create(people["jane"], {"picture": blob}, Access("public"))
    assert readers(clients, blob) == {"nobody", *NAMES}
    for access, expected in (
        (Access("self"), {"jane"}),
        (Access("public"), {"nobody", *NAMES}),
        (Access("listed"), {"jane"}),
        (Access("closed", (identity(people["john"]),)), {"jane"}),  # named, but it was never sent to him
    ):
        album.update(people["jane"], instance, access=access)
        assert readers(clients, blob) == expected, access
    album.update(people["jane"], instance, access=Access("public"))
    album.update(people["jane"], instance, expires=Timestamp(album.node.clock() - 1))
    assert readers(clients, blob) == {"jane"}
    album.update(people["jane"], instance, expires=None)
    assert readers(clients, blob) == {"nobody", *NAMES}
    album.delete(people["jane"], instance)
    assert readers(clients, blob) == {"jane"}


def test_blob_that_a_later_message_names_is_seen_as_the_instance_is(
    clients: dict[str, httpx.Client], people: dict[str, Any], album: Album
) -> None:
    first, second = upload(clients["jane"]), upload(clients["jane"], b"another")
    instance = album.create(people["jane"], {"caption": "soon"}, Access("public"))
    album.update(people["jane"], instance, fields={"picture": first})
    assert readers(clients, first) == {"nobody", *NAMES}
    album.update(people["jane"], instance, access=Access("self"))
    album.update(people["jane"], instance, fields={"picture": second})
    assert readers(clients, first) == readers(clients, second) == {"jane"}


def test_what_a_revoked_key_or_an_end_leaves_out_lends_nothing(
    clients: dict[str, httpx.Client], people: dict[str, Any], album: Album
) -> None:
    node: Node = album.node
    first, second = upload(clients["jane"]), upload(clients["jane"], b"another")
    album.create(people["jane"], {"picture": first}, Access("public"))
    narrowed = album.create(people["jane"], {"picture": second}, Access("self"))
    album.update(people["jane"], narrowed, access=Access("public"))
    author = album._secret(people["jane"]).public
    assert readers(clients, second) == {"nobody", *NAMES}
    node.database.write(lambda connection: set_key_ends(connection, author, [RevokedLog(7, 2)]))
    assert readers(clients, first) == {"nobody", *NAMES}
    assert readers(clients, second) == {"jane"}  # that it is public was said behind the end of the key
    update_blob_references(node)
    assert readers(clients, second) == {"jane"}
    node.database.write(lambda connection: set_key_ends(connection, author, [RevokedLog(7, 0)]))
    assert readers(clients, first) == {"jane"}
    node.database.write(lambda connection: set_key_ends(connection, author, None))
    update_blob_references(node)
    assert readers(clients, first) == readers(clients, second) == {"nobody", *NAMES}


def test_fork_takes_back_what_it_undoes_and_deletes_in_every_branch_count(
    clients: dict[str, httpx.Client], people: dict[str, Any], album: Album
) -> None:
    first, second = upload(clients["jane"]), upload(clients["jane"], b"another")
    kept = album.create(people["jane"], {"picture": first}, Access("public"))
    album.create(people["jane"], {"picture": second}, Access("public"))
    secret = album._secret(people["jane"])
    first_payload = album._logs[secret.public].payloads[0]
    for message, expected in (
        (Update(album.version, kept, {"caption": "later"}, salt=b"1" * 16), {"nobody", *NAMES}),
        (Delete(kept, salt=b"1" * 16), {"jane"}),
    ):
        branch = LogBuilder(secret, 7)
        branch.append(first_payload)
        branch.append(encode_message(message))
        item = branch.held()[-1]
        album.node.store.ingest([(item.signed.entry.encoded, item.payload)])
        assert readers(clients, first) == expected
        assert readers(clients, second) == {"jane"}  # it stands where the log is forked
        update_blob_references(album.node)
        assert readers(clients, first) == expected


def test_instance_that_went_by_cascade_lends_nothing(
    clients: dict[str, httpx.Client], people: dict[str, Any], album: Album
) -> None:
    blob = upload(clients["jane"])
    instance = album.create(people["jane"], {"picture": blob}, Access("public"))
    album.node.store.write(register_schema, album.schema_id)
    album.build()
    assert readers(clients, blob) == {"nobody", *NAMES}
    view = album.node.views.views()[album.schema_id].id
    with album.node.views.database.writing() as connection:
        connection.execute(insert(gone).values(view=view, instance=instance, round=1))
    assert readers(clients, blob) == {"jane"}


def test_naming_the_hash_of_somebody_elses_blob_still_opens_nothing(
    clients: dict[str, httpx.Client], people: dict[str, Any], album: Album
) -> None:
    blob = upload(clients["jane"])
    album.create(people["john"], {"picture": blob}, Access("public"))
    assert readers(clients, blob) == {"jane"}
    update_blob_references(album.node)
    assert readers(clients, blob) == {"jane"}


# Whom to ask for a blob that is not here


ELSEWHERE: dict[str, Any] = {"hash": "0040" + "ab" * 64, "size": 12, "type": "image/png"}


def name_publicly(album: Album, strangers: int, posts: int) -> None:
    """Keys that cost nothing name the blob in public posts."""
    for number in range(strangers):
        log = LogBuilder(key(100 + number), 7)
        for post in range(posts):
            fields: dict[str, Any] = {"picture": ELSEWHERE, "caption": f"mine {post}"}
            log.append(encode_message(Create(album.version, fields, Access("public"), salt=b"0" * 16)))
        album.node.store.ingest([(item.signed.entry.encoded, item.payload) for item in log.held()])


def asked_for(node: Node, caller: Caller) -> list[str]:
    """The instances whose authors are asked for the blob, in this order."""
    return [instance.hex() for instance, _ in instances_naming(node, caller, parse_hash(ELSEWHERE["hash"]))]


@pytest.mark.both_databases
def test_those_whom_one_follows_are_asked_first_for_a_blob_that_many_name(
    people: dict[str, dict[str, Any]], album: Album
) -> None:
    name_publicly(album, strangers=20, posts=10)
    true = album.create(people["jane"], {"picture": ELSEWHERE}, Access("public")).hex()
    john = identity(people["john"])
    album.node.database.write(lambda c: put_relation_state(c, john, identity(people["jane"]), "accepted", 0))
    found = asked_for(album.node, Caller(john))
    assert found[0] == true
    assert 1 < len(found) == len(set(found)) <= 12
    assert len(asked_for(album.node, ANYBODY)) <= 12


@pytest.mark.both_databases
def test_those_whose_instance_one_was_sent_are_asked_before_others(
    people: dict[str, dict[str, Any]], album: Album
) -> None:
    name_publicly(album, strangers=20, posts=10)
    mail = album.create(people["jane"], {"picture": ELSEWHERE}, Access("public"))
    john = identity(people["john"])
    row = {"instance": mail, "identity": john, "shared": 0}
    album.node.database.write(lambda c: c.execute(insert(shares), row))
    assert asked_for(album.node, Caller(john))[0] == mail.hex()


@pytest.mark.both_databases
def test_many_posts_of_one_key_hide_no_other_author(people: dict[str, dict[str, Any]], album: Album) -> None:
    name_publicly(album, strangers=1, posts=300)
    true = album.create(people["jane"], {"picture": ELSEWHERE}, Access("public")).hex()
    for caller in (ANYBODY, Caller(identity(people["john"]))):
        found = asked_for(album.node, caller)
        assert len(found) == 2  # one of each
        assert true in found


@pytest.mark.both_databases
def test_logs_that_were_here_first_are_asked_first(people: dict[str, dict[str, Any]], album: Album) -> None:
    true = album.create(people["jane"], {"picture": ELSEWHERE}, Access("public")).hex()
    name_publicly(album, strangers=20, posts=10)
    assert asked_for(album.node, ANYBODY)[0] == true

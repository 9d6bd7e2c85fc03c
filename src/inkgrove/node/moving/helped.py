"""What a node does with an identity that comes with the help of its old node: its file, its name, its grant.

docs/protocol.md section 7.10.1; `federation.replication.helped` asks the old node.
"""

import json

from inkgrove.core import KEY_BYTES, IdentityId, SecretKey
from inkgrove.messages import MoveOffer
from inkgrove.node.errors import ArrivalError, MoveError
from inkgrove.node.identity import take_name
from inkgrove.node.moving.arrivals import begin_arrival, part_path, set_state
from inkgrove.node.moving.files import file_request
from inkgrove.node.runtime import Node
from inkgrove.store.db import Connection
from inkgrove.store.files import make_directory, sync_file
from inkgrove.store.node import StoredArrival, find_arrival, find_identity, note_first_key_lost


def begin_helped_arrival(
    node: Node, offer: MoveOffer, *, lives_at: str, grant: str, password: str | None
) -> tuple[StoredArrival, str]:
    """Begin an arrival with a grant, after `find_offer`; returns it with its token. `password` is hashed.

    An earlier one gives way, unless the old node may have been asked for its end. Raises `arrival.lives-here`,
    `arrival.under-way`, `arrival.too-many`, or `move.unknown-grant` if the identity has moved and not to this arrival.
    """
    if offer.state == "moved":
        node.database.read(lambda connection: _require_unknown(connection, offer.identity))
        raise MoveError("move.unknown-grant", "the identity has moved already, and this node did not ask for it")
    controller = SecretKey.from_seed(node.random_bytes(KEY_BYTES))
    arrival, token, _ = begin_arrival(
        node,
        offer.key,
        controller,
        way="helped",
        fqdn=offer.fqdn,
        password=password,
        request={"lives_at": lives_at, "has_words": offer.has_words},
        grant=grant.encode(),
        replaces=True,
    )
    return arrival, token


def _require_unknown(connection: Connection, identity: IdentityId) -> None:
    hosted, arrival = find_identity(connection, identity), find_arrival(connection, identity)
    if hosted is not None and hosted.lives_here:
        raise ArrivalError("arrival.lives-here", f"this identity lives here already, as {hosted.fqdn}: sign in")
    if arrival is not None and arrival.state == "committing":
        raise ArrivalError("arrival.under-way", "this identity is on its way here already: wait a moment")


def open_grant(node: Node, arrival: StoredArrival) -> str:
    """Return the grant of a helped arrival."""
    text = None if arrival.grant_sealed is None else node.vault.decrypt_text(arrival.grant_sealed.decode())
    if text is None:
        raise MoveError("move.unknown-grant", "this node cannot read the grant any more: its vault has another key")
    return bytes.fromhex(text).decode()


def begin_part(node: Node, arrival: StoredArrival, offer: MoveOffer) -> tuple[StoredArrival | None, int]:
    """Let the file of an offer be fetched; returns the arrival and how many bytes are here. None: it has gone on.

    What has come of another file is removed. Raises `arrival.too-large`, or `storage.low-disk`.
    """
    wanted = file_request(node, offer.size, offer.digest.hex(), older=False)
    path, facts = part_path(node, arrival.identity), json.loads(arrival.facts)
    if facts.get("expected") != wanted:
        path.unlink(missing_ok=True)
    begun = set_state(node, arrival, "fetching", facts={**facts, "expected": wanted})
    make_directory(path.parent)
    path.touch(0o600)
    received = path.stat().st_size
    if received > offer.size:
        path.unlink()
        received = 0
    return begun, received


def append_part(node: Node, arrival: StoredArrival, received: int, part: bytes) -> int:
    """Append the next bytes to a file, which has `received` so far; returns how many it has then."""
    node.disk.require()
    path = part_path(node, arrival.identity)
    with path.open("r+b" if received else "wb") as file:
        file.seek(received)
        file.write(part)
    sync_file(path)
    return received + len(part)


def reserve_name(node: Node, arrival: StoredArrival, *, leads_here: bool) -> None:
    """Let nobody else take the name of an arrival from now on; raises an error of names."""
    node.database.write(
        lambda connection: take_name(connection, node, arrival.fqdn, arrival.identity, leads_here=leads_here),
        durable=True,
    )


def note_lost_words(node: Node, arrival: StoredArrival) -> None:
    """Note, once an identity lives here, that nobody has its first key, if its old node has destroyed it."""
    if arrival.way == "helped" and not json.loads(arrival.request)["has_words"]:
        node.database.write(lambda connection: note_first_key_lost(connection, arrival.identity))

"""An identity that comes here from another node: how far it has come, and the transaction that lets it live here.

docs/protocol.md section 7.10. The states are `asked -> fetching -> arriving -> committing -> here`; each is in the
database before its work begins, and every piece of work can be done twice, so the process may end at any moment. Until
`here` nobody sees the identity on this node: it has no row among the hosted ones, no name and no relations. `settle` is
the point of no return where the old node does not help.
"""

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from inkgrove.core import IdentityId, NextEntry, PublicKey, SecretKey, decode_entry, identity_of, sign_entry
from inkgrove.messages import IdentityDocument, KeyOf, RevokedLog, encode_message
from inkgrove.node.errors import ArrivalError, IdentityError
from inkgrove.node.identity import (
    IDENTITY_LOG,
    IdentityRecord,
    SignedMessage,
    append_unless_newest,
    apply_identity_log,
    check_document,
    find_control,
    hash_token,
    new_token,
    parse_fqdn,
    read_control,
    read_next_of_log0,
    show_identity,
    take_name,
)
from inkgrove.node.moving.told import put_told_relations
from inkgrove.node.person_file import import_rows
from inkgrove.node.runtime import Node
from inkgrove.store.db import Connection
from inkgrove.store.logs import IngestStatus, by_log, find_pins, ingest_batch, prepare_items
from inkgrove.store.node import (
    ArrivalState,
    ArrivalWay,
    HostedIdentity,
    StoredArrival,
    add_identity,
    count_open_arrivals,
    end_sessions,
    find_arrival_by_id,
    find_identity,
    forget_idle_arrivals,
    keep_secret,
    leave_name,
    lock_arrival,
    lock_keys,
    put_arrival,
    put_key,
    set_arrival,
    set_password,
)

ARRIVAL: Final = "ink_m_"
"""How the token of an arrival begins; nobody can sign in with one."""
_ID_BYTES: Final = 16
_IDLE_SECONDS: Final = 3600
"""With which nothing was done for so long gives way to another, if so many are under way as may be."""
_ASKED_SECONDS: Final = 24 * 3600
"""An old node that has not answered for so long may never: what waits for it takes nobody's place, and is kept."""
_SECOND: Final = 1_000_000


def part_path(node: Node, identity: IdentityId) -> Path:
    """Where the file of an identity lies that comes here, as far as it has come."""
    return node.home / "arrivals" / f"{identity.hex()}.part"


# Beginning


def begin_arrival(
    node: Node,
    key: PublicKey,
    controller: SecretKey,
    *,
    way: ArrivalWay,
    fqdn: str,
    password: str | None,
    request: Mapping[str, Any],
    grant: bytes | None = None,
    replaces: bool,
) -> tuple[StoredArrival, str, StoredArrival | None]:
    """Begin to bring an identity here; returns the arrival, in the state `asked`, and its token, which is given once.

    The third value is the arrival that it replaces, if there was one.

    `key` is its first key, `controller` the one that this node made to speak for it with, `password` is hashed.
    `request` is what the way needs. `grant` is sealed. `replaces`: the caller has proved the first key, or has a grant
    of the node where the identity lives, so that an arrival that is under way gives way. To a grant none does that was
    begun with the first key, since a host that is left against its will gives grants too, and none that the old node
    may have answered already. Raises `arrival.lives-here`, `arrival.under-way` or `arrival.too-many`.
    """
    identity, now, token = identity_of(key), node.clock(), new_token(node, ARRIVAL)
    key_of = sign_entry(controller, encode_message(KeyOf(identity)), log_id=IDENTITY_LOG, seq_num=1)
    arrival = StoredArrival(
        identity=identity,
        id=node.random_bytes(_ID_BYTES).hex(),
        token=hash_token(token),
        state="asked",
        way=way,
        key=key,
        fqdn=parse_fqdn(fqdn),
        password=password,
        controller=controller.public,
        sealed=node.vault.seal(controller),
        key_of=key_of.encoded,
        request=json.dumps(dict(request)),
        grant_sealed=None if grant is None else node.vault.encrypt_text(grant.hex()).encode(),
        begun=now,
        changed=now,
    )

    def work(connection: Connection) -> tuple[StoredArrival | None, list[IdentityId]]:
        before = lock_arrival(connection, identity)
        hosted = find_identity(connection, identity)
        if hosted is not None and hosted.lives_here:
            raise _lives_here(hosted.fqdn)
        stays = before is not None and way == "helped" and (before.way != "helped" or before.state == "committing")
        if before is not None and before.state != "here" and (not replaces or stays):
            raise ArrivalError("arrival.under-way", "this identity is on its way here already: look at that arrival")
        gone: list[IdentityId] = []
        is_more = before is None or before.state == "here"
        if is_more and _is_full(connection, node, now):
            gone = forget_idle_arrivals(connection, before=now - _IDLE_SECONDS * _SECOND)
        if is_more and _is_full(connection, node, now):
            raise ArrivalError(
                "arrival.too-many",
                f"{node.settings.arrivals_at_once} identities are on their way here: try again later",
                retry_after=3600,
            )
        put_arrival(connection, arrival)
        return before, gone

    before, gone = node.database.write(work, durable=True)
    for other in gone:
        part_path(node, other).unlink(missing_ok=True)
    return arrival, token, before


def _is_full(connection: Connection, node: Node, now: int) -> bool:
    asked_since = now - _ASKED_SECONDS * _SECOND
    return count_open_arrivals(connection, asked_since=asked_since) >= node.settings.arrivals_at_once


def _lives_here(fqdn: str) -> ArrivalError:
    return ArrivalError(
        "arrival.lives-here",
        f"this identity lives here already, as {fqdn}: sign in, or set a new password with the words",
        fqdn=fqdn,
    )


def require_arrival(node: Node, arrival_id: str, token: str | None) -> StoredArrival:
    """Return the arrival with an id, for whoever has its token; raises `arrival.unknown`."""
    found = None
    if token is not None and token.startswith(ARRIVAL):
        found = node.database.read(lambda c: find_arrival_by_id(c, arrival_id, hash_token(token)))
    if found is None:
        raise ArrivalError(
            "arrival.unknown", "no arrival with this id and token is known here: begin again, with the words"
        )
    return found


def set_state(
    node: Node,
    arrival: StoredArrival,
    state: ArrivalState,
    *,
    facts: Mapping[str, Any] | None = None,
    code: str | None = None,
    reason: str | None = None,
) -> StoredArrival | None:
    """Go on to another state, or note what keeps an arrival in this one; None if it has gone on meanwhile.

    It is in the database when this returns. An arrival that has been begun again is another one.
    """
    now, told = node.clock(), arrival.facts if facts is None else json.dumps(dict(facts))

    def work(connection: Connection) -> bool:
        return set_arrival(connection, arrival, [arrival.state], now, state=state, facts=told, code=code, reason=reason)

    is_same = node.database.write(work, durable=True)
    return replace(arrival, changed=now, state=state, facts=told, code=code, reason=reason) if is_same else None


# Looking


@dataclass(frozen=True, slots=True)
class ArrivalProgress:
    """How far an identity has come, and, once all but the document is here, what that has to say."""

    arrival: StoredArrival
    received: int
    """How many bytes of the file have come."""
    next: NextEntry | None = None
    """The place of the next entry in log 0 of the first key."""
    document: IdentityDocument | None = None
    """The document in effect."""
    first_document: IdentityDocument | None = None
    """The newest one that the first key has signed itself: what a host said of its own accord is not in it."""
    ends: Mapping[PublicKey, Sequence[RevokedLog]] | None = None
    """How far the logs of each key in use go here: what a document that ends it would pin."""


def read_progress(node: Node, arrival: StoredArrival) -> ArrivalProgress:
    """Read how far an arrival has come."""
    received = 0
    with suppress(FileNotFoundError):  # none has come yet, or all of it was taken in
        received = part_path(node, arrival.identity).stat().st_size
    if arrival.state != "committing":
        return ArrivalProgress(arrival, received)

    def work(connection: Connection) -> ArrivalProgress:
        control = find_control(connection, arrival.key)
        if control is None:
            return ArrivalProgress(arrival, received)
        listed = {item.key for item in control.document.keys if item.revoked is None}
        ends = {key: find_pins(connection, key) for key in sorted(listed)}
        following = read_next_of_log0(connection, arrival.key)
        first = control.path[0].document
        return ArrivalProgress(arrival, received, following, control.document, first, ends)

    return node.database.read(work)


# The point of no return


def settle(
    node: Node, identity: IdentityId, signed: Sequence[SignedMessage], *, leads_here: bool = False
) -> IdentityRecord:
    """Let an identity live here whose arrival is `committing`, in one durable transaction.

    `signed` are the entries of log 0 that make a document in effect which names this node, the name of the arrival and
    its controller: the first key's next one, or what the old node answered. The transaction ingests them and the
    controller's own `key-of`, takes the name, adds the identity, keeps the controller's secret and applies the log.
    Asked again with the same entries it changes nothing. Raises `arrival.unknown`, `arrival.not-ready`,
    `arrival.lives-here`, `identity.bad-document`, an error of names, or why an entry was refused; then nothing has
    changed.
    """
    answer = json.dumps([[b64encode(item.entry).decode(), b64encode(item.payload).decode()] for item in signed])

    def work(connection: Connection) -> None:
        arrival = lock_arrival(connection, identity)
        if arrival is None:
            raise ArrivalError("arrival.unknown", "this identity is not on its way here: begin again, with the words")
        if arrival.state == "here" and arrival.answer == answer:
            return
        if arrival.state != "committing":
            raise ArrivalError(
                "arrival.not-ready", f"the arrival is {arrival.state}, not committing", state=arrival.state
            )
        lock_keys(connection, [identity])
        hosted = find_identity(connection, identity)
        if hosted is not None and hosted.lives_here:
            raise _lives_here(hosted.fqdn)
        _append(connection, arrival, signed)
        document = _require_named(connection, node, arrival)
        take_name(connection, node, arrival.fqdn, identity, leads_here=leads_here)
        check_document(connection, arrival.key, document, node.settings.endpoint)
        _host(connection, node, arrival, hosted, document)
        put_key(connection, arrival.controller, identity)
        keep_secret(connection, arrival.controller, arrival.sealed)
        apply_identity_log(connection, arrival.key, is_ours=True)
        # Its key and password are where those of all others are: nothing is kept twice.
        gone = {"code": None, "reason": None, "sealed": b"", "password": None, "grant_sealed": None}
        set_arrival(connection, arrival, ["committing"], node.clock(), state="here", answer=answer, **gone)

    node.signing.write(work)
    return show_identity(node, identity)


def _append(connection: Connection, arrival: StoredArrival, signed: Sequence[SignedMessage]) -> None:
    """Append the entries of the document; the controller's own one, and those of controllers, may have come before."""
    first = [item for item in signed if decode_entry(item.entry).author == arrival.key]
    others = [item for item in signed if decode_entry(item.entry).author != arrival.key]
    key_of = SignedMessage(arrival.key_of, encode_message(KeyOf(arrival.identity)))
    for item in first:
        append_unless_newest(connection, decode_entry(item.entry), item)
    prepared, rejected = prepare_items([(item.entry, item.payload) for item in (key_of, *others)])
    for refused in rejected:
        raise refused.error
    for ready in prepared:
        if ready.signed.entry.log_id != IDENTITY_LOG:
            raise _bad_document("entries of log 0 alone let an identity live here")
        if ready.payload_error is not None:
            raise ready.payload_error
    for receipt in ingest_batch(connection, by_log(prepared), must_be_next=False).values():
        if receipt.status is IngestStatus.REFUSED and receipt.error is not None:
            raise receipt.error


def _require_named(connection: Connection, node: Node, arrival: StoredArrival) -> IdentityDocument:
    """Return the document in effect, if it names this node as the arrival wants it."""
    control = read_control(connection, arrival.key)
    document = control.document
    if (document.fqdn, document.controller) != (arrival.fqdn, arrival.controller):
        raise _bad_document(
            f"the document in effect must name {arrival.fqdn} and the controller {arrival.controller} of this arrival"
        )
    if control.controller != arrival.controller:
        raise _bad_document("the document must list its controller among its keys in use")
    if document.endpoint != (ours := node.settings.endpoint.format(fqdn=arrival.fqdn)):
        raise _bad_document(f"the endpoint must be {ours}, where this node is reached")
    return document


def _bad_document(text: str) -> IdentityError:
    return IdentityError("identity.bad-document", text)


def _host(
    connection: Connection,
    node: Node,
    arrival: StoredArrival,
    hosted: HostedIdentity | None,
    document: IdentityDocument,
) -> None:
    """Add the identity; one that lived here before and comes back gets the new password, and its sign-ins end."""
    if hosted is not None:
        set_password(connection, arrival.identity, arrival.password)
        end_sessions(connection, identity=arrival.identity)
        if hosted.fqdn != arrival.fqdn:
            leave_name(connection, hosted.fqdn, arrival.identity, node.clock())
        return
    new = HostedIdentity(arrival.identity, arrival.fqdn, arrival.key, arrival.password, node.clock(), document.endpoint)
    if not add_identity(connection, new, None):
        raise IdentityError("identity.exists", f"the name {arrival.fqdn} is taken on this node", fqdn=arrival.fqdn)


# Afterwards


def finish_rows(node: Node, arrival: StoredArrival) -> list[tuple[IdentityId, str]]:
    """Put in what waited until the identity lives here: the rows of its file, or what friends have told.

    Can be done twice. Returns others whom the rows are about, each with a name under which they can be looked up.
    """
    facts = json.loads(arrival.facts)
    path = part_path(node, arrival.identity)
    if "digest" in facts and path.exists():
        return import_rows(node, path, arrival.identity, bytes.fromhex(facts["digest"])).people
    if arrival.way == "friends":
        return put_told_relations(node, arrival)
    return []


def finish_arrival(node: Node, arrival: StoredArrival) -> None:
    """Note that nothing is left to be done for an arrival, and remove the file."""
    now = node.clock()
    node.database.write(lambda c: set_arrival(c, arrival, ["here"], now, finished=now), durable=True)
    part_path(node, arrival.identity).unlink(missing_ok=True)

"""Closes accounts: deletes everything that an identity published here, says so in its document, forgets the rest.

docs/protocol.md section 7.9. Closing begins with the password and cannot be taken back: from that transaction on nobody
signs in as the identity. Each later step is one transaction that leaves what is to be done next in the database, so the
process may end between any two. What is left at the end is a certificate, for whoever has the token of the closing.
"""

import json
import logging
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from inkgrove.core import Hash, IdentityId
from inkgrove.core.errors import InkgroveError, LogError, StoreError
from inkgrove.messages import IdentityDocument, Timestamp
from inkgrove.node.errors import BadToken, IdentityError, RelationError
from inkgrove.node.identity.caller import Caller
from inkgrove.node.identity.identities import edit_document
from inkgrove.node.identity.identity_log import find_newest_document
from inkgrove.node.identity.leaving import require_staying
from inkgrove.node.identity.names import find_identity_name, list_administrators
from inkgrove.node.identity.relations import list_relations, move_relation
from inkgrove.node.identity.sessions import CheckedPassword, hash_token, new_token
from inkgrove.node.publishing.instances import DeleteInstance
from inkgrove.node.publishing.transaction import Appender, PublishingCache
from inkgrove.node.runtime.erasure import erase_due, note_ended
from inkgrove.node.runtime.node import Node
from inkgrove.store.db import Connection
from inkgrove.store.federation import (
    ClosingState,
    StoredClosing,
    add_closing,
    ask_for_erased,
    ask_for_erasures,
    count_erasures,
    count_unanswered,
    count_undeleted,
    find_closing,
    forget_closings,
    forget_hosted_identity,
    has_unanswered,
    has_untold,
    list_open_closings,
    lock_closing,
    next_undeleted,
    read_answers,
    read_closing,
    sealed_authors,
    set_closing,
    shut_account,
    stop_new_deliveries,
)
from inkgrove.store.node import HostedIdentity, Side, find_identity, leave_name, lock_keys

CLOSING: Final = "ink_x_"
"""How the token of a closing begins; nobody can sign in with one."""
CERTIFICATE_FORMAT: Final = "inkgrove closing 1"
CERTIFICATE_DAYS: Final = 90
"""How long a certificate can be fetched."""
_PARTING_SECONDS: Final = 3600
"""How long other nodes have to hear that relations have ended."""
_PARTING: Final = "parting_since"
_AT_ONCE: Final = 100
"""How many instances are deleted in one transaction: others publish in between."""
_DAY: Final = 86_400 * 1_000_000
_STAYS: Final = (
    "entries without their content, which prove the logs of others",
    "schemas, which the rows of others are read with",
    "copies that others made their own",
    "what peers took of public instances, until they hear of the deletes",
    "backups, and free blocks of disks",
)
log = logging.getLogger(__name__)


def begin_closing(node: Node, checked: CheckedPassword) -> str:
    """Begin to close the account of an identity, whose password was just checked; the token that shows how far it is.

    From here on nobody signs in as it or acts for it. Raises `identity.administers` for an administrator of the node,
    `identity.no-key-here` if a client has to sign what ends the account, `BadPassword` if another sign-in was faster.
    """
    identity, token = checked.identity, new_token(node, CLOSING)
    if identity in list_administrators(node):
        raise IdentityError(
            "identity.administers",
            "you administer this node: take your name out of node.administrators before you close your account",
        )

    def work(connection: Connection) -> None:
        require_staying(connection, identity)
        checked.require(connection)
        hosted = find_identity(connection, identity)
        assert hosted is not None  # its row is locked
        if hosted.lives_here and not sealed_authors(connection, identity):
            newest = find_newest_document(connection, hosted.key)
            if newest is not None and not newest[1].closed:
                raise IdentityError(
                    "identity.no-key-here",
                    "this node keeps no key of yours: delete what you published, then sign a document with `closed`"
                    " (PATCH /me with `signed`), then close the account",
                )
        total = count_undeleted(connection, identity) if hosted.lives_here else 0
        facts = json.dumps(shut_account(connection, identity))
        add_closing(connection, identity, hosted.fqdn, hash_token(token), total=total, facts=facts, now=node.clock())

    node.database.write(work, durable=True)
    return token


@dataclass(frozen=True, slots=True)
class ClosingProgress:
    """How far the closing of an account has come."""

    state: ClosingState
    total: int
    deleted: int
    undeleted: int
    unanswered: int
    """How many deliveries of deletes wait for an answer."""
    certificate: dict[str, Any] | None

    def render(self) -> dict[str, Any]:
        """As answers show it."""
        return {name: getattr(self, name) for name in ClosingProgress.__slots__}


def show_closing(node: Node, token: str) -> ClosingProgress:
    """Show a closing to whoever has its token; raises `BadToken`."""

    def work(connection: Connection) -> ClosingProgress:
        found = find_closing(connection, hash_token(token)) if token.startswith(CLOSING) else None
        if found is None:
            raise BadToken("no account is being closed with this token, or its certificate was forgotten")
        unanswered = count_unanswered(connection, found.identity) if found.state != "closed" else 0
        certificate = None if found.certificate is None else json.loads(found.certificate)
        return ClosingProgress(found.state, found.total, found.deleted, found.undeleted, unanswered, certificate)

    return node.database.read(work)


# The steps


def advance_closings(node: Node) -> None:
    """Do what can be done now for every account that is being closed, step by step."""
    for identity in node.database.read(list_open_closings):
        while advance_closing(node, identity):
            if node.stopping.is_set():
                return


def tidy_closings(node: Node) -> None:
    """Forget old certificates."""
    before = node.clock() - CERTIFICATE_DAYS * _DAY
    node.database.write(lambda connection: forget_closings(connection, before))


def advance_closing(node: Node, identity: IdentityId) -> bool:
    """Do the next step in closing an account; False if it waits for others, or is over."""
    found = node.database.read(lambda connection: read_closing(connection, identity))
    match None if found is None else found.state:
        case "deleting":
            return _delete_some(node, identity) or _announce(node, identity)
        case "delivering":
            return _part_if_answered(node, identity)
        case "parting":
            return _finish_if_told(node, identity)
    return False


def _lives_here(connection: Connection, identity: IdentityId) -> bool:
    hosted = find_identity(connection, identity)
    return hosted is not None and hosted.lives_here


def _delete_some(node: Node, identity: IdentityId) -> bool:
    """Sign the deletes of the next instances; False if there are none."""
    caller = Caller(identity)

    def work(connection: Connection) -> bool:
        closing = lock_closing(connection, identity, "deleting")
        if closing is None or not _lives_here(connection, identity):
            return False
        found = next_undeleted(connection, identity, log=closing.log, seq_num=closing.seq_num, limit=_AT_ONCE)
        if not found:
            return False
        appender = Appender(node, connection, lock_keys(connection, [identity]), PublishingCache(), len(found))
        appender.load_instances([item.hash for item in found])
        deleted = sum(_delete(appender, caller, item.hash) for item in found)
        appender.finish()
        set_closing(
            connection,
            identity,
            deleted=closing.deleted + deleted,
            undeleted=closing.undeleted + len(found) - deleted,
            log=found[-1].log,
            seq_num=found[-1].seq_num,
        )
        return True

    return node.signing.write(work)


def _delete(appender: Appender, caller: Caller, instance: Hash) -> bool:
    """Sign a delete; False if this node cannot: the log takes no more."""
    try:
        DeleteInstance(instance).plan(appender, caller)
    except StoreError:
        raise
    except InkgroveError:
        return False
    return True


def _announce(node: Node, identity: IdentityId) -> bool:
    """Publish a document that says `closed`, without name and profile; then others are waited for."""

    def is_signed_here(connection: Connection) -> bool:
        return _lives_here(connection, identity) and bool(sealed_authors(connection, identity))

    if node.database.read(is_signed_here):
        try:
            edit_document(node, identity, lambda _, document: _close(node, document))
        except (LogError, IdentityError) as error:  # a log 0 that takes no more keeps nobody here
            log.warning("an account is closed without a document that says so: %s", error.code)

    def work(connection: Connection) -> None:
        if lock_closing(connection, identity, "deleting") is not None:
            stop_new_deliveries(connection, identity, node.clock())
            ask_for_erased(connection, identity, node.clock())
            set_closing(connection, identity, state="delivering")

    node.database.write(work)
    return True


def _close(node: Node, document: IdentityDocument) -> IdentityDocument:
    endpoint = node.settings.endpoint.format(fqdn=document.fqdn)
    return replace(document, endpoint=endpoint, name=None, profile={}, closed=True)


def _part_if_answered(node: Node, identity: IdentityId) -> bool:
    """End all relations once every delete was answered or given up: who is told first may refuse the rest."""

    def look(connection: Connection) -> ClosingState:
        closing = lock_closing(connection, identity, "delivering")
        if closing is None or has_unanswered(connection, identity):
            return "delivering"
        if _lives_here(connection, identity) and count_undeleted(connection, identity) > closing.undeleted:
            # Something was published in the moment in which the account was shut.
            shut_account(connection, identity)
            set_closing(connection, identity, state="deleting", undeleted=0, log=0, seq_num=0)
            return "deleting"
        return "parting"

    found = node.database.write(look)
    if found == "parting":
        _end_relations(node, identity)
        node.database.write(partial(_note_parting, identity=identity, now=node.clock()))
    return found != "delivering"


def _note_parting(connection: Connection, identity: IdentityId, now: int) -> None:
    closing = lock_closing(connection, identity, "delivering")
    if closing is not None:
        facts = json.dumps({**json.loads(closing.facts), _PARTING: now})
        set_closing(connection, identity, state="parting", facts=facts)


def _end_relations(node: Node, identity: IdentityId) -> None:
    """End both sides of all relations and tell other nodes; a block is somebody else's decision, and stays."""
    if not node.database.read(lambda connection: _lives_here(connection, identity)):
        return
    after: tuple[Side, IdentityId] | None = None
    while found := list_relations(node, identity, after=after, limit=100):
        for item in found:
            with suppress(RelationError):  # the other side has ended it meanwhile
                if item.side == "followers":
                    move_relation(node, item.identity, identity, "remove", tells=True)
                elif item.state != "blocked":
                    move_relation(node, identity, item.identity, "end", tells=True)
        after = found[-1].side, found[-1].identity


def _finish_if_told(node: Node, identity: IdentityId) -> bool:
    """Once others know that relations have ended: forget the identity, leave its name, write the certificate.

    Who was given up before is not waited for as long again.
    """
    now = node.clock()
    patience = min(_PARTING_SECONDS, node.settings.give_up_seconds) * 1_000_000

    def is_over(connection: Connection) -> bool:
        closing = lock_closing(connection, identity, "parting")
        waited = 0 if closing is None else now - json.loads(closing.facts)[_PARTING]
        return closing is not None and not (has_untold(connection, identity) and 0 <= waited < patience)

    if not node.database.write(is_over) or not _erase_everything(node, identity):
        return False

    def work(connection: Connection) -> None:
        closing = lock_closing(connection, identity, "parting")
        if closing is None:
            return
        hosted = find_identity(connection, identity)
        certificate = _certify(connection, node, closing, hosted, now)
        removed = forget_hosted_identity(connection, identity)
        shut = json.loads(closing.facts)
        certificate["removed_here"] = {name: number + shut.get(name, 0) for name, number in removed.items()}
        if hosted is not None:
            leave_name(connection, hosted.fqdn, identity, now)
        set_closing(connection, identity, state="closed", closed=now, certificate=json.dumps(certificate))

    node.database.write(work, durable=True)
    erase_due(node, compact=True)  # the files too; if others are at it, they do that, or it is done at night
    return False


def _erase_everything(node: Node, identity: IdentityId) -> bool:
    """Erase what the identity has deleted, without a grace; False if another process is erasing just now."""
    note_ended(node)
    node.database.write(lambda connection: ask_for_erasures(connection, identity), durable=True)
    return erase_due(node, compact=False) is not None


def _certify(
    connection: Connection, node: Node, closing: StoredClosing, hosted: HostedIdentity | None, now: int
) -> dict[str, Any]:
    """What the certificate says, before anything of it is forgotten."""
    newest = None if hosted is None else find_newest_document(connection, hosted.key)
    recipients = [
        {
            "identity": item.recipient.hex(),
            "fqdn": find_identity_name(connection, item.recipient),
            "instances": sum(item.states.values()),
            "erased": item.states.get("erased", 0),
            "accepted": item.states.get("delivered", 0),
            "waits_for_them": item.states.get("held", 0),
            "refused": item.states.get("refused", 0),
            "not_answered": item.states.get("given-up", 0) + item.states.get("waiting", 0),
        }
        for item in read_answers(connection, closing.identity)
    ]
    return {
        "format": CERTIFICATE_FORMAT,
        "identity": closing.identity.hex(),
        "fqdn": closing.fqdn,
        "endpoint": node.settings.endpoint.format(fqdn=closing.fqdn),
        "begun": str(Timestamp(closing.begun)),
        "closed": str(Timestamp(now)),
        "lived_here": hosted is not None and hosted.lives_here,
        "document": None if newest is None else {"revision": newest[0], "closed": newest[1].closed},
        "instances_deleted": closing.deleted,
        "instances_not_deleted": closing.undeleted,
        "instances_erased": count_erasures(connection, closing.identity),
        "recipients_confirmed": sum(item["instances"] == item["erased"] for item in recipients),
        "recipients": recipients,
        "stays": list(_STAYS),
    }

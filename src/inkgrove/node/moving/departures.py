"""Lets an identity leave for another node, which takes it over with a grant (docs/protocol.md section 7.10).

An identity is `here`, `leaving` or `moved`. While it is leaving nothing is signed for it and nothing is taken in for it
(`node.identity.leaving`), so the file that goes to the new node is all there is. One transaction ends the move: it
signs the document that names the new node and destroys the keys. Before it everything is here, after it everything is
there, and whoever asks again gets the same answer.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from inkgrove.core import Hash, IdentityId, PublicKey, SecretKey
from inkgrove.core.errors import InkgroveError
from inkgrove.messages import (
    Control,
    FurtherKey,
    IdentityDocument,
    KeyOf,
    MoveAnswer,
    MoveCommit,
    MoveOffer,
    RevokedLog,
    encode_move_answer,
)
from inkgrove.node.errors import IdentityError, IdentityLeaving, MoveError
from inkgrove.node.identity import (
    IDENTITY_LOG,
    CheckedPassword,
    SignedMessage,
    append_document,
    append_signed,
    apply_identity_log,
    find_document_signer,
    find_identity_of_key,
    hash_token,
    read_control,
    read_signed,
)
from inkgrove.node.identity.sessions import new_token
from inkgrove.node.identity.words import CONTROLLER_LABEL
from inkgrove.node.person_file import ExportJob, Exports
from inkgrove.node.runtime import Node, load_node_key
from inkgrove.store.db import Connection
from inkgrove.store.federation import sealed_authors
from inkgrove.store.logs import find_pins, read_entries
from inkgrove.store.node import (
    HostedIdentity,
    StoredDeparture,
    find_arrival,
    find_departure,
    find_departure_by_grant,
    find_identity,
    forget_secret,
    list_overdue_departures,
    lock_departure,
    lock_departures,
    lock_keys,
    note_moved,
    put_departure,
    remove_departure,
    sealed_key,
    set_home,
)

GRANT: Final = "ink_g_"
"""How a grant begins; nobody can sign in with one."""
LEAVING_SECONDS: Final = 24 * 3600
"""How long a grant lasts: then the identity is here again."""
MOST_CONTROLLERS: Final = 15
"""How many controllers may lead to a document that moves: others read one more (`well_known.MAX_SPEAKERS`)."""
_FILE_SECONDS: Final = 2 * LEAVING_SECONDS
_SECOND: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class GivenGrant:
    """What the new node takes an identity over with, within a day."""

    grant: str
    expires: int
    lives_at: str
    """Where the new node asks for the identity."""


@dataclass(frozen=True, slots=True)
class Departure:
    """Whether an identity is about to leave, or left, and how far the file for the new node is."""

    state: Literal["here", "leaving", "moved"]
    stored: StoredDeparture | None = None
    export: ExportJob | None = None

    @property
    def expires(self) -> int | None:
        """Until when it can be taken over."""
        return None if self.stored is None or self.state != "leaving" else _expiry(self.stored)


def _expiry(stored: StoredDeparture) -> int:
    return stored.since + LEAVING_SECONDS * _SECOND


class Departures:
    """The departures of a node; safe for threads, and for several processes of one home."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._files = Exports(node, "departures", kept_seconds=_FILE_SECONDS)

    def close(self) -> None:
        """Stop what is being written; it is begun again when the node starts."""
        self._files.close()

    # What the person asks for

    def begin(
        self,
        checked: CheckedPassword,
        *,
        fqdn: str,
        endpoint: str,
        node_key: PublicKey,
        without_words: bool = False,
    ) -> GivenGrant:
        """Let an identity, whose password was just checked, leave; the grant is returned once and never shown again.

        `node_key`: what the node at the endpoint signs its requests with. Raises `identity.leaving`,
        `identity.lives-elsewhere`, `identity.no-key-here`, `move.same-node`, `move.arriving`, `move.too-many`,
        `move.without-words`, or `BadPassword` if another sign-in was faster.
        """
        node, identity = self._node, checked.identity
        if node_key == load_node_key(node).public:
            raise MoveError("move.same-node", f"{endpoint} is where this very node is reached")
        grant = new_token(node, GRANT)
        departure = StoredDeparture(
            identity=identity,
            state="leaving",
            grant=hash_token(grant),
            fqdn=fqdn,
            endpoint=endpoint,
            node_key=node_key,
            file=self._files.new_id(),
            since=node.clock(),
        )

        def work(connection: Connection) -> str:
            lock_departures(connection)
            checked.require(connection)
            lock_keys(connection, [identity])
            before = lock_departure(connection, identity)
            if before is not None and before.state == "leaving":
                raise IdentityLeaving("you are about to move already: take that back first (DELETE /me/move)")
            hosted = _require_home(connection, identity)
            arrival = find_arrival(connection, identity)
            if arrival is not None and arrival.finished is None:
                raise MoveError("move.arriving", "not all that is yours is here yet: wait until you have arrived")
            control = read_control(connection, hosted.key)
            find_document_signer(connection, node, control)
            if len(control.path) > MOST_CONTROLLERS:
                raise MoveError(
                    "move.too-many",
                    f"{MOST_CONTROLLERS} controllers have handed over to each other: first sign a document with the"
                    " words (POST /identities/recover with a document), then move",
                )
            if sealed_key(connection, hosted.key) is not None and not without_words:
                raise MoveError(
                    "move.without-words",
                    "this node keeps your first key and destroys it when you have moved: write its words down first"
                    " (POST /me/words, POST /me/words/confirm), or say that you move without (`without_words`)",
                )
            put_departure(connection, departure)
            return control.document.endpoint

        lives_at = node.database.write(work, durable=True)
        self._files.discard(identity)
        self._files.ensure(identity, departure.file)
        return GivenGrant(grant, _expiry(departure), lives_at)

    def cancel(self, checked: CheckedPassword) -> None:
        """Let an identity stay; raises `move.none` if it is not about to leave, or `BadPassword`."""
        identity = checked.identity

        def work(connection: Connection) -> None:
            checked.require(connection)
            found = lock_departure(connection, identity)
            if found is None or found.state != "leaving":
                raise MoveError("move.none", "you are not about to move to another node")
            remove_departure(connection, identity)

        self._node.database.write(work, durable=True)
        self._files.discard(identity)

    def show(self, identity: IdentityId) -> Departure:
        """Show whether an identity is about to leave, or has left."""
        stored = self._node.database.read(lambda connection: find_departure(connection, identity))
        if stored is None:
            return Departure("here")
        export = self._files.ensure(identity, stored.file) if stored.state == "leaving" else None
        return Departure(stored.state, stored, export)

    # What the new node asks for

    def find(self, grant: str) -> StoredDeparture:
        """Return the departure of a grant; raises `move.unknown-grant`."""
        found = self._node.database.read(
            lambda connection: (
                find_departure_by_grant(connection, hash_token(grant)) if grant.startswith(GRANT) else None
            )
        )
        if found is None or (found.state == "leaving" and self._is_overdue(found)):
            raise _unknown_grant()
        return found

    def offer(self, departure: StoredDeparture) -> MoveOffer:
        """Describe a move to the new node, with the size and the digest of the file once it is written."""

        def read(connection: Connection) -> tuple[HostedIdentity | None, bool]:
            hosted = find_identity(connection, departure.identity)
            return hosted, hosted is not None and sealed_key(connection, hosted.key) is None

        hosted, has_words = self._node.database.read(read)
        if hosted is None:
            raise _unknown_grant()
        offer = MoveOffer(
            state="moved" if departure.state == "moved" else "preparing",
            identity=departure.identity,
            key=hosted.key,
            lives_at=hosted.fqdn,
            fqdn=departure.fqdn,
            endpoint=departure.endpoint,
            has_words=has_words,
        )
        if departure.state == "moved":
            return offer
        job = self._files.ensure(departure.identity, departure.file)
        if job.state == "failed":
            return replace(offer, state="failed")
        if job.state != "finished" or job.size is None or job.digest is None:
            return offer
        return replace(offer, state="ready", size=job.size, digest=bytes.fromhex(job.digest))

    def find_file(self, departure: StoredDeparture) -> tuple[ExportJob, Path]:
        """Return the finished export of a departure and its file; raises `move.not-ready` or `move.export-failed`."""
        if departure.state != "leaving":
            raise _unknown_grant()
        job = self._files.ensure(departure.identity, departure.file)
        if job.state == "failed":
            raise MoveError("move.export-failed", f"the file could not be written: {job.code}")
        if job.state != "finished":
            raise MoveError("move.not-ready", f"the file is {job.state}: ask again in a moment")
        return self._files.find_file(departure.identity, departure.file)

    def commit(self, departure: StoredDeparture, commit: MoveCommit) -> bytes:
        """End a move: from here on the identity lives on the new node; returns the bytes of a `MoveAnswer`.

        Asked again it returns the same bytes. Raises `move.unknown-grant`, `move.wrong-digest`, `move.bad-key`,
        `move.done-before`, `move.not-ready`.
        """
        if departure.state == "leaving":
            job, _ = self.find_file(departure)
            if job.digest != commit.digest.hex():
                raise MoveError("move.wrong-digest", "the new node has another file than was written for this move")
        signed = SignedMessage(commit.key_of[0], commit.key_of[1] or b"")
        controller = _read_controller(signed, departure.identity)
        # If this node is put back from a backup it has the keys again: the new node must be asked before it signs.
        self._node.receivers.add(departure.fqdn)
        return self._node.signing.write(lambda c: self._move(c, departure, controller, signed))

    def _move(
        self, connection: Connection, departure: StoredDeparture, controller: PublicKey, key_of: SignedMessage
    ) -> bytes:
        identity = departure.identity
        lock_keys(connection, [identity])
        found = lock_departure(connection, identity)
        if found is None or found.grant != departure.grant:
            raise _unknown_grant()
        if found.state == "moved" and found.answer is not None:
            if found.controller != controller:
                raise MoveError("move.done-before", "the identity has moved already, with another key")
            return found.answer
        if self._is_overdue(found):
            raise _unknown_grant()
        hosted = _require_home(connection, identity)
        if find_identity_of_key(connection, controller) != identity:
            append_signed(connection, key_of)
        control = read_control(connection, hosted.key)
        signer, under = find_document_signer(connection, self._node, control)
        kept = sealed_authors(connection, identity)
        ends = {key: tuple(find_pins(connection, key)) for key in kept}
        document = _hand_over(control, found, controller, ends)
        answer = _sign(connection, signer, under, document)
        for key in kept:
            forget_secret(connection, key)
        note_moved(connection, identity, controller, answer)
        apply_identity_log(connection, signer.public)
        set_home(connection, identity, hosted.endpoint, lives_here=False)
        return answer

    # What the node does by itself

    def tidy(self) -> None:
        """Let those stay whom nobody has taken over within a day, and go on with files that were being written."""
        now = self._node.clock()
        oldest = now - LEAVING_SECONDS * _SECOND

        def work(connection: Connection) -> list[IdentityId]:
            # Asked again in the transaction that removes: a move may be ending at this moment.
            overdue = list_overdue_departures(connection, oldest, now)
            ended = []
            for identity in overdue:
                found = lock_departure(connection, identity)
                if found is not None and found.state == "leaving" and self._is_overdue(found):
                    remove_departure(connection, identity)
                    ended.append(identity)
            return ended

        if self._node.database.read(lambda connection: list_overdue_departures(connection, oldest, now)):
            for identity in self._node.database.write(work, durable=True):
                self._files.discard(identity)
        self._files.tidy()

    def _is_overdue(self, departure: StoredDeparture) -> bool:
        """Whether a departure is over; also one that began at a time that has not come, with a wrong clock."""
        return not 0 <= self._node.clock() - departure.since < LEAVING_SECONDS * _SECOND


def _unknown_grant() -> MoveError:
    return MoveError(
        "move.unknown-grant", "no move is under way with this grant: it is wrong, was taken back, or a day has passed"
    )


def _require_home(connection: Connection, identity: IdentityId) -> HostedIdentity:
    hosted = find_identity(connection, identity)
    if hosted is None or not hosted.lives_here:
        raise IdentityError("identity.lives-elsewhere", "you have moved to another node: move on from there")
    return hosted


def _read_controller(signed: SignedMessage, identity: IdentityId) -> PublicKey:
    try:
        entry, message = read_signed(signed)
    except InkgroveError as err:
        raise MoveError("move.bad-key", f"the entry of the new key cannot be read: {err.message}") from err
    if (entry.log_id, entry.seq_num, message) != (IDENTITY_LOG, 1, KeyOf(identity)):
        raise MoveError("move.bad-key", "this must be entry 1 of the key's log 0 with a `key-of` of the identity")
    return entry.author


def _hand_over(
    control: Control, departure: StoredDeparture, controller: PublicKey, ends: dict[PublicKey, tuple[RevokedLog, ...]]
) -> IdentityDocument:
    """The document that names the new node and its key, and ends what the old node signed with, log by log."""
    listed = {item.key: item for item in control.document.keys}
    for key, logs in ends.items():
        before = listed.get(key, FurtherKey(key))
        if before.revoked is None:
            listed[key] = replace(before, revoked=logs)
    listed[controller] = FurtherKey(controller, label=CONTROLLER_LABEL)
    return replace(
        control.document,
        fqdn=departure.fqdn,
        endpoint=departure.endpoint,
        keys=tuple(listed.values()),
        controller=controller,
    )


def _sign(connection: Connection, signer: SecretKey, under: Hash | None, document: IdentityDocument) -> bytes:
    seq_num = append_document(connection, signer, replace(document, under=under))
    stored = read_entries(connection, signer.public, IDENTITY_LOG, seq_num, seq_num)[-1]
    return encode_move_answer(MoveAnswer((stored.entry.encoded, stored.payload)))

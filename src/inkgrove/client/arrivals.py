"""Taking an identity to another node, whose old one is dead or hostile: with its words, and its file or friends.

The words never leave this program: it signs the challenge of the new node, a mandate with which friends are asked, and
the document that names the new node. See docs/moving.md.
"""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from inkgrove.client.connection import Flow, ask
from inkgrove.client.errors import ArrivalFailed, Refused
from inkgrove.client.identities import CONTROLLER_LABEL, ask_challenge, read_payload
from inkgrove.client.models import Arrival, Identity, read_arrival, read_identity
from inkgrove.client.signing import read_next_entry
from inkgrove.core import SecretKey, identity_of, parse_hash, parse_public_key, parse_words, sign_next
from inkgrove.core.errors import KeysError, PersonFileError
from inkgrove.messages import (
    FurtherKey,
    IdentityDocument,
    RevokedLog,
    adoption_claim,
    encode_message,
    mandate_claim,
)
from inkgrove.messages.person_file import MAX_HEAD, SEAL_SIZE, decode_head, decode_seal, read_header

PART_BYTES: Final = 4 * 1024 * 1024
"""How much of a file one request sends."""
TRIES: Final = 5
"""How often the document is signed again because log 0 has grown meanwhile."""
LOOK_SECONDS: Final = 0.5
"""How often one looks how far an arrival is."""
MANDATE_SECONDS: Final = 7 * 86_400
"""How long friends may be asked."""


_PASSES: Final = ("arrival.nobody-answered", "storage.low-disk")
"""What may pass by itself."""


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What the file of a person says of itself."""

    path: Path
    size: int
    digest: str
    identity: str


def read_file_facts(path: Path) -> FileFacts:
    """Read the first record and the seal of a file; raises `file.cut-off` or `file.unknown-form`."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(0)
        start = file.read(MAX_HEAD)
        try:
            head, length = decode_head(start)
        except PersonFileError as err:
            raise PersonFileError("file.unknown-form", f"{path} is no file of a person") from err
        file.seek(head)
        header = read_header(file.read(length)) if head + length <= size else None
        file.seek(max(0, size - SEAL_SIZE))
        seal = decode_seal(file.read(SEAL_SIZE))
    if header is None or seal is None:
        raise PersonFileError(
            "file.cut-off", f"{path} does not come to its end: go on with the download, or take another copy", size=size
        )
    return FileFacts(path, size, seal[1].hex(), header.identity.hex())


def read_part(facts: FileFacts, first: int) -> bytes:
    """Read the next bytes of a file; raises `file.changed` if it has become shorter."""
    with facts.path.open("rb") as file:
        file.seek(first)
        content = file.read(PART_BYTES)
    if not content:
        raise PersonFileError("file.changed", f"{facts.path} has changed while it was sent: take another copy")
    return content


def check_owner(key: SecretKey, facts: FileFacts) -> None:
    """Raise `key.mismatch` if a file is of another identity than the words."""
    if facts.identity != identity_of(key.public).hex():
        raise KeysError("key.mismatch", f"these are the words of another identity than that of the file {facts.path}")


def begin_arrival(
    fqdn: str,
    password: str,
    words: str,
    *,
    file: FileFacts | None = None,
    older: bool = False,
    friends: Sequence[str] = (),
) -> Flow[Arrival]:
    """Begin to bring an identity to this node, under a name of it; the answer has the token of the arrival.

    One that was begun before is begun anew; what has come of the same file stays. Raises `KeysError` for wrong words.
    """
    key = SecretKey.from_seed(parse_words(words))
    if file is not None:
        check_owner(key, file)
    asked = yield from ask_challenge(key)
    challenge, endpoint = asked["challenge"], asked["endpoint"].format(fqdn=fqdn)
    claim = adoption_claim(identity_of(key.public), fqdn, endpoint, b"", challenge)
    body: dict[str, Any] = {
        "key": key.public.hex(),
        "fqdn": fqdn,
        "password": password,
        "proof": {"challenge": challenge, "signature": key.sign(claim).hex()},
    }
    if file is not None:
        body["file"] = {"size": file.size, "digest": file.digest, "older": older}
    else:
        # By the clock of the node: that of this machine may be wrong.
        expires = datetime.fromisoformat(asked["expires"])
        until = int(expires.timestamp()) + MANDATE_SECONDS
        signature = key.sign(mandate_claim(identity_of(key.public), parse_public_key(asked["controller"]), until))
        body |= {"friends": list(friends), "mandate": {"until": until, "signature": signature.hex()}}
    return read_arrival((yield from ask("POST", "/identities/arrivals", body=body)).json())


def arrival_state(arrival: Arrival) -> Flow[Arrival]:
    """Return how far an arrival is now."""
    answer = yield from ask("GET", f"/identities/arrivals/{arrival.id}", headers=_bearer(arrival))
    return read_arrival({**answer.json(), "token": arrival.token})


def send_part(arrival: Arrival, content: bytes) -> Flow[Arrival]:
    """Send the next part of the file."""
    answer = yield from ask(
        "PUT",
        f"/identities/arrivals/{arrival.id}/file",
        query={"offset": arrival.received},
        body=content,
        media_type="application/octet-stream",
        headers=_bearer(arrival),
    )
    return read_arrival({**answer.json(), "token": arrival.token})


def give_arrival_up(arrival: Arrival) -> Flow[None]:
    """Give an arrival up that is not `here` yet."""
    yield from ask("DELETE", f"/identities/arrivals/{arrival.id}", headers=_bearer(arrival))


@dataclass(frozen=True, slots=True)
class SignedArrival:
    """The document with which an identity is to live on the new node: sent again, it is the same entry."""

    arrival: Arrival
    entry: bytes
    payload: bytes
    document: IdentityDocument


def check_name(arrival: Arrival, old_name: str | None) -> None:
    """Raise `key.mismatch` if an identity that arrives had another name than it was to have."""
    if old_name is None or arrival.document is None or arrival.first_document is None:
        return
    names = [read_payload(arrival.document).fqdn, read_payload(arrival.first_document).fqdn]
    if old_name.lower().rstrip(".") not in names:
        raise KeysError("key.mismatch", f"these are the words of {names[0]}, not of {old_name}: nothing was changed")


def sign_arrival(arrival: Arrival, words: str, *, hostile: bool = False) -> SignedArrival:
    """Sign the document that lets an identity live on its new node, once its arrival is `committing`.

    It says what the one before did, and names the new node and its controller. The old controller stays listed: what it
    signed counts, also what nobody has shown yet. `hostile`: it is ended, pinned to what the new node holds, and with
    it every key that the first key has not listed itself; name and profile are those that the first key last signed.
    """
    assert arrival.next is not None
    assert arrival.document is not None
    key = SecretKey.from_seed(parse_words(words))
    if identity_of(key.public).hex() != arrival.identity:
        raise KeysError("key.mismatch", "these are the words of another identity than the one that arrives")
    newest = read_payload(arrival.document)
    first = newest if arrival.first_document is None else read_payload(arrival.first_document)
    base = first if hostile else newest
    ends = {item["key"]: tuple(map(_read_end, item["ends"])) for item in arrival.ends or ()}
    trusted = {item.key for item in first.keys} - {first.controller, newest.controller}
    listed = {item.key: item for item in (*first.keys, *newest.keys)} if hostile else {k.key: k for k in newest.keys}
    keys = [
        replace(item, revoked=ends.get(item.key.hex(), ()))
        if hostile and item.revoked is None and item.key not in trusted
        else item
        for item in listed.values()
    ]
    controller = parse_public_key(arrival.controller)
    document = replace(
        base,
        fqdn=arrival.fqdn,
        endpoint=arrival.endpoint,
        keys=(*(item for item in keys if item.key != controller), FurtherKey(controller, label=CONTROLLER_LABEL)),
        controller=controller,
        under=None,
        closed=False,
    )
    payload = encode_message(document)
    return SignedArrival(arrival, sign_next(key, payload, read_next_entry(arrival.next)).encoded, payload, document)


def commit_arrival(signed: SignedArrival) -> Flow[Identity]:
    """Let the identity live on the new node: there is no way back. The same again gets the same answer."""
    body = {"entry": b64encode(signed.entry).decode(), "payload": b64encode(signed.payload).decode()}
    path = f"/identities/arrivals/{signed.arrival.id}/commit"
    return read_identity((yield from ask("POST", path, body={"signed": body}, headers=_bearer(signed.arrival))).json())


def is_over(arrival: Arrival) -> bool:
    """Whether an arrival has gone as far as it goes without the document; raises `Refused` with what stops it."""
    if arrival.code is not None and arrival.code not in _PASSES:
        raise Refused(arrival.code, arrival.reason or "the arrival does not go on", 409, {})
    return arrival.state in ("committing", "here")


def too_long(arrival: Arrival) -> ArrivalFailed:
    """What is raised if an arrival does not come to its end in time."""
    why = arrival.reason or f"it is {arrival.state}"
    return ArrivalFailed(f"not done in time: {why}; begin again, and it goes on", reason=arrival.code)


def _read_end(end: Sequence[Any]) -> RevokedLog:
    return RevokedLog(end[0], end[1], parse_hash(end[2]) if len(end) > 2 else None)


def _bearer(arrival: Arrival) -> Mapping[str, str]:
    return {"Authorization": f"Bearer {arrival.token}"}

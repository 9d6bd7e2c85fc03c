"""Identities, sign-ins and keys."""

import secrets
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from inkgrove.client.connection import Flow, ask
from inkgrove.client.models import Identity, read_identity
from inkgrove.client.signing import read_next_entry
from inkgrove.core import (
    KEY_BYTES,
    Entry,
    IdentityId,
    SecretKey,
    identity_of,
    parse_hash,
    parse_public_key,
    parse_words,
    render_words,
    sign_entry,
    sign_next,
)
from inkgrove.core.errors import KeysError
from inkgrove.messages import (
    FurtherKey,
    IdentityDocument,
    KeyOf,
    RevokedLog,
    adoption_claim,
    decode_message,
    encode_message,
)


def create_identity(
    fqdn: str, password: str, *, name: str | None = None, profile: Mapping[str, str] | None = None
) -> Flow[Identity]:
    """Host a new identity on the node, which keeps its key; for administrators, or anybody if registration is open."""
    body = {"fqdn": fqdn, "password": password, "name": name, "profile": dict(profile or {})}
    answer = yield from ask("POST", "/identities", body=body)
    return read_identity(answer.json())


def adopt_identity(
    fqdn: str,
    password: str,
    key: SecretKey,
    *,
    endpoint: str | None = None,
    name: str | None = None,
    profile: Mapping[str, str] | None = None,
    lives_at: str | None = None,
) -> Flow[Identity]:
    """Host an identity whose first key stays with this client, which proves that it holds it.

    `endpoint` is where the node says it is reached; without it, `https://` and the name. `lives_at` is the name under
    which the identity lives now, on another node: its document is then the next entry of its log 0, and says what the
    one before did, further keys too, except for what is given here. Without `lives_at` it is entry 1, which is only for
    a key that has never signed one: a second entry 1 forks log 0, and ends the identity for good.
    """
    wanted = {"key": key.public.hex(), **({} if lives_at is None else {"lives_at": lives_at})}
    asked = (yield from ask("POST", "/identities/challenges", body=wanted)).json()
    challenge: str = asked["challenge"]
    document, following = IdentityDocument(fqdn, endpoint or f"https://{fqdn}", name, dict(profile or {})), None
    if lives_at is not None:
        before, following = decode_message(b64decode(asked["document"])), read_next_entry(asked["next"])
        assert isinstance(before, IdentityDocument)
        kept = before.profile if profile is None else document.profile
        document = replace(document, name=before.name if name is None else name, profile=kept, keys=before.keys)
    payload = encode_message(document)
    signed = sign_entry(key, payload, log_id=0, seq_num=1) if following is None else sign_next(key, payload, following)
    entry = signed.encoded
    claim = adoption_claim(identity_of(key.public), fqdn, document.endpoint, entry, challenge)
    body = {
        "fqdn": fqdn,
        "password": password,
        "signed": {"entry": b64encode(entry).decode(), "payload": b64encode(payload).decode()},
        "proof": {"challenge": challenge, "signature": key.sign(claim).hex()},
        **({} if lives_at is None else {"lives_at": lives_at}),
    }
    return read_identity((yield from ask("POST", "/identities", body=body)).json())


def sign_up(
    fqdn: str,
    password: str,
    words: str,
    *,
    endpoint: str | None = None,
    name: str | None = None,
    profile: Mapping[str, str] | None = None,
) -> Flow[Identity]:
    """Host a new identity on the node, whose first key is only in the words; the node keeps a controller.

    `words` come from `new_words`, are written down before, and are never sent.
    """
    key = SecretKey.from_seed(parse_words(words))
    asked = yield from ask_challenge(key)
    controller = parse_public_key(asked["controller"])
    document = IdentityDocument(
        fqdn,
        endpoint or f"https://{fqdn}",
        name,
        dict(profile or {}),
        (FurtherKey(controller, label=CONTROLLER_LABEL),),
        controller,
    )
    payload = encode_message(document)
    entry = sign_entry(key, payload, log_id=0, seq_num=1)
    body = {"fqdn": fqdn, "password": password, **_signed_and_proved(key, document, entry, payload, asked["challenge"])}
    return read_identity((yield from ask("POST", "/identities", body=body)).json())


def recover(fqdn: str, password: str, words: str) -> Flow[Identity]:
    """Set a new password with the words of an identity; every sign-in ends.

    Raises `KeysError` `key.mismatch` for the words of another identity.
    """
    key = yield from _read_own_key(fqdn, words)
    asked = yield from ask_challenge(key)
    now = _read_document(asked)
    claim = adoption_claim(identity_of(key.public), now.fqdn, now.endpoint, b"", asked["challenge"])
    proof = {"challenge": asked["challenge"], "signature": key.sign(claim).hex()}
    body = {"fqdn": fqdn, "password": password, "proof": proof}
    return read_identity((yield from ask("POST", "/identities/recover", body=body)).json())


def replace_controller(fqdn: str, password: str, words: str) -> Flow[Identity]:
    """Take the controller so far away with the words, and let the node keep a new one; every sign-in ends.

    What the node holds of the logs of the former controller still counts, and nothing that it signs from now on. For a
    client that is signed in (after `recover`, with the new password); raises `key.mismatch` for other words.
    """
    key = yield from _read_own_key(fqdn, words)
    asked = yield from ask_challenge(key)
    before, controller = _read_document(asked), parse_public_key(asked["controller"])
    listed = []
    for item in before.keys:
        if item.key == before.controller and item.revoked is None:
            found = (yield from ask("GET", f"/me/keys/{item.key.hex()}/ends")).json()["ends"]
            ends = tuple(RevokedLog(end[0], end[1], parse_hash(end[2]) if len(end) > 2 else None) for end in found)
            listed.append(replace(item, revoked=ends))
        else:
            listed.append(item)
    keys = (*listed, FurtherKey(controller, label=CONTROLLER_LABEL))
    document = replace(before, keys=keys, controller=controller, under=None)
    payload = encode_message(document)
    entry = sign_next(key, payload, read_next_entry(asked["next"]))
    body = {"fqdn": fqdn, "password": password, **_signed_and_proved(key, document, entry, payload, asked["challenge"])}
    return read_identity((yield from ask("POST", "/identities/recover", body=body)).json())


def _read_own_key(fqdn: str, words: str) -> Flow[SecretKey]:
    key = SecretKey.from_seed(parse_words(words))
    if (yield from identity(fqdn)).key != key.public.hex():
        raise KeysError("key.mismatch", f"these are the words of another identity than {fqdn}")
    return key


def _read_document(asked: Mapping[str, Any]) -> IdentityDocument:
    return read_payload(asked["document"])


def read_payload(text: str) -> IdentityDocument:
    """Return the identity document in a payload, which is in base64."""
    document = decode_message(b64decode(text))
    assert isinstance(document, IdentityDocument)
    return document


def new_words() -> str:
    """Make the words of a new identity: write them down, and give them to `sign_up`."""
    return render_words(secrets.token_bytes(KEY_BYTES))


CONTROLLER_LABEL: Final = "server"
"""What a document calls the controller that a node keeps."""


def ask_challenge(key: SecretKey) -> Flow[dict[str, Any]]:
    """Ask for a challenge that a first key is to sign, with the key that the node would keep as controller."""
    answer: dict[str, Any] = (yield from ask("POST", "/identities/challenges", body={"key": key.public.hex()})).json()
    return answer


def _signed_and_proved(
    key: SecretKey, document: IdentityDocument, entry: Entry, payload: bytes, challenge: str
) -> dict[str, object]:
    claim = adoption_claim(identity_of(key.public), document.fqdn, document.endpoint, entry.encoded, challenge)
    return {
        "signed": {"entry": b64encode(entry.encoded).decode(), "payload": b64encode(payload).decode()},
        "proof": {"challenge": challenge, "signature": key.sign(claim).hex()},
    }


def show_words(password: str) -> Flow[str]:
    """Return the words of a first key that the node keeps; nothing changes until `confirm_words`."""
    words: str = (yield from ask("POST", "/me/words", body={"password": password})).json()["words"]
    return words


def confirm_words(password: str, words: str) -> Flow[Identity]:
    """Let the node forget the first key, whose words are written down, and speak by a controller from now on."""
    body = {"password": password, "words": words}
    return read_identity((yield from ask("POST", "/me/words/confirm", body=body)).json())


def identity(name: str) -> Flow[Identity]:
    """Return an identity of the node, by name or id."""
    return read_identity((yield from ask("GET", f"/identities/{name}")).json())


def me() -> Flow[Identity]:
    """Return the identity that this client acts for."""
    return read_identity((yield from ask("GET", "/me")).json())


def change_me(
    *, fqdn: str | None = None, name: str | None = None, profile: Mapping[str, str] | None = None
) -> Flow[Identity]:
    """Publish a new document of the identity; what is None stays as it is."""
    said = {"fqdn": fqdn, "name": name, "profile": None if profile is None else dict(profile)}
    body = {key: value for key, value in said.items() if value is not None}
    return read_identity((yield from ask("PATCH", "/me", body=body)).json())


def open_session(fqdn: str, password: str, label: str | None = None) -> Flow[str]:
    """Sign in and return the token of the session; `label` is what the list of sign-ins shows."""
    body = {"fqdn": fqdn, "password": password, **({} if label is None else {"label": label})}
    token: str = (yield from ask("POST", "/sessions", body=body)).json()["token"]
    return token


def sign_out() -> Flow[None]:
    """End this sign-in."""
    yield from ask("DELETE", "/sessions/current")


def add_key(key: SecretKey, label: str | None = None, *, password: str | None = None) -> Flow[Identity]:
    """Add a key that stays with this client to the keys of the identity; everybody can read its label.

    `password`: of the identity, if it has one.
    """
    owner = yield from me()
    payload = encode_message(KeyOf(IdentityId.fromhex(owner.id)))
    entry = sign_entry(key, payload, log_id=0, seq_num=1)
    body = {"entry": b64encode(entry.encoded).decode(), "payload": b64encode(payload).decode()}
    body |= {name: value for name, value in (("label", label), ("password", password)) if value is not None}
    return read_identity((yield from ask("POST", "/me/keys", body=body)).json())


def revoke_key(key: str) -> Flow[Identity]:
    """Revoke one of the further keys of the identity; what it signed until now stays valid."""
    return read_identity((yield from ask("DELETE", f"/me/keys/{key}")).json())

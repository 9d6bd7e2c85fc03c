"""Identities, sign-ins and keys."""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import replace

from inkgrove.client.connection import Flow, ask
from inkgrove.client.models import Identity, read_identity
from inkgrove.client.signing import read_next_entry
from inkgrove.core import IdentityId, SecretKey, identity_of, sign_entry, sign_next
from inkgrove.messages import IdentityDocument, KeyOf, adoption_claim, decode_message, encode_message


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


def add_key(key: SecretKey, label: str | None = None) -> Flow[Identity]:
    """Add a key that stays with this client to the keys of the identity; everybody can read its label."""
    owner = yield from me()
    payload = encode_message(KeyOf(IdentityId.fromhex(owner.id)))
    entry = sign_entry(key, payload, log_id=0, seq_num=1)
    body = {"entry": b64encode(entry.encoded).decode(), "payload": b64encode(payload).decode()}
    body |= {} if label is None else {"label": label}
    return read_identity((yield from ask("POST", "/me/keys", body=body)).json())


def revoke_key(key: str) -> Flow[Identity]:
    """Revoke one of the further keys of the identity; what it signed until now stays valid."""
    return read_identity((yield from ask("DELETE", f"/me/keys/{key}")).json())

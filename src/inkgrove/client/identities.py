"""Identities, sign-ins, keys and relations."""

from base64 import b64encode
from collections.abc import Mapping
from typing import Literal

from inkgrove.client.exchange import Flow, ask
from inkgrove.client.models import Identity, Relation, read_identity
from inkgrove.core.entry import sign_entry
from inkgrove.core.keys import IdentityId, SecretKey
from inkgrove.messages.identity import KeyOf
from inkgrove.messages.message import encode_message


def create_identity(
    fqdn: str, password: str, *, name: str | None = None, profile: Mapping[str, str] | None = None
) -> Flow[Identity]:
    """Host a new identity on the node, which keeps its key; where registration is open, or as its administrator."""
    body = {"fqdn": fqdn, "password": password, "name": name, "profile": dict(profile or {})}
    answer = yield from ask("POST", "/identities", body=body)
    return read_identity(answer.json())


def identity(name: str) -> Flow[Identity]:
    """An identity of the node, by name or id."""
    return read_identity((yield from ask("GET", f"/identities/{name}")).json())


def me() -> Flow[Identity]:
    """Whom this client acts for."""
    return read_identity((yield from ask("GET", "/me")).json())


def change_me(
    *, fqdn: str | None = None, name: str | None = None, profile: Mapping[str, str] | None = None
) -> Flow[Identity]:
    """Publish a new document of the identity."""
    said = {"fqdn": fqdn, "name": name, "profile": None if profile is None else dict(profile)}
    body = {key: value for key, value in said.items() if value is not None}
    return read_identity((yield from ask("PATCH", "/me", body=body)).json())


def open_session(fqdn: str, password: str) -> Flow[str]:
    """Sign in; the token."""
    token: str = (yield from ask("POST", "/sessions", body={"fqdn": fqdn, "password": password})).json()["token"]
    return token


def sign_out() -> Flow[None]:
    """End this sign-in."""
    yield from ask("DELETE", "/sessions/current")


def add_key(key: SecretKey) -> Flow[Identity]:
    """Let a key that stays with this client count as one of the identity's."""
    owner = yield from me()
    payload = encode_message(KeyOf(IdentityId.fromhex(owner.id)))
    entry = sign_entry(key, payload, log_id=0, seq_num=1)
    body = {"entry": b64encode(entry.encoded).decode(), "payload": b64encode(payload).decode()}
    return read_identity((yield from ask("POST", "/me/keys", body=body)).json())


def revoke_key(key: str) -> Flow[Identity]:
    """Let a further key count no longer; what it signed until now stays."""
    return read_identity((yield from ask("DELETE", f"/me/keys/{key}")).json())


def follow(name: str, *, group: str | None = None) -> Flow[str]:
    """Ask to follow somebody, wherever they are; how that stands."""
    state: str = (yield from ask("PUT", f"/me/following/{name}", body={"group": group})).json()["state"]
    return state


def unfollow(name: str) -> Flow[None]:
    """Follow somebody no longer."""
    yield from ask("DELETE", f"/me/following/{name}")


def answer_follower(
    name: str, state: Literal["accepted", "refused", "blocked"], *, group: str | None = None
) -> Flow[str]:
    """Accept, refuse or block somebody who asked to follow."""
    body = {"state": state, "group": group}
    stands: str = (yield from ask("PUT", f"/me/followers/{name}", body=body)).json()["state"]
    return stands


def relations() -> Flow[tuple[Relation, ...]]:
    """Whom the identity follows, and who follows it."""
    found: list[Relation] = []
    after: str | None = None
    while True:
        data = (yield from ask("GET", "/me/relations", query={"after": after, "limit": 1000})).json()
        found += (Relation(**item) for item in data["relations"])
        after = data["next"]
        if after is None:
            return tuple(found)

"""The sign-ins of an identity as it sees them itself: listed, and ended one by one or all but one.

The id of a sign-in is a hash of the hash of its token: whoever has seen the list can use none of them.
"""

import re
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from inkgrove.core import IdentityId
from inkgrove.node.errors import AuthError
from inkgrove.node.identity.sessions import hash_token
from inkgrove.node.runtime.node import Node
from inkgrove.store.db import Connection
from inkgrove.store.node import MAX_SESSION_LABEL, StoredSession, end_sessions, list_sessions


@dataclass(frozen=True, slots=True)
class OwnSession:
    """A sign-in of the identity that asks."""

    id: str
    """32 hex characters; no token."""
    stored: StoredSession
    is_current: bool
    """Whether it is the one that asks."""


def list_own_sessions(node: Node, identity: IdentityId, token: str | None) -> list[OwnSession]:
    """List the sign-ins of an identity that last, the one used last first; `token` is that of the one that asks."""
    node.session_uses.flush()
    current = None if token is None else hash_token(token)
    found = node.database.read(lambda connection: list_sessions(connection, identity, node.clock()))
    return [OwnSession(_id_of(stored.token), stored, stored.token == current) for stored in found]


def end_own_session(node: Node, identity: IdentityId, session: str) -> None:
    """End a sign-in of an identity by its id; raises `auth.unknown-session` if it has none such."""

    def work(connection: Connection) -> None:
        for stored in list_sessions(connection, identity, node.clock()):
            if _id_of(stored.token) == session:
                end_sessions(connection, token=stored.token)
                return
        raise AuthError("auth.unknown-session", "you have no sign-in with this id: it may have ended already")

    node.database.write(work)


def end_other_sessions(node: Node, identity: IdentityId, token: str | None) -> int:
    """End all sign-ins of an identity but the one that asks; how many have ended."""
    keep = None if token is None else hash_token(token)
    return node.database.write(lambda connection: end_sessions(connection, identity=identity, keep=keep))


def _id_of(token: bytes) -> str:
    return sha256(b"id of a sign-in\0" + token).hexdigest()[:32]


# Labels: what the header User-Agent says, in words that people know

# Each names itself and those that it came from: the first that fits is the one.
_BROWSERS: Final = (
    ("Edg", "Edge"),
    ("OPR", "Opera"),
    ("SamsungBrowser", "Samsung Internet"),
    ("Firefox", "Firefox"),
    ("FxiOS", "Firefox"),
    ("CriOS", "Chrome"),
    ("Chrome", "Chrome"),
    ("Safari", "Safari"),
)
_SYSTEMS: Final = (
    ("Android", "Android"),
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Windows", "Windows"),
    ("Mac OS X", "macOS"),
    ("CrOS", "ChromeOS"),
    ("Linux", "Linux"),
)
_PRODUCT: Final = re.compile(r"[\w.+-]{1,40}(/[\w.+-]{1,20})?", re.ASCII)


def label_from(user_agent: str) -> str:
    """Name a program by its header User-Agent, such as `Firefox on Windows` or `curl/8.5.0`; empty if it says nothing.

    Anybody can write anything there: what comes out is short, and has neither control characters nor markup.
    """
    text = user_agent[:1000]
    if text.startswith("Mozilla/"):
        browser = next((name for mark, name in _BROWSERS if f"{mark}/" in text), None)
        system = next((name for mark, name in _SYSTEMS if mark in text), None)
        return " on ".join(filter(None, (browser, system)))
    found = _PRODUCT.match(text)
    return found[0] if found is not None else ""


def clean_label(text: str) -> str:
    """A label that a person or their program chose, in one line and without control characters."""
    return " ".join("".join(character if character.isprintable() else " " for character in text).split())[
        :MAX_SESSION_LABEL
    ]

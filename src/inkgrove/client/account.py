"""The account of the identity that this client is signed in as: password, sign-ins, keys, services, what it stores.

A node refuses all of it to a service (`NotAllowed`).
"""

from inkgrove.client.connection import Flow, ask
from inkgrove.client.models import (
    AccountClosing,
    AccountKey,
    AccountSession,
    AccountUsage,
    AuthorisedService,
    UsedAmount,
)


def change_password(old: str, new: str) -> Flow[None]:
    """Set a new password; every other sign-in ends. Raises `NotSignedIn` if the old one is wrong."""
    yield from ask("POST", "/me/password", body={"old": old, "new": new})


def sessions() -> Flow[tuple[AccountSession, ...]]:
    """Return the sign-ins that last, the one that was used last first."""
    found = (yield from ask("GET", "/sessions")).json()["sessions"]
    return tuple(AccountSession(**item) for item in found)


def end_session(session: str) -> Flow[None]:
    """End a sign-in by its id; raises `NotFound` if it has ended already."""
    yield from ask("DELETE", f"/sessions/{session}")


def end_other_sessions() -> Flow[int]:
    """End every sign-in but this one, and return how many there were."""
    ended: int = (yield from ask("DELETE", "/sessions/others")).json()["ended"]
    return ended


def devices() -> Flow[tuple[AccountKey, ...]]:
    """Return the keys of the identity, the first one first; revoked ones are among them."""
    found = (yield from ask("GET", "/me/keys")).json()["keys"]
    names = ("key", "label", "is_first", "is_controller", "kept_by", "state", "logs", "entries")
    return tuple(AccountKey(*(item[name] for name in names)) for item in found)


def label_key(key: str, label: str | None) -> Flow[None]:
    """Call a further key of the identity so, in its document, which everybody can read; None takes the label away."""
    yield from ask("PATCH", f"/me/keys/{key}", body={"label": label})


def usage() -> Flow[AccountUsage]:
    """Return what the identity has stored on the node, and its quota."""
    found = (yield from ask("GET", "/me/usage")).json()
    return AccountUsage(*(UsedAmount(**found[name]) for name in ("entries", "payload_bytes", "blob_bytes")))


def services() -> Flow[tuple[AuthorisedService, ...]]:
    """Return the services that can act for the identity now."""
    found = (yield from ask("GET", "/me/services")).json()["services"]
    return tuple(
        AuthorisedService(
            item["client"],
            item["name"],
            tuple(sorted({scope for grant in item["grants"] for scope in grant["scopes"]})),
            min(grant["since"] for grant in item["grants"]),
            max((grant["last_used"] for grant in item["grants"] if grant["last_used"] is not None), default=None),
        )
        for item in found
    )


def end_service(client: str) -> Flow[None]:
    """Take back all that was granted to a service; raises `NotFound` if nothing was."""
    yield from ask("DELETE", f"/me/services/{client}")


def close_account(password: str) -> Flow[str]:
    """Close the account for good, and return the token that `closing` takes; this client is signed out.

    Raises `NotSignedIn` if the password is wrong.
    """
    token: str = (yield from ask("DELETE", "/me", body={"password": password})).json()["token"]
    return token


def closing(token: str) -> Flow[AccountClosing]:
    """Return how far the closing of an account has come, and its certificate at the end; any client can ask."""
    headers = {"Authorization": f"Bearer {token}"}
    return AccountClosing(**(yield from ask("GET", "/closing", headers=headers)).json())

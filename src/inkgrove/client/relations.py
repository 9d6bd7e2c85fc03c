"""Relations: whom an identity follows and who follows it, what strangers sent, and whose deliveries are taken in."""

from typing import Any, Literal

from inkgrove.client.connection import Flow, ask, ask_for_all
from inkgrove.client.models import ReceivedRequest, Relationship, TrustedSender


def follow(name: str, *, group: str | None = None) -> Flow[str]:
    """Ask to follow somebody, on whichever node they are; return the state of the relation."""
    state: str = (yield from ask("PUT", f"/me/following/{name}", body={"group": group})).json()["state"]
    return state


def unfollow(name: str) -> Flow[None]:
    """Stop following somebody."""
    yield from ask("DELETE", f"/me/following/{name}")


def answer_follower(
    name: str, state: Literal["accepted", "refused", "blocked"], *, group: str | None = None
) -> Flow[str]:
    """Accept, refuse or block somebody who asked to follow; return the state of the relation."""
    body = {"state": state, "group": group}
    new_state: str = (yield from ask("PUT", f"/me/followers/{name}", body=body)).json()["state"]
    return new_state


def relations() -> Flow[tuple[Relationship, ...]]:
    """List whom the identity follows, and who follows it."""
    found = yield from ask_for_all("/me/relations", "relations")
    return tuple(Relationship(**item) for item in found)


def requests() -> Flow[tuple[ReceivedRequest, ...]]:
    """List what strangers sent, which nobody sees until it is accepted, grouped by sender, oldest first."""
    data = (yield from ask("GET", "/me/requests")).json()
    return tuple(
        ReceivedRequest(via=sender["via"], fqdn=sender["fqdn"], asks_to_follow=sender["asks_to_follow"], **item)
        for sender in data["requests"]
        for item in sender["instances"]
    )


def request_content(via: str, instance: str) -> Flow[tuple[dict[str, Any], ...]]:
    """Return the messages of one instance that waits, as they were signed; reading them accepts nothing."""
    data = (yield from ask("GET", f"/me/requests/{via}/{instance}")).json()
    return tuple(data["messages"])


def accept_request(via: str, instance: str | None = None) -> Flow[tuple[str, ...]]:
    """Accept what waits of a sender, or one instance of it; return the ids of the accepted instances."""
    return (yield from _answer(via, instance, "accept"))


def refuse_request(via: str, instance: str | None = None) -> Flow[None]:
    """Discard what waits of a sender, or one instance of it."""
    yield from _answer(via, instance, "refuse")


def _answer(via: str, instance: str | None, decision: str) -> Flow[tuple[str, ...]]:
    path = f"/me/requests/{via}" if instance is None else f"/me/requests/{via}/{instance}"
    return tuple((yield from ask("POST", path, body={"decision": decision})).json()["instances"])


def accept_sender(name: str) -> Flow[tuple[str, ...]]:
    """Accept what somebody sends from now on and what waits of them; return the ids of what waited.

    This does not make them a follower.
    """
    return tuple((yield from ask("PUT", f"/me/senders/{name}")).json()["instances"])


def drop_sender(name: str) -> Flow[None]:
    """Let what somebody sends wait for a decision again."""
    yield from ask("DELETE", f"/me/senders/{name}")


def senders() -> Flow[tuple[TrustedSender, ...]]:
    """List those whose deliveries are taken in without being asked about."""
    found = yield from ask_for_all("/me/senders", "senders")
    return tuple(TrustedSender(**item) for item in found)

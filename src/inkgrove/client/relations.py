"""What strangers sent, and whose deliveries are taken in."""

from typing import Any

from inkgrove.client.exchange import Flow, ask
from inkgrove.client.models import Sender, WaitingInstance


def requests() -> Flow[tuple[WaitingInstance, ...]]:
    """What strangers sent and nobody sees until it is accepted, by sender in the order of their first."""
    data = (yield from ask("GET", "/me/requests")).json()
    return tuple(
        WaitingInstance(via=sender["via"], fqdn=sender["fqdn"], asks_to_follow=sender["asks_to_follow"], **item)
        for sender in data["requests"]
        for item in sender["instances"]
    )


def request_content(via: str, instance: str) -> Flow[tuple[dict[str, Any], ...]]:
    """The messages of something that waits, as they were signed; to look at them accepts nothing."""
    data = (yield from ask("GET", f"/me/requests/{via}/{instance}")).json()
    return tuple(data["messages"])


def accept_request(via: str, instance: str | None = None) -> Flow[tuple[str, ...]]:
    """Take in what waits of a sender, or one thing of it; the instances that were taken in."""
    return (yield from _answer(via, instance, "accept"))


def refuse_request(via: str, instance: str | None = None) -> Flow[None]:
    """Forget what waits of a sender, or one thing of it."""
    yield from _answer(via, instance, "refuse")


def _answer(via: str, instance: str | None, decision: str) -> Flow[tuple[str, ...]]:
    path = f"/me/requests/{via}" if instance is None else f"/me/requests/{via}/{instance}"
    return tuple((yield from ask("POST", path, body={"decision": decision})).json()["instances"])


def accept_sender(name: str) -> Flow[tuple[str, ...]]:
    """Take in what somebody sends from now on, and what waits of them; they do not follow by it."""
    return tuple((yield from ask("PUT", f"/me/senders/{name}")).json()["instances"])


def drop_sender(name: str) -> Flow[None]:
    """Let what somebody sends wait for one's word again."""
    yield from ask("DELETE", f"/me/senders/{name}")


def senders() -> Flow[tuple[Sender, ...]]:
    """Those whose deliveries are taken in from now on."""
    found: list[Sender] = []
    after: str | None = None
    while True:
        data = (yield from ask("GET", "/me/senders", query={"after": after, "limit": 1000})).json()
        found += (Sender(**item) for item in data["senders"])
        after = data["next"]
        if after is None:
            return tuple(found)

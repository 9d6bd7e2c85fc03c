"""The page of the identity that is signed in: profile, relations, requests, services, deliveries."""

from functools import partial
from typing import Any, Final

from fastapi import APIRouter, Response
from starlette.concurrency import run_in_threadpool

from inkgrove.api.http.auth import AddressDependency
from inkgrove.api.http.formats import FormDependency
from inkgrove.api.http.limits import DOCUMENTS
from inkgrove.api.routes import relations as relation_routes
from inkgrove.api.routes.relations import FollowerBody, FollowingBody
from inkgrove.api.routes.request_box import named_instance, sender_of, show_request, show_requests
from inkgrove.core import IdentityId
from inkgrove.core.errors import InkgroveError
from inkgrove.federation.sharing import accept_sender, accept_waiting, discard_waiting, drop_sender
from inkgrove.node.errors import RequestError
from inkgrove.node.identity import (
    change_identity,
    hide_block,
    list_accesses,
    list_relations,
    name_of_identity,
    show_identity,
    show_quota,
)
from inkgrove.node.publishing import newest_deliveries
from inkgrove.node.services import grants as services
from inkgrove.pages.visits import PageRoute, Visit, VisitDependency
from inkgrove.pages.wording import DID, IDENTITY_STATES, KEY_STATES, describe_grant, schema_name
from inkgrove.store.federation import list_senders

router = APIRouter(route_class=PageRoute, include_in_schema=False)
_STATES: Final = {
    "accepted": "accepted",
    "requested": "asked, no answer yet",
    "refused": "refused",
    "blocked": "blocked",
}
_DELIVERIES: Final = {
    "waiting": "on its way",
    "delivered": "delivered",
    "held": "held until they accept you",
    "refused": "refused by their node",
    "given-up": "given up",
}


@router.get("/pages/me")
def show_me(visit: VisitDependency) -> Response:
    """Show everything of the identity on one page."""
    return _show(visit)


def _show(visit: Visit, *, alarm: str | None = None, status: int = 200) -> Response:
    node, identity = visit.node, visit.caller.require_identity()
    relations = [
        {
            "side": item.side,
            "id": item.identity.hex(),
            "name": item.fqdn or name_of_identity(node, item.identity),
            "state": hide_block(item.side, item.state),
            "words": _STATES[hide_block(item.side, item.state)],
            "group": item.group,
            "changed": item.changed,
        }
        for item in list_relations(node, identity, limit=200)
    ]
    facts = {
        "identity": show_identity(node, identity),
        "followers": [item for item in relations if item["side"] == "followers"],
        "following": [item for item in relations if item["side"] == "following"],
        "strangers": show_requests(node, visit.caller)["requests"],
        "senders": [
            {"id": item.sender.hex(), "name": name_of_identity(node, item.sender), "since": item.since}
            for item in node.database.read(lambda connection: list_senders(connection, identity, limit=200))
        ],
        "services": _services(visit, identity),
        "quota": show_quota(node, identity).render(),
        "sent": [(item, _DELIVERIES[item.state.state]) for item in newest_deliveries(node, identity)],
        "key_states": KEY_STATES,
        "identity_states": IDENTITY_STATES,
        "alarm": alarm,
    }
    return visit.show("me.html", facts, status=status)


def _services(visit: Visit, identity: IdentityId) -> list[dict[str, Any]]:
    node = visit.node
    found: dict[str, dict[str, Any]] = {}
    for grant in services.list_services(node, identity):
        service = found.setdefault(
            grant.client,
            {"client": grant.client, "name": grant.name, "may": [], "since": grant.created, "last_used": None},
        )
        service["may"] += [text for text in describe_grant(node, grant.scopes) if text not in service["may"]]
        service["since"] = min(service["since"], grant.created)
        service["last_used"] = max(filter(None, (service["last_used"], grant.last_used)), default=None)
    for client, service in found.items():
        service["did"] = [
            {
                "at": access.at,
                "words": f"{DID.get(access.action, 'looked at')} "
                f"{'a blob' if access.blob is not None else schema_name(node, access.schema)}",
                "instance": None if access.instance is None else access.instance.hex(),
            }
            for access in list_accesses(node, identity, client=client, limit=10)
        ]
    return list(found.values())


@router.post("/pages/me/profile")
async def change_profile(visit: VisitDependency, address: AddressDependency, form: FormDependency) -> Response:
    """Publish a new document with another display name."""
    identity = visit.caller.require_identity()
    name = " ".join(form.get("name", "").split())[:200]
    try:
        await DOCUMENTS.run(address, partial(change_identity, visit.node, identity, name=name or None))
    except InkgroveError as error:
        return await run_in_threadpool(partial(_show, visit, alarm=error.public_message, status=422))
    return visit.go("/pages/me#profile")


@router.post("/pages/me/services/{client}/revoke")
def revoke_service(visit: VisitDependency, client: str) -> Response:
    """Revoke all grants of a service."""
    services.end_service(visit.node, visit.caller.require_identity(), client)
    return visit.go("/pages/me#services")


@router.post("/pages/me/following")
async def follow(visit: VisitDependency, form: FormDependency) -> Response:
    """Ask to follow somebody."""
    name = form.get("name", "").strip()[:253]
    try:
        if not name:
            raise RequestError("request.invalid", "write the name of somebody, such as jane.haiku.ink")
        await relation_routes.follow(visit.request, visit.node, visit.caller, name, FollowingBody())
    except InkgroveError as error:
        visit.caller.require_identity()
        return await run_in_threadpool(partial(_show, visit, alarm=error.public_message, status=422))
    return visit.go("/pages/me#relations")


@router.post("/pages/me/following/{name}/end")
async def unfollow(visit: VisitDependency, name: str) -> Response:
    """Stop following somebody."""
    await relation_routes.unfollow(visit.request, visit.node, visit.caller, name)
    return visit.go("/pages/me#relations")


@router.post("/pages/me/followers/{name}")
async def answer_follower(visit: VisitDependency, name: str, form: FormDependency) -> Response:
    """Accept, refuse, block or remove a follower."""
    visit.caller.require_identity()
    match form.get("state"):
        case "removed":
            await relation_routes.remove_follower(visit.request, visit.node, visit.caller, name)
        case "accepted" | "refused" | "blocked" as state:
            body = FollowerBody(state=state)
            await relation_routes.answer_follower(visit.request, visit.node, visit.caller, name, body)
        case _:
            raise RequestError("request.invalid", "a follower is accepted, refused, blocked or removed")
    return visit.go("/pages/me#relations")


@router.get("/pages/me/requests/{via}/{instance}")
def show_stranger(visit: VisitDependency, via: str, instance: str) -> Response:
    """Show what a stranger sent, with its content and the forms to accept or refuse it."""
    visit.caller.require_identity()
    return visit.show("request.html", {"item": show_request(visit.node, visit.caller, via, instance)})


@router.post("/pages/me/requests/{via}")
@router.post("/pages/me/requests/{via}/{instance}")
def answer_stranger(visit: VisitDependency, via: str, form: FormDependency, instance: str | None = None) -> Response:
    """Accept or refuse what a stranger sent, or accept what they send from now on."""
    me = visit.caller.require_identity()
    match form.get("decision"):
        case "accept":
            accept_waiting(visit.node, me, sender_of(via), None if instance is None else named_instance(instance))
        case "refuse":
            discard_waiting(visit.node, me, sender_of(via), None if instance is None else named_instance(instance))
        case "from-now-on":
            accept_sender(visit.node, me, sender_of(via))
        case _:
            raise RequestError(
                "request.invalid", "a request is accepted or refused, or its sender accepted from now on"
            )
    return visit.go("/pages/me#requests")


@router.post("/pages/me/senders/{sender}/end")
def stop_accepting(visit: VisitDependency, sender: str) -> Response:
    """Let what somebody sends wait for a decision again."""
    drop_sender(visit.node, visit.caller.require_identity(), sender_of(sender))
    return visit.go("/pages/me#requests")

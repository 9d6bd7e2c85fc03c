"""The pages to sign in and out."""

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from inkgrove.api.http.auth import (
    AddressDependency,
    HostDependency,
    NodeDependency,
    check_origin,
    cookie_of,
    get_user_agent,
)
from inkgrove.api.http.formats import FormDependency
from inkgrove.api.http.limits import PASSWORDS
from inkgrove.node import errors
from inkgrove.node.identity import label_from, sessions, show_identity
from inkgrove.node.runtime import Node
from inkgrove.pages.rendering import render
from inkgrove.pages.visits import SIGN_IN, PageRoute, VisitDependency, drop_cookie, local_address, set_cookie

router = APIRouter(route_class=PageRoute, include_in_schema=False)
Next = Annotated[str, Query(alias="next", max_length=2000)]


def _show(node: Node, *, name: str, back: str, alarm: str | None = None, status: int = 200) -> Response:
    facts = {
        "me": None,
        "is_administrator": False,
        "path": SIGN_IN,
        "name": name,
        "back": back,
        "alarm": alarm,
        "is_open": node.settings.registration == "open",
    }
    return render("sign_in.html", facts, status=status)


@router.get(SIGN_IN)
def show_sign_in(node: NodeDependency, host: HostDependency, back: Next = "/") -> Response:
    """Show the form, with the name of the identity whose host was asked for."""
    try:
        name = show_identity(node, host).document.fqdn
    except errors.UnknownIdentity:
        name = ""
    return _show(node, name=name, back=local_address(back))


@router.post(SIGN_IN)
async def sign_in(request: Request, node: NodeDependency, address: AddressDependency, form: FormDependency) -> Response:
    """Sign in with name and password, and go on to where one came from."""
    check_origin(request)
    name, back = form.get("name", "")[:253].strip(), local_address(form.get("next", "/"))
    try:
        label, password = label_from(get_user_agent(request)), form.get("password", "")[:1024]
        sign_in = partial(sessions.sign_in, node, name, password, address, label=label)
        token, _ = await PASSWORDS.run(address, sign_in)
    except errors.BadPassword:
        return _show(node, name=name, back=back, alarm="The name or the password is wrong.", status=403)
    except (errors.TooManyAttempts, errors.Busy) as error:
        is_busy = isinstance(error, errors.Busy)
        alarm = (
            "Many people sign in right now. Try again in a moment."
            if is_busy
            else f"Too many attempts. {error.message}"
        )
        page = _show(node, name=name, back=back, alarm=alarm, status=503 if is_busy else 429)
        page.headers["Retry-After"] = str(error.data["retry_after"])
        return page
    answer = Response(status_code=303, headers={"Location": back, "Cache-Control": "no-store"})
    set_cookie(answer, node, "inkgrove", token, node.settings.session_seconds)
    return answer


@router.post("/pages/sign-out")
def sign_out(visit: VisitDependency) -> Response:
    """End the sign-in of this browser."""
    token = cookie_of(visit.request, visit.node)
    if token is not None:
        sessions.sign_out(visit.node, token)
    answer = visit.go("/")
    drop_cookie(answer, visit.node, "inkgrove")
    return answer

"""Recipients by name: those of other nodes are looked up before anything is published."""

import asyncio
from collections.abc import Iterable
from typing import Any

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from inkgrove.api.auth import get_node
from inkgrove.api.federation import federation_of
from inkgrove.api.publishing import require_token
from inkgrove.core.errors import InkgroveError
from inkgrove.core.limits import MAX_RECIPIENTS
from inkgrove.node.errors import BadInstanceDocument, UnknownIdentity
from inkgrove.node.node import Node
from inkgrove.node.sessions import authenticate
from inkgrove.store.identities import find_identity

_ID_LENGTH = 64


def names_in(value: Any) -> list[str]:
    """Every text in a value of JSON: what may be the name of a recipient."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [name for item in value.values() for name in names_in(item)]
    return [name for item in value for name in names_in(item)] if isinstance(value, list) else []


async def find_elsewhere(request: Request, names: Iterable[str]) -> None:
    """See to it that names of other nodes are known here; raises for one that leads to nobody, and for too many."""
    wanted = {name.lower() for name in names if len(name) != _ID_LENGTH and "." in name}
    if not wanted:
        return
    if len(wanted) > MAX_RECIPIENTS:
        raise BadInstanceDocument(f"recipients are a list of at most {MAX_RECIPIENTS} identities")
    node, token = get_node(request), require_token(request)
    # Nobody makes this node look up names without a token.
    missing = await run_in_threadpool(_not_hosted, node, token, wanted)
    await asyncio.gather(*(_find(request, name) for name in missing))


def _not_hosted(node: Node, token: str, names: set[str]) -> list[str]:
    authenticate(node, token)
    return node.database.read(lambda c: [name for name in sorted(names) if find_identity(c, name) is None])


async def _find(request: Request, name: str) -> None:
    try:
        await federation_of(request).discovery.find(name)
    except InkgroveError as err:
        text = f"no identity {name[:80]!r} is hosted here, and none was found there: {err.message}"
        raise UnknownIdentity(text, identity=name[:253], reason=err.code) from err

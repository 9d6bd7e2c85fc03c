"""Recipients by name: those of other nodes are looked up before anything is published."""

import asyncio
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from inkgrove.api.auth import get_node
from inkgrove.api.federation import federation_of
from inkgrove.api.publishing import require_token
from inkgrove.core.errors import InkgroveError
from inkgrove.core.limits import MAX_RECIPIENTS
from inkgrove.federation.names_found import NO_WORD
from inkgrove.node.errors import BadInstanceDocument, UnknownIdentity
from inkgrove.node.name_rules import find_own, rules_of
from inkgrove.node.node import Node
from inkgrove.node.sessions import authenticate

_ID_LENGTH = 64


def names_in(value: Any) -> list[str]:
    """Every text in a value of JSON: what may be the name of a recipient."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [name for item in value.values() for name in names_in(item)]
    return [name for item in value for name in names_in(item)] if isinstance(value, list) else []


async def find_elsewhere(request: Request, names: Iterable[str]) -> None:
    """See to it that names of other nodes are known here; raises for one that is not found, and for too many."""
    for name, error in (await _look_up(request, names)).items():
        raise _not_found(name, error) from error


async def find_or_wait(request: Request, names: Iterable[str]) -> frozenset[str]:
    """The same; the names whose nodes cannot be asked at the moment are returned, in lower case.

    A name that certainly leads to nobody is an error: its host says so, or the host is this node.
    """
    missed = await _look_up(request, names)
    for name, error in missed.items():
        if not isinstance(error, NO_WORD) or rules_of(get_node(request).settings).is_ours(name):
            raise _not_found(name, error) from error
    return frozenset(missed)


def without(names: Sequence[str], later: Collection[str]) -> list[str]:
    """The names that are not to be waited for."""
    return [name for name in names if name.lower() not in later]


async def _look_up(request: Request, names: Iterable[str]) -> dict[str, InkgroveError]:
    """Look up names of other nodes, side by side; those that were not found, with why."""
    wanted = {name.lower() for name in names if len(name) != _ID_LENGTH and "." in name}
    if not wanted:
        return {}
    if len(wanted) > MAX_RECIPIENTS:
        raise BadInstanceDocument(f"recipients are a list of at most {MAX_RECIPIENTS} identities")
    node, token = get_node(request), require_token(request)
    # Nobody makes this node look up names without a token.
    missing = await run_in_threadpool(_not_hosted, node, token, wanted)
    found = await asyncio.gather(*(_find(request, name) for name in missing))
    return {name: error for name, error in zip(missing, found, strict=True) if error is not None}


def _not_hosted(node: Node, token: str, names: set[str]) -> list[str]:
    authenticate(node, token)
    return node.database.read(lambda c: [name for name in sorted(names) if find_own(c, node, name) is None])


async def _find(request: Request, name: str) -> InkgroveError | None:
    try:
        await federation_of(request).discovery.find(name)
    except InkgroveError as err:
        return err
    return None


def _not_found(name: str, error: InkgroveError) -> UnknownIdentity:
    text = f"no identity {name[:80]!r} is hosted here, and none was found there: {error.public_message}"
    return UnknownIdentity(text, identity=name[:253], reason=error.code)

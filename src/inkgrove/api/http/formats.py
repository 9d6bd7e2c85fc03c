"""The formats of bodies: strict JSON, forms, and what the headers say of them.

Python's own JSON reader takes NaN, lets the last of two keys win, makes infinity of 1e999 and hands on half surrogates,
which nothing behind can store. So JSON is read here as RFC 8259 has it, within bounds, before any route sees it.
"""

import json
import math
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, Final, NoReturn
from urllib.parse import parse_qsl

from fastapi import Depends, Request
from starlette.types import Scope

from inkgrove.node.errors import OAuthError, RequestError

MAX_DEPTH: Final = 64
MAX_VALUES: Final = 250_000
"""More than any request needs; as empty lists they would take twenty times the memory of the body."""
MAX_MEMBERS: Final = 1024
"""Of one object: a message has 256 fields at most. Each unknown one would be an error of its own to the framework."""
MAX_DIGITS: Final = 40
"""Of an integer: no field holds one of more than 20, and to read a long one takes the square of its length."""
FEW_VALUES: Final = 4096
"""More than any body needs whose form the framework checks; see `check_media_type`."""


def parse_json(body: bytes) -> tuple[Any, int]:
    """Return the value of a body, and about how many values are in it: exactly, if there are more than `MAX_DEPTH`.

    Raises `request.bad-json` unless it is one strict JSON value, `request.too-complex` beyond the bounds of depth,
    values and members.
    """
    values = body.count(b",") + body.count(b"[") + body.count(b"{")  # more than there are, if texts have such signs
    if values > MAX_VALUES:
        raise RequestError("request.too-complex", f"the body has more than {MAX_VALUES:,} values")
    try:
        value = _decoder.decode(body.decode())
    except UnicodeDecodeError as err:
        raise RequestError("request.bad-json", f"the body is not UTF-8 at byte {err.start}") from err
    except json.JSONDecodeError as err:
        raise RequestError(
            "request.bad-json", f"the body is not JSON: {err.msg} at line {err.lineno}, column {err.colno}"
        ) from err
    except RecursionError:
        raise _too_deep() from None
    if b"\\u" in body:  # only an escape can spell what UTF-8 cannot
        _check_texts(value)
    return value, _check_depth(value) if values > MAX_DEPTH else values


def read_json(body: bytes) -> Any:
    """Any JSON value."""
    try:
        return json.loads(body)
    except RecursionError:
        raise RequestError("request.invalid", "the body is nested too deeply") from None
    except ValueError as err:
        raise RequestError("request.invalid", "the body is not JSON") from err


def _check_depth(value: Any) -> int:
    """Return how many values there are, this one among them; raises `request.too-complex` if it is nested too deeply.

    Level by level, without a call for each value: most bodies that are large have many small ones.
    """
    level, depth, count = [value] if type(value) in _CONTAINERS else [], 0, 1
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise _too_deep()
        count += sum(map(len, level))
        level = [
            below
            for item in level
            for below in (item.values() if type(item) is dict else item)
            if type(below) in _CONTAINERS
        ]
    return count


_CONTAINERS: Final = frozenset({dict, list})


def _check_texts(value: Any) -> None:
    """Raise `request.bad-json` if a text or key contains U+0000 or half of a surrogate pair."""
    level = [value]
    while level:
        below: list[Any] = []
        for item in level:
            if type(item) is dict:
                below += item
                below += item.values()
            elif type(item) is list:
                below += item
            elif type(item) is str and not (item.isascii() and "\0" not in item):
                _check_text(item)
        level = below


def _check_text(text: str) -> None:
    if "\0" in text:
        raise RequestError("request.bad-json", "a text in the body contains U+0000")
    try:
        text.encode()
    except UnicodeEncodeError as err:
        raise RequestError("request.bad-json", "a text in the body contains half of a surrogate pair") from err


def _too_deep() -> RequestError:
    return RequestError("request.too-complex", f"the body is nested more than {MAX_DEPTH} deep")


def _make_map(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > MAX_MEMBERS:
        raise RequestError("request.too-complex", f"an object in the body has more than {MAX_MEMBERS:,} members")
    made = dict(pairs)
    if len(made) != len(pairs):
        # Counted in one pass: who sends the body is not known yet.
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise RequestError("request.bad-json", f"the key {twice[:80]!r} stands twice in one object")
    return made


def _refuse_constant(name: str) -> NoReturn:
    raise RequestError("request.bad-json", f"{name} is not JSON")


def _make_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise RequestError("request.bad-json", f"the number {text[:40]} is out of range")
    return value


def _make_integer(text: str) -> int:
    if len(text) > MAX_DIGITS and len(text.lstrip("-")) > MAX_DIGITS:
        raise RequestError("request.too-complex", f"an integer in the body has more than {MAX_DIGITS} digits")
    return int(text)


_decoder = json.JSONDecoder(
    object_pairs_hook=_make_map, parse_constant=_refuse_constant, parse_float=_make_float, parse_int=_make_integer
)


FORM: Final = "application/x-www-form-urlencoded"
MAX_FORM_BYTES: Final = 32 * 1024
_MAX_FIELDS: Final = 40

Form = dict[str, str]


def parse_form(encoded: bytes) -> Form:
    """The fields of a form or query; one that is given twice is refused, as RFC 6749 wants."""
    try:
        pairs = parse_qsl(
            encoded.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=_MAX_FIELDS,
            encoding="utf-8",
        )
    except ValueError as err:  # also what is not UTF-8
        raise OAuthError("oauth.invalid-request", "the fields cannot be read") from err
    form = dict(pairs)
    if len(form) != len(pairs):
        raise OAuthError("oauth.invalid-request", "a parameter is given twice")
    if any("\0" in value for value in form.values()):
        raise OAuthError("oauth.invalid-request", "a parameter holds a zero character")
    return form


async def read_form(request: Request) -> Form:
    """The form in the body of a request."""
    if media_type_of(request) != FORM:
        raise RequestError("request.unsupported-media-type", f"the body must be {FORM}")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FORM_BYTES:
            raise RequestError("request.too-large", f"a form has at most {MAX_FORM_BYTES} bytes")
    return parse_form(bytes(body))


FormDependency = Annotated[Form, Depends(read_form)]


def read_query(request: Request) -> Form:
    """The query of a request."""
    query: bytes = request.scope["query_string"]
    if len(query) > MAX_FORM_BYTES:
        raise RequestError("request.too-large", f"a query has at most {MAX_FORM_BYTES} bytes")
    return parse_form(query)


def form_body(needed: dict[str, str], optional: dict[str, str]) -> dict[str, object]:
    """What the OpenAPI document says about a form: each field with a sentence."""
    fields = {name: {"type": "string", "description": about} for name, about in (needed | optional).items()}
    # A value that a sentence gives first, in backquotes, is an example of it.
    example = {name: about.split("`")[1] if about.startswith("`") else "..." for name, about in needed.items()}
    schema = {"type": "object", "properties": fields, "required": list(needed), "examples": [example]}
    return {"requestBody": {"required": True, "content": {FORM: {"schema": schema}}}}


def first_headers(scope: Scope) -> dict[bytes, bytes]:
    """The headers of a request as they came; of several with one name the first, as for the routes behind."""
    return dict(reversed(scope["headers"]))


def media_type_of(request: Request) -> str:
    """The media type of a body without its parameters; empty if there is none."""
    return media_type_in(first_headers(request.scope))


def media_type_in(headers: Mapping[bytes, bytes]) -> str:
    """The media type that headers name, without its parameters; empty if there is none."""
    return headers.get(b"content-type", b"").decode("latin-1").partition(";")[0].strip().lower()


def is_json(media_type: str) -> bool:
    """Whether a body of this type is JSON."""
    return media_type == "application/json" or (media_type.startswith("application/") and media_type.endswith("+json"))

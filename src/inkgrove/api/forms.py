"""Forms and queries: each name once, strictly decoded, of bounded size."""

from typing import Annotated, Final
from urllib.parse import parse_qsl

from fastapi import Depends, Request

from inkgrove.api.bodies import media_type_of
from inkgrove.node.errors import OAuthInvalidRequest, RequestTooLarge, UnsupportedMediaType

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
        raise OAuthInvalidRequest("the fields cannot be read") from err
    form = dict(pairs)
    if len(form) != len(pairs):
        raise OAuthInvalidRequest("a parameter is given twice")
    if any("\0" in value for value in form.values()):
        raise OAuthInvalidRequest("a parameter holds a zero character")
    return form


async def read_form(request: Request) -> Form:
    """The form in the body of a request."""
    if media_type_of(request) != FORM:
        raise UnsupportedMediaType(f"the body must be {FORM}")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FORM_BYTES:
            raise RequestTooLarge(f"a form has at most {MAX_FORM_BYTES} bytes")
    return parse_form(bytes(body))


FormDependency = Annotated[Form, Depends(read_form)]


def read_query(request: Request) -> Form:
    """The query of a request."""
    query: bytes = request.scope["query_string"]
    if len(query) > MAX_FORM_BYTES:
        raise RequestTooLarge(f"a query has at most {MAX_FORM_BYTES} bytes")
    return parse_form(query)


def form_body(needed: dict[str, str], optional: dict[str, str]) -> dict[str, object]:
    """What the OpenAPI document says about a form: each field with a sentence."""
    fields = {name: {"type": "string", "description": about} for name, about in (needed | optional).items()}
    # A value that a sentence gives first, in backquotes, is an example of it.
    example = {name: about.split("`")[1] if about.startswith("`") else "..." for name, about in needed.items()}
    schema = {"type": "object", "properties": fields, "required": list(needed), "examples": [example]}
    return {"requestBody": {"required": True, "content": {FORM: {"schema": schema}}}}

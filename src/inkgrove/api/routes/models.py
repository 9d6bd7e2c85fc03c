"""Parameters, bodies and answers that several groups of routes share.

Models of answers are for the OpenAPI document; reading routes write their answers as JSON without them.
"""

from base64 import b64decode
from binascii import Error as BadBase64
from collections.abc import Awaitable, Callable
from inspect import Parameter, signature
from typing import Annotated, Any, Final, Literal, TypeVar

from fastapi import APIRouter, Query, Response
from fastapi import Path as PathParameter
from pydantic import BaseModel, ConfigDict, Field

from inkgrove.api.http.problems import responses
from inkgrove.core.limits import MAX_STORED_INTEGER
from inkgrove.node.errors import RequestError
from inkgrove.node.identity import SignedMessage
from inkgrove.node.reading import MAX_TOKEN

_HASH = "0040" + "7ac3" * 32
_KEY = "88e1cb88a66f02f8db635ce26441cc5dac1b08420ceaac230839b755845a9ffb"
SchemaPath = Annotated[
    str, PathParameter(description="The name of a schema that only one has.", examples=["slothmail"])
]
AuthorPath = Annotated[str, PathParameter(description="The author of the schema.", examples=[_KEY])]
LogPath = Annotated[
    int, PathParameter(description="The log of the schema.", ge=0, le=MAX_STORED_INTEGER, examples=[12])
]
AtLeast = Annotated[
    str | None, Query(description="A position token: wait until the view has seen that write.", max_length=MAX_TOKEN)
]
READING: Final = responses("view.unknown", "view.ambiguous-name", "auth.required", "auth.out-of-scope")
EXPENSIVE: Final = ("input.query-too-expensive", "input.too-many-queries")
_Handler = TypeVar("_Handler", bound=Callable[..., Awaitable[Response]])


def view_routes(router: APIRouter, suffix: str, **options: Any) -> Callable[[_Handler], _Handler]:
    """Decorate a handler that takes the name of a view as `schema`: it answers GET at both addresses of a view.

    These are `/views/{schema}` and `/views/{author}/{log_id}`, each with `suffix`; `options` are those of the router.
    """

    def decorate(handler: _Handler) -> _Handler:
        router.get(f"/views/{{schema}}{suffix}", **options)(handler)
        router.get(f"/views/{{author}}/{{log_id:int}}{suffix}", **options)(_by_schema_id(handler))
        return handler

    return decorate


def _by_schema_id(handler: Callable[..., Awaitable[Response]]) -> Callable[..., Awaitable[Response]]:
    """The handler with author and log of a schema in the place of its name."""

    async def handle(author: str, log_id: int, **others: Any) -> Response:
        return await handler(schema=f"{author}/{log_id}", **others)

    declared = signature(handler)
    own = [Parameter("author", Parameter.KEYWORD_ONLY, annotation=AuthorPath)]
    own.append(Parameter("log_id", Parameter.KEYWORD_ONLY, annotation=LogPath))
    others = [
        item.replace(kind=Parameter.KEYWORD_ONLY) for item in declared.parameters.values() if item.name != "schema"
    ]
    vars(handle)["__signature__"] = declared.replace(parameters=[*own, *others])
    handle.__name__, handle.__doc__ = f"{handler.__name__}_of_schema", handler.__doc__
    return handle


InstanceId = Annotated[str, Field(examples=[_HASH])]
Author = Annotated[str, Field(examples=[_KEY])]


class AccessDocument(BaseModel):
    """The newest word on who may see a row."""

    mode: Literal["self", "closed", "listed", "relations", "public"]
    to: list[str]


class OwnerDocument(BaseModel):
    """The identity behind the key that wrote a row."""

    id: Annotated[str, Field(examples=["5e" * 32])]
    fqdn: Annotated[
        str | None, Field(description="Its name; null if this node does not know it.", examples=["jane.haiku.ink"])
    ]


class RowDocument(BaseModel):
    """A row of a view."""

    instance: InstanceId
    author: Author
    owner: OwnerDocument
    log_id: Annotated[int, Field(examples=[1])]
    seq_num: Annotated[int, Field(description="The entry that created it.", examples=[3])]
    last_seq_num: Annotated[int, Field(description="The last entry that changed it.", examples=[7])]
    last_hash: InstanceId
    fields: Annotated[dict[str, Any], Field(examples=[{"subject": "Hello", "created": "2020-05-22T11:58:50Z"}])]
    access: AccessDocument | None
    expires: Annotated[str | None, Field(examples=["2030-01-01T00:00:00Z"])]
    copied_from: str | None


class ListedRow(RowDocument):
    """A row with what it points to."""

    expanded: Annotated[
        dict[str, RowDocument | list[RowDocument | None] | None] | None,
        Field(description="For each relation in `expand` the row it points to; null if it may not be seen."),
    ] = None
    left_out: Annotated[
        list[str] | None,
        Field(description="The relations whose rows do not all fit into the answer: what is missing is null."),
    ] = None


class SchemaIdDocument(BaseModel):
    """A schema."""

    author: Author
    log_id: Annotated[int, Field(examples=[12])]


class PageDocument(BaseModel):
    """A page of a view."""

    schema_: Annotated[SchemaIdDocument, Field(alias="schema")]
    name: Annotated[str | None, Field(examples=["slothmail"])]
    version: Annotated[int, Field(examples=[4])]
    rows: list[ListedRow]
    cursor: Annotated[str | None, Field(description="For the next page; null at the end.")]
    count: Annotated[int | None, Field(description="With `count=true`: all rows that match and may be seen.")]
    changes: Annotated[str, Field(description="The Last-Event-ID to follow this page's changes from.")]


class InstanceDocument(RowDocument):
    """An instance with where it came from."""

    schema_: Annotated[SchemaIdDocument, Field(alias="schema")]
    version: int
    provenance: Annotated[dict[str, int], Field(description="The entry behind each value.", examples=[{"subject": 7}])]
    continues: Annotated[
        str | None,
        Field(description="The instance that was asked for, if this one has come in its place: the last of its line."),
    ] = None


class FieldDocument(BaseModel):
    """A column of a view."""

    name: Annotated[str, Field(examples=["subject"])]
    type: Annotated[str, Field(examples=["text"])]


class ViewDocument(BaseModel):
    """A view in the list."""

    schema_: Annotated[SchemaIdDocument, Field(alias="schema")]
    name: Annotated[str | None, Field(examples=["slothmail"])]
    version: int
    is_built: bool
    fields: list[FieldDocument]
    waits_for: list[SchemaIdDocument]
    stopped: str | None
    rows: Annotated[
        int | None,
        Field(description="With `count=true`: the rows that the caller may see, unless they are too many to count."),
    ]


class FreshnessDocument(BaseModel):
    """How far the views have come."""

    is_current: bool
    position: Annotated[str | None, Field(description="What `at_least` takes; for those who are signed in.")]
    behind: Annotated[int | None, Field(description="What the views have not seen yet; for administrators.")]


class ViewsDocument(BaseModel):
    """Every view."""

    views: list[ViewDocument]
    freshness: FreshnessDocument


class HistoryEventDocument(BaseModel):
    """A message of an instance and what became of it."""

    seq_num: int
    hash: InstanceId
    kind: Literal["create", "update", "delete"] | None
    version: int | None
    fields: dict[str, Any]
    access: AccessDocument | None
    outcome: str | None
    code: str | None
    reason: str | None
    instance: Annotated[str, Field(description="The instance of the line that the message is of.")]


class HistoryDocument(BaseModel):
    """The messages of an instance, oldest first."""

    instance: InstanceId
    history: list[HistoryEventDocument]


class OutcomeDocument(BaseModel):
    """What became of a message."""

    author: Author
    log_id: int
    seq_num: int
    hash: InstanceId
    outcome: Literal["applied", "pending", "quarantined", "obsolete"]
    code: Annotated[str, Field(examples=["schema.version-unknown"])]
    reason: str


class OutcomesDocument(BaseModel):
    """Outcomes of messages that the caller may know of."""

    outcomes: list[OutcomeDocument]
    counts: dict[str, int]
    cursor: str | None


class RegisteredDocument(BaseModel):
    """A schema on the list of those to materialise."""

    schema_: Annotated[SchemaIdDocument, Field(alias="schema")]
    is_new: bool
    position: str


class StrictModel(BaseModel):
    """A body with the listed keys only."""

    model_config = ConfigDict(extra="forbid")


Base64 = Annotated[str, Field(max_length=1_000_000, json_schema_extra={"format": "byte"})]
Fqdn = Annotated[str, Field(max_length=253, examples=["jane.haiku.ink"])]
Password = Annotated[str, Field(max_length=1024, examples=["correct horse battery"])]


class SignedEntryBody(StrictModel):
    """An entry that the client signed, with its payload, both in base64."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"entry": "AAEC", "payload": "oA=="}]})

    entry: Base64
    payload: Base64

    def read(self) -> SignedMessage:
        """The bytes."""
        return SignedMessage(from_base64(self.entry, "entry"), from_base64(self.payload, "payload"))


def from_base64(text: str, what: str) -> bytes:
    """Bytes written in standard base64."""
    try:
        return b64decode(text, validate=True)
    except (BadBase64, ValueError) as err:
        raise RequestError("request.invalid", f"{what} is not base64") from err

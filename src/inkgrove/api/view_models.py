"""What reading routes answer, for the OpenAPI document; the answers themselves are written without a detour."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

_HASH = "0040" + "7ac3" * 32
_KEY = "88e1cb88a66f02f8db635ce26441cc5dac1b08420ceaac230839b755845a9ffb"
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


class SchemaName(BaseModel):
    """A schema."""

    author: Author
    log_id: Annotated[int, Field(examples=[12])]


class PageDocument(BaseModel):
    """A page of a view."""

    schema_: Annotated[SchemaName, Field(alias="schema")]
    name: Annotated[str | None, Field(examples=["slothmail"])]
    version: Annotated[int, Field(examples=[4])]
    rows: list[ListedRow]
    cursor: Annotated[str | None, Field(description="For the next page; null at the end.")]
    count: Annotated[int | None, Field(description="With `count=true`: all rows that match and may be seen.")]
    changes: Annotated[str, Field(description="The Last-Event-ID to follow this page's changes from.")]


class InstanceDocument(RowDocument):
    """An instance with where it came from."""

    schema_: Annotated[SchemaName, Field(alias="schema")]
    version: int
    provenance: Annotated[dict[str, int], Field(description="The entry behind each value.", examples=[{"subject": 7}])]


class FieldDocument(BaseModel):
    """A column of a view."""

    name: Annotated[str, Field(examples=["subject"])]
    type: Annotated[str, Field(examples=["text"])]


class ViewDocument(BaseModel):
    """A view in the list."""

    schema_: Annotated[SchemaName, Field(alias="schema")]
    name: Annotated[str | None, Field(examples=["slothmail"])]
    version: int
    is_built: bool
    fields: list[FieldDocument]
    waits_for: list[SchemaName]
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


class HistoryEvent(BaseModel):
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


class HistoryDocument(BaseModel):
    """The messages of an instance, oldest first."""

    instance: InstanceId
    history: list[HistoryEvent]


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

    schema_: Annotated[SchemaName, Field(alias="schema")]
    is_new: bool
    position: str

"""What a node returns, as frozen typed values; each `read_...` makes one from the JSON of a response."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

JsonFields = Mapping[str, Any]
"""Fields of an instance as JSON holds them: timestamps as text, ids in hex."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A person, as their document says."""

    id: str
    fqdn: str
    endpoint: str
    name: str | None
    profile: Mapping[str, str]
    key: str
    keys: tuple[str, ...]
    revision: int
    scopes: tuple[str, ...] | None = None
    """What a service may do for them; None for the identity itself."""
    controller: str | None = None
    """The key that signs documents day by day; None if the first key does."""
    recovery: str = "none"
    """Who can get it back: `words`, `own-key` (a client keeps the first key) or `none` (only the node has it)."""
    state: str | None = None
    """`identity.forked` or `identity.words-used-twice`, if the log of its documents is forked."""


def read_identity(data: Mapping[str, Any]) -> Identity:
    scopes = data.get("scopes")
    keys = tuple(item["key"] for item in data["keys"] if item.get("revoked") is None)
    plain = {name: data[name] for name in ("id", "fqdn", "endpoint", "name", "profile", "key", "revision")}
    more = {name: data[name] for name in ("controller", "recovery", "state") if name in data}
    return Identity(**plain, **more, keys=keys, scopes=None if scopes is None else tuple(scopes))


@dataclass(frozen=True, slots=True)
class AccountSession:
    """A sign-in of the identity; `id` ends it, and nobody can sign in with that."""

    id: str
    label: str
    created: str | None
    last_used: str | None
    expires: str
    is_current: bool


@dataclass(frozen=True, slots=True)
class AccountKey:
    """A key of the identity."""

    key: str
    label: str | None
    is_first: bool
    is_controller: bool
    kept_by: Literal["node", "client"]
    """Who has the secret and signs with it."""
    state: Literal["counts", "ended", "unclaimed", "contested"]
    logs: int
    entries: int


@dataclass(frozen=True, slots=True)
class UsedAmount:
    """How much is used, and how much may be."""

    used: int
    limit: int


@dataclass(frozen=True, slots=True)
class AccountUsage:
    """What an identity has stored on the node."""

    entries: UsedAmount
    payload_bytes: UsedAmount
    blob_bytes: UsedAmount


@dataclass(frozen=True, slots=True)
class AuthorisedService:
    """A service that can act for the identity, with everything that was granted to it."""

    client: str
    name: str
    scopes: tuple[str, ...]
    since: str
    last_used: str | None


@dataclass(frozen=True, slots=True)
class AccountClosing:
    """How far the closing of an account has come."""

    state: Literal["deleting", "delivering", "parting", "closed"]
    """Deletes are signed; others answer them; relations end; all is over."""
    total: int
    deleted: int
    undeleted: int
    unanswered: int
    certificate: Mapping[str, Any] | None
    """What was removed, who has answered and what stays, once it is closed."""


@dataclass(frozen=True, slots=True)
class Export:
    """An export of everything that somebody has on a node."""

    id: str
    state: Literal["waiting", "running", "finished", "failed"]
    phase: str | None
    """What is being written, `done` of `total` if that is known."""
    done: int
    total: int | None
    size: int | None
    """How many bytes the finished file has."""
    digest: str | None
    """BLAKE2b-512 of the file without its last 82 bytes, in hex."""
    expires: str | None
    code: str | None
    """Why it failed."""
    has_secret: bool


def read_export(data: Mapping[str, Any]) -> Export:
    return Export(**{name: data[name] for name in Export.__slots__})


@dataclass(frozen=True, slots=True)
class Arrival:
    """An identity that is on its way to a node."""

    id: str
    identity: str
    fqdn: str
    """The name that it takes there."""
    endpoint: str
    state: Literal["asked", "fetching", "arriving", "committing", "here"]
    controller: str
    received: int
    """How many bytes of the file have come, `size` in all."""
    size: int | None
    friends: Sequence[Mapping[str, Any]]
    """Who is asked, each with `fqdn`, `state`, `entries` and `reason`."""
    code: str | None
    """What keeps it from going on."""
    reason: str | None
    is_finished: bool
    next: Mapping[str, Any] | None
    document: str | None
    first_document: str | None
    ends: Sequence[Mapping[str, Any]] | None
    token: str = field(repr=False)


def read_arrival(data: Mapping[str, Any]) -> Arrival:
    return Arrival(**{name: data[name] for name in Arrival.__slots__})


@dataclass(frozen=True, slots=True)
class MoveGrant:
    """What a new node takes an identity over with, until `expires`."""

    grant: str = field(repr=False)
    lives_at: str
    """Where the old node is reached."""
    fqdn: str
    """The name on the new node."""
    endpoint: str
    """Where that is reached."""
    expires: str


@dataclass(frozen=True, slots=True)
class MoveState:
    """Whether an identity is about to leave its node, or has left it."""

    state: Literal["here", "leaving", "moved"]
    fqdn: str | None
    endpoint: str | None
    expires: str | None
    """While it is leaving: when it is here again."""
    file: Literal["waiting", "running", "finished", "failed"] | None
    """While it is leaving: how far the file for the new node is."""


@dataclass(frozen=True, slots=True)
class SchemaField:
    """A field of a schema at a version."""

    name: str
    type: str
    schema: str | None = None
    cascade: bool = False
    validation: str | None = None


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema at its newest version."""

    id: str
    """AUTHOR/LOG."""
    name: str | None
    version: int
    fields: tuple[SchemaField, ...]
    live_path: tuple[int, ...]
    description: str | None
    stopped: str | None


def read_schema(data: Mapping[str, Any]) -> Schema:
    return Schema(
        data["schema"],
        data["name"],
        data["version"],
        tuple(SchemaField(**item) for item in data["fields"]),
        tuple(data["live_path"]),
        data["description"],
        data["stopped"],
    )


@dataclass(frozen=True, slots=True)
class NewSchemaVersion:
    """A version of a schema that was appended."""

    schema: str
    version: int
    entry: str
    position: str


@dataclass(frozen=True, slots=True)
class Published:
    """An entry that was appended; `position` goes into `at_least` of what reads it back."""

    instance: str
    position: str
    entry: str | None = None
    seq_num: int | None = None
    changed: bool = True
    continues: str | None = None
    """The instance in whose place `instance` has come, if another key of the identity had written it."""


def read_published(data: Mapping[str, Any]) -> Published:
    changed = data.get("changed", True)
    entry, seq_num = data.get("entry"), data.get("seq_num")
    return Published(data["instance"], data["position"], entry, seq_num, changed, data.get("continues"))


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a view."""

    instance: str
    author: str
    log_id: int
    seq_num: int
    last_seq_num: int
    last_hash: str
    fields: JsonFields
    access: Mapping[str, Any] | None
    expires: str | None
    copied_from: str | None
    owner: Mapping[str, str | None] | None = None
    """The identity behind the author: `id`, and `fqdn` if the node knows it."""
    expanded: Mapping[str, "Row | Sequence[Row | None] | None"] | None = None
    left_out: Sequence[str] = ()
    """Relations whose rows did not all fit into the answer: what is missing in `expanded` is None."""

    def __getitem__(self, name: str) -> Any:
        """The value of a field."""
        return self.fields[name]


_ROW = ("instance", "author", "log_id", "seq_num", "last_seq_num", "last_hash")
_ROW_END = ("fields", "access", "expires", "copied_from")


def read_row(data: Mapping[str, Any]) -> Row:
    expanded = data.get("expanded")
    related = None if expanded is None else {name: _read_related(value) for name, value in expanded.items()}
    rest = {"owner": data.get("owner"), "expanded": related, "left_out": data.get("left_out", ())}
    return Row(**{name: data[name] for name in (*_ROW, *_ROW_END)}, **rest)


def _read_related(value: Any) -> Any:
    if isinstance(value, list):
        return [_read_related(item) for item in value]
    return None if value is None else read_row(value)


@dataclass(frozen=True, slots=True)
class Instance:
    """A row with the sequence number of the entry behind each of its values."""

    row: Row
    schema: str
    version: int
    provenance: Mapping[str, int]
    """The sequence number of the entry behind each value, by field."""
    continues: str | None = None
    """The instance that was asked for, if this one has come in its place."""

    @property
    def fields(self) -> JsonFields:
        """The values of the row."""
        return self.row.fields


def read_instance(data: Mapping[str, Any]) -> Instance:
    schema, provenance = _schema(data["schema"]), data["provenance"]
    return Instance(read_row(data), schema, data["version"], provenance, data.get("continues"))


def _schema(data: Mapping[str, Any]) -> str:
    return f"{data['author']}/{data['log_id']}"


@dataclass(frozen=True, slots=True)
class Page:
    """Some rows of a view, and the cursor of the next page."""

    schema: str
    name: str | None
    version: int
    rows: tuple[Row, ...]
    cursor: str | None
    count: int | None
    changes: str
    """What to pass as `after` to follow the changes since this page."""


def read_page(data: Mapping[str, Any]) -> Page:
    rows = tuple(map(read_row, data["rows"]))
    end = (data[name] for name in ("cursor", "count", "changes"))
    return Page(_schema(data["schema"]), data["name"], data["version"], rows, *end)


@dataclass(frozen=True, slots=True)
class ViewInfo:
    """A view in the list of a node."""

    schema: str
    name: str | None
    version: int
    is_built: bool
    fields: tuple[SchemaField, ...]
    rows: int | None
    stopped: str | None


def read_view_info(data: Mapping[str, Any]) -> ViewInfo:
    fields = tuple(SchemaField(item["name"], item["type"]) for item in data["fields"])
    facts = (data["name"], data["version"], data["is_built"])
    return ViewInfo(_schema(data["schema"]), *facts, fields, data["rows"], data["stopped"])


@dataclass(frozen=True, slots=True)
class MessageOutcome:
    """Whether a message was applied, and if not, why."""

    author: str
    log_id: int
    seq_num: int
    hash: str
    outcome: Literal["applied", "pending", "quarantined", "obsolete"]
    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class InstanceEvent:
    """A message of an instance, with the fields of the schema version it was written for, and its outcome."""

    seq_num: int
    hash: str
    kind: str | None
    version: int | None
    fields: JsonFields
    access: Mapping[str, Any] | None
    outcome: str | None
    code: str | None
    reason: str | None
    instance: str | None = None
    """The instance of the line that the message is of."""


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes on the node, as a field of type blob holds them."""

    hash: str
    size: int
    type: str


@dataclass(frozen=True, slots=True)
class Relationship:
    """Somebody whom the identity follows, or who follows it."""

    side: Literal["followers", "following"]
    identity: str
    fqdn: str | None
    state: str
    group: str | None
    changed: str


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """An instance that a stranger sent and that waits to be accepted or refused."""

    via: str
    fqdn: str | None
    asks_to_follow: bool
    instance: str
    schema: str | None
    schema_name: str | None
    arrived: str
    size: int


@dataclass(frozen=True, slots=True)
class TrustedSender:
    """Somebody whose deliveries are taken in without being asked about."""

    identity: str
    fqdn: str | None
    since: str


@dataclass(frozen=True, slots=True)
class DeliveryStatus:
    """How much of an instance one recipient has received, on this node or another."""

    recipient: str | None
    fqdn: str | None
    state: Literal["waiting", "delivered", "held", "refused", "given-up"]
    wanted: int
    delivered: int
    code: str | None
    changed: str


@dataclass(frozen=True, slots=True)
class PublishReceipt:
    """Confirms one entry: `status` is stored, or known if it was there already."""

    hash: str
    status: str
    position: str


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of a service: keep them safe, and after a refresh use the new ones only."""

    client_id: str
    access: str
    refresh: str
    scope: str

    def __repr__(self) -> str:
        return f"Tokens(client_id={self.client_id!r}, scope={self.scope!r})"


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a view: a row came into sight or changed, went out of sight, or everything is to be read again."""

    kind: Literal["add", "replace", "remove", "reset"]
    instance: str | None
    row: Row | None
    id: str
    """What to pass as `after` to follow the changes behind this one."""

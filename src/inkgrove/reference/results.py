"""The results of the fold: views with their rows and outcomes (docs/protocol.md section 6)."""

from dataclasses import dataclass, field

from inkgrove.core import Hash, PublicKey
from inkgrove.messages import Access, InstanceRef, Outcome, OutcomeCode, SchemaId, Timestamp
from inkgrove.messages.cbor import Value


@dataclass(frozen=True, slots=True)
class ReferenceRow:
    """One living instance, at the version of its view."""

    instance: Hash
    author: PublicKey
    log_id: int
    seq_num: int
    last_seq_num: int
    last_hash: Hash
    fields: dict[str, Value]
    """Every field of the version in schema order; null if unset."""
    access: Access | None
    expires: Timestamp | None
    copied_from: Hash | None


@dataclass(frozen=True, slots=True)
class ReferenceOutcome:
    """The outcome of one message."""

    author: PublicKey
    log_id: int
    seq_num: int
    hash: Hash
    outcome: Outcome
    code: str
    reason: str
    """A sentence for people."""


@dataclass(frozen=True, slots=True)
class ReferenceView:
    """One schema as a table, or (schema None) the outcomes that belong to no schema."""

    schema: SchemaId | None
    version: int | None
    """The version the rows are at; None if no version is known."""
    waits_for: list[SchemaId]
    """The schemas that must be registered before the newest known version can be built."""
    stopped: str | None
    """Why the known versions end, if something invalid ended them."""
    rows: list[ReferenceRow]
    outcomes: list[ReferenceOutcome]
    absent: int
    """Verified entries whose payload is not held."""
    lines: dict[Hash, Hash] = field(default_factory=dict)
    """By each instance that another continues: the last of its line, to which relations and look-ups lead."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a message, with its code and a reason for people."""

    outcome: Outcome
    code: str
    reason: str


def make_verdict(code: OutcomeCode, reason: str) -> Verdict:
    """Return a verdict under one of the listed codes."""
    return Verdict(code.outcome, code.code, reason)


def quote_schema(schema: SchemaId) -> str:
    """Render a schema short enough for a sentence."""
    return f"{schema.author.hex()[:8]}…/{schema.log_id}"


def quote_instance(instance: InstanceRef) -> str:
    """Render what a message calls its instance, short enough for a sentence."""
    if isinstance(instance, int):
        return f"entry {instance} of this log"
    return instance.hex() if len(instance) <= 8 else f"{instance.hex()[:16]}…"

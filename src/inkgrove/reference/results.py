"""What the fold gives: views with their rows and outcomes (docs/protocol.md section 6)."""

from dataclasses import dataclass

from inkgrove.core.hashing import Hash
from inkgrove.core.keys import PublicKey
from inkgrove.messages.cbor import Value
from inkgrove.messages.ids import InstanceRef, SchemaId
from inkgrove.messages.instance import Access
from inkgrove.messages.outcomes import Outcome, OutcomeCode
from inkgrove.messages.timestamp import Timestamp


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
    """What became of one message."""

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


# A verdict on a message: its outcome, its code and a reason for people (docs/protocol.md section 6).


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a message."""

    outcome: Outcome
    code: str
    reason: str


def make_verdict(code: OutcomeCode, reason: str) -> Verdict:
    """A verdict under one of the codes that are listed."""
    return Verdict(code.outcome, code.code, reason)


def quote_schema(schema: SchemaId) -> str:
    """A schema short enough for a sentence."""
    return f"{schema.author.hex()[:8]}…/{schema.log_id}"


def quote_instance(instance: InstanceRef) -> str:
    """What a message calls its instance, short enough for a sentence."""
    if isinstance(instance, int):
        return f"entry {instance} of this log"
    return instance.hex() if len(instance) <= 8 else f"{instance.hex()[:16]}…"

"""A verdict on a message: its outcome, its code and a reason for people (docs/protocol.md section 6)."""

from dataclasses import dataclass

from inkgrove.messages.ids import InstanceRef, SchemaId
from inkgrove.messages.outcomes import Outcome, OutcomeCode


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a message."""

    outcome: Outcome
    code: str
    reason: str


def verdict(code: OutcomeCode, reason: str) -> Verdict:
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

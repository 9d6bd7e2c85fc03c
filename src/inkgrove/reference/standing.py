"""Whether a message may stand where it stands: in a valid part, well-formed, in a log for its kind.

docs/protocol.md section 2 (forks, payloads), section 3 (malformed messages), section 7 (log 0).
"""

from inkgrove.core.errors import Forked, InkgroveError, InvalidSince
from inkgrove.messages.identity import IdentityDocument, KeyOf
from inkgrove.messages.outcomes import Outcome, OutcomeCode
from inkgrove.messages.schema import SchemaMeta, SchemaMigration, SchemaRevert
from inkgrove.reference.logs import HeldMessage, Log
from inkgrove.reference.verdict import Verdict, verdict


def has_outcome(held: HeldMessage, log: Log) -> bool:
    """Whether the entry gets an outcome at all, if its schema is registered."""
    if held.content is None or log.is_schema_log:
        return False
    if log.log_id == 0:
        return not log.is_invalid_at(held.seq_num) and not isinstance(held.content, IdentityDocument | KeyOf)
    if log.is_invalid_at(held.seq_num):
        return True
    if isinstance(held.content, SchemaMeta | SchemaMigration | SchemaRevert):
        # Without entry 1 nobody knows: the log may turn out to be a schema's.
        return 1 in log.valid and log.valid[1].content is not None
    return True


def judge_standing(held: HeldMessage, log: Log) -> Verdict | None:
    """What is wrong with the place or the form of a message; None for an instance message where it belongs."""
    if log.is_invalid_at(held.seq_num):
        return _judge_invalid(held, log)
    content = held.content
    if isinstance(content, InkgroveError):
        return Verdict(Outcome.QUARANTINED, content.code, f"The message is malformed: {content.message}.")
    if isinstance(content, SchemaMeta | SchemaMigration | SchemaRevert):
        place = "log 0 is for identity messages" if log.log_id == 0 else "entry 1 of this log is not a schema-meta"
        return verdict(OutcomeCode.WRONG_LOG, f"It is a schema message, but {place}.")
    if isinstance(content, IdentityDocument | KeyOf):
        return verdict(
            OutcomeCode.WRONG_LOG, f"It is an identity message in log {log.log_id}; those belong into log 0."
        )
    if log.log_id == 0:
        return verdict(OutcomeCode.WRONG_LOG, "It is an instance message, but log 0 is for identity messages.")
    return None


def _judge_invalid(held: HeldMessage, log: Log) -> Verdict:
    if log.forked_at is not None and held.seq_num >= log.forked_at:
        return Verdict(Outcome.QUARANTINED, Forked.code, f"The log is forked at entry {log.forked_at}.")
    return Verdict(
        Outcome.QUARANTINED,
        InvalidSince.code,
        f"The log is invalid from entry {log.invalid_from} on, which lies about the size of its payload.",
    )

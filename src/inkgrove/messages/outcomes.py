"""The outcomes of messages and their codes, shared by every part of Inkgrove (docs/protocol.md section 6).

A message that is malformed is quarantined under the code of the error (`cbor.*`, `message.*`), one in the invalid
part of a log under `log.forked` or `log.invalid-since`; all other codes are listed here.
"""

from enum import Enum
from typing import Final


class Outcome(Enum):
    """The outcome of a message whose payload is held."""

    APPLIED = "applied"
    PENDING = "pending"
    QUARANTINED = "quarantined"
    OBSOLETE = "obsolete"


class OutcomeCode(Enum):
    """The reason for an outcome; the value is (code, outcome, what it means)."""

    APPLIED = ("applied", Outcome.APPLIED, "The message did what it says.")
    ERASED = (
        "instance.erased",
        Outcome.APPLIED,
        "The delete ended an instance of whose create only the entry is held: its content was erased.",
    )

    SCHEMA_UNKNOWN = ("schema.unknown", Outcome.PENDING, "No version of the schema is known here.")
    VERSION_UNKNOWN = (
        "schema.version-unknown",
        Outcome.PENDING,
        "The schema version is not known here yet, or waits for a relation's schema to be registered.",
    )
    NO_FIELDS_YET = ("schema.no-fields-yet", Outcome.PENDING, "No version of the schema has fields yet.")
    VERSION_INVALID = (
        "schema.version-invalid",
        Outcome.QUARANTINED,
        "The schema's log is forked, or holds something invalid, at or before this version.",
    )
    OFF_LIVE_PATH = ("schema.off-live-path", Outcome.OBSOLETE, "The version was left behind by a revert.")

    WRONG_LOG = (
        "instance.wrong-log",
        Outcome.QUARANTINED,
        "A message of this kind does not belong into this log: identity messages live in log 0, schema messages in"
        " a log that starts with schema-meta, instance messages in any other.",
    )
    UNKNOWN_FIELD = ("instance.unknown-field", Outcome.QUARANTINED, "The version has no field of that name.")
    WRONG_TYPE = ("instance.wrong-type", Outcome.QUARANTINED, "A value does not fit the type of its field.")
    FAILED_VALIDATION = (
        "instance.failed-validation",
        Outcome.QUARANTINED,
        "A value does not match the field's pattern at the message's own version.",
    )
    NOT_A_CREATE = (
        "instance.not-a-create",
        Outcome.QUARANTINED,
        "The instance named is not a create before this message in the same log; nor, for a delete, one that its key"
        " can end in another log.",
    )
    OTHER_SCHEMA = ("instance.other-schema", Outcome.QUARANTINED, "The create is of another schema.")
    CREATE_NOT_HELD = ("instance.create-not-held", Outcome.PENDING, "The create's entry or payload is not held.")
    CREATE_PENDING = ("instance.create-pending", Outcome.PENDING, "The create itself is pending.")
    CREATE_QUARANTINED = ("instance.create-quarantined", Outcome.QUARANTINED, "The create itself is quarantined.")
    CREATE_OBSOLETE = ("instance.create-obsolete", Outcome.OBSOLETE, "The create itself is obsolete.")
    ENDED_BY_MIGRATION = (
        "instance.ended-by-migration",
        Outcome.OBSOLETE,
        "A later migration removed the last field and with it all rows created before.",
    )
    AFTER_DELETE = ("instance.after-delete", Outcome.OBSOLETE, "The instance was deleted before.")
    NOTHING_LEFT = (
        "instance.nothing-left",
        Outcome.OBSOLETE,
        "Nothing that the update writes is left at the newest version.",
    )

    @property
    def code(self) -> str:
        """The stable code."""
        return self.value[0]

    @property
    def outcome(self) -> Outcome:
        """The outcome that goes with it."""
        return self.value[1]

    @property
    def meaning(self) -> str:
        """What it means, in a sentence."""
        return self.value[2]


MEANINGS: Final = {item.code: item.meaning for item in OutcomeCode}
"""What each listed code means."""

"""What the fold of a log has to know of other logs: entries that its deletes name, and ends of its instances.

docs/protocol.md section 5.7. Whoever folds finds out which keys are of one identity; the fold decides what counts.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from inkgrove.core import Hash
from inkgrove.messages import Create, Delete, Message


class NamedEntry(NamedTuple):
    """An entry of another log that counts there."""

    may_be_ended: bool
    """Whether its author belongs to the identity of the author of the log that is folded, and its log has instances."""
    has_payload: bool
    message: Message | None
    """The message, if its payload is held and well-formed."""


class End(NamedTuple):
    """A delete or continuing create that names an instance, by a key of the same identity."""

    hash: Hash
    message: Create | Delete


class OtherLogs(Protocol):
    """The other logs, as the fold of one log asks for them."""

    def find_entry(self, entry_hash: Hash) -> NamedEntry | None:
        """Return the entry with this hash, if it is held and counts; None otherwise."""

    def ends_of(self, instance: Hash) -> Sequence[End]:
        """Return the messages that name an instance of this log as the one they end.

        Deletes stand in other logs and may be in the invalid part; creates stand in any log, where they count.
        """


class NoOtherLogs:
    """Stands for other logs where nothing is asked about them: every hash of theirs is not held, and nothing ends."""

    def find_entry(self, entry_hash: Hash) -> NamedEntry | None:
        return None

    def ends_of(self, instance: Hash) -> Sequence[End]:
        return ()

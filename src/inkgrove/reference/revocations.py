"""What revoked keys have signed behind the last entry that counts is left out (docs/protocol.md section 7)."""

from dataclasses import replace

from inkgrove.core.keys import PublicKey, identity_of
from inkgrove.messages.identity import IdentityDocument, KeyOf
from inkgrove.reference.logs import Log, LogKey


def without_revoked(logs: dict[LogKey, Log]) -> dict[LogKey, Log]:
    """The logs as far as their keys count; what stands in an invalid part stays there."""
    ends: dict[PublicKey, dict[int, int]] = {}
    for (author, log_id), log in logs.items():
        if log_id == 0:
            ends.update(_revoked_by(author, log, logs))
    return {
        key: log if key[1] == 0 or key[0] not in ends else _cut(log, ends[key[0]].get(key[1], 0))
        for key, log in logs.items()
    }


def _revoked_by(author: PublicKey, log: Log, logs: dict[LogKey, Log]) -> dict[PublicKey, dict[int, int]]:
    """The keys that the newest document in log 0 of a first key revokes, if they say themselves that they are its."""
    if _claimed(log) is not None:
        return {}
    documents = [message.content for _, message in sorted(log.valid.items())]
    newest = next((item for item in reversed(documents) if isinstance(item, IdentityDocument)), None)
    if newest is None:
        return {}
    return {
        item.key: dict(item.revoked)
        for item in newest.keys
        if item.revoked is not None and item.key != author and _claimed(logs.get((item.key, 0))) == identity_of(author)
    }


def _claimed(log: Log | None) -> bytes | None:
    """The identity that a further key says it belongs to."""
    first = log.valid.get(1) if log is not None else None
    return first.content.identity if first is not None and isinstance(first.content, KeyOf) else None


def _cut(log: Log, last: int) -> Log:
    return replace(log, valid={seq_num: held for seq_num, held in log.valid.items() if seq_num <= last})

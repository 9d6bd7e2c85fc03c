"""An identity that revokes a further key of its own."""

from collections.abc import Iterable

from inkgrove.core import Hash, identity_of
from inkgrove.messages import FurtherKey, IdentityDocument, KeyOf, RevokedLog, encode_message
from inkgrove.node.identity import apply_identity_logs_since
from inkgrove.store.logs import START, IngestItem, LogStore
from tests.support.logs import LogBuilder, key


class Revoking:
    """The first key, what the further key says of itself, and the documents, each with other ends of that key."""

    def __init__(self, first: int, further: int) -> None:
        self.key = key(further)
        self.claim = LogBuilder(self.key, log_id=0)
        self.claim.append(encode_message(KeyOf(identity_of(key(first).public))))
        self.documents = LogBuilder(key(first), log_id=0)

    def say(
        self, revoked: tuple[tuple[int, int] | tuple[int, int, Hash], ...] | None, *, lists_it: bool = True
    ) -> "Revoking":
        """Sign a new document; each end is a log id and the last that counts, and the hash of that entry to pin it."""
        ends = None if revoked is None else tuple(RevokedLog(*end) for end in revoked)
        keys = (FurtherKey(self.key.public, ends),) if lists_it else ()
        document = IdentityDocument("jane.haiku.ink", "https://jane.haiku.ink", keys=keys)
        self.documents.append(encode_message(document))
        return self

    def tell(self, store: LogStore) -> None:
        """Take all of it into a store, and follow it as a node does."""
        for log in (self.claim, self.documents):
            store.ingest([(e.encoded, p) for e, p in zip(log.entries, log.payloads, strict=True)])
        store.database.write(lambda connection: apply_identity_logs_since(connection, START))


def take_in(store: LogStore, items: Iterable[IngestItem]) -> None:
    """Ingest entries, and follow log 0 as a node does."""
    store.ingest(items)
    store.database.write(lambda connection: apply_identity_logs_since(connection, START))

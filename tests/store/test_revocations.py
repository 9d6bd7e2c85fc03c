"""What a revoked key has signed behind its end counts nowhere, whatever came first (docs/protocol.md section 7)."""

import pytest
from sqlalchemy import Connection, select

from inkgrove.core import PublicKey, verify_signed
from inkgrove.messages import Access, Create, Delete, SchemaVersion, encode_message
from inkgrove.node.identity import apply_identity_log
from inkgrove.store.db import public_instances
from inkgrove.store.federation import update_public_index
from inkgrove.store.logs import (
    LogAtVerification,
    LogBatch,
    LogStore,
    LogValidity,
    VerifiedLine,
    append_verified,
    by_log,
    find_log,
    ingest_batch,
    messages_between,
    newest_offset,
    prepare_items,
)
from tests.store.test_ingest import happened, items, said, standing
from tests.support.logs import LogBuilder, key
from tests.support.races import begin_before_commit
from tests.support.revocations import Revoking

FIRST, FURTHER = 31, 32


def messages(store: LogStore, log: LogBuilder) -> list[int]:
    """The places whose messages count."""
    state = store.read(find_log, log.secret.public, log.log_id)
    assert state is not None
    return [item.seq_num for item in store.read(messages_between, state.id)]


def whole_run(log: LogBuilder) -> LogBatch:
    """A log of which nothing is held yet, as it is appended in bulk."""
    lines = [
        VerifiedLine(entry.seq_num, verify_signed(entry).hash, entry.encoded, payload, None, is_end=False)
        for entry, payload in zip(log.entries, log.payloads, strict=True)
    ]
    return LogBatch(LogAtVerification(PublicKey(log.secret.public), 1, 0, 0), lines)


@pytest.mark.parametrize("comes_first", ["log", "revocation"])
def test_revocation_holds_in_either_order(store: LogStore, comes_first: str) -> None:
    log, other = LogBuilder(key(FURTHER)).grow(6), LogBuilder(key(FURTHER), log_id=2).grow(3)
    revoking = Revoking(FIRST, FURTHER).say(((1, 4),))
    if comes_first == "revocation":
        revoking.tell(store)
        assert said(store.ingest(items(log))) == ["stored"] * 4 + ["log.key-revoked"] * 2
        assert said(store.ingest(items(other))) == ["log.key-revoked"] * 3
    else:
        store.ingest([*items(log), *items(other)])
        revoking.tell(store)
        assert happened(store)[-2:] == [("ended", 5), ("ended", 1)]
        assert messages(store, other) == []
    assert messages(store, log) == [1, 2, 3, 4]
    assert standing(store, log) == LogValidity(revoked_after=4)
    # The log that says whose key it is stays as it was, and other keys are not touched.
    assert standing(store, revoking.claim) == LogValidity()
    untouched = LogBuilder(key(33)).grow(2)
    assert said(store.ingest(items(untouched))) == ["stored", "stored"]


def test_newest_word_on_a_key_counts(store: LogStore) -> None:
    log = LogBuilder(key(FURTHER)).grow(6)
    store.ingest(items(log))
    revoking = Revoking(FIRST, FURTHER)
    for ends, counted in ((((1, 4),), 4), (((1, 2),), 2), (((1, 5),), 5), (None, 6)):
        revoking.say(ends).tell(store)
        assert messages(store, log) == list(range(1, counted + 1))
    assert [item for item in happened(store) if item[0] == "ended"] == [
        ("ended", 5),
        ("ended", 3),
        ("ended", 3),
        ("ended", 6),
    ]
    # Nothing happens if nothing changes, and a key that is nobody's any more is not revoked by anybody.
    before = store.read(newest_offset)
    revoking.tell(store)
    assert store.read(newest_offset) == before
    revoking.say(((1, 1),)).tell(store)
    revoking.say(None, lists_it=False).tell(store)
    assert messages(store, log) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("comes_first", ["log", "revocation"])
def test_delete_by_a_revoked_key_ends_nothing(store: LogStore, comes_first: str) -> None:
    schema = SchemaVersion(key(35).public, 1, 2)
    log = LogBuilder(key(FURTHER))
    log.append(encode_message(Create(schema, {}, Access("public"))))
    log.append(encode_message(Delete(log.hash(1), schema)))
    steps = [lambda: store.ingest(items(log)), lambda: Revoking(FIRST, FURTHER).say(((1, 1),)).tell(store)]
    for step in steps if comes_first == "log" else reversed(steps):
        step()
    assert messages(store, log) == [1]
    with store.database.writing() as connection:
        while update_public_index(connection, 0) is not None:
            continue
        assert connection.execute(select(public_instances.c.create_seq, public_instances.c.is_deleted)).all() == [
            (1, 0)
        ]


def test_stranger_revokes_nobodys_key(store: LogStore) -> None:
    log = LogBuilder(key(FURTHER)).grow(3)
    store.ingest(items(log))
    stranger = Revoking(34, FURTHER)
    stranger.claim = Revoking(FIRST, FURTHER).claim  # the key says that it is somebody else's
    stranger.say(((1, 1),)).tell(store)
    assert messages(store, log) == [1, 2, 3]


def test_bulk_appends_nothing_of_a_revoked_key_without_looking(store: LogStore) -> None:
    Revoking(FIRST, FURTHER).say(((1, 2),)).tell(store)
    log = LogBuilder(key(FURTHER)).grow(4)
    run = whole_run(log)
    assert store.write(append_verified, [run]) == [run]
    assert store.read(find_log, log.secret.public, 1) is None
    assert said(store.ingest(items(log))) == ["stored"] * 2 + ["log.key-revoked"] * 2
    # One that counts up to no entry at all is not taken for one that was never revoked.
    none = LogBuilder(key(FURTHER), log_id=7).grow(1)
    assert said(store.ingest(items(none))) == ["log.key-revoked"]


# Several processes at the same moment


def take_in(connection: Connection, log: LogBuilder) -> None:
    """Take a log in, in the transaction of the caller."""
    ingest_batch(connection, by_log(prepare_items(items(log))[0]), must_be_next=False)


@pytest.mark.parametrize("in_bulk", [False, True])
def test_log_that_begins_while_its_key_is_revoked_counts_no_further(store: LogStore, *, in_bulk: bool) -> None:
    revoking = Revoking(FIRST, FURTHER).say(None)
    revoking.tell(store)
    log = LogBuilder(key(FURTHER)).grow(6)
    begin_before_commit(
        store.database,
        lambda connection: append_verified(connection, [whole_run(log)]) if in_bulk else take_in(connection, log),
        lambda: revoking.say(((1, 4),)).tell(store),
    )
    assert standing(store, log) == LogValidity(revoked_after=4)


def test_revocation_outlasts_what_is_followed_at_the_same_moment(store: LogStore) -> None:
    log = LogBuilder(key(FURTHER)).grow(6)
    store.ingest(items(log))
    revoking = Revoking(FIRST, FURTHER).say(None)
    revoking.tell(store)
    revoking.say(((1, 4),))

    def revoke(connection: Connection) -> None:
        take_in(connection, revoking.documents)
        apply_identity_log(connection, key(FIRST).public)

    begin_before_commit(
        store.database,
        revoke,
        lambda: store.database.write(lambda connection: apply_identity_log(connection, key(FURTHER).public)),
    )
    assert standing(store, log) == LogValidity(revoked_after=4)

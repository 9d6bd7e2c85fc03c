"""Identities that moved, what is offered to them again, and who is told: in SQL, on both databases."""

from dataclasses import replace

from inkgrove.core import Hash, IdentityId, PublicKey
from inkgrove.store.db import Connection
from inkgrove.store.federation import (
    LOCAL_DELIVERY,
    DeliveryStatus,
    DocumentNotice,
    LocalDelivery,
    OfferedAgain,
    Relocation,
    RemoteIdentity,
    add_peer,
    add_sender,
    find_relocation,
    find_remote_identity,
    finish_relocation,
    forget_old_notices,
    is_known,
    is_mentioned,
    keep_moved,
    list_due_deliveries,
    list_notice_targets,
    list_notices_to,
    list_relocations,
    note_document_place,
    offer_again,
    put_remote_identity,
    queue_deliveries,
    queue_document_notices,
    queue_relocation,
    record_delivery,
    record_local_delivery,
    remove_notice,
    states_of,
)
from inkgrove.store.logs import LogStore
from inkgrove.store.node import add_shares, put_relation_state
from tests.support.logs import key
from tests.support.races import begin_before_commit

JANE, JOHN, JOAN = (IdentityId(bytes([number]) * 32) for number in (1, 2, 3))
NODE, OTHER_NODE = key(4).public, key(5).public
FOUND = RemoteIdentity(JANE, "jane.a.ink", "https://jane.a.ink", key(1).public, 1, NODE, fetched=5, expires=100)


def instance(number: int) -> Hash:
    return Hash(b"\x00\x40" + number.to_bytes(64, "big"))


def send(connection: Connection, number: int, state: DeliveryStatus, *, changed: int, code: str | None = None) -> None:
    """John has sent Jane an instance, and this is what her node said."""
    queue_deliveries(connection, instance(number), JOHN, [JANE], wanted=2, now=changed)
    if state != "waiting":
        (due,) = list_due_deliveries(connection, [JANE])[-1:]
        record_delivery(connection, due, state, delivered=2, code=code, now=changed)


def state_of(store: LogStore, number: int) -> tuple[str, int, int, str | None]:
    (found,) = store.database.read(lambda c: states_of(c, instance(number)))
    return found.state, found.delivered, found.changed, found.code


# Who has moved


def test_document_that_names_the_place_that_is_known_changes_nothing(store: LogStore) -> None:
    def work(connection: Connection) -> None:
        put_remote_identity(connection, FOUND)
        put_relation_state(connection, JOHN, JANE, "accepted", 1)
        note_document_place(connection, JANE, "jane.a.ink", "https://jane.a.ink")

    store.database.write(work)
    assert store.database.read(lambda c: find_remote_identity(c, JANE)) == FOUND
    assert store.database.read(list_relocations) == []


def test_document_that_names_another_place_marks_and_queues_only_who_is_mentioned(store: LogStore) -> None:
    stranger = replace(FOUND, id=JOAN, fqdn="joan.a.ink", endpoint="https://joan.a.ink")

    def work(connection: Connection) -> None:
        for known in (FOUND, stranger):
            put_remote_identity(connection, known)
        put_relation_state(connection, JOHN, JANE, "accepted", 1)
        for who in (JANE, JOAN):
            note_document_place(connection, who, "new.b.ink", "https://new.b.ink")

    store.database.write(work)
    for found in store.database.read(lambda c: [find_remote_identity(c, who) for who in (JANE, JOAN)]):
        assert found is not None
        assert found.has_moved
    assert store.database.read(list_relocations) == [Relocation(JANE, False, 1)]
    # The same name on another endpoint is another place too.
    store.database.write(lambda c: put_remote_identity(c, FOUND))
    store.database.write(lambda c: note_document_place(c, JANE, "jane.a.ink", "https://node.b.ink"))
    found = store.database.read(lambda c: find_remote_identity(c, JANE))
    assert found is not None
    assert found.has_moved


def test_who_is_found_nowhere_is_looked_up_if_mentioned(store: LogStore) -> None:
    store.database.write(lambda c: note_document_place(c, JOAN, "joan.b.ink", "https://joan.b.ink"))
    assert store.database.read(list_relocations) == []
    store.database.write(lambda c: add_sender(c, JOHN, JOAN, 1))
    store.database.write(lambda c: note_document_place(c, JOAN, "joan.b.ink", "https://joan.b.ink"))
    assert store.database.read(list_relocations) == [Relocation(JOAN, False, 1)]


def test_everything_that_mentions_an_identity_counts(store: LogStore) -> None:
    def mentioned(who: IdentityId) -> bool:
        return store.database.read(lambda c: is_mentioned(c, who))

    ids = [IdentityId(bytes([number]) * 32) for number in range(10, 16)]
    assert not any(map(mentioned, ids))

    def work(connection: Connection) -> None:
        put_relation_state(connection, ids[0], ids[1], "requested", 1)
        queue_deliveries(connection, instance(1), JOHN, [ids[2]], wanted=1, now=1)
        add_shares(connection, [(instance(1), ids[3])], 1)
        add_sender(connection, JOHN, ids[4], 1)

    store.database.write(work)
    assert [mentioned(who) for who in ids] == [True] * 5 + [False]
    assert not store.database.read(lambda c: is_known(c, ids[5]))
    store.database.write(lambda c: put_remote_identity(c, replace(FOUND, id=ids[5])))
    assert store.database.read(lambda c: is_known(c, ids[5]))


def test_news_while_a_relocation_is_under_way_keeps_it(store: LogStore) -> None:
    store.database.write(lambda c: queue_relocation(c, JANE))
    begun = store.database.read(lambda c: find_relocation(c, JANE))
    assert begun == Relocation(JANE, False, 1)
    store.database.write(lambda c: queue_relocation(c, JANE, is_new_node=True))
    store.database.write(lambda c: queue_relocation(c, JANE))
    store.database.write(lambda c: finish_relocation(c, begun))
    after = store.database.read(lambda c: find_relocation(c, JANE))
    assert after == Relocation(JANE, True, 3)
    store.database.write(lambda c: finish_relocation(c, after))
    assert store.database.read(list_relocations) == []


def test_two_processes_that_queue_one_relocation_lose_nothing(store: LogStore) -> None:
    begin_before_commit(
        store.database,
        lambda connection: queue_relocation(connection, JANE),
        lambda: store.database.write(lambda connection: queue_relocation(connection, JANE, is_new_node=True)),
    )
    assert store.database.read(list_relocations) == [Relocation(JANE, True, 2)]


def test_who_is_known_elsewhere_by_now_is_told_apart(store: LogStore) -> None:
    other = replace(FOUND, id=JOAN, fqdn="joan.a.ink")
    store.database.write(lambda c: put_remote_identity(c, FOUND))
    store.database.write(lambda c: put_remote_identity(c, other))

    def moved(*found_at: tuple[IdentityId, PublicKey]) -> set[IdentityId]:
        return store.database.read(lambda c: keep_moved(c, found_at))

    assert moved() == set()
    assert moved((JANE, NODE), (JOAN, NODE), (JOHN, NODE)) == set()
    assert moved((JANE, OTHER_NODE), (JOAN, NODE)) == {JANE}
    store.database.write(lambda c: note_document_place(c, JOAN, "joan.b.ink", "https://joan.b.ink"))
    assert moved((JANE, NODE), (JOAN, NODE)) == {JOAN}


# What is offered again


def test_only_what_the_old_node_took_since_is_offered_again(store: LogStore) -> None:
    def work(connection: Connection) -> OfferedAgain | None:
        send(connection, 1, "delivered", changed=50)
        send(connection, 2, "held", changed=50)
        send(connection, 3, "delivered", changed=9)  # too long ago
        send(connection, 4, "refused", code="federation.unknown-recipient", changed=50)
        send(connection, 5, "refused", code="federation.blocked", changed=50)
        send(connection, 6, "given-up", code="federation.unreachable", changed=50)
        send(connection, 7, "given-up", code="federation.nothing-held", changed=50)
        queue_deliveries(connection, instance(8), JOHN, [JOAN], wanted=2, now=50)
        return offer_again(connection, JANE, changed_since=10, after=0, now=60)

    page = store.database.write(work)
    assert page is not None
    assert page.local == []
    for number in (1, 2, 4, 6):
        assert state_of(store, number) == ("waiting", 0, 60, None)
    assert state_of(store, 3) == ("delivered", 2, 9, None)
    assert state_of(store, 5) == ("refused", 2, 50, "federation.blocked")
    assert state_of(store, 7) == ("given-up", 2, 50, "federation.nothing-held")
    again = store.database.write(lambda c: offer_again(c, JANE, changed_since=10, after=page.last_position, now=60))
    assert again is None


def test_what_was_sent_in_part_begins_again(store: LogStore) -> None:
    def work(connection: Connection) -> None:
        send(connection, 1, "waiting", changed=50)
        (due,) = list_due_deliveries(connection, [JANE])
        record_delivery(connection, due, "waiting", delivered=1, now=51)
        assert offer_again(connection, JANE, changed_since=10, after=0, now=60) is None
        # The receipt of a request to the old node that was under way does not end it.
        record_delivery(connection, due, "delivered", delivered=2, now=61)

    store.database.write(work)
    assert state_of(store, 1)[0] == "waiting"


def test_what_was_delivered_on_this_very_node_comes_with_the_page(store: LogStore) -> None:
    def work(connection: Connection) -> OfferedAgain | None:
        record_local_delivery(connection, instance(1), JOHN, JANE, "delivered", None, 50)
        record_local_delivery(connection, instance(2), JOHN, JANE, "held", None, 50)
        record_local_delivery(connection, instance(3), JOHN, JANE, "refused", "federation.blocked", 50)
        return offer_again(connection, JANE, changed_since=10, after=0, now=60)

    page = store.database.write(work)
    assert page is not None
    assert page.local == [LocalDelivery(instance(1), JOHN), LocalDelivery(instance(2), JOHN)]
    assert state_of(store, 1) == ("delivered", LOCAL_DELIVERY, 50, None)  # until it is queued with its newest message


def test_long_list_is_offered_page_by_page(store: LogStore) -> None:
    def fill(connection: Connection) -> None:
        for number in range(1, 502):
            send(connection, number, "delivered", changed=50)

    def next_page(after: int) -> OfferedAgain | None:
        return store.database.write(lambda c: offer_again(c, JANE, changed_since=1, after=after, now=60))

    def deliver(connection: Connection) -> None:
        for due in list_due_deliveries(connection, [JANE]):
            record_delivery(connection, due, "delivered", delivered=2, now=61)

    store.database.write(fill)
    pages = 0
    page = next_page(0)
    while page is not None:
        pages += 1
        store.database.write(deliver)  # what has been delivered meanwhile is not offered again
        page = next_page(page.last_position)
    assert pages == 2
    assert {state_of(store, number)[0] for number in (1, 500, 501)} == {"delivered"}


# Who is told


def test_everybody_who_has_to_do_with_an_identity_is_told(store: LogStore) -> None:
    ids = [IdentityId(bytes([number]) * 32) for number in range(20, 28)]

    def work(connection: Connection) -> int:
        put_relation_state(connection, ids[0], JANE, "accepted", 1)
        put_relation_state(connection, JANE, ids[1], "requested", 1)
        put_relation_state(connection, ids[2], JANE, "blocked", 1)
        put_relation_state(connection, ids[3], JANE, "refused", 1)
        queue_deliveries(connection, instance(1), JANE, [ids[4], ids[0]], wanted=1, now=1)
        queue_deliveries(connection, instance(1), JOHN, [ids[5]], wanted=1, now=1)
        add_sender(connection, JANE, ids[6], 1)
        add_sender(connection, JOHN, ids[7], 1)
        add_peer(connection, "peer.c.ink", 1)
        return queue_document_notices(connection, JANE, 7)

    expected = sorted([*(ids[number].hex() for number in (0, 1, 4, 6)), "peer.c.ink"])
    assert store.database.write(work) == 5
    assert sorted(store.database.read(list_notice_targets)) == expected
    # Told again, it is the same ones; what was taken is removed, unless it was queued anew.
    (old,) = store.database.read(lambda c: list_notices_to(c, "peer.c.ink"))
    assert old == DocumentNotice(JANE, "peer.c.ink", 7)
    assert store.database.write(lambda c: queue_document_notices(c, JANE, 8)) == 5
    store.database.write(lambda c: remove_notice(c, old))
    assert sorted(store.database.read(list_notice_targets)) == expected
    store.database.write(lambda c: remove_notice(c, old._replace(queued=8)))
    assert sorted(store.database.read(list_notice_targets)) == expected[:-1]
    store.database.write(lambda c: forget_old_notices(c, ids[0].hex(), 8))
    assert len(store.database.read(list_notice_targets)) == 4
    store.database.write(lambda c: forget_old_notices(c, ids[0].hex(), 9))
    assert len(store.database.read(list_notice_targets)) == 3

"""What is due to whom, when several write at once."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from inkgrove.core import Hash, IdentityId
from inkgrove.store.federation import QueueBackoff, put_backoff, queue_deliveries, read_backoffs, states_of
from inkgrove.store.logs import LogStore
from tests.support.races import begin_before_commit

INSTANCE, JANE = Hash(b"\x00\x40" + bytes(64)), IdentityId(bytes(32))
RECIPIENTS = [IdentityId(bytes([number]) * 32) for number in range(1, 21)]


def test_same_delivery_is_queued_once_by_many(store: LogStore) -> None:
    start = Barrier(4)

    def send(wanted: int) -> None:
        start.wait()
        for some in range(0, 20, 2):
            to = RECIPIENTS[some : some + 2]
            store.database.write(lambda c: queue_deliveries(c, INSTANCE, JANE, to, wanted=wanted, now=wanted))  # noqa: B023

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(send, range(1, 5)))
    found = store.database.read(lambda connection: states_of(connection, INSTANCE))
    assert sorted(state.recipient for state in found) == RECIPIENTS
    assert {(state.state, state.wanted) for state in found} == {("waiting", 4)}


def test_queue_that_fails_in_two_processes_at_once_waits(store: LogStore) -> None:
    first, second = QueueBackoff(1, 10, 5, "first"), QueueBackoff(2, 20, 5, "second")
    begin_before_commit(
        store.database,
        lambda connection: put_backoff(connection, "node 1", first),
        lambda: store.database.write(lambda connection: put_backoff(connection, "node 1", second)),
    )
    assert store.database.read(read_backoffs) == {"node 1": second}

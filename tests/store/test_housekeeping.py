"""What has run out is forgotten, and nothing that somebody begins to use."""

from inkgrove.core import identity_of
from inkgrove.store.logs import LogStore
from inkgrove.store.node import (
    UNUSED_CLIENT,
    HostedIdentity,
    OAuthClient,
    add_client,
    add_grant,
    add_identity,
    find_client,
    forget_expired,
)
from tests.support.logs import key
from tests.support.races import begin_before_commit

JANE = HostedIdentity(identity_of(key(1).public), "jane.haiku.ink", key(1).public, None, 0)


def test_service_that_is_granted_something_at_the_same_moment_stays(store: LogStore) -> None:
    store.database.write(lambda connection: add_identity(connection, JANE, None))
    for name in ("used", "unused"):
        client = OAuthClient(name, name, ("https://service.example/",), 0)
        store.database.write(lambda connection: add_client(connection, client))  # noqa: B023
    begin_before_commit(
        store.database,
        lambda connection: add_grant(connection, JANE.id, "used", "relations:read", UNUSED_CLIENT),
        lambda: store.database.write(lambda c: forget_expired(c, UNUSED_CLIENT, accesses_since=0)),
    )
    found = [store.database.read(lambda c: find_client(c, name)) for name in ("used", "unused")]  # noqa: B023
    assert [client is not None for client in found] == [True, False]

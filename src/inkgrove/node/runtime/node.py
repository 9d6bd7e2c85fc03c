"""A node: its stores, settings, vault, clock and randomness, handed to every use case."""

import secrets
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event

from inkgrove.core import KEY_BYTES, IdentityId, PublicKey, SecretKey
from inkgrove.core.errors import NoStore
from inkgrove.messages import Timestamp
from inkgrove.node.errors import IdentityError
from inkgrove.node.runtime.erasure_journal import apply_journal
from inkgrove.node.runtime.home import READERS, RECEIVERS, DiskReserve, HomeLock, NameFile
from inkgrove.node.runtime.schema_cache import SchemaCache
from inkgrove.node.runtime.signing_guard import SigningGuard, all_marks
from inkgrove.node.runtime.vault import Vault, open_vault
from inkgrove.node.runtime.write_buffers import AccessLog, ReadCounter, SessionUses
from inkgrove.node.settings import NodeSettings
from inkgrove.signature_process import SignatureProcess
from inkgrove.store.db import NETWORK, Connection, Database, LimitOf, QueryLimit
from inkgrove.store.federation import add_node_key, lock_node_keys, newest_node_key
from inkgrove.store.files import BlobFiles
from inkgrove.store.logs import LogStore, open_store
from inkgrove.store.node import sealed_key, some_sealed_keys
from inkgrove.store.views import ViewStore, drop_all_views, open_views


def _system_clock() -> int:
    return time.time_ns() // 1000


class Node:
    """What the use cases work on; safe for threads."""

    def __init__(
        self,
        store_url: Path | str,
        settings: NodeSettings,
        *,
        home: Path,
        clock: Callable[[], int] = _system_clock,
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
        vault: Vault | None = None,
    ) -> None:
        """`vault`: one that is open already; stretching its passphrase takes longer than all the rest."""
        self.settings = settings
        self.home = home
        self.clock = clock
        """Microseconds since 1970."""
        self.random_bytes = random_bytes
        self.stopping = Event()
        """Set when the node begins to stop: what would go on for ever (streams of changes) ends now."""
        self._home_lock = HomeLock(home)
        self.store: LogStore = self._open_store(store_url)
        try:
            # Asked before the file is looked for: who seals a key has made it.
            sealed = self.database.read(some_sealed_keys)
            self.vault: Vault = vault or open_vault(Path(settings.vault_key_file or home / "vault.key"), sealed)
            self.signing = SigningGuard(self.database, home, clock, random_bytes)
        except BaseException:
            self.store.close()
            self._home_lock.close()
            raise
        self.receivers = NameFile(home / RECEIVERS)
        self.readers = NameFile(home / READERS)
        self.blobs = BlobFiles(home / "blobs")
        databases = [] if isinstance(store_url, str) and "://" in store_url else [Path(store_url)]
        self.disk = DiskReserve([home, *databases], settings.disk_reserve_bytes)
        self.schemas = SchemaCache(self.database)
        self.views: ViewStore = open_views(store_url, with_node=True)
        if self.signing.is_newly_older and not self.database.is_postgresql:
            # A file of its own: it was not put back with the logs, and shows rows that are not in them any more.
            self.views.database.write(drop_all_views)
        self._at_close: list[Callable[[], None]] = []
        self.access_log = AccessLog(self.database)
        self.reads = ReadCounter(self.database)
        self.session_uses = SessionUses(self.database)
        self.signatures = SignatureProcess()
        apply_journal(self.database, home, clock())  # what was erased, if this database is older than that
        strangers = settings.stranger_query_seconds
        self._stranger_queries = QueryLimit(strangers, running=2, waiting=6, advice=", or sign in")
        self._queries = QueryLimit(settings.query_seconds, running=2, waiting=16)
        self.tidied = 0
        """When this process last removed what has expired."""

    def _open_store(self, store_url: Path | str) -> LogStore:
        try:
            if not all_marks(self.home):
                return open_store(store_url)
            try:
                return open_store(store_url, create=False)
            except NoStore as error:
                raise NoStore(
                    f"{error.message}. Entries were signed from this home (signed-*.mark) with a database that is not"
                    " there: put it back (inkgrove restore), or remove these files to begin with an empty one"
                ) from error
        except BaseException:
            self._home_lock.close()
            raise

    @property
    def database(self) -> Database:
        """The node's own database: logs and everything beside them, in one transaction if need be."""
        return self.store.database

    def find_query_limit(self, identity: IdentityId | None) -> LimitOf:
        """What a question to a view may cost when this identity asks it, or a stranger from the network that asks."""
        return self._stranger_queries.of(NETWORK.get()) if identity is None else self._queries.of(identity)

    def now(self) -> Timestamp:
        """The time of the clock."""
        return Timestamp(self.clock())

    def secret_key(self, author: PublicKey) -> SecretKey:
        """The secret of a key that this node keeps; raises if a client keeps it."""
        sealed = self.database.read(lambda connection: sealed_key(connection, author))
        if sealed is None:
            raise IdentityError(
                "identity.no-key-here",
                f"this node does not keep the key {author}: sign on the client and POST /entries",
            )
        return self.vault.open(sealed)

    def call_at_close(self, work: Callable[[], None]) -> None:
        """Let something be finished before the stores are closed."""
        self._at_close.append(work)

    def close(self) -> None:
        """Finish what goes on, write what is still to be written, and close the stores."""
        for work in self._at_close:
            work()
        self.signatures.close()
        self.access_log.close()
        self.reads.close()
        self.session_uses.close()
        self.store.close()
        self.views.close()
        self.signing.close()
        self._home_lock.close()


# The node's own key, for HTTP between nodes; it never signs an entry (docs/protocol.md section 7.4).


def load_node_key(node: Node) -> SecretKey:
    """The key that this node signs its requests with; made at the first use."""
    stored = node.database.read(newest_node_key)
    return _make(node, only_first=True) if stored is None else node.vault.open(stored[1])


def replace_node_key(node: Node) -> SecretKey:
    """Sign with a new key from now on; other nodes find it the next time they look."""
    return _make(node, only_first=False)


def _make(node: Node, *, only_first: bool) -> SecretKey:
    key = SecretKey.from_seed(node.random_bytes(KEY_BYTES))

    def work(connection: Connection) -> SecretKey:
        lock_node_keys(connection)
        stored = newest_node_key(connection) if only_first else None
        if stored is not None:
            return node.vault.open(stored[1])  # another process was first
        add_node_key(connection, key.public, node.vault.seal(key), node.clock())
        return key

    return node.database.write(work, durable=True)

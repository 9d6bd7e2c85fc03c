"""A node: its stores, settings, vault, clock and randomness, handed to every use case."""

import secrets
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event

from inkgrove.core.keys import PublicKey, SecretKey
from inkgrove.core.signature_process import SignatureProcess
from inkgrove.messages.timestamp import Timestamp
from inkgrove.node.access_log import AccessLog
from inkgrove.node.errors import NoKeyHere
from inkgrove.node.read_counter import ReadCounter
from inkgrove.node.settings import NodeSettings
from inkgrove.node.vault import Vault, open_vault
from inkgrove.store.blob_store import BlobFiles
from inkgrove.store.database import Database
from inkgrove.store.identities import sealed_key
from inkgrove.store.log_store import LogStore
from inkgrove.store.opening import open_store
from inkgrove.store.view_store import ViewStore, open_views


def _system_clock() -> int:
    return time.time_ns() // 1000


class Node:
    """What the use cases work on; safe for threads."""

    def __init__(
        self,
        place: Path | str,
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
        self.vault: Vault = vault or open_vault(Path(settings.vault_key_file or home / "vault.key"))
        self.store: LogStore = open_store(place)
        self.blobs = BlobFiles(home / "blobs")
        self.views: ViewStore = open_views(place, with_node=True)
        self._at_close: list[Callable[[], None]] = []
        self.access_log = AccessLog(self.database)
        self.reads = ReadCounter(self.database)
        self.signatures = SignatureProcess()
        self.tidied = 0
        """When this process last removed what has expired."""

    @property
    def database(self) -> Database:
        """The node's own database: logs and everything beside them, in one transaction if need be."""
        return self.store.database

    def now(self) -> Timestamp:
        """The time of the clock."""
        return Timestamp(self.clock())

    def secret_key(self, author: PublicKey) -> SecretKey:
        """The secret of a key that this node keeps; raises if a client keeps it."""
        sealed = self.database.read(lambda connection: sealed_key(connection, author))
        if sealed is None:
            raise NoKeyHere(f"this node does not keep the key {author}: sign on the client and POST /entries")
        return self.vault.open(sealed)

    def at_close(self, work: Callable[[], None]) -> None:
        """Let something be finished before the stores are closed."""
        self._at_close.append(work)

    def close(self) -> None:
        """Finish what goes on, write what is still to be written, and close the stores."""
        for work in self._at_close:
            work()
        self.signatures.close()
        self.access_log.close()
        self.reads.close()
        self.store.close()
        self.views.close()

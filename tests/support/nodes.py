"""A real node on loopback for tests: uvicorn on a free port, in a thread of the test's own process."""

import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import permutations
from pathlib import Path
from typing import Any, Self

import httpx
import uvicorn
from sqlalchemy import Connection, select

from inkgrove.api.http.serving import make_config
from inkgrove.api.http.telemetry import configure_logs
from inkgrove.core import IdentityId
from inkgrove.node.identity import SESSION, create_identity, create_with_words, hash_cheaply, hash_token
from inkgrove.node.settings import NodeSettings
from inkgrove.pages.site import make_site
from inkgrove.store.db import identities
from inkgrove.store.federation import add_sender
from inkgrove.store.node import add_session
from tests.support.templates import open_node

PASSWORD = "correct horse battery"
hash_cheaply()
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For clients of nodes on loopback, which speak plain HTTP: else each would read all certificates of the system."""


@dataclass
class RunningNode:
    """Serves from `with` to its end."""

    place: Path | str
    home: Path
    settings: NodeSettings = field(
        default_factory=lambda: NodeSettings(
            registration="open",
            domains=("haiku.ink", "poem.ink"),
            metrics="local",
            administrators=("admin.haiku.ink",),
        )
    )
    port: int = 0
    """A free one, unless others must know it beforehand."""
    rot_policy: Mapping[str, Any] | None = None

    def __enter__(self) -> Self:
        configure_logs(NodeSettings(log_level="warning"))
        self.node = open_node(self.place, self.settings, self.home)
        site = make_site(self.node, rot_policy=self.rot_policy)
        self.server = uvicorn.Server(make_config(site, replace(self.settings, port=self.port)))
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        deadline = time.monotonic() + 10
        while not self.server.started:
            assert self.thread.is_alive(), "the node did not start"
            assert time.monotonic() < deadline, "the node did not start in time"
            time.sleep(0.01)
        port = self.server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.anybody = httpx.Client(base_url=self.url, timeout=60, verify=NO_TLS)
        self._clients = [self.anybody]
        # The first request makes FastAPI build its routes, with warnings silenced in a way that is not for several
        # threads: no two nodes of a test do so at once.
        self.anybody.get("/healthz", timeout=60)
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._clients:
            client.close()
        self.server.should_exit = True
        self.thread.join(timeout=10)
        self.node.close()

    def acquaint(self) -> None:
        """Let everybody here take in what anybody else here sends; nobody follows anybody by it."""

        def work(connection: Connection) -> None:
            everybody = [IdentityId(found) for found in connection.scalars(select(identities.c.id))]
            for me, other in permutations(everybody, 2):
                add_sender(connection, me, other, 0)

        self.node.database.write(work)

    def client(self, token: str) -> httpx.Client:
        """A client that sends a token with everything."""
        client = httpx.Client(
            base_url=self.url, headers={"Authorization": f"Bearer {token}"}, timeout=60, verify=NO_TLS
        )
        self._clients.append(client)
        return client

    def create(self, fqdn: str, **facts: Any) -> dict[str, Any]:
        """A new identity; whoever is to administer the node is made by its operator."""
        if fqdn in self.settings.administrators:
            create_identity(self.node, fqdn, PASSWORD, **facts)
            made: dict[str, Any] = self.anybody.get(f"/identities/{fqdn}").json()
            return made
        answer = self.anybody.post("/identities", json={"fqdn": fqdn, "password": PASSWORD, **facts})
        assert answer.status_code == 201, answer.text
        created: dict[str, Any] = answer.json()
        return created

    def sign_in(self, fqdn: str) -> httpx.Client:
        """A client of the identity itself."""
        answer = self.anybody.post("/sessions", json={"fqdn": fqdn, "password": PASSWORD})
        assert answer.status_code == 201, answer.text
        return self.client(answer.json()["token"])


class Person(httpx.Client):
    """An identity that is signed in, made without the cost of a password."""

    def __init__(self, running: RunningNode, fqdn: str, *, has_words: bool = False) -> None:
        self.words: str | None = None
        if has_words:
            made = create_with_words(running.node, fqdn, None)
            identity, self.words = made.identity, made.words
        else:
            identity = create_identity(running.node, fqdn, None)
        token = SESSION + running.node.random_bytes(32).hex()
        expires = running.node.clock() + 3_600_000_000
        running.node.database.write(lambda c: add_session(c, hash_token(token), identity.id, expires))
        super().__init__(base_url=running.url, headers={"Authorization": f"Bearer {token}"}, timeout=60, verify=NO_TLS)
        self.fqdn, self.id, self.key, self.token = fqdn, identity.id, identity.key, token

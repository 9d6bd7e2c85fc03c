"""Real nodes over real SQLite stores in one process, on the virtual network; each can fall over at any time."""

import asyncio
import json
import shutil
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from sqlalchemy import event, select

from inkgrove.api.http.problems import status_of
from inkgrove.core import IdentityId, PublicKey
from inkgrove.core.errors import InkgroveError
from inkgrove.federation.errors import FederationError, PeerUnreachable
from inkgrove.federation.peers import WELL_KNOWN_PATH as WELL_KNOWN
from inkgrove.federation.peers import (
    Discovery,
    PeerRequest,
    PeerResponse,
    RequestAuthenticator,
    parse_url,
    render_well_known,
    well_known_of,
)
from inkgrove.federation.replication import ENTRIES_PATH, HEIGHTS_PATH, Replicator, answer_entries, answer_heights
from inkgrove.federation.sharing import (
    DELIVERIES_PATH,
    Outbox,
    is_final_refusal,
    receive_move,
    receive_request,
    send_waiting_moves,
)
from inkgrove.federation.sharing import RELATIONS_PATH as RELATIONS
from inkgrove.messages import decode_ask_heights, decode_wants, encode_entries, encode_heights
from inkgrove.node.identity import SESSION, create_identity, hash_token
from inkgrove.node.publishing import Publication, PublishJob, Reply, Writer
from inkgrove.node.runtime import Node, Vault
from inkgrove.node.settings import NodeSettings
from inkgrove.store.db import relations
from inkgrove.store.federation import RemoteIdentity
from inkgrove.store.node import add_session
from tests.simulation.virtual import Network, VirtualLoop

_Result = TypeVar("_Result")
SETTINGS = NodeSettings(replication_seconds=60)
FOR_EVER = 10**18
VAULT = Vault(b"simulated nodes share a passphrase")


@dataclass(frozen=True, slots=True)
class Person:
    """An identity of one of the nodes, signed in."""

    fqdn: str
    id: IdentityId
    key: PublicKey
    token: str
    domain: str


class SimulatedNode:
    """A node with what speaks for it to others; what it remembers in memory is lost when it falls over."""

    def __init__(self, domain: str, home: Path, network: Network, loop: VirtualLoop, rng: Random) -> None:
        self.domain = domain
        self.home = home
        self.network = network
        self.rng = rng
        self.loop = loop
        self.is_up = False
        self.crash_rate = 0.0
        """How often it falls over between two steps."""
        self.steps_left = 0
        """After so many steps it falls over for certain; 0: never."""
        self.on_relation: Callable[[IdentityId, IdentityId, str | None], None] = lambda follower, followee, state: None
        """Called whenever a relation stands otherwise than before."""
        self._relations: dict[tuple[IdentityId, IdentityId], str] = {}
        self._has_moved = False
        self._tasks: set[asyncio.Task[Any]] = set()
        self._life = 0

    def start(self) -> None:
        """Open the stores and begin to deliver."""
        self._life += 1
        random_bytes = self.rng.randbytes
        self.node = Node(
            self.home, SETTINGS, home=self.home, clock=self.loop.clock, random_bytes=random_bytes, vault=VAULT
        )
        event.listen(self.node.database.engine, "after_cursor_execute", self._look_at)
        self.writer = Writer(self.node)
        self.node.call_at_close(self.writer.close)
        self.transport = _Sender(self, self._life)
        run = self._run_blocking
        self.discovery = Discovery(self.node, self.transport, run_blocking=run)
        self.senders = RequestAuthenticator(self.node, self.discovery, run_blocking=run)
        self.outbox = Outbox(self.node, self.transport, self.discovery, random=self.rng.random, run_blocking=run)
        self.is_up = True
        self.network.handlers[self.domain] = self._handle
        self.begin(self.outbox.run(idle_seconds=15.0))
        self.replicator = Replicator(self.node, self.transport, self.discovery, run_blocking=run)
        self.begin(self.replicator.run(idle_seconds=60.0))

    def crash(self) -> None:
        """Fall over: whatever goes on is never finished."""
        self.is_up = False
        self._life += 1
        del self.network.handlers[self.domain]
        for task in self._tasks:
            task.cancel()
        self.node.close()

    def is_same_life(self, life: int) -> bool:
        return life == self._life

    def begin(self, work: Coroutine[Any, Any, _Result]) -> asyncio.Task[_Result]:
        """Do something that ends when the node falls over."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finish)
        return task

    def _finish(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.loop.call_exception_handler({"message": f"{self.domain} failed", "exception": error, "task": task})

    async def _run_blocking(self, work: Callable[[], _Result]) -> _Result:
        """Between any two steps others go on, or the node falls over."""
        life = self._life
        result = work()
        self.notice_relations()
        if self.steps_left == 1 or self.rng.random() < self.crash_rate:
            self.crash()
        self.steps_left = max(0, self.steps_left - 1)
        await asyncio.sleep(0)
        if life != self._life:
            raise asyncio.CancelledError
        return result

    def publish(self, person: Person, work: Publication) -> Reply:
        """Publish as the routes do; raises what is refused."""
        reply = self.writer.submit_and_wait(PublishJob(person.token, work))
        self.outbox.wake()
        return reply

    async def tell(self, me: IdentityId, other: RemoteIdentity) -> None:
        """Tell somebody what waits for them, as the routes do: what they do not hear now the outbox tells later."""
        try:
            await send_waiting_moves(self.node, self.transport, me, other, run_blocking=self._run_blocking)
        except FederationError as error:
            if is_final_refusal(error):
                raise
            self.outbox.wake()

    # Relations, which change in many ways: whoever wants to know is told after each

    def _look_at(self, _connection: object, _cursor: object, statement: str, *_: object) -> None:
        if "relations" in statement and not statement.startswith("SELECT"):
            self._has_moved = True

    def notice_relations(self) -> None:
        """Tell what has become of relations since the last time."""
        if not self._has_moved:
            return
        self._has_moved = False
        query = select(relations.c.follower, relations.c.followee, relations.c.state)
        rows = self.node.database.read(lambda connection: connection.execute(query).all())
        now = {(IdentityId(row.follower), IdentityId(row.followee)): str(row.state) for row in rows}
        for pair in sorted(now.keys() | self._relations.keys()):
            if now.get(pair) != self._relations.get(pair):
                self.on_relation(*pair, now.get(pair))
        self._relations = now

    # What others ask

    async def _handle(self, request: PeerRequest) -> PeerResponse:
        """What the routes of other nodes do, with the same answers."""
        task = self.begin(self._answer(request))
        try:
            return await task
        except asyncio.CancelledError:
            if task.cancelled():  # the node fell over meanwhile
                raise PeerUnreachable(f"{self.domain} hung up") from None
            raise

    async def _answer(self, request: PeerRequest) -> PeerResponse:
        url = parse_url(request.url)
        try:
            if url.target == WELL_KNOWN:
                body = json.dumps(render_well_known(well_known_of(self.node, url.host))).encode()
                return PeerResponse(200, (), body)
            sender = await self.senders.authenticate(request)
            body = await self._run_blocking(lambda: self._answer_signed(url.target, sender, request.body))
            self.outbox.wake()
            return PeerResponse(200, (), body)
        except InkgroveError as error:
            retry = error.data.get("retry_after")
            headers = (("Retry-After", str(retry)),) if isinstance(retry, int) else ()
            return PeerResponse(status_of(error), headers, error.code.encode())

    def _answer_signed(self, path: str, sender: RemoteIdentity, body: bytes) -> bytes:
        match path:
            case _ if path == HEIGHTS_PATH:
                return encode_heights(answer_heights(self.node, decode_ask_heights(body)))
            case _ if path == ENTRIES_PATH:
                return encode_entries(answer_entries(self.node, decode_wants(body)))
            case _ if path == RELATIONS:
                return receive_move(self.node, sender, body)
            case _:
                assert path == DELIVERIES_PATH
                return receive_request(self.node, sender, body)

    def add_person(self, name: str) -> Person:
        identity = create_identity(self.node, f"{name}.{self.domain}", None)
        token = SESSION + self.rng.randbytes(32).hex()
        self.node.database.write(lambda c: add_session(c, hash_token(token), identity.id, FOR_EVER))
        return Person(f"{name}.{self.domain}", identity.id, identity.key, token, self.domain)


class _Sender:
    """The transport of one life of a node: an answer that comes after its end is heard by nobody."""

    def __init__(self, owner: SimulatedNode, life: int) -> None:
        self._owner = owner
        self._life = life

    async def send(self, request: PeerRequest) -> PeerResponse:
        try:
            return await self._owner.network.send(self._owner.domain, request)
        finally:
            if not self._owner.is_same_life(self._life):
                raise asyncio.CancelledError


def copy_store(template: Path, home: Path) -> None:
    """A new empty store; making its tables takes longer than copying them."""
    shutil.copytree(template, home)

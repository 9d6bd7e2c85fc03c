"""Bytes of blobs that shared instances name: fetched from the owner's node when a reader asks for them.

docs/protocol.md section 8.10. Who fetches must see an instance here that names the blob; the owner's node decides by
its own rules whether that identity may read it there. What arrives counts only if it has the very hash.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from weakref import WeakValueDictionary

from sqlalchemy import Connection

from inkgrove.core.errors import BadHashText
from inkgrove.core.hashing import Hash, parse_hash
from inkgrove.core.keys import IdentityId, PublicKey
from inkgrove.federation.calls import signed_call
from inkgrove.federation.discovery import Discovery, RunBlocking, in_thread
from inkgrove.federation.errors import BadAnswer, FederationError
from inkgrove.federation.fetch import Answer, Transport
from inkgrove.federation.lanes import Lanes
from inkgrove.federation.sources import sender_of
from inkgrove.node.blobs import instances_naming
from inkgrove.node.identity import Caller, find_owner
from inkgrove.node.runtime import Node
from inkgrove.store.db.files import Draft
from inkgrove.store.federation.peers import RemoteIdentity
from inkgrove.store.logs.blob_references import lend_reference
from inkgrove.store.node.identities import find_identity, lives_here
from inkgrove.store.rot.copies import record_refetch
from inkgrove.store.views.blob_index import put_blob

PATH: Final = "/federation/blobs"
PART_BYTES: Final = 8 * 1024 * 1024
"""How much one answer holds."""
_SECOND: Final = 1_000_000
_FAILURE_SECONDS: Final = 30
_MOST_FAILURES: Final = 10_000
_LONGEST_SECONDS: Final = 300.0
"""How long a blob is fetched, with all the waiting for others."""
_OF_OWNER: Final = 4
"""How many blobs of one owner are fetched at the same time: who has a slow node keeps nobody else waiting."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a blob may be had: the node of the owner of an instance that names it."""

    instance: Hash
    author: PublicKey
    owner: IdentityId


class BlobFetcher:
    """Fetches each blob once, however many ask for it; belongs to one event loop."""

    def __init__(
        self,
        node: Node,
        transport: Transport,
        discovery: Discovery,
        *,
        run_blocking: RunBlocking = in_thread,
        seconds: float = _LONGEST_SECONDS,
    ) -> None:
        self._node = node
        self._lanes = Lanes(transport)
        self._discovery = discovery
        self._run_blocking = run_blocking
        self._seconds = seconds
        self._owners: WeakValueDictionary[IdentityId, asyncio.Semaphore] = WeakValueDictionary()
        self._under_way: dict[tuple[Hash, IdentityId | None], asyncio.Task[bool]] = {}
        self._failures: dict[tuple[Hash, IdentityId | None], int] = {}

    async def fetch(self, caller: Caller, text: str) -> bool:
        """Try to get a blob that the caller sees an instance of; whether it is here now."""
        try:
            content = parse_hash(text)
        except BadHashText:
            return False
        key = content, caller.identity
        if self._node.clock() < self._failures.get(key, 0):
            return False
        task = self._under_way.get(key)
        if task is None:
            task = asyncio.create_task(self._fetch_in_time(caller, content))
            self._under_way[key] = task
            task.add_done_callback(lambda _: self._under_way.pop(key, None))
        is_here = await asyncio.shield(task)
        if not is_here:
            if len(self._failures) >= _MOST_FAILURES:
                self._failures.clear()
            self._failures[key] = self._node.clock() + _FAILURE_SECONDS * _SECOND
        return is_here

    async def _fetch_in_time(self, caller: Caller, content: Hash) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._seconds):
                return await self._fetch(caller, content)
        return False

    async def _fetch(self, caller: Caller, content: Hash) -> bool:
        for place in await self._run_blocking(lambda: self._places(caller, content)):
            try:
                known = await self._discovery.find_by_id(place.owner)
                async with self._owners.setdefault(place.owner, asyncio.Semaphore(_OF_OWNER)):
                    await self._fetch_from(known, caller, content, place)
            except FederationError:
                continue
            return True
        return False

    def _places(self, caller: Caller, content: Hash) -> list[_Place]:
        found = instances_naming(self._node, caller, content)

        def work(connection: Connection) -> list[_Place]:
            places = [_Place(instance, author, find_owner(connection, author)) for instance, author in found]
            return [place for place in places if not lives_here(connection, place.owner)]

        return self._node.database.read(work)

    async def _fetch_from(self, known: RemoteIdentity, caller: Caller, content: Hash, place: _Place) -> None:
        self._node.disk.require()
        sender = await self._run_blocking(lambda: self._sender(caller))
        draft = self._node.blobs.new_draft()  # not in a thread: who gives up meanwhile would leave the file behind
        try:
            size = None
            while size is None or draft.size < size:
                path = f"{PATH}/{content.hex()}?from={draft.size}"
                async with self._lanes.enter(known.node_key.hex()) as transport:
                    request = await self._run_blocking(
                        lambda: signed_call(self._node, known, "GET", path, sender=sender)  # noqa: B023
                    )
                    part, size = self._read(await transport.send(request), draft.size, size)
                    await self._run_blocking(lambda: draft.write(part))  # noqa: B023
            await self._run_blocking(lambda: self._keep(draft, content, place))
        finally:
            await self._run_blocking(draft.discard)

    def _sender(self, caller: Caller) -> str:
        identity = caller.identity
        hosted = self._node.database.read(lambda c: find_identity(c, identity)) if identity is not None else None
        return hosted.fqdn if hosted is not None and hosted.lives_here else sender_of(self._node)

    def _read(self, answer: Answer, first: int, said: int | None) -> tuple[bytes, int]:
        """A part of a blob, and how large the whole is, which is what was said with the first one."""
        if answer.status != 200:
            raise BadAnswer(f"the owner's node answers with status {answer.status}", status=answer.status)
        total = answer.header("x-blob-size") or ""
        if not (total.isascii() and total.isdigit()) or int(total) > self._node.settings.max_blob_bytes:
            raise BadAnswer("the blob is of no size, or too large for this node")
        size = int(total)
        # Whole parts only: else a blob could come a byte at a time.
        if said not in (None, size) or len(answer.body) != min(PART_BYTES, size - first):
            raise BadAnswer("the owner's node sends more or less of the blob than there is")
        return answer.body, size

    def _keep(self, draft: Draft, content: Hash, place: _Place) -> None:
        if draft.hash != content:
            raise BadAnswer("the bytes that the owner's node sent have another hash")
        draft.sync()
        node = self._node

        def work(connection: Connection) -> None:
            put_blob(connection, content, draft.size, node.clock())
            lend_reference(connection, content, place.instance, place.author)
            record_refetch(connection, place.instance)
            # Inside of the transaction, as with an upload.
            if draft.path.exists():
                node.blobs.keep(draft)

        node.database.write(work, durable=True)

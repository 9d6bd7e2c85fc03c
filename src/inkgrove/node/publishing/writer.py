"""The one thread of a node that publishes: jobs that wait for it share a durable transaction.

A commit that survives a power failure takes as long for one entry as for hundreds. Every job plans its part, then all
is written at once; a job that is refused has written nothing and fails no other. Several processes may publish to one
store: the keys are locked in the database. `preview_publication` plans a job without signing or storing anything.
"""

import asyncio
import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any, Final, Protocol

from inkgrove.core import Hash, IdentityId
from inkgrove.core.errors import InkgroveError
from inkgrove.messages import (
    Access,
    Create,
    Delete,
    Message,
    SchemaId,
    SchemaMeta,
    SchemaMigration,
    SchemaRevert,
    Unset,
    Update,
    encode_message,
    value_to_json,
)
from inkgrove.node.errors import PublishError, SignInRequired
from inkgrove.node.identity.caller import Caller
from inkgrove.node.identity.sessions import authenticate_on
from inkgrove.node.publishing.transaction import Appender, LogEnd, PublishingCache
from inkgrove.node.reading.query import render_position
from inkgrove.node.runtime.node import Node
from inkgrove.node.runtime.write_buffers import RequestAccesses
from inkgrove.schema import ViewDefinition, append_version, describe_version
from inkgrove.store.db import Connection
from inkgrove.store.logs import own_offset, read_registered
from inkgrove.store.node import (
    IdempotencyKey,
    RecordedAnswer,
    add_answers,
    find_answers,
    forget_answers,
    hold_departures,
    lock_keys,
    read_keys,
)

MAX_GROUP: Final = 512
"""How many jobs share a transaction at most."""

_LINGER_STEPS: Final = 10
_LINGER_SECONDS: Final = 0.0005
_SECOND: Final = 1_000_000
_CLEAN_EVERY: Final = 600 * _SECOND


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a job: an HTTP status and a JSON object, to which the writer adds `position`."""

    status: int
    body: dict[str, Any]


Finish = Callable[[], Reply]
"""Makes the answer once everything is written."""


class Publication(Protocol):
    """What is to be published."""

    def plan(self, appender: Appender, caller: Caller) -> Finish:
        """Check and prepare everything; raises if it is refused."""

    @property
    def entries(self) -> int:
        """About how many entries it appends."""


@dataclass(frozen=True, slots=True)
class PublishJob:
    """A publication with the token of its caller, and the key by which its repetition is recognised."""

    token: str | None
    work: Publication
    idempotency_key: str | None = None
    request: bytes = b""
    """The whole request: a key must not be used for another one."""


_Future = Future[Reply] | asyncio.Future[Reply]


def _set_results(answered: Sequence[tuple[_Future, Reply | Exception]]) -> None:
    for future, answer in answered:
        if future.cancelled():
            continue
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)


class Writer:
    """Takes jobs from any thread and runs them in groups; its thread starts with the first."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._cache = PublishingCache()
        self._queue: SimpleQueue[tuple[PublishJob, _Future] | None] = SimpleQueue()
        self._lock = Lock()
        self._thread: Thread | None = None
        self._is_closed = False
        self._cleaned = 0

    async def submit(self, job: PublishJob) -> Reply:
        """Return the answer once everything of the job is on disk; raises why nothing is."""
        future = asyncio.get_running_loop().create_future()
        self._put(job, future)
        reply: Reply = await future
        return reply

    def submit_and_wait(self, job: PublishJob) -> Reply:
        """Return the answer as `submit` does, while the calling thread waits."""
        future: Future[Reply] = Future()
        self._put(job, future)
        return future.result()

    def _put(self, job: PublishJob, future: _Future) -> None:
        with self._lock:
            if self._is_closed:
                raise PublishError("publish.closing", "the node is being stopped")
            if self._thread is None:
                self._thread = Thread(target=self._run, name="inkgrove-writer", daemon=True)
                self._thread.start()
            self._queue.put((job, future))

    def close(self) -> None:
        """Finish what was submitted and take nothing more."""
        with self._lock:
            self._is_closed = True
            thread = self._thread
            self._queue.put(None)
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        usual = 1
        while (first := self._queue.get()) is not None:
            self._linger(usual)
            group = [first]
            is_last = False
            while len(group) < MAX_GROUP and not is_last:
                try:
                    more = self._queue.get_nowait()
                except Empty:
                    break
                if more is None:
                    is_last = True
                else:
                    group.append(more)
            usual = len(group)
            self._do(group)
            if is_last:
                return

    def _linger(self, usual: int) -> None:
        """Wait a moment for as many jobs as the last group had: clients that were just answered are likely to go on."""
        for _ in range(_LINGER_STEPS):
            if self._queue.qsize() + 1 >= usual or self._is_closed:
                return
            time.sleep(_LINGER_SECONDS)

    def _do(self, group: Sequence[tuple[PublishJob, _Future]]) -> None:
        jobs = [job for job, _ in group]
        try:
            answers, used, appender = self._node.signing.write(lambda connection: self._publish(connection, jobs))
            appender.remember_committed()
        except Exception as error:  # noqa: BLE001  (it is raised in those who wait)
            if len(group) > 1 and not isinstance(error, InkgroveError):
                # One of them has hit a bug: the others are tried alone.
                for one in group:
                    self._do([one])
                return
            answers, used = [error] * len(group), []
        for uses in used:
            uses.confirm()
        # The loop is woken once for the whole group.
        loops: dict[asyncio.AbstractEventLoop, list[tuple[_Future, Reply | Exception]]] = {}
        for (_, future), answer in zip(group, answers, strict=True):
            if isinstance(future, asyncio.Future):
                loops.setdefault(future.get_loop(), []).append((future, answer))
            else:
                _set_results([(future, answer)])
        for loop, answered in loops.items():
            with suppress(RuntimeError):  # it has been closed: nobody waits
                loop.call_soon_threadsafe(_set_results, answered)

    def _publish(
        self, connection: Connection, jobs: Sequence[PublishJob]
    ) -> tuple[list[Reply | Exception], list[RequestAccesses], Appender]:
        """Run jobs; the answers, the accesses of services to confirm once committed, and the transaction."""
        node, now = self._node, self._node.clock()
        self._cache.trim_logs()
        hold_departures(connection)
        callers = self._authenticate(connection, jobs)
        identities = {c.identity for c in callers.values() if isinstance(c, Caller) and c.identity is not None}
        keys = lock_keys(connection, identities)
        repeats = _Repeats(connection, jobs, callers, now - node.settings.idempotency_seconds * _SECOND)
        appender = Appender(node, connection, keys, self._cache, sum(job.work.entries for job in jobs))
        planned: list[Finish | Reply | int | Exception] = []
        used: list[RequestAccesses] = []
        for number, job in enumerate(jobs):
            try:
                caller = callers[job.token]
                if isinstance(caller, InkgroveError):
                    raise caller
                plan: Finish | Reply | int | None = repeats.find(job)
                if plan is None:
                    with node.access_log.begin_request() as uses:
                        plan = job.work.plan(appender, caller)
                    used.append(uses)
                planned.append(plan)
                repeats.add_planned(job, number)
            except InkgroveError as error:
                planned.append(error)
        appender.finish()
        position = render_position(node.vault, own_offset(connection))
        answers: list[Reply | Exception] = []
        for job, made in zip(jobs, planned, strict=True):
            if callable(made):
                reply = made()
                reply.body["position"] = position
                repeats.record(job, reply)
                answers.append(reply)
            else:
                answers.append(answers[made] if isinstance(made, int) else made)
        repeats.write(now)
        if now > self._cleaned + _CLEAN_EVERY:
            forget_answers(connection, now - node.settings.idempotency_seconds * _SECOND)
            self._cleaned = now
        return answers, used, appender

    def _authenticate(
        self, connection: Connection, jobs: Sequence[PublishJob]
    ) -> dict[str | None, Caller | InkgroveError]:
        """Return the callers by token, read in the transaction that writes: a revoked token writes nothing."""
        callers: dict[str | None, Caller | InkgroveError] = {}
        for token in {job.token for job in jobs}:
            try:
                if token is None:
                    raise SignInRequired("publishing needs a token: sign in, or authorise a service")
                callers[token] = authenticate_on(connection, self._node, token)
            except InkgroveError as error:
                callers[token] = error
        return callers


class _Repeats:
    """Jobs with an Idempotency-Key that were answered before, or are twice in one group."""

    def __init__(
        self,
        connection: Connection,
        jobs: Sequence[PublishJob],
        callers: Mapping[str | None, Caller | InkgroveError],
        since: int,
    ) -> None:
        self._connection = connection
        self._callers = callers
        wanted = {key for job in jobs if (key := self._key(job)) is not None}
        self._known = find_answers(connection, wanted, since) if wanted else {}
        self._planned: dict[IdempotencyKey, tuple[int, bytes]] = {}
        self._answers: list[tuple[IdempotencyKey, RecordedAnswer]] = []

    def _key(self, job: PublishJob) -> IdempotencyKey | None:
        caller = self._callers[job.token]
        if job.idempotency_key is None or not isinstance(caller, Caller) or caller.identity is None:
            return None
        return IdempotencyKey(caller.identity, caller.client, job.idempotency_key)

    def find(self, job: PublishJob) -> Reply | int | None:
        """Return the earlier answer to a request, or its number in this group; raises `publish.key-reused`."""
        key = self._key(job)
        if key is None:
            return None
        known, planned = self._known.get(key), self._planned.get(key)
        if known is None and planned is None:
            return None
        request = known.request if known is not None else planned[1] if planned is not None else b""
        if request != sha256(job.request).digest():
            raise PublishError(
                "publish.key-reused", "this Idempotency-Key was used for another request: take a new one"
            )
        if known is not None:
            return Reply(known.status, json.loads(known.answer))
        return planned[0] if planned is not None else None

    def add_planned(self, job: PublishJob, number: int) -> None:
        """Record that a job of this group will be answered."""
        key = self._key(job)
        if key is not None:
            self._planned.setdefault(key, (number, sha256(job.request).digest()))

    def record(self, job: PublishJob, reply: Reply) -> None:
        """Record an answer."""
        key = self._key(job)
        if key is not None:
            recorded = RecordedAnswer(sha256(job.request).digest(), reply.status, json.dumps(reply.body))
            self._answers.append((key, recorded))

    def write(self, now: int) -> None:
        """Write the recorded answers."""
        add_answers(self._connection, self._answers, now)


# Dry runs: the publication plans in a transaction that only reads

_NO_HASH = Hash(b"")
"""What is not signed has no entry, and so no hash."""


def preview_publication(node: Node, token: str, work: Publication) -> dict[str, Any]:
    """Return as JSON what a publication would append; raises what it would be refused with."""

    def plan(connection: Connection) -> dict[str, Any]:
        caller = authenticate_on(connection, node, token)
        keys = read_keys(connection, caller.require_identity())
        trial = _Trial(node, connection, keys, PublishingCache(), work.entries)
        with node.access_log.begin_request():  # never confirmed
            work.plan(trial, caller)
        return {"dry_run": True, "changed": trial.planned is not None, **(trial.planned or {})}

    return node.database.read(plan)


class _Trial(Appender):
    """Records the message that would be signed."""

    planned: dict[str, Any] | None = None

    def sign(self, caller: Caller, end: LogEnd, message: Message, payload: bytes | None = None) -> Hash:
        seq_num = self.find_next_entry(end).seq_num
        data = encode_message(message) if payload is None else payload
        self._charges.entry(caller.require_identity(), end.log_id, data, message)
        self.planned = {
            "author": end.author.hex(),
            "log_id": end.log_id,
            "seq_num": seq_num,
            "bytes": len(data),
            **self._describe(end, message),
        }
        end.height = seq_num
        return _NO_HASH

    def send_when_found(self, instance: Hash, via: IdentityId, access: Access | None, names: Collection[str]) -> None:
        if names and self.planned is not None:
            self.planned["not_found_yet"] = sorted(names)

    def flush(self) -> None:
        """There is nothing to write."""

    def _describe(self, end: LogEnd, message: Message) -> dict[str, Any]:
        if isinstance(message, SchemaMeta | SchemaMigration | SchemaRevert):
            return self._describe_version(end, message)
        assert isinstance(message, Create | Update | Delete)
        assert message.schema is not None
        described: dict[str, Any] = {"schema": str(message.schema.schema_id), "version": message.schema.version}
        if isinstance(message, Create):
            described["fields"] = value_to_json(message.fields)
        elif isinstance(message, Update) and not isinstance(message.fields, Unset):
            # Only their names: a patch can copy values that a service may not read.
            described["fields"] = sorted(message.fields)
        return described

    def _describe_version(self, end: LogEnd, message: SchemaMeta | SchemaMigration | SchemaRevert) -> dict[str, Any]:
        after = append_version(self.schema(SchemaId(end.author, end.log_id)), message)
        report = describe_version(after)
        registered = frozenset(read_registered(self.connection))
        view = ViewDefinition(after, registered)
        return {
            "schema": str(after.id),
            "version": report.version,
            "only_adds": report.only_adds,
            "findings": [
                {"field": item.field, "effect": item.effect, "reason": item.reason} for item in report.findings
            ],
            "materialised": after.id in registered,
            "view_version": view.version,
            "waits_for": [str(schema_id) for schema_id in view.waits_for],
        }

"""The one thread of a node that publishes: requests that wait for it share a durable transaction.

A commit that survives a power failure takes as long for one entry as for hundreds. Every job plans its part, then all
is written at once; a job that is refused has written nothing and takes no other down. Several processes may publish
to one store: the keys are locked in the database.
"""

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any, Final, Protocol

from sqlalchemy import Connection

from inkgrove.core.errors import InkgroveError
from inkgrove.node.access_log import Uses
from inkgrove.node.appending import Appender
from inkgrove.node.caller import Caller
from inkgrove.node.errors import PublishError, SignInRequired
from inkgrove.node.node import Node
from inkgrove.node.position import render_position
from inkgrove.node.sessions import authenticate_on
from inkgrove.node.settled import Settled
from inkgrove.store.logs import own_offset
from inkgrove.store.node import IdempotencyKey, RecordedAnswer, add_answers, find_answers, forget_answers, lock_keys

MAX_GROUP: Final = 512
"""How many jobs share a transaction at most."""

_LINGER_STEPS: Final = 10
_LINGER_SECONDS: Final = 0.0005
_SECOND: Final = 1_000_000
_CLEAN_EVERY: Final = 600 * _SECOND


@dataclass(frozen=True, slots=True)
class Reply:
    """What a job answers, as an HTTP status and a JSON object; the writer adds `position`."""

    status: int
    body: dict[str, Any]


Finish = Callable[[], Reply]
"""Makes the answer once everything is written."""


class Work(Protocol):
    """What is to be published."""

    def plan(self, appender: Appender, caller: Caller) -> Finish:
        """Check and prepare everything; raises if it is refused."""

    @property
    def entries(self) -> int:
        """About how many entries it appends."""


@dataclass(frozen=True, slots=True)
class Job:
    """Work, with who asks for it and how it is told from its repetition."""

    token: str | None
    work: Work
    idempotency_key: str | None = None
    request: bytes = b""
    """What was asked, whole: a key must not be used for anything else."""


_Future = Future[Reply] | asyncio.Future[Reply]


def _settle(settled: Sequence[tuple[_Future, Reply | Exception]]) -> None:
    for future, answer in settled:
        if future.cancelled():
            continue
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)


class Writer:
    """Takes jobs from any thread and does them in groups; starts with the first."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._settled = Settled(node)
        self._queue: SimpleQueue[tuple[Job, _Future] | None] = SimpleQueue()
        self._lock = Lock()
        self._thread: Thread | None = None
        self._is_closed = False
        self._cleaned = 0

    async def ask(self, job: Job) -> Reply:
        """The answer: it comes when everything of the job is on disk, or says why nothing is."""
        future = asyncio.get_running_loop().create_future()
        self._put(job, future)
        reply: Reply = await future
        return reply

    def do(self, job: Job) -> Reply:
        """The same for a thread that waits."""
        future: Future[Reply] = Future()
        self._put(job, future)
        return future.result()

    def _put(self, job: Job, future: _Future) -> None:
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
        """Wait a little for as many as came together before: whoever was answered then is likely to come again."""
        for _ in range(_LINGER_STEPS):
            if self._queue.qsize() + 1 >= usual or self._is_closed:
                return
            time.sleep(_LINGER_SECONDS)

    def _do(self, group: Sequence[tuple[Job, _Future]]) -> None:
        jobs = [job for job, _ in group]
        try:
            answers, used, appender = self._node.signing.write(lambda connection: self._publish(connection, jobs))
            appender.settle()
        except Exception as error:  # noqa: BLE001  (whoever waits must hear of it)
            if len(group) > 1 and not isinstance(error, InkgroveError):
                # One of them does what nobody thought of: the others must not suffer for it.
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
                _settle([(future, answer)])
        for loop, settled in loops.items():
            with suppress(RuntimeError):  # it has been closed: nobody waits
                loop.call_soon_threadsafe(_settle, settled)

    def _publish(
        self, connection: Connection, jobs: Sequence[Job]
    ) -> tuple[list[Reply | Exception], list[Uses], Appender]:
        """The answers, what services did, which counts once it is committed, and what was read."""
        node, now = self._node, self._node.clock()
        self._settled.trim()
        callers = self._authenticate(connection, jobs)
        identities = {c.identity for c in callers.values() if isinstance(c, Caller) and c.identity is not None}
        keys = lock_keys(connection, identities)
        repeats = _Repeats(connection, jobs, callers, now - node.settings.idempotency_seconds * _SECOND)
        appender = Appender(node, connection, keys, self._settled, sum(job.work.entries for job in jobs))
        planned: list[Finish | Reply | int | Exception] = []
        used: list[Uses] = []
        for number, job in enumerate(jobs):
            try:
                caller = callers[job.token]
                if isinstance(caller, InkgroveError):
                    raise caller
                plan: Finish | Reply | int | None = repeats.find(job)
                if plan is None:
                    with node.access_log.request() as uses:
                        plan = job.work.plan(appender, caller)
                    used.append(uses)
                planned.append(plan)
                repeats.note(job, number)
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

    def _authenticate(self, connection: Connection, jobs: Sequence[Job]) -> dict[str | None, Caller | InkgroveError]:
        """Who sends the jobs, asked in the transaction that writes: what was revoked before it writes nothing."""
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
    """Requests with a key that were answered before, or that stand twice in one group."""

    def __init__(
        self,
        connection: Connection,
        jobs: Sequence[Job],
        callers: Mapping[str | None, Caller | InkgroveError],
        since: int,
    ) -> None:
        self._connection = connection
        self._callers = callers
        wanted = {key for job in jobs if (key := self._key(job)) is not None}
        self._known = find_answers(connection, wanted, since) if wanted else {}
        self._planned: dict[IdempotencyKey, tuple[int, bytes]] = {}
        self._answers: list[tuple[IdempotencyKey, RecordedAnswer]] = []

    def _key(self, job: Job) -> IdempotencyKey | None:
        caller = self._callers[job.token]
        if job.idempotency_key is None or not isinstance(caller, Caller) or caller.identity is None:
            return None
        return IdempotencyKey(caller.identity, caller.client, job.idempotency_key)

    def find(self, job: Job) -> Reply | int | None:
        """The answer to the same request, or its number in this group; raises if the key was used for another one."""
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

    def note(self, job: Job, number: int) -> None:
        """Remember that a job of this group will be answered."""
        key = self._key(job)
        if key is not None:
            self._planned.setdefault(key, (number, sha256(job.request).digest()))

    def record(self, job: Job, reply: Reply) -> None:
        """Remember an answer."""
        key = self._key(job)
        if key is not None:
            recorded = RecordedAnswer(sha256(job.request).digest(), reply.status, json.dumps(reply.body))
            self._answers.append((key, recorded))

    def write(self, now: int) -> None:
        """Keep the answers."""
        add_answers(self._connection, self._answers, now)

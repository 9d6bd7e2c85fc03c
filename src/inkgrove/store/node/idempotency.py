"""Answers to requests with an Idempotency-Key, kept to be repeated; runs inside the transaction of the caller."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import Connection, delete, insert, select, tuple_

from inkgrove.core import IdentityId
from inkgrove.store.db.connection import in_lists
from inkgrove.store.db.node_tables import idempotency


class IdempotencyKey(NamedTuple):
    """An Idempotency-Key with the identity and client that sent it."""

    identity: IdentityId
    client: str
    key: str


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """The answer to a request, with the SHA-256 of the request."""

    request: bytes
    status: int
    answer: str


def find_answers(
    connection: Connection, keys: Collection[IdempotencyKey], since: int
) -> dict[IdempotencyKey, RecordedAnswer]:
    """Find the answers to requests with these keys that were given at or after a time."""
    columns = (idempotency.c.identity, idempotency.c.client, idempotency.c.key)
    return {
        IdempotencyKey(IdentityId(row.identity), row.client, row.key): RecordedAnswer(
            row.request, row.status, row.answer
        )
        for some in in_lists(keys)
        for row in connection.execute(
            select(idempotency).where(tuple_(*columns).in_([tuple(key) for key in some]), idempotency.c.at >= since)
        )
    }


def add_answers(connection: Connection, answers: Collection[tuple[IdempotencyKey, RecordedAnswer]], now: int) -> None:
    """Keep answers, in place of older ones with their keys."""
    rows = [
        {**key._asdict(), "request": answer.request, "status": answer.status, "answer": answer.answer, "at": now}
        for key, answer in answers
    ]
    if rows:
        columns = (idempotency.c.identity, idempotency.c.client, idempotency.c.key)
        connection.execute(delete(idempotency).where(tuple_(*columns).in_([tuple(key) for key, _ in answers])))
        connection.execute(insert(idempotency), rows)


def forget_answers(connection: Connection, before: int) -> int:
    """Forget answers from before a time; how many went."""
    return connection.execute(delete(idempotency).where(idempotency.c.at < before)).rowcount

"""Which blobs are held, who may read and lend them, and which are not used any more (docs/protocol.md section 8.10).

`store/logs/blob_references.py` keeps which instances name them.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    MetaData,
    Select,
    Table,
    and_,
    delete,
    exists,
    func,
    not_,
    null,
    or_,
    select,
    true,
    tuple_,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from inkgrove.core import Hash, IdentityId, PublicKey
from inkgrove.messages import SchemaId
from inkgrove.store.db import log_tables as tables
from inkgrove.store.db import node_tables, rot_tables
from inkgrove.store.db.connection import insert_new
from inkgrove.store.db.node_tables import blob_references, blob_rights, blob_uploads, blobs, identity_keys
from inkgrove.store.db.rot_tables import SHOWN, copies
from inkgrove.store.node.usage import forget_blob_usage
from inkgrove.store.views.access import Reader, visible_rows
from inkgrove.store.views.tables import node_table, views

_rights, _keys, _relations, _shares, _logs, _copies = map(
    node_table,
    (
        node_tables.blob_rights,
        node_tables.identity_keys,
        node_tables.relations,
        node_tables.shares,
        tables.logs,
        rot_tables.copies,
    ),
)
# Under the names that rows of views have, so that the one condition on who sees what is asked of references too.
_AS_IN_ROWS: Final = {name: f"_{name}" for name in ("instance", "author", "access", "expires")}
_references = Table(
    "blob_references",
    MetaData(schema="node"),
    *(Column(item.name, item.type, key=_AS_IN_ROWS.get(item.name, item.name)) for item in blob_references.c),
)
_SOME: Final = 2_000
"""How many references to a blob are looked through at most for those who may have it."""
_FEW: Final = 4
"""How many authors are asked for a blob whom the reader follows, who sent something, and others."""


# Blobs and rights


def put_blob(connection: Connection, content: Hash, size: int, now: int) -> None:
    """Record that a blob is held; the time within which something must refer to it begins anew.

    Until the transaction ends, no collection can take the blob: its row is locked.
    """
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    row = {"hash": content, "size": size, "stored": now, "unused_since": now}
    statement = insert(blobs).values(row)
    connection.execute(statement.on_conflict_do_update(index_elements=["hash"], set_={"unused_since": now}))


def put_right(connection: Connection, content: Hash, identity: IdentityId, media_type: str) -> bool:
    """Let an identity read a blob and lend it to the readers of its instances; returns whether that is new.

    The newest media type counts.
    """
    row = {"hash": content, "identity": identity, "media_type": media_type}
    if connection.scalar(insert_new(connection, blob_rights).returning(blob_rights.c.hash), row) is not None:
        return True
    is_it = (blob_rights.c.hash == content, blob_rights.c.identity == identity)
    connection.execute(update(blob_rights).where(*is_it).values(media_type=media_type))
    return False


def put_upload(connection: Connection, content: Hash, identity: IdentityId, client: str) -> None:
    """Record that a service uploaded a blob in the name of an identity."""
    row = {"hash": content, "identity": identity, "client": client}
    connection.execute(insert_new(connection, blob_uploads), row)


def size_of(connection: Connection, content: Hash) -> int | None:
    """The size of a blob, if it is held."""
    return connection.scalar(select(blobs.c.size).where(blobs.c.hash == content))


def own_media_type(
    connection: Connection, content: Hash, identity: IdentityId, client: str | None = None
) -> str | None:
    """The media type that an identity uploaded the blob with, if it did; through a service, if that is given."""
    query = select(blob_rights.c.media_type).where(blob_rights.c.hash == content, blob_rights.c.identity == identity)
    if client is not None:
        uploads = blob_uploads.c
        query = query.where(
            exists().where(uploads.hash == content, uploads.identity == identity, uploads.client == client)
        )
    return connection.scalar(query)


def count_blobs(connection: Connection) -> tuple[int, int]:
    """How many blobs are held, and their bytes."""
    row = connection.execute(select(func.count(), func.coalesce(func.sum(blobs.c.size), 0)).select_from(blobs)).one()
    return int(row[0]), int(row[1])


# Reading


@dataclass(frozen=True, slots=True)
class BlobReader(Reader):
    """Who wants to read a blob, and when; a service through instances of some schemas alone."""

    schemas: frozenset[SchemaId] | None = None
    """None: of all."""


def lent_media_type(connection: Connection, content: Hash, reader: BlobReader) -> str | None:
    """The media type by which an instance that the reader may see lends a blob; `connection` is one of the views."""
    may_lend = exists().where(
        _rights.c.hash == content, _rights.c.identity == _keys.c.identity, _keys.c.author == _references.c._author
    )
    is_lent = or_(_references.c.is_lent, and_(not_(_references.c.is_withheld), may_lend))
    query = select(_references.c.media_type).join_from(_references, _logs, _logs.c.id == _references.c.log)
    return connection.scalar(query.where(_names(content, reader), is_lent).limit(1))


def seen_naming(connection: Connection, content: Hash, reader: BlobReader) -> list[tuple[Hash, PublicKey]]:
    """Instances that the reader may see and that name a blob, lent or not: one each of a few authors.

    First come a few authors whom the reader follows, then a few whose instances were sent to the reader, then a few of
    all: anybody can name a blob, and keys cost nothing. `connection` is one of the views.
    """
    refers = _references.c
    groups: list[ColumnElement[bool]] = []
    if reader.identity is not None:
        followed = select(_keys.c.author).join_from(_relations, _keys, _keys.c.identity == _relations.c.followee)
        is_accepted = and_(_relations.c.follower == reader.identity, _relations.c.state == "accepted")
        groups.append(refers._author.in_(followed.where(is_accepted)))
        groups.append(exists().where(_shares.c.instance == refers._instance, _shares.c.identity == reader.identity))
    found: dict[PublicKey, Hash] = {}
    for group in (*groups, true()):
        for author, instance in connection.execute(_one_of_each(content, reader, group)):
            found.setdefault(PublicKey(author), Hash(instance))
    return [(instance, author) for author, instance in found.items()]


def _one_of_each(content: Hash, reader: BlobReader, group: ColumnElement[bool]) -> Select[Any]:
    """A few authors of the group, those first whose logs have been known here for longest, with one instance each."""
    refers = _references.c
    some = (
        select(refers._author.label("author"), refers._instance.label("instance"), refers.log.label("log"))
        .join_from(_references, _logs, _logs.c.id == refers.log)
        .where(group, _names(content, reader))
        .limit(_SOME)
        .subquery()
    )
    rank = func.row_number().over(partition_by=some.c.author, order_by=(some.c.log, some.c.instance))
    ranked = select(some, rank.label("rank")).subquery()
    query = select(ranked.c.author, ranked.c.instance).where(ranked.c.rank == 1)
    return query.order_by(ranked.c.log, ranked.c.instance).limit(_FEW)


def _names(content: Hash, reader: BlobReader) -> ColumnElement[bool]:
    """Whether a reference is to a blob, and its instance is one that the reader may see by what its messages say."""
    refers = _references.c
    conditions: list[ColumnElement[bool]] = [refers.hash == content, _stands()]
    if reader.identity is None:
        conditions.append(refers.mode == "public")  # by the index, however many name it that are not
    if reader.schemas is not None:
        conditions.append(tuple_(refers.schema_author, refers.schema_log_id).in_(sorted(reader.schemas)))
    rotted = exists().where(_copies.c.instance == refers._instance, _copies.c.step.not_in(SHOWN))
    is_of_schema = and_(views.c.author == refers.schema_author, views.c.log_id == refers.schema_log_id)
    view = select(views.c.id).where(is_of_schema).correlate(_references).scalar_subquery()
    return and_(*conditions, *visible_rows(_references, view, reader), not_(rotted))


def _stands() -> ColumnElement[bool]:
    """Whether everything that a reference follows from stands in the part of its log that counts."""
    last = _references.c.last_seq
    return and_(
        or_(_logs.c.forked_at.is_(None), last < _logs.c.forked_at),
        or_(_logs.c.lied_at.is_(None), last < _logs.c.lied_at),
        or_(_logs.c.ended_at.is_(None), last <= _logs.c.ended_at),
        or_(_logs.c.revoked_after.is_(None), last <= _logs.c.revoked_after),
    )


def is_lent_by_own(connection: Connection, content: Hash, identity: IdentityId, schemas: Collection[SchemaId]) -> bool:
    """Whether an instance of the identity's own, of one of the schemas, lends a blob, be it of this transaction."""
    refers = blob_references.c
    own_keys = select(identity_keys.c.author).where(identity_keys.c.identity == identity)
    may_lend = exists().where(blob_rights.c.hash == content, blob_rights.c.identity == identity)
    query = select(refers.hash).where(
        refers.hash == content,
        refers.author.in_(own_keys),
        tuple_(refers.schema_author, refers.schema_log_id).in_(sorted(schemas)),
        refers.is_decided,
        or_(refers.is_lent, and_(not_(refers.is_withheld), may_lend)),
    )
    return connection.execute(query.limit(1)).first() is not None


# Collection


def mark_unused(connection: Connection, now: int) -> None:
    """Begin the grace period of blobs that nothing refers to any more, and end that of the others."""
    is_used = _is_used()
    connection.execute(update(blobs).where(blobs.c.unused_since.is_(None), not_(is_used)).values(unused_since=now))
    connection.execute(update(blobs).where(blobs.c.unused_since.is_not(None), is_used).values(unused_since=null()))


def unused_blobs(connection: Connection, before: int) -> list[Hash]:
    """Blobs that nothing has referred to since before a time."""
    query = select(blobs.c.hash).where(blobs.c.unused_since < before, not_(_is_used())).order_by(blobs.c.hash)
    return [Hash(content) for content in connection.scalars(query)]


def forget_unused(connection: Connection, content: Hash, before: int) -> bool:
    """Forget a blob if it is still unused, and return whether it was; its row stays locked in the transaction."""
    locked = select(blobs.c.hash).where(blobs.c.hash == content, blobs.c.unused_since < before).with_for_update()
    if connection.scalar(locked) is None or connection.scalar(select(_is_used()).where(blobs.c.hash == content)):
        return False
    forget_blob_usage(connection, content, size_of(connection, content) or 0)
    connection.execute(delete(blob_uploads).where(blob_uploads.c.hash == content))
    connection.execute(delete(blob_rights).where(blob_rights.c.hash == content))
    connection.execute(delete(blobs).where(blobs.c.hash == content))
    return True


def unknown_among(connection: Connection, hashes: Collection[Hash]) -> list[Hash]:
    """Those of the hashes that no row knows."""
    known = set(connection.scalars(select(blobs.c.hash).where(blobs.c.hash.in_(list(hashes)))))
    return [content for content in hashes if content not in known]


def claim_orphan(connection: Connection, content: Hash) -> bool:
    """Whether no row knows this file; waits for an upload of the same bytes that is about to end."""
    row = {"hash": content, "size": 0, "stored": 0, "unused_since": 0}
    claimed = connection.scalar(insert_new(connection, blobs).returning(blobs.c.hash), row)
    if claimed is None:
        return False
    connection.execute(delete(blobs).where(blobs.c.hash == content))
    return True


def _is_used() -> ColumnElement[bool]:
    """Whether an instance refers to a blob that may claim to: a copy that was to lose its blobs may not."""
    has_rotted = exists().where(copies.c.instance == blob_references.c.instance, copies.c.step != "full")
    return exists().where(blob_references.c.hash == blobs.c.hash, not_(has_rotted)).correlate(blobs)


def list_blobs(connection: Connection) -> list[Hash]:
    """Every blob that the database knows."""
    return [Hash(found) for found in connection.scalars(select(blobs.c.hash))]

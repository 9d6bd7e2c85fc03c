"""Which blobs are here, who may lend them and which instances refer to them (docs/protocol.md section 8).

A reference counts from the message that names the hash to the delete of the instance, since earlier states can be read
too. It is noted with the message; `read_said` finds those that came another way.
"""

from collections.abc import Collection, Iterable
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    MetaData,
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

from inkgrove.core.errors import InkgroveError
from inkgrove.core.hashing import Hash
from inkgrove.core.keys import IdentityId, PublicKey
from inkgrove.messages.ids import SchemaId
from inkgrove.messages.instance import Create, Delete, InstanceMessage, Update
from inkgrove.messages.message import decode_message
from inkgrove.messages.reading import Unset
from inkgrove.schema.types import MISFIT, check_blob
from inkgrove.store import node_tables
from inkgrove.store.database import in_lists, insert_new
from inkgrove.store.ingests import START, Offset, What, read_ingests
from inkgrove.store.node_tables import blob_progress, blob_references, blob_rights, blob_uploads, blobs, identity_keys
from inkgrove.store.rot_tables import copies
from inkgrove.store.tables import entries, logs
from inkgrove.store.view_store import View
from inkgrove.store.view_tables import gone
from inkgrove.store.visibility import visible_rows

_beside = MetaData(schema="node")
_references, _rights, _keys = (
    table.to_metadata(_beside)
    for table in (node_tables.blob_references, node_tables.blob_rights, node_tables.identity_keys)
)
_PAGE: Final = 5_000
_FEW: Final = 5


class Said(NamedTuple):
    """A message of an instance, as far as blobs are concerned."""

    instance: Hash
    author: PublicKey
    message: InstanceMessage


def blobs_in(message: InstanceMessage) -> dict[Hash, str]:
    """The blobs that a message names, each with its media type."""
    if isinstance(message, Delete) or isinstance(message.fields, Unset):
        return {}
    found = {}
    for value in message.fields.values():
        for item in value if type(value) is list else (value,):
            if type(item) is dict and (blob := check_blob(item)) is not MISFIT:
                found[blob["hash"]] = blob["type"]
    return found


# Blobs and rights


def put_blob(connection: Connection, content: Hash, size: int, now: int) -> None:
    """Note that the bytes are here; the time within which something must refer to them begins anew.

    Until the transaction ends, no collection can take the blob: its row is locked.
    """
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    row = {"hash": content, "size": size, "stored": now, "unused_since": now}
    statement = insert(blobs).values(row)
    connection.execute(statement.on_conflict_do_update(index_elements=["hash"], set_={"unused_since": now}))


def put_right(connection: Connection, content: Hash, identity: IdentityId, media_type: str) -> None:
    """Let an identity read a blob and lend it to the readers of its instances; the newest media type counts."""
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    statement = insert(blob_rights).values(hash=content, identity=identity, media_type=media_type)
    keys = ["hash", "identity"]
    connection.execute(statement.on_conflict_do_update(index_elements=keys, set_={"media_type": media_type}))


def put_upload(connection: Connection, content: Hash, identity: IdentityId, client: str) -> None:
    """Note that a service has the bytes, which it uploaded in the name of an identity."""
    row = {"hash": content, "identity": identity, "client": client}
    connection.execute(insert_new(connection, blob_uploads), row)


def size_of(connection: Connection, content: Hash) -> int | None:
    """The size of a blob, if it is here."""
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
    """How many blobs are here, and their bytes."""
    row = connection.execute(select(func.count(), func.coalesce(func.sum(blobs.c.size), 0)).select_from(blobs)).one()
    return int(row[0]), int(row[1])


# References


def put_references(
    connection: Connection, said: Said, lent: Iterable[Hash], *, withheld: Iterable[Hash] = (), anew: bool = True
) -> None:
    """Note which blobs a message names, and which of them its author may lend; a delete ends those of its instance.

    `withheld`: those that a service named which may not read them. `anew`: the message is new, and not found again.
    """
    instance, author, message = said
    if isinstance(message, Delete):
        mine = (blob_references.c.instance == instance, blob_references.c.author == author)
        connection.execute(delete(blob_references).where(*mine))
        return
    named, lendable, kept_back = blobs_in(message), set(lent), set(withheld)
    if not named:
        return
    # Locks the rows against a collection that is under way.
    connection.execute(update(blobs).where(blobs.c.hash.in_(sorted(named))).values(unused_since=null()))
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    rows = [
        {
            "hash": content,
            "instance": instance,
            "author": author,
            "schema_author": message.schema.author,
            "schema_log_id": message.schema.log_id,
            "media_type": media_type,
            "is_lent": content in lendable,
            "is_withheld": content in kept_back,
        }
        for content, media_type in sorted(named.items())
    ]
    statement = insert(blob_references)
    facts = {
        "is_lent": or_(blob_references.c.is_lent, statement.excluded.is_lent),
        "is_withheld": and_(blob_references.c.is_withheld, statement.excluded.is_withheld),
    }
    may_change = true() if anew else not_(blob_references.c.is_withheld)
    keys = ["hash", "instance", "author"]
    statement = statement.on_conflict_do_update(index_elements=keys, set_=facts, where=may_change)
    connection.execute(statement, rows)


def schemas_that_refer(connection: Connection, content: Hash) -> set[SchemaId]:
    """The schemas whose instances name a blob."""
    columns = (blob_references.c.schema_author, blob_references.c.schema_log_id)
    query = select(*columns).where(blob_references.c.hash == content).distinct()
    return {SchemaId(PublicKey(author), log_id) for author, log_id in connection.execute(query)}


def lent_media_type(
    connection: Connection,
    view: View,
    content: Hash,
    reader: IdentityId | None,
    own_keys: Iterable[PublicKey],
    now: int,
) -> str | None:
    """The media type by which a row that the reader may see lends a blob; `connection` is one of the views."""
    if not view.is_built:
        return None
    rows = view.table()
    may_lend = exists().where(
        _rights.c.hash == content, _rights.c.identity == _keys.c.identity, _keys.c.author == _references.c.author
    )
    query = (
        select(_references.c.media_type)
        .join_from(_references, rows, rows.c._instance == _references.c.instance)
        .where(
            _references.c.hash == content,
            _references.c.author == rows.c._author,
            or_(_references.c.is_lent, and_(not_(_references.c.is_withheld), may_lend)),
            visible_rows(rows, reader, list(own_keys), now),
            not_(exists().where(gone.c.view == view.id, gone.c.instance == rows.c._instance)),
        )
    )
    return connection.scalar(query.limit(1))


def is_lent_by_own(connection: Connection, content: Hash, identity: IdentityId, schemas: Collection[SchemaId]) -> bool:
    """Whether an instance of the identity's own, of one of the schemas, lends a blob; in a view or not yet."""
    refers = blob_references.c
    own_keys = select(identity_keys.c.author).where(identity_keys.c.identity == identity)
    may_lend = exists().where(blob_rights.c.hash == content, blob_rights.c.identity == identity)
    query = select(refers.hash).where(
        refers.hash == content,
        refers.author.in_(own_keys),
        tuple_(refers.schema_author, refers.schema_log_id).in_(sorted(schemas)),
        or_(refers.is_lent, and_(not_(refers.is_withheld), may_lend)),
    )
    return connection.execute(query.limit(1)).first() is not None


def seen_naming(
    connection: Connection,
    view: View,
    content: Hash,
    reader: IdentityId | None,
    own_keys: Iterable[PublicKey],
    now: int,
) -> list[tuple[Hash, PublicKey]]:
    """Some rows that the reader may see and that name a blob, lent or not, by instance and author."""
    if not view.is_built:
        return []
    rows = view.table()
    query = (
        select(_references.c.instance, _references.c.author)
        .join_from(_references, rows, rows.c._instance == _references.c.instance)
        .where(
            _references.c.hash == content,
            _references.c.author == rows.c._author,
            visible_rows(rows, reader, list(own_keys), now),
            not_(exists().where(gone.c.view == view.id, gone.c.instance == rows.c._instance)),
        )
        .limit(_FEW)
    )
    return [(Hash(instance), PublicKey(author)) for instance, author in connection.execute(query)]


def lend_reference(connection: Connection, content: Hash, instance: Hash, author: PublicKey) -> None:
    """The bytes came with an instance from its author's node: its readers may read them."""
    is_it = (
        (blob_references.c.hash == content)
        & (blob_references.c.instance == instance)
        & (blob_references.c.author == author)
    )
    connection.execute(update(blob_references).where(is_it).values(is_lent=True))
    connection.execute(update(blobs).where(blobs.c.hash == content).values(unused_since=null()))


# References that came another way than by the node's own publishing


def search_offset(connection: Connection) -> Offset:
    """Up to where the logs were searched for references."""
    row = connection.execute(select(blob_progress.c.xid, blob_progress.c.position)).first()
    return Offset(row.xid, row.position) if row is not None else START


def put_search_offset(connection: Connection, offset: Offset) -> None:
    """Note up to where the logs were searched."""
    facts = {"xid": offset.xid, "position": offset.position}
    if connection.execute(update(blob_progress).values(facts)).rowcount == 0:
        connection.execute(insert_new(connection, blob_progress), {"id": 1, **facts})


def read_said(connection: Connection, after: Offset, limit: int = _PAGE) -> tuple[list[Said], Offset]:
    """The messages after an offset that name blobs or end instances, and the offset behind them."""
    ingests, offset = read_ingests(connection, after, limit)
    hashes = [item.hash for item in ingests if item.hash is not None and item.what in (What.ENTRY, What.PAYLOAD)]
    creates = entries.alias("creates")
    found: dict[bytes, Said] = {}
    for some in in_lists(hashes):
        query = (
            select(entries.c.hash, entries.c.payload, logs.c.author, creates.c.hash.label("instance"))
            .join_from(entries, logs, logs.c.id == entries.c.log)
            .join(creates, (creates.c.log == entries.c.log) & (creates.c.seq_num == entries.c.create_seq))
            .where(entries.c.hash.in_(some), entries.c.payload.is_not(None))
            .where(entries.c.kind.in_(("create", "update", "delete")))
        )
        for row in connection.execute(query):
            said = _said(row)
            if said is not None:
                found[row.hash] = said
    return [found[content] for content in hashes if content in found], offset


def _said(row: Any) -> Said | None:
    payload = bytes(row.payload)
    # Decoding takes longer than looking for the three keys that every blob has and the word of a delete.
    names_blob = b"dhash" in payload and b"dsize" in payload
    if not names_blob and b"fdelete" not in payload:
        return None
    try:
        message = decode_message(payload)
    except InkgroveError:
        return None
    if not isinstance(message, Create | Update | Delete):
        return None
    return Said(Hash(row.instance), PublicKey(row.author), message)


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
    """Forget a blob if it is still unused; its row stays locked until the end of the transaction."""
    locked = select(blobs.c.hash).where(blobs.c.hash == content, blobs.c.unused_since < before).with_for_update()
    if connection.scalar(locked) is None or connection.scalar(select(_is_used()).where(blobs.c.hash == content)):
        return False
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

"""Blobs: uploaded, read, lent with instances (docs/protocol.md section 8.10).

Naming a hash grants nothing. The bytes may be read by the identity that uploaded them here, and by those who see an
instance that lends them: its author uploaded them here, could read them here when naming them, or their node sent them.
A service reads what it uploaded itself and what instances lend that it may read; only that can it lend, too.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from inkgrove.core import Hash, IdentityId, PublicKey, parse_hash
from inkgrove.core.errors import BadHashText
from inkgrove.messages import InstanceMessage, SchemaId
from inkgrove.node.errors import BlobError, OutOfScope, SignInRequired, UnknownBlob
from inkgrove.node.identity.caller import Caller, SchemaScope
from inkgrove.node.identity.quotas import spend_blob
from inkgrove.node.runtime.node import Node
from inkgrove.store.db import Connection
from inkgrove.store.logs import AuthoredMessage, blobs_in, put_references
from inkgrove.store.node import DOWNLOAD, UPLOAD, identities_of, keys_of
from inkgrove.store.views import (
    BlobReader,
    is_lent_by_own,
    lent_media_type,
    own_media_type,
    put_blob,
    put_right,
    put_upload,
    seen_naming,
    size_of,
)


@dataclass(frozen=True, slots=True)
class ReadableBlob:
    """A blob that the caller may read."""

    hash: Hash
    size: int
    media_type: str
    path: Path


def require_uploader(caller: Caller) -> IdentityId:
    """On whose behalf something is uploaded; a service needs the right to write instances of some schema."""
    if caller.identity is None:
        raise SignInRequired("sign in to upload: POST /sessions with name and password")
    writes = (isinstance(scope, SchemaScope) and scope.action in ("create", "update") for scope in caller.scopes)
    if caller.grant is not None and not any(writes):
        raise OutOfScope("a service uploads only if it was granted create or update of some schema")
    return caller.identity


class Upload:
    """An upload under way; at the end of the `with`, what was not finished is gone."""

    def __init__(self, node: Node, caller: Caller) -> None:
        self._node, self._caller, self._identity = node, caller, require_uploader(caller)
        node.disk.require()
        self._draft = node.blobs.new_draft()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._draft.discard()

    def write(self, data: bytes) -> None:
        """Add bytes; refused before they are written if they are too many."""
        limit = self._node.settings.max_blob_bytes
        if self._draft.size + len(data) > limit:
            raise BlobError("blob.too-large", f"a blob has at most {limit:,} bytes here", limit=limit)
        self._node.disk.require()
        self._draft.write(data)

    def finish(self, media_type: str) -> ReadableBlob:
        """Keep the blob for good, or until nothing refers to it for the grace period."""
        node, draft = self._node, self._draft
        draft.sync()
        content, size = draft.hash, draft.size

        def work(connection: Connection) -> None:
            put_blob(connection, content, size, node.clock())
            if put_right(connection, content, self._identity, media_type):
                spend_blob(node, connection, self._identity, size)
            if self._caller.grant is not None:
                put_upload(connection, content, self._identity, self._caller.client)
            # Inside of the transaction: a collection that takes the same blob waits, or has ended.
            if draft.path.exists():
                node.blobs.keep(draft)

        node.database.write(work, durable=True)
        self._caller.record_use(UPLOAD, None, content)
        return ReadableBlob(content, size, media_type, node.blobs.path_of(content))


def find_blob(node: Node, caller: Caller, text: str) -> ReadableBlob:
    """A blob by its hash in hex; one that may not be read looks like one that is not here."""
    unknown = UnknownBlob(f"no blob {text[:140]} is here, or it may not be read")
    try:
        content = parse_hash(text)
    except BadHashText:
        raise unknown from None
    size = node.database.read(lambda connection: size_of(connection, content))
    path = node.blobs.path_of(content)
    if size is None or not path.is_file():
        raise unknown
    media_type = _readable_as(node, caller, content)
    if media_type is None:
        raise unknown
    caller.record_use(DOWNLOAD, None, content)
    return ReadableBlob(content, size, media_type, path)


def _readable_schemas(caller: Caller) -> set[SchemaId] | None:
    """The schemas that a service may read; None if the identity itself asks."""
    if caller.grant is None:
        return None
    return {scope.schema for scope in caller.scopes if isinstance(scope, SchemaScope) and scope.action == "read"}


def _reader(node: Node, connection: Connection, caller: Caller) -> BlobReader:
    identity, only = caller.identity, _readable_schemas(caller)
    keys = tuple(keys_of(connection, identity)) if identity is not None else ()
    return BlobReader(identity, keys, node.clock(), None if only is None else frozenset(only))


def instances_naming(node: Node, caller: Caller, content: Hash) -> list[tuple[Hash, PublicKey]]:
    """Instances, with their authors, that the caller sees and that name a blob, whether it is here or not."""
    reader = node.database.read(lambda connection: _reader(node, connection, caller))
    return node.views.database.read(lambda connection: seen_naming(connection, content, reader))


def _readable_as(node: Node, caller: Caller, content: Hash) -> str | None:
    """The media type of a blob that the caller may read; a service through instances of some schemas alone."""
    identity = caller.identity

    def work(connection: Connection) -> tuple[str | None, BlobReader]:
        client = caller.client if caller.grant is not None else None
        own = own_media_type(connection, content, identity, client) if identity is not None else None
        return own, _reader(node, connection, caller)

    own, reader = node.database.read(work)
    if own is not None:
        return own
    return node.views.database.read(lambda connection: lent_media_type(connection, content, reader))


def note_references(
    node: Node,
    connection: Connection,
    instance: Hash,
    message: InstanceMessage,
    author: PublicKey,
    *,
    said_by: Caller | None = None,
) -> None:
    """Note which of the blobs that a stored message names its author may lend, in the transaction that stores it.

    `instance` is the entry hash of the create, `author` who signed.
    `said_by`: who publishes it here, which may be a service; None if it came another way, or was noted before.
    """
    named = blobs_in(message)
    if not named:
        return
    lent: set[Hash] = set()
    identity = identities_of(connection, [author]).get(author)
    asking = said_by or Caller(identity)
    if identity is not None:
        lent = {content for content in named if _may_lend(node, connection, asking, content)}
    withheld = named.keys() - lent if asking.grant is not None else set()
    put_references(
        connection, AuthoredMessage(instance, author, message), lent, withheld=withheld, anew=said_by is not None
    )


def _may_lend(node: Node, connection: Connection, caller: Caller, content: Hash) -> bool:
    if _readable_as(node, caller, content) is not None:
        return True
    if caller.grant is None or caller.identity is None:
        return False
    # What is its identity's own can be copied before a view shows it.
    return is_lent_by_own(connection, content, caller.identity, _readable_schemas(caller) or ())

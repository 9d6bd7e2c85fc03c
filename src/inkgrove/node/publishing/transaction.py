"""The transaction that publishes: appends entries to logs of hosted identities (docs/protocol.md sections 2 and 5).

Several requests share a transaction: each plans its entries against the state that those before it will leave behind,
and everything is written at once. A plan that fails has written nothing. `PublishingCache` outlives the transactions.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from inkgrove.core import (
    Entry,
    Flavour,
    Hash,
    IdentityId,
    NextEntry,
    PublicKey,
    SecretKey,
    flavour_of,
    lipmaa,
    make_next_entry,
    sign_own,
)
from inkgrove.core.errors import LogError
from inkgrove.messages import (
    Access,
    Create,
    Delete,
    IdentityDocument,
    InstanceMessage,
    InstanceRef,
    Message,
    SchemaId,
    SchemaMeta,
    SchemaMigration,
    SchemaRevert,
    Update,
    encode_message,
    parse_schema_id,
)
from inkgrove.node.blobs.uploads import note_references
from inkgrove.node.errors import IdentityError, PublishError
from inkgrove.node.identity.caller import Caller
from inkgrove.node.identity.identity_log import IDENTITY_LOG, apply_identity_log, read_newest_document
from inkgrove.node.identity.leaving import require_staying
from inkgrove.node.identity.quotas import QuotaCharges
from inkgrove.node.publishing.delivery_queue import queue_own
from inkgrove.node.publishing.instance_states import InstanceState, read_states
from inkgrove.node.publishing.local_delivery import LocalShares, send_when_found
from inkgrove.node.reading.schemas import resolve_view
from inkgrove.node.runtime.node import Node
from inkgrove.node.runtime.schema_cache import EVERY_SCHEMA
from inkgrove.schema import Schema, ViewDefinition, append_version, fold_schema
from inkgrove.store.db import Connection, RetryTransaction
from inkgrove.store.logs import (
    CreateEntry,
    IngestStatus,
    LogKey,
    LogRole,
    PreparedItem,
    blobs_in,
    by_log,
    find_creates,
    find_log,
    find_log_of_schema,
    ingest_batch,
    next_log_id,
    payloads_of_schema,
    prepare_own,
    read_hashes,
    read_role,
)
from inkgrove.store.node import OwnKey, find_key_status, is_moved

_MAX_LOGS: Final = 20_000
_MAX_INSTANCES: Final = 200


class PublishingCache:
    """Log ids, roles of logs and folded instances that stay valid between publishing transactions."""

    def __init__(self) -> None:
        self.logs: dict[tuple[PublicKey, SchemaId], int] = {}
        """The log that an author writes a schema to."""
        self.roles: dict[int, LogRole] = {}
        """The kinds and schemas of logs of instances, by the store's own number."""
        self.instances: dict[Hash, InstanceState] = {}
        """Those with many messages."""

    def remember_instances(self, instances: Mapping[Hash, InstanceState]) -> None:
        """Cache instances that cost much to read again; the newest stay longest."""
        for instance, state in instances.items():
            if state.is_costly:
                self.instances.pop(instance, None)
                self.instances[instance] = state
        for oldest in list(self.instances)[: max(0, len(self.instances) - _MAX_INSTANCES)]:
            del self.instances[oldest]

    def trim_logs(self) -> None:
        """Forget the logs if there are too many."""
        if len(self.logs) + len(self.roles) > _MAX_LOGS:
            self.logs.clear()
            self.roles.clear()


@dataclass(slots=True)
class LogEnd:
    """The end of a log once everything pending is written."""

    author: PublicKey
    log_id: int
    number: int | None = None
    """The store's own; None while nothing is stored."""
    height: int = 0
    is_ended: bool = False
    flavour: Flavour = Flavour.YAMF
    hashes: dict[int, Hash] = field(default_factory=dict)
    first_kind: str | None = None
    schemas: frozenset[SchemaId] = frozenset()

    @property
    def is_schema_log(self) -> bool:
        """Whether the log defines a schema."""
        return self.first_kind == "schema-meta"


def _moved() -> IdentityError:
    return IdentityError(
        "identity.lives-elsewhere", "you have moved to another node: publish there; here you can read, and export"
    )


class Appender:
    """The state of one transaction that publishes."""

    def __init__(
        self, node: Node, connection: Connection, keys: dict[PublicKey, OwnKey], cache: PublishingCache, size: int
    ) -> None:
        self.node = node
        self.connection = connection
        self.keys = keys
        self._cache = cache
        self._size = size
        """How many entries are expected: the links of so many are read at once."""
        self._ends: dict[LogKey, LogEnd] = {}
        self._logs_of_schemas: dict[tuple[PublicKey, SchemaId], int] = {}
        self._secrets: dict[PublicKey, SecretKey] = {}
        self._definitions: dict[SchemaId, ViewDefinition] = {}
        self._own_schemas: set[SchemaId] = set()
        """Those whose logs this transaction has written to: they must not get into the cache."""
        self._read_schemas: dict[SchemaId, Schema] = {}
        """Those that were read, with what is pending."""
        self._instances: dict[Hash, InstanceState] = {}
        self._created: dict[Hash, CreateEntry] = {}
        self._changed: set[Hash] = set()
        """Instances that have changed since they were read."""
        self._deleted: set[Hash] = set()
        self._named: dict[str, SchemaId] = {}
        self._pending: list[PreparedItem] = []
        self._shares = LocalShares()
        self._blob_messages: list[tuple[Hash, PublicKey, InstanceMessage, Caller]] = []
        """Messages that name blobs."""
        self._identity_logs: set[PublicKey] = set()
        self._staying: set[IdentityId] = set()
        """Who was found not to be about to leave for another node."""
        self._charges = QuotaCharges(node, connection)
        self._to_queue: dict[Hash, set[IdentityId]] = {}
        """Instances that are to be queued for other nodes, in order, each with its new recipients."""

    # Keys

    def require_key(self, author: PublicKey, identity: IdentityId) -> OwnKey:
        """Return a key that the identity may publish with; raises `publish.foreign-author` or `publish.revoked-key`."""
        key = self.keys.get(author)
        if key is None or key.identity != identity:
            raise PublishError("publish.foreign-author", f"{author} is no key of the identity that asks", author=author)
        self.require_home(identity)
        if not key.is_first:
            self.require_listed(author, identity)
        return key

    def require_home(self, identity: IdentityId) -> None:
        """Raise if the identity has moved to another node, or is about to: two that append to one log would fork it."""
        if any(not key.lives_here for key in self.keys.values() if key.identity == identity):
            raise _moved()
        if identity not in self._staying:
            require_staying(self.connection, identity)
            if is_moved(self.connection, identity):  # while this transaction waited for the keys
                raise _moved()
            self._staying.add(identity)

    def require_listed(self, author: PublicKey, identity: IdentityId) -> None:
        """Raise unless the identity's document lists a further key that is not revoked."""
        self.require_home(identity)
        document = self.read_document(identity)
        listed = next((item for item in document.keys if item.key == author), None) if document is not None else None
        if listed is None:
            raise PublishError(
                "publish.foreign-author", f"the identity's document does not list the key {author}", author=author
            )
        if listed.revoked is not None:
            raise PublishError("publish.revoked-key", f"the identity has revoked the key {author}", author=author)

    def read_document(self, identity: IdentityId) -> IdentityDocument | None:
        """Return the newest document of an identity that publishes here."""
        self.flush()
        first = next((key for key in self.keys.values() if key.identity == identity and key.is_first), None)
        return read_newest_document(self.connection, first.author)[1] if first is not None else None

    def find_signing_key(self, identity: IdentityId) -> OwnKey:
        """Return the key that this node signs with for an identity; raises `identity.no-key-here`."""
        self.require_home(identity)
        own = sorted((key for key in self.keys.values() if key.identity == identity), key=lambda key: not key.is_first)
        kept = [key for key in own if key.sealed is not None]
        in_use = [key for key in kept if len(kept) == 1 or not self.has_ended(key.author)]
        for key in in_use or kept:
            return self.require_key(key.author, identity)
        raise IdentityError(
            "identity.no-key-here", "this node keeps no key of the identity: sign on the client and POST /entries"
        )

    def has_ended(self, author: PublicKey) -> bool:
        """Whether the identity of a key has revoked it."""
        status = find_key_status(self.connection, author)
        return status is not None and status.ends is not None

    def _secret(self, author: PublicKey) -> SecretKey:
        secret = self._secrets.get(author)
        if secret is None:
            sealed = self.keys[author].sealed
            if sealed is None:
                raise IdentityError(
                    "identity.no-key-here",
                    f"this node does not keep the key {author}: sign on the client and POST /entries",
                )
            secret = self._secrets[author] = self.node.vault.open(sealed)
        return secret

    # Logs

    def find_log_end(self, author: PublicKey, log_id: int) -> LogEnd:
        """Return the end of a log, begun or not; raises if the log is invalid."""
        end = self._ends.get((author, log_id))
        if end is None:
            end = self._ends[author, log_id] = self._read_end(author, log_id)
        return end

    def _read_end(self, author: PublicKey, log_id: int) -> LogEnd:
        log = find_log(self.connection, author, log_id)
        if log is None or log.height == 0:
            return LogEnd(author, log_id)
        if log.invalid_from is not None:
            refusal = log.standing.refusal(log.height + 1)
            assert refusal is not None
            raise refusal
        ahead = range(log.height + 1, log.height + 2 + self._size)
        hashes = read_hashes(self.connection, log.id, {log.height, *map(lipmaa, ahead)})
        role = self._cache.roles.get(log.id)
        if role is None:
            role = read_role(self.connection, log.id)
            if role.schemas:
                self._cache.roles[log.id] = role
        return LogEnd(
            author,
            log_id,
            log.id,
            log.height,
            log.standing.ended_at is not None,
            flavour_of(hashes[log.height]),
            hashes,
            role.first_kind,
            role.schemas,
        )

    def find_log_of_schema(self, author: PublicKey, schema: SchemaId) -> LogEnd | None:
        """Return the end of the log that an author writes a schema's instances to, if there is one."""
        # What is begun in this transaction may be rolled back: only what was there before it is cached.
        log_id = self._logs_of_schemas.get((author, schema)) or self._cache.logs.get((author, schema))
        if log_id is None:
            log_id = find_log_of_schema(self.connection, author, schema)
            if log_id is None:
                return None
            self._cache.logs[author, schema] = log_id
        return self.find_log_end(author, log_id)

    def begin_log(self, author: PublicKey) -> LogEnd:
        """Return the end of a log that is not begun yet."""
        begun = (log_id for (owner, log_id), end in self._ends.items() if owner == author and end.height)
        stored = next_log_id(self.connection, author)
        return self.find_log_end(author, max(stored, max(begun, default=0) + 1))

    def find_next_entry(self, end: LogEnd) -> NextEntry:
        """Return what the next entry of a log must carry; raises `log.ended` or `MissingLink`."""
        return make_next_entry(
            end.author, end.log_id, end.height, partial(self.find_hash_at, end), end.flavour, is_ended=end.is_ended
        )

    def find_hash_at(self, end: LogEnd, seq_num: int) -> Hash | None:
        """Return the hash of the entry at a sequence number, pending ones included."""
        found = end.hashes.get(seq_num)
        if found is None and end.number is not None:
            end.hashes |= read_hashes(self.connection, end.number, [seq_num])
            found = end.hashes.get(seq_num)
        return found

    def sign(self, caller: Caller, end: LogEnd, message: Message, payload: bytes | None = None) -> Hash:
        """Sign a message of the caller as the next entry of a log, and return its hash."""
        if payload is None:
            payload = encode_message(message)
        signed = sign_own(self._secret(end.author), payload, self.find_next_entry(end))
        self.append_signed(caller, end, prepare_own(signed, payload, message), message)
        return signed.hash

    def require_next(self, end: LogEnd, entry: Entry) -> None:
        """Raise unless an entry that a client signed is the very next of its log."""
        following = self.find_next_entry(end)
        if (entry.seq_num, entry.lipmaa_link, entry.backlink) != following[2:5]:
            text = f"entry {entry.seq_num} does not follow the newest entry of its log, {end.height}"
            raise LogError("log.stale", text, next=following)

    def append_signed(self, caller: Caller, end: LogEnd, item: PreparedItem, message: Message) -> None:
        """Append an entry of the caller that is the next of its log; raises before anything changes."""
        signed = item.signed
        entry = signed.entry
        assert caller.identity is not None
        self._charges.entry(caller.identity, entry.log_id, item.payload or b"", message)
        self._pending.append(PreparedItem(len(self._pending), *item[1:]))
        end.height = entry.seq_num
        end.hashes[entry.seq_num] = signed.hash
        end.is_ended = entry.is_end_of_log
        if entry.seq_num == 1:
            end.flavour = entry.flavour
            end.first_kind = item.content.kind if item.content is not None else None
        if entry.log_id == IDENTITY_LOG:
            self._identity_logs.add(entry.author)
        if isinstance(message, Create):
            self._record_blobs(signed.hash, entry.author, message, caller)
            schema = message.schema.schema_id
            if schema not in end.schemas:
                end.schemas |= {schema}
                self._logs_of_schemas.setdefault((end.author, schema), end.log_id)
            self._created[signed.hash] = CreateEntry(0, end.author, end.log_id, entry.seq_num, schema)
            self._to_queue.setdefault(signed.hash, set())
            if message.access is not None:
                self.share(signed.hash, message.access.to, self.keys[entry.author].identity)
            if message.continues is not None and self.find_endable(entry.author, message.continues, schema) is not None:
                self._record_end(message.continues)
        elif isinstance(message, Update | Delete):
            instance = self.resolve_instance(end, message.instance)
            assert instance is not None
            self._changed.add(instance)
            self._record_blobs(instance, entry.author, message, caller)
            self._to_queue.setdefault(instance, set())
            if isinstance(message, Delete):
                self._record_end(instance)
            elif message.access is not None:
                self.share(instance, message.access.to, self.keys[entry.author].identity)
        elif isinstance(message, SchemaMeta | SchemaMigration | SchemaRevert):
            schema_id = SchemaId(end.author, end.log_id)
            before = self._read_schemas.pop(schema_id, None)
            is_next = before is not None and before.stopped_at is None and len(before.versions) == entry.seq_num - 1
            if before is not None and is_next:
                self._read_schemas[schema_id] = append_version(before, message)
            self._own_schemas.add(schema_id)
            self._definitions.pop(schema_id, None)
            self._instances.clear()

    def _record_end(self, instance: Hash) -> None:
        self._changed.add(instance)
        self._deleted.add(instance)
        self._to_queue.setdefault(instance, set())
        self._shares.ended.append(instance)

    def find_endable(self, author: PublicKey, instance: Hash, schema: SchemaId) -> CreateEntry | None:
        """Return the create of an instance that a key may end in its own log (docs/protocol.md section 5.7)."""
        create = self._created.get(instance) or find_creates(self.connection, [instance]).get(instance)
        if create is None or create.schema != schema or create.author not in self.keys:
            return None
        return create if self.keys[create.author].identity == self.keys[author].identity else None

    def resolve_instance(self, end: LogEnd, reference: InstanceRef) -> Hash | None:
        """Return the hash of the instance that a message in this log names by hash or sequence number."""
        if isinstance(reference, Hash):
            return reference
        return self.find_hash_at(end, reference) if reference <= end.height else None

    def can_sign(self, author: PublicKey, identity: IdentityId) -> bool:
        """Whether this node keeps a key of the identity that is not revoked."""
        key = self.keys.get(author)
        if key is None or key.identity != identity or key.sealed is None:
            return False
        document = self.read_document(identity) if not key.is_first else None
        listed = document.keys if document is not None else ()
        return key.is_first or any(item.key == author and item.revoked is None for item in listed)

    # Schemas and instances

    def resolve_schema(self, text: str) -> SchemaId:
        """Return a schema by `AUTHOR/LOG`, or a materialised one by name; raises `UnknownView` or `AmbiguousName`."""
        found = self._named.get(text)
        if found is None:
            found = self._named[text] = parse_schema_id(text) or resolve_view(self.node, text).schema_id
        return found

    def schema(self, schema_id: SchemaId) -> Schema:
        """Return a schema as it is once everything pending is written."""
        found = self._read_schemas.get(schema_id)
        if found is None:
            if schema_id in self._own_schemas:
                self.flush()
                found = fold_schema(schema_id, *payloads_of_schema(self.connection, schema_id))
            else:
                found = self.node.schemas.read_on(self.connection, schema_id)
            self._read_schemas[schema_id] = found
        return found

    def definition(self, schema_id: SchemaId) -> ViewDefinition:
        """Return how messages of a schema are read at its newest version."""
        found = self._definitions.get(schema_id)
        if found is None:
            if schema_id in self._own_schemas:
                found = ViewDefinition(self.schema(schema_id), EVERY_SCHEMA)
            else:
                found = self.node.schemas.definition_on(self.connection, schema_id)
            self._definitions[schema_id] = found
        return found

    def require_schema(self, schema_id: SchemaId) -> ViewDefinition:
        """Return the newest definition of a schema; raises `publish.unknown-schema` if no version is held."""
        definition = self.definition(schema_id)
        if not definition.version:
            raise PublishError("publish.unknown-schema", f"no schema is held at {schema_id}", schema=str(schema_id))
        return definition

    def instance(self, instance: Hash) -> InstanceState | None:
        """Return an instance as it is now; None if no create has this hash."""
        if instance in self._changed:
            self._changed.discard(instance)
            before = self._instances.pop(instance, None)
            self._load_instances([instance], {instance: before} if before is not None else {})
        else:
            self.load_instances([instance])
        return self._instances.get(instance)

    def last_of_line(self, state: InstanceState) -> InstanceState:
        """Return the last instance of the line that an instance begins; itself if nothing continues it."""
        while state.continued_by is not None:
            following = self.instance(state.continued_by)
            if following is None:
                break
            state = following
        return state

    def find_create_state(self, instance: Hash) -> tuple[CreateEntry, bool] | None:
        """Return the create of an instance and whether a change would apply; None if there is no such create."""
        create = self._created.get(instance)
        if create is not None:
            return create, instance not in self._deleted
        self.load_instances([instance])
        state = self._instances.get(instance)
        return None if state is None else (state.create, state.is_living and instance not in self._deleted)

    def load_instances(self, instances: Collection[Hash]) -> None:
        """Read the instances that are not known yet, all at once."""
        missing = [instance for instance in instances if instance not in self._instances]
        if missing:
            self._load_instances(missing, self._cache.instances)

    def _load_instances(self, missing: Collection[Hash], before: Mapping[Hash, InstanceState]) -> None:
        """Read instances; of those that are known from before, only what has come since."""
        self.flush()
        creates = find_creates(self.connection, missing)
        self._instances |= read_states(self.connection, creates, before, self.definition)

    # Writing

    def share(self, instance: Hash, recipients: Collection[IdentityId], owner: IdentityId) -> None:
        """Record whom the owner of an instance sends it to."""
        self._to_queue.setdefault(instance, set()).update(recipients)
        self._shares.add(self.connection, instance, set(recipients), owner, is_owner=True)

    def share_hosted(self, instance: Hash, recipients: Collection[IdentityId], via: IdentityId) -> None:
        """Record whom somebody on this node passes an instance on to; recipients elsewhere are not recorded."""
        self._shares.add(self.connection, instance, set(recipients), via, is_owner=False)

    def send_when_found(self, instance: Hash, via: IdentityId, access: Access | None, names: Collection[str]) -> None:
        """Send an instance to names as soon as they are found."""
        send_when_found(self.connection, instance, via, access, names, self.node.clock())

    def finish(self) -> None:
        """Write everything, and queue what other nodes are to get."""
        self.flush()
        self._charges.write()  # last: who collects blobs locks those first, too
        publishers = {key.identity for key in self.keys.values()}
        queue_own(self.connection, self._to_queue, publishers, self.node.clock())
        self._to_queue = {}

    def remember_committed(self) -> None:
        """Cache what was read. To be called once the transaction is committed."""
        self._cache.remember_instances(self._instances)

    def _record_blobs(self, instance: Hash, author: PublicKey, message: InstanceMessage, caller: Caller) -> None:
        if blobs_in(message):
            self._blob_messages.append((instance, author, message, caller))

    def flush(self) -> None:
        """Write what is pending; the transaction stays open."""
        if self._pending:
            receipts = ingest_batch(self.connection, by_log(self._pending), must_be_next=True)
            if any(receipt.status is not IngestStatus.STORED for receipt in receipts.values()):
                raise RetryTransaction  # planned against a state that another process has changed
            for end in self._ends.values():
                if end.number is None and end.height:
                    log = find_log(self.connection, end.author, end.log_id)
                    end.number = log.id if log is not None else None
            self._pending = []
        for author in sorted(self._identity_logs):
            apply_identity_log(self.connection, author, is_ours=True, now=self.node.clock())
        self._identity_logs.clear()
        for instance, author, message, caller in self._blob_messages:
            note_references(self.node, self.connection, instance, message, author, said_by=caller)
        self._blob_messages.clear()
        self._shares.write(self.connection, self.node.clock())

"""Every error in one tree, each class one reason with a stable code.

    InkgroveError
    ├── VarU64Error      varu64.*    an integer of the entry format
    ├── HashError        hash.*      a YAMF or YASMF hash
    ├── KeysError        key.*       Ed25519 keys
    ├── EntryError       entry.*     the bytes, signature and links of one entry
    ├── LogError         log.*       an entry among the others of its log
    ├── PayloadError     payload.*   a payload against its entry
    ├── LimitError       limit.*     a value that stores and tables cannot hold
    ├── CborError        cbor.*      the strict CBOR profile
    ├── MessageError     message.*   the content of one message
    ├── ParcelError      parcel.*    instances on their way between nodes
    ├── YamlError        yaml.*      messages written as YAML
    ├── SchemaError      schema.*    a schema message against the versions before it
    ├── InstanceError    instance.*  an instance message against its schema
    ├── ProofError       proof.*     the proof of an instance
    ├── StoreError       store.*     the database behind a store
    ├── PipelineError    pipeline.*  Spark, and what it works on
    ├── SettingsError    settings.*  what is set by file, environment or flag
    └── InputError       input.*     files and arguments given to a command

The docstring of a class is what `docs/errors.md` says about its code. Codes never change their meaning.
"""

from typing import ClassVar


class InkgroveError(Exception):
    """The root: everything that Inkgrove refuses on purpose."""

    code: ClassVar[str] = "inkgrove"
    is_internal: ClassVar[bool] = False
    """Whether message and data are for the operator alone: they name files, addresses or queries of this machine."""

    def __init__(self, message: str, **data: object) -> None:
        super().__init__(message)
        self.message = message
        self.data = data

    @property
    def public_message(self) -> str:
        """What anybody may be shown: the message, or for an internal error only its kind and its datum `advice`."""
        if not self.is_internal:
            return self.message
        kind = (self.__doc__ or "").strip()
        return f"{kind.removesuffix('.')}: {self.data['advice']}" if "advice" in self.data else kind


# varu64.*


class VarU64Error(InkgroveError):
    """An integer of the entry format."""

    code = "varu64"


class VarU64OutOfRange(VarU64Error):
    """The number is negative or needs more than 64 bits."""

    code = "varu64.out-of-range"


class VarU64Truncated(VarU64Error):
    """The bytes end inside the number."""

    code = "varu64.truncated"


class VarU64NotShortest(VarU64Error):
    """The number has a shorter encoding, and only the shortest is valid."""

    code = "varu64.not-shortest"


# hash.*


class HashError(InkgroveError):
    """A YAMF or YASMF hash."""

    code = "hash"


class HashTruncated(HashError):
    """The bytes end inside the hash."""

    code = "hash.truncated"


class UnknownHash(HashError):
    """The hash header is neither `00 40` (BLAKE2b-512) nor `00 20` (BLAKE3-256)."""

    code = "hash.unknown"


class BadHashText(HashError):
    """The text is not the hex of a hash."""

    code = "hash.bad-text"


# key.*


class KeysError(InkgroveError):
    """Ed25519 keys."""

    code = "key"


class BadKey(KeysError):
    """A key is not 32 bytes (64 hex characters)."""

    code = "key.bad-key"


class KeyMismatch(KeysError):
    """The secret key does not belong to the author of the log."""

    code = "key.mismatch"


class UnfitLibrary(KeysError):
    """The installed libsodium does not verify by the strict rule; install the PyNaCl that `constraints.txt` names."""

    code = "key.unfit-library"


# entry.*


class EntryError(InkgroveError):
    """The bytes, signature and links of one entry."""

    code = "entry"


class EntryTruncated(EntryError):
    """The bytes end before the entry does."""

    code = "entry.truncated"


class EntryTrailingBytes(EntryError):
    """Bytes follow the signature."""

    code = "entry.trailing-bytes"


class BadTag(EntryError):
    """The first byte is neither 0 (normal) nor 1 (end of log)."""

    code = "entry.bad-tag"


class ZeroSeqNum(EntryError):
    """The sequence number is 0 or negative; logs start at 1."""

    code = "entry.zero-seq-num"


class MixedHashes(EntryError):
    """The entry carries hashes of both flavours; a log has one."""

    code = "entry.mixed-hashes"


class MissingLink(EntryError):
    """An entry to be signed lacks a link that its sequence number demands."""

    code = "entry.missing-link"


class UnexpectedLink(EntryError):
    """An entry to be signed has a link that its sequence number forbids."""

    code = "entry.unexpected-link"


class BadSignature(EntryError):
    """The signature does not hold for the author, by the strict Ed25519 rule."""

    code = "entry.bad-signature"


class WrongLinkTarget(EntryError):
    """The entry given as a link's target is of another author, log or sequence number."""

    code = "entry.wrong-link-target"


class BacklinkMismatch(EntryError):
    """The backlink is not the hash of the entry before."""

    code = "entry.backlink-mismatch"


class LipmaaMismatch(EntryError):
    """The lipmaa link is not the hash of the entry it points to."""

    code = "entry.lipmaa-mismatch"


class AfterEndOfLog(EntryError):
    """An entry before this one ended the log."""

    code = "entry.after-end-of-log"


class NoPathToFirst(EntryError):
    """No verified entry that this one links to is held: nothing leads to entry 1."""

    code = "entry.no-path-to-first"


# log.*


class LogError(InkgroveError):
    """An entry among the others of its log."""

    code = "log"


class MissingPredecessor(LogError):
    """The entry before is not there or not valid, and the log was to be whole."""

    code = "log.missing-predecessor"


class Forked(LogError):
    """Signed entries of the log contradict each other at or before this sequence number."""

    code = "log.forked"


class InvalidSince(LogError):
    """The author lied about the size of an earlier payload; the log is invalid from there on."""

    code = "log.invalid-since"


class NotAFork(LogError):
    """Two entries that should prove a fork do not contradict each other."""

    code = "log.not-a-fork"


class LogEnded(LogError):
    """The log has been ended; nothing can be appended."""

    code = "log.ended"


class KeyRevoked(LogError):
    """The key was revoked, and the entry lies behind the last that still counts."""

    code = "log.key-revoked"


class StaleEntry(LogError):
    """The entry was signed for another place than the next one of its log; `next` has that place."""

    code = "log.stale"


# payload.*


class PayloadError(InkgroveError):
    """A payload against its entry."""

    code = "payload"


class PayloadHashMismatch(PayloadError):
    """These bytes are not the payload of that entry. The entry and its log stay good."""

    code = "payload.hash-mismatch"


class PayloadSizeMismatch(PayloadError):
    """The hash is right and the size is not: the author lied, the log is invalid from this entry on."""

    code = "payload.size-mismatch"


# limit.*


class LimitError(InkgroveError):
    """A value that stores and tables cannot hold."""

    code = "limit"


class IntegerTooLarge(LimitError):
    """A log id, sequence number or payload size is above 2^63 - 1."""

    code = "limit.integer-too-large"


# cbor.*


class CborError(InkgroveError):
    """The strict CBOR profile."""

    code = "cbor"


class CborTruncated(CborError):
    """The bytes end before the value does."""

    code = "cbor.truncated"


class CborLengthExceedsInput(CborError):
    """A length prefix claims more than the remaining bytes could hold."""

    code = "cbor.length-exceeds-input"


class CborTrailingBytes(CborError):
    """Bytes follow the value."""

    code = "cbor.trailing-bytes"


class CborDuplicateKey(CborError):
    """A map holds the same key twice."""

    code = "cbor.duplicate-key"


class CborKeyNotText(CborError):
    """A map key is not a text string."""

    code = "cbor.key-not-text"


class CborIndefiniteLength(CborError):
    """A string, array or map has no length, or a break stands alone."""

    code = "cbor.indefinite-length"


class CborTooDeep(CborError):
    """Arrays and maps are nested more than 16 deep."""

    code = "cbor.too-deep"


class CborTooComplex(CborError):
    """More than 1 MiB of CBOR, which no message has, with more parts than anything needs or with some fault."""

    code = "cbor.too-complex"


class CborBadUtf8(CborError):
    """A text string is not valid UTF-8."""

    code = "cbor.bad-utf8"


class CborNulCharacter(CborError):
    """A text string contains U+0000."""

    code = "cbor.nul-character"


class CborNotFinite(CborError):
    """A float is NaN or infinite."""

    code = "cbor.not-finite"


class CborBignum(CborError):
    """An integer of more than 64 bits (tag 2 or 3)."""

    code = "cbor.bignum"


class CborForbiddenTag(CborError):
    """A tag other than 0 and 1."""

    code = "cbor.forbidden-tag"


class CborUndefined(CborError):
    """The value `undefined`."""

    code = "cbor.undefined"


class CborSimpleValue(CborError):
    """A simple value other than false, true and null."""

    code = "cbor.simple-value"


class CborReserved(CborError):
    """A reserved form of the encoding."""

    code = "cbor.reserved"


class CborBadTimestamp(CborError):
    """Tag 0 without an RFC 3339 text, tag 1 without a number, or a moment outside the years 0001-9999."""

    code = "cbor.bad-timestamp"


# message.*


class MessageError(InkgroveError):
    """The content of one message."""

    code = "message"


class PayloadTooLarge(MessageError):
    """The payload is larger than 512 KiB."""

    code = "message.too-large"


class NotAMap(MessageError):
    """The payload is a CBOR value, but not a map."""

    code = "message.not-a-map"


class UnknownKind(MessageError):
    """`kind` is missing or not a kind of message."""

    code = "message.unknown-kind"


class UnknownKey(MessageError):
    """A key does not belong to this kind of message."""

    code = "message.unknown-key"


class MissingKey(MessageError):
    """A key that this kind of message needs is missing."""

    code = "message.missing-key"


class BadValue(MessageError):
    """A key holds a value of the wrong form."""

    code = "message.bad-value"


class BadName(MessageError):
    """A schema or field name is not of the form `[A-Za-z][A-Za-z0-9_]{0,62}`."""

    code = "message.bad-name"


class DuplicateField(MessageError):
    """One field is named twice in `fields`."""

    code = "message.duplicate-field"


class EmptyUpdate(MessageError):
    """An update has none of `fields`, `access` and `expires`."""

    code = "message.empty-update"


class OverLimit(MessageError):
    """Too many fields or elements, or a text or salt that is too long."""

    code = "message.over-limit"


class BadTimestamp(MessageError):
    """A text is not a timestamp with an offset, at most 6 fraction digits, in the years 0001-9999."""

    code = "message.bad-timestamp"


# parcel.*


class ParcelError(InkgroveError):
    """Instances on their way between nodes."""

    code = "parcel"


class BadParcel(ParcelError):
    """The parcel is malformed, or holds more or other things than one instance and its proof."""

    code = "parcel.bad"


class LacksCreate(ParcelError):
    """Changes arrived without the create of an instance that the recipient does not have: send all of it."""

    code = "parcel.lacks-create"


class EndedBefore(ParcelError):
    """The end of the instance was told before its create arrived: it comes too late."""

    code = "parcel.ended-before"


class BadReplication(ParcelError):
    """What nodes ask or answer when they replicate does not have the form that it should have."""

    code = "parcel.bad-replication"


class BadBundle(ParcelError):
    """The file is no bundle, or holds something else than instances, their proofs and schemas."""

    code = "parcel.bad-bundle"


# yaml.*


class YamlError(InkgroveError):
    """Messages written as YAML."""

    code = "yaml"


class YamlSyntax(YamlError):
    """The text is not YAML, or uses a feature that messages do not have."""

    code = "yaml.syntax"


class YamlDuplicateKey(YamlError):
    """A mapping holds the same key twice."""

    code = "yaml.duplicate-key"


# schema.*


class SchemaError(InkgroveError):
    """A schema message against the versions before it; it ends the known versions of its schema."""

    code = "schema"


class NotASchema(SchemaError):
    """The first entry of the log is not a `schema-meta`."""

    code = "schema.not-a-schema"


class NotASchemaMessage(SchemaError):
    """An entry of a schema's log holds a message of another kind."""

    code = "schema.not-a-schema-message"


class UnknownType(SchemaError):
    """A field is given a type that does not exist."""

    code = "schema.unknown-type"


class FieldExists(SchemaError):
    """A migration creates a field that exists already; names differing only in case are the same here."""

    code = "schema.field-exists"


class NoSuchField(SchemaError):
    """A migration updates or removes a field that does not exist."""

    code = "schema.no-such-field"


class TooManyFields(SchemaError):
    """The schema would have more than 256 fields."""

    code = "schema.too-many-fields"


class BadDefault(SchemaError):
    """A default does not fit the type or validation of its own field."""

    code = "schema.bad-default"


class BadPattern(SchemaError):
    """A validation is not a pattern that RE2 supports."""

    code = "schema.bad-pattern"


class TooManyPatterns(SchemaError):
    """The patterns of a version are too many, or too many of them are large, or they have too many Unicode classes."""

    code = "schema.too-many-patterns"


class ValidationNotAllowed(SchemaError):
    """A validation is given to a field that is neither varchar nor text nor an array of them."""

    code = "schema.validation-not-allowed"


class RelationOnly(SchemaError):
    """`schema` or `cascade` is given to a field that is no relation."""

    code = "schema.relation-only"


class BadRevertTarget(SchemaError):
    """A revert names its own or a later version."""

    code = "schema.bad-revert-target"


# instance.*


class InstanceError(InkgroveError):
    """An instance message against its schema; the same codes are outcomes of messages."""

    code = "instance"


class UnknownField(InstanceError):
    """The version that the message names has no such field."""

    code = "instance.unknown-field"


class WrongType(InstanceError):
    """A value does not fit the type of its field."""

    code = "instance.wrong-type"


class FailedValidation(InstanceError):
    """A value does not match the pattern of its field."""

    code = "instance.failed-validation"


# proof.*


class ProofError(InkgroveError):
    """The proof of an instance."""

    code = "proof"


class ProofForm(ProofError):
    """The file is no proof, or not written in the one form that a proof has."""

    code = "proof.bad-form"


class ProofIncomplete(ProofError):
    """The proof does not hold the entries of one log with at least one payload."""

    code = "proof.incomplete"


class ProofOfOther(ProofError):
    """The proof holds something that is not of the instance it names."""

    code = "proof.of-other"


# store.*


class StoreError(InkgroveError):
    """The database behind a store."""

    code = "store"
    is_internal = True


class StoreTooNew(StoreError):
    """The store was written by a newer version of Inkgrove than this one."""

    code = "store.too-new"


class NoStore(StoreError):
    """There is no store at this place, and what was asked makes none; check `--home`, `--store` or the option."""

    code = "store.not-found"


class StoreUnavailable(StoreError):
    """The database cannot be reached, read or written; nothing of the call was stored."""

    code = "store.unavailable"


# pipeline.*


class PipelineError(InkgroveError):
    """Spark, and what it works on."""

    code = "pipeline"
    is_internal = True


class NoJava(PipelineError):
    """Spark needs Java 17 or newer."""

    code = "pipeline.no-java"


class SparkFailed(PipelineError):
    """A Spark job ended with an error; nothing of its batch was written."""

    code = "pipeline.spark-failed"


class BadArchive(PipelineError):
    """An archive is not Parquet with the binary columns `entry` and `payload`, or is damaged."""

    code = "pipeline.bad-archive"


class AlreadyRunning(PipelineError):
    """Another process does the same work on this store already; wait for it or end it."""

    code = "pipeline.already-running"


class NotRegistered(PipelineError):
    """The schema is not on the list of those to materialise."""

    code = "pipeline.not-registered"


# settings.*


class SettingsError(InkgroveError):
    """What is set by file, environment or flag."""

    code = "settings"
    is_internal = True


class UnknownSetting(SettingsError):
    """There is no setting of that name; the message has the nearest one."""

    code = "settings.unknown"


class InvalidSetting(SettingsError):
    """A setting has a value of the wrong type or out of range, or the file is not TOML."""

    code = "settings.invalid"


# rot.*


class RotError(InkgroveError):
    """Data rot: what is kept of other people's data, and what goes."""

    code = "rot"


class BadPolicy(RotError):
    """The policy names a fungus, a guard, a schema, an identity or a limit that does not exist."""

    code = "rot.bad-policy"


class NoSuchCopy(RotError):
    """The instance is no foreign copy that this node knows of."""

    code = "rot.no-such-copy"


class NotRotted(RotError):
    """The copy is whole: there is nothing to fetch."""

    code = "rot.not-rotted"


# input.*


class InputError(InkgroveError):
    """Files and arguments given to a command."""

    code = "input"


class BadHex(InputError):
    """The text is not hex."""

    code = "input.bad-hex"


class BadLine(InputError):
    """A line is not a JSON object with `entry` and `payload` in hex."""

    code = "input.bad-line"


class UnreadableFile(InputError):
    """A file cannot be read or written."""

    code = "input.unreadable-file"


class Usage(InputError):
    """The command was called with arguments that do not fit."""

    code = "input.usage"


class UnknownSchema(InputError):
    """No schema of that name is here, or several are."""

    code = "input.unknown-schema"


class UnknownVersion(InputError):
    """The schema has no such version yet."""

    code = "input.unknown-version"


class BadFilter(InputError):
    """A filter or sort names no field of the view, or a value that its type does not have."""

    code = "input.bad-filter"


class QueryTooExpensive(InputError):
    """What is asked of a view takes more of the processor than whoever asks may use."""

    code = "input.query-too-expensive"


class TooManyQueries(InputError):
    """As many expensive queries run on the node as it has room for; try again."""

    code = "input.too-many-queries"

"""Every error in one tree, with the table of codes. Codes are the contract; classes are not.

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
    ├── PersonFileError  file.*      the file of a person
    ├── YamlError        yaml.*      messages written as YAML
    ├── SchemaError      schema.*    a schema message against the versions before it
    ├── InstanceError    instance.*  an instance message against its schema
    ├── ProofError       proof.*     the proof of an instance
    ├── StoreError       store.*     the database behind a store
    ├── PipelineError    pipeline.*  Spark, and what it works on
    ├── SettingsError    settings.*  what is set by file, environment or flag
    ├── RotError         rot.*       what is kept of other people's data
    └── InputError       input.*     files and arguments given to a command

A family is raised with one of its codes: `raise HashError("hash.unknown", "the header is 00 41")`. A code has a class
of its own (`SingleCode`) only where some module catches it: `raise StoreUnavailable("the disk is full")`.
`docs/errors.md` is made from the tables here, in `node/errors.py`, `federation/errors.py` and `client/errors.py`.
Codes never change their meaning.
"""

from dataclasses import dataclass
from typing import ClassVar, Final


@dataclass(frozen=True, slots=True)
class ErrorCode:
    """A row of the table: a code, the HTTP status that answers have with it, its meaning, and what to do about it."""

    name: str
    status: int
    sentence: str
    advice: str = ""
    is_internal: bool = False
    """Whether message and data are for the operator alone: they name files, addresses or queries of this machine."""


CODES: Final[dict[str, ErrorCode]] = {}
"""Every code of the error modules that are imported."""

_CLASSES: Final[dict[str, "type[InkgroveError]"]] = {}


class InkgroveError(Exception):
    """The root: everything that Inkgrove refuses on purpose."""

    codes: ClassVar[tuple[ErrorCode, ...]] = ()
    code: str

    def __init_subclass__(cls) -> None:
        for item in vars(cls).get("codes", ()):
            CODES[item.name], _CLASSES[item.name] = item, cls

    def __init__(self, code: str, message: str, /, **data: object) -> None:
        # `args` are left as the caller gave them, so that copies and pickles are made with the same arguments.
        self.code = code
        self.message = message
        self.data = data

    def __str__(self) -> str:
        return f"{self.message} [{self.code}]"

    @property
    def about(self) -> ErrorCode:
        """The row of this error's code; a code that no module here declares is a 422."""
        return CODES.get(self.code) or ErrorCode(self.code, 422, type(self).__doc__ or "")

    @property
    def is_internal(self) -> bool:
        """Whether message and data are for the operator alone."""
        return self.about.is_internal

    @property
    def public_message(self) -> str:
        """What anybody may be shown: the message, or for an internal error only its meaning and its datum `advice`."""
        if not self.is_internal:
            return self.message
        kind = self.about.sentence
        return f"{kind.removesuffix('.')}: {self.data['advice']}" if "advice" in self.data else kind


class SingleCode(InkgroveError):
    """An error with a class for its one code, so that it can be caught: raised with the message alone."""

    def __init_subclass__(cls) -> None:
        _CLASSES[cls.code] = cls
        cls.__doc__ = cls.__doc__ or CODES[cls.code].sentence

    def __init__(self, message: str, /, **data: object) -> None:
        super().__init__(self.code, message, **data)


def make_error(code: str, message: str, **data: object) -> InkgroveError:
    """Return the error for a code that is only known at run time, in the class that it is caught by."""
    kind = _CLASSES.get(code, InkgroveError)
    return kind(message, **data) if issubclass(kind, SingleCode) else kind(code, message, **data)


class VarU64Error(InkgroveError):
    """An integer of the entry format."""

    codes = (
        ErrorCode("varu64.out-of-range", 422, "The number is negative or needs more than 64 bits."),
        ErrorCode("varu64.truncated", 422, "The bytes end inside the number."),
        ErrorCode("varu64.not-shortest", 422, "The number has a shorter encoding, and only the shortest is valid."),
    )


class HashError(InkgroveError):
    """A YAMF or YASMF hash."""

    codes = (
        ErrorCode("hash.truncated", 422, "The bytes end inside the hash."),
        ErrorCode("hash.unknown", 422, "The hash header is neither `00 40` (BLAKE2b-512) nor `00 20` (BLAKE3-256)."),
        ErrorCode("hash.bad-text", 422, "The text is not the hex of a hash."),
    )


class BadHashText(SingleCode, HashError):
    code = "hash.bad-text"


class KeysError(InkgroveError):
    """Ed25519 keys."""

    codes = (
        ErrorCode("key.bad-key", 422, "A key is not 32 bytes (64 hex characters)."),
        ErrorCode(
            "key.wrong-word",
            422,
            "One of the 24 words is not in the list of words.",
            "The message says which one, and what it may have been; look at the paper again.",
        ),
        ErrorCode(
            "key.bad-words",
            422,
            "There are not 24 words, or their checksum is wrong.",
            "Check that none is missing, doubled or exchanged with its neighbour.",
        ),
        ErrorCode("key.mismatch", 422, "The secret key does not belong to the author of the log."),
        ErrorCode(
            "key.unfit-library",
            422,
            "The installed libsodium does not verify by the strict rule; install the PyNaCl that "
            "`constraints.txt` names.",
            "Run `make setup` again.",
        ),
    )


class EntryError(InkgroveError):
    """The bytes, signature and links of one entry."""

    codes = (
        ErrorCode("entry.truncated", 422, "The bytes end before the entry does."),
        ErrorCode("entry.trailing-bytes", 422, "Bytes follow the signature."),
        ErrorCode("entry.bad-tag", 422, "The first byte is neither 0 (normal) nor 1 (end of log)."),
        ErrorCode("entry.zero-seq-num", 422, "The sequence number is 0 or negative; logs start at 1."),
        ErrorCode("entry.mixed-hashes", 422, "The entry carries hashes of both flavours; a log has one."),
        ErrorCode(
            "entry.missing-link",
            422,
            "An entry to be signed lacks a link that its sequence number demands.",
            "Ask for the next sequence number and its links (`GET /publish/next`) and sign for those.",
        ),
        ErrorCode(
            "entry.unexpected-link",
            422,
            "An entry to be signed has a link that its sequence number forbids.",
            "Ask for the next sequence number and its links (`GET /publish/next`) and sign for those.",
        ),
        ErrorCode(
            "entry.bad-signature", 422, "The signature does not hold for the author, by the strict Ed25519 rule."
        ),
        ErrorCode(
            "entry.wrong-link-target",
            422,
            "The entry given as a link's target is of another author, log or sequence number.",
        ),
        ErrorCode("entry.backlink-mismatch", 422, "The backlink is not the hash of the entry before."),
        ErrorCode("entry.lipmaa-mismatch", 422, "The lipmaa link is not the hash of the entry it points to."),
        ErrorCode("entry.after-end-of-log", 422, "An entry before this one ended the log."),
        ErrorCode(
            "entry.no-path-to-first", 422, "No verified entry that this one links to is held: nothing leads to entry 1."
        ),
    )


class MissingLink(SingleCode, EntryError):
    code = "entry.missing-link"


class UnexpectedLink(SingleCode, EntryError):
    code = "entry.unexpected-link"


class BadSignature(SingleCode, EntryError):
    code = "entry.bad-signature"


class AfterEndOfLog(SingleCode, EntryError):
    code = "entry.after-end-of-log"


class LogError(InkgroveError):
    """An entry among the others of its log."""

    codes = (
        ErrorCode(
            "log.missing-predecessor", 422, "The entry before is not there or not valid, and the log was to be whole."
        ),
        ErrorCode(
            "log.forked",
            422,
            "Signed entries of the log contradict each other at or before this sequence number.",
            "Nothing mends a fork: continue under a new key.",
        ),
        ErrorCode(
            "log.invalid-since",
            422,
            "The author lied about the size of an earlier payload; the log is invalid from there on.",
        ),
        ErrorCode("log.not-a-fork", 422, "Two entries that should prove a fork do not contradict each other."),
        ErrorCode("log.ended", 422, "The log has been ended; nothing can be appended.", "Begin another log."),
        ErrorCode("log.key-revoked", 422, "The key was revoked, and the entry lies behind the last that still counts."),
        ErrorCode(
            "log.other-branch",
            422,
            "The key was revoked, and its owner has pinned a branch of this log that does not lead to the entry. It is"
            " kept as evidence if there is room, and counts once entries between the two show that it belongs to it.",
        ),
        ErrorCode(
            "log.stale",
            409,
            "The entry was signed for another place than the next one of its log; `next` has that place.",
            "Sign again for the place in `next`.",
        ),
    )


class Forked(SingleCode, LogError):
    code = "log.forked"


class InvalidSince(SingleCode, LogError):
    code = "log.invalid-since"


class KeyRevoked(SingleCode, LogError):
    code = "log.key-revoked"


class OtherBranch(SingleCode, LogError):
    code = "log.other-branch"


class PayloadError(InkgroveError):
    """A payload against its entry."""

    codes = (
        ErrorCode(
            "payload.erased",
            410,
            "The instance was deleted and its content erased here: it is not taken in again.",
        ),
        ErrorCode(
            "payload.hash-mismatch",
            422,
            "These bytes are not the payload of that entry. The entry and its log stay good.",
        ),
        ErrorCode(
            "payload.size-mismatch",
            422,
            "The hash is right and the size is not: the author lied, the log is invalid from this entry on.",
        ),
    )


class PayloadHashMismatch(SingleCode, PayloadError):
    code = "payload.hash-mismatch"


class PayloadSizeMismatch(SingleCode, PayloadError):
    code = "payload.size-mismatch"


class LimitError(InkgroveError):
    """A value that stores and tables cannot hold."""

    codes = (ErrorCode("limit.integer-too-large", 422, "A log id, sequence number or payload size is above 2^63 - 1."),)


class IntegerTooLarge(SingleCode, LimitError):
    code = "limit.integer-too-large"


class CborError(InkgroveError):
    """The strict CBOR profile."""

    codes = (
        ErrorCode("cbor.truncated", 422, "The bytes end before the value does."),
        ErrorCode("cbor.length-exceeds-input", 422, "A length prefix claims more than the remaining bytes could hold."),
        ErrorCode("cbor.trailing-bytes", 422, "Bytes follow the value."),
        ErrorCode("cbor.duplicate-key", 422, "A map holds the same key twice."),
        ErrorCode("cbor.key-not-text", 422, "A map key is not a text string."),
        ErrorCode("cbor.indefinite-length", 422, "A string, array or map has no length, or a break stands alone."),
        ErrorCode("cbor.too-deep", 422, "Arrays and maps are nested more than 16 deep."),
        ErrorCode(
            "cbor.too-complex",
            422,
            "More than 1 MiB of CBOR, which no message has, with more parts than anything needs or with some fault.",
        ),
        ErrorCode("cbor.bad-utf8", 422, "A text string is not valid UTF-8."),
        ErrorCode("cbor.nul-character", 422, "A text string contains U+0000."),
        ErrorCode("cbor.not-finite", 422, "A float is NaN or infinite."),
        ErrorCode("cbor.bignum", 422, "An integer of more than 64 bits (tag 2 or 3)."),
        ErrorCode("cbor.forbidden-tag", 422, "A tag other than 0 and 1."),
        ErrorCode("cbor.undefined", 422, "The value `undefined`."),
        ErrorCode("cbor.simple-value", 422, "A simple value other than false, true and null."),
        ErrorCode("cbor.reserved", 422, "A reserved form of the encoding."),
        ErrorCode(
            "cbor.bad-timestamp",
            422,
            "Tag 0 without an RFC 3339 text, tag 1 without a number, or a moment outside the years 0001-9999.",
        ),
    )


class MessageError(InkgroveError):
    """The content of one message."""

    codes = (
        ErrorCode(
            "message.too-large",
            422,
            "The payload is larger than 512 KiB.",
            "Put large content into a blob and refer to it.",
        ),
        ErrorCode("message.not-a-map", 422, "The payload is a CBOR value, but not a map."),
        ErrorCode("message.unknown-kind", 422, "`kind` is missing or not a kind of message."),
        ErrorCode("message.unknown-key", 422, "A key does not belong to this kind of message."),
        ErrorCode("message.missing-key", 422, "A key that this kind of message needs is missing."),
        ErrorCode("message.bad-value", 422, "A key holds a value of the wrong form."),
        ErrorCode("message.bad-name", 422, "A schema or field name is not of the form `[A-Za-z][A-Za-z0-9_]{0,62}`."),
        ErrorCode("message.duplicate-field", 422, "One field is named twice in `fields`."),
        ErrorCode("message.empty-update", 422, "An update has none of `fields`, `access` and `expires`."),
        ErrorCode("message.over-limit", 422, "Too many fields or elements, or a text or salt that is too long."),
        ErrorCode(
            "message.bad-timestamp",
            422,
            "A text is not a timestamp with an offset, at most 6 fraction digits, in the years 0001-9999.",
            "Write it like `2026-11-17T09:30:00Z`.",
        ),
    )


class BadValue(SingleCode, MessageError):
    code = "message.bad-value"


class BadTimestamp(SingleCode, MessageError):
    code = "message.bad-timestamp"


class ParcelError(InkgroveError):
    """Instances on their way between nodes."""

    codes = (
        ErrorCode(
            "parcel.bad", 422, "The parcel is malformed, or holds more or other things than one instance and its proof."
        ),
        ErrorCode(
            "parcel.lacks-create",
            422,
            "Changes arrived without the create of an instance that the recipient does not have: send all of it.",
        ),
        ErrorCode(
            "parcel.ended-before", 422, "The end of the instance was told before its create arrived: it comes too late."
        ),
        ErrorCode(
            "parcel.bad-move",
            422,
            "What two nodes say to each other about an identity that moves does not have the form that it should have.",
        ),
        ErrorCode(
            "parcel.bad-replication",
            422,
            "What nodes ask or answer when they replicate does not have the form that it should have.",
        ),
        ErrorCode(
            "parcel.bad-document",
            422,
            "The notice of a new document is malformed, or its entries do not prove a document of the identity.",
        ),
        ErrorCode(
            "parcel.bad-bundle",
            422,
            "The file is no bundle, or holds something else than instances, their proofs and schemas.",
        ),
    )


class LacksCreate(SingleCode, ParcelError):
    code = "parcel.lacks-create"


class PersonFileError(InkgroveError):
    """The file of a person: everything of one identity, to be kept or taken to another node."""

    codes = (
        ErrorCode(
            "file.unknown-form",
            422,
            "The file is no file of a person, or of a later version than this node reads.",
            "Choose the file that the export gave, or use a newer version of Inkgrove.",
        ),
        ErrorCode(
            "file.cut-off",
            422,
            "The file does not come to its end; nothing of it was taken in.",
            "Go on with the download where it stopped, or export again.",
        ),
        ErrorCode(
            "file.changed",
            422,
            "The file is not as it was written: a digest, a signature, a link or a hash does not hold. Nothing of it "
            "was taken in.",
            "Take another copy of the file, or export again.",
        ),
        ErrorCode(
            "file.not-yours",
            403,
            "The file is of another identity, or holds logs of keys that are not this identity's. Nothing of it was "
            "taken in.",
            "Choose the file of this identity.",
        ),
        ErrorCode(
            "file.older",
            409,
            "The node holds newer entries of the identity than the file does. Nothing of it was taken in.",
            "Use the newest file; to take in only what the node lacks, say `--older`.",
        ),
        ErrorCode(
            "file.forks",
            409,
            "The file and the node hold different entries for one place of a log. Nothing of the file was taken in, "
            "which would end that log.",
            "Find out which of the two was written by mistake; the node that holds the other one must not sign.",
        ),
        ErrorCode(
            "file.bad-passphrase",
            422,
            "The passphrase does not open the secret key in the file. Nothing of the file was taken in.",
            "Give the passphrase that the export was asked for with.",
        ),
    )


class YamlError(InkgroveError):
    """Messages written as YAML."""

    codes = (
        ErrorCode("yaml.syntax", 422, "The text is not YAML, or uses a feature that messages do not have."),
        ErrorCode("yaml.duplicate-key", 422, "A mapping holds the same key twice."),
    )


class SchemaError(InkgroveError):
    """A schema message against the versions before it; it ends the known versions of its schema."""

    codes = (
        ErrorCode("schema.not-a-schema", 422, "The first entry of the log is not a `schema-meta`."),
        ErrorCode("schema.not-a-schema-message", 422, "An entry of a schema's log holds a message of another kind."),
        ErrorCode("schema.unknown-type", 422, "A field is given a type that does not exist."),
        ErrorCode(
            "schema.field-exists",
            422,
            "A migration creates a field that exists already; names differing only in case are the same here.",
        ),
        ErrorCode(
            "schema.no-such-field",
            422,
            "A migration updates or removes a field that does not exist.",
            "`inkgrove schema show` lists the fields of each version.",
        ),
        ErrorCode("schema.too-many-fields", 422, "The schema would have more than 256 fields."),
        ErrorCode(
            "schema.bad-default",
            422,
            "A default does not fit the type or validation of its own field.",
            "Try the migration with `inkgrove schema lint` before it is signed.",
        ),
        ErrorCode(
            "schema.bad-pattern",
            422,
            "A validation is not a pattern that RE2 supports.",
            "Patterns have no look-around and no back-references; see the syntax of RE2.",
        ),
        ErrorCode(
            "schema.too-many-patterns",
            422,
            "The patterns of a version are too many, or too many of them are large, or they have too many "
            "Unicode classes.",
        ),
        ErrorCode(
            "schema.validation-not-allowed",
            422,
            "A validation is given to a field that is neither varchar nor text nor an array of them.",
        ),
        ErrorCode("schema.relation-only", 422, "`schema` or `cascade` is given to a field that is no relation."),
        ErrorCode("schema.bad-revert-target", 422, "A revert names its own or a later version."),
    )


class BadPattern(SingleCode, SchemaError):
    code = "schema.bad-pattern"


class TooManyPatterns(SingleCode, SchemaError):
    code = "schema.too-many-patterns"


class InstanceError(InkgroveError):
    """An instance message against its schema; the same codes are outcomes of messages."""

    codes = (
        ErrorCode(
            "instance.unknown-field",
            422,
            "The version that the message names has no such field.",
            "`inkgrove schema show` lists the fields of each version.",
        ),
        ErrorCode("instance.wrong-type", 422, "A value does not fit the type of its field."),
        ErrorCode("instance.failed-validation", 422, "A value does not match the pattern of its field."),
    )


class ProofError(InkgroveError):
    """The proof of an instance."""

    codes = (
        ErrorCode("proof.bad-form", 422, "The file is no proof, or not written in the one form that a proof has."),
        ErrorCode("proof.incomplete", 422, "The proof does not hold the entries of one log with at least one payload."),
        ErrorCode("proof.of-other", 422, "The proof holds something that is not of the instance it names."),
    )


class StoreError(InkgroveError):
    """The database behind a store."""

    codes = (
        ErrorCode(
            "store.too-new",
            503,
            "The store was written by a newer version of Inkgrove than this one.",
            "Install the version of Inkgrove that wrote the store, or a newer one.",
            is_internal=True,
        ),
        ErrorCode(
            "store.not-found",
            503,
            "There is no store at this place, and what was asked makes none; check `--home`, `--store` or the option.",
            is_internal=True,
        ),
        ErrorCode(
            "store.unavailable",
            503,
            "The database cannot be reached, read or written; nothing of the call was stored.",
            "Ask again later; `inkgrove doctor` tells the operator what is wrong.",
            is_internal=True,
        ),
    )


class NoStore(SingleCode, StoreError):
    code = "store.not-found"


class StoreUnavailable(SingleCode, StoreError):
    code = "store.unavailable"


class PipelineError(InkgroveError):
    """Spark, and what it works on."""

    codes = (
        ErrorCode(
            "pipeline.no-java",
            422,
            "Spark needs Java 17 or newer.",
            "Install Java 17, or set `JAVA_HOME`.",
            is_internal=True,
        ),
        ErrorCode(
            "pipeline.spark-failed",
            422,
            "A Spark job ended with an error; nothing of its batch was written.",
            "The message says where Spark's logs are; run the command again.",
            is_internal=True,
        ),
        ErrorCode(
            "pipeline.bad-archive",
            422,
            "An archive is not Parquet with the binary columns `entry` and `payload`, or is damaged.",
            is_internal=True,
        ),
        ErrorCode(
            "pipeline.already-running",
            422,
            "Another process does the same work on this store already; wait for it or end it.",
            is_internal=True,
        ),
        ErrorCode(
            "pipeline.not-registered",
            422,
            "The schema is not on the list of those to materialise.",
            "Put it on the list with `inkgrove materialise`.",
            is_internal=True,
        ),
    )


class AlreadyRunning(SingleCode, PipelineError):
    code = "pipeline.already-running"


class SettingsError(InkgroveError):
    """What is set by file, environment or flag."""

    codes = (
        ErrorCode(
            "settings.unknown",
            422,
            "There is no setting of that name; the message has the nearest one.",
            "`inkgrove settings` lists all of them.",
            is_internal=True,
        ),
        ErrorCode(
            "settings.invalid",
            422,
            "A setting has a value of the wrong type or out of range, or the file is not TOML.",
            "See [settings](settings.md) for the type and range.",
            is_internal=True,
        ),
    )


class RotError(InkgroveError):
    """Data rot: what is kept of other people's data, and what goes."""

    codes = (
        ErrorCode(
            "rot.bad-policy",
            422,
            "The policy names a fungus, a guard, a schema, an identity or a limit that does not exist.",
        ),
        ErrorCode("rot.no-such-copy", 404, "The instance is no foreign copy that this node knows of."),
        ErrorCode("rot.not-rotted", 409, "The copy is whole: there is nothing to fetch."),
    )


class NoSuchCopy(SingleCode, RotError):
    code = "rot.no-such-copy"


class InputError(InkgroveError):
    """Files and arguments given to a command."""

    codes = (
        ErrorCode("input.bad-hex", 422, "The text is not hex."),
        ErrorCode("input.bad-line", 422, "A line is not a JSON object with `entry` and `payload` in hex."),
        ErrorCode("input.unreadable-file", 422, "A file cannot be read or written."),
        ErrorCode("input.usage", 422, "The command was called with arguments that do not fit."),
        ErrorCode(
            "input.unknown-schema", 404, "No schema of that name is here, or several are.", "Name it as `AUTHOR/LOG`."
        ),
        ErrorCode("input.unknown-version", 422, "The schema has no such version yet."),
        ErrorCode(
            "input.bad-filter",
            400,
            "A filter or sort names no field of the view, or a value that its type does not have.",
        ),
        ErrorCode(
            "input.query-too-expensive",
            422,
            "What is asked of a view takes more of the processor than whoever asks may use.",
            "Ask for fewer rows, or filter by a field that comes first in an index.",
        ),
        ErrorCode(
            "input.too-many-queries",
            503,
            "As many expensive queries run on the node as it has room for; try again.",
            "Ask again after `retry_after` seconds.",
        ),
    )


class BadLine(SingleCode, InputError):
    code = "input.bad-line"


class BadFilter(SingleCode, InputError):
    code = "input.bad-filter"


class QueryTooExpensive(SingleCode, InputError):
    code = "input.query-too-expensive"


class TooManyQueries(SingleCode, InputError):
    code = "input.too-many-queries"

"""Writes the test vectors tests/vectors/ed25519.json and under {valid,invalid}; with --check compares them instead.

Keys and contents are fixed, so the same bytes come out every time. A change here is a change of the wire format.
"""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from inkgrove.core import Flavour, certificate_pool, decode_entry, hash_yamf, hash_yasmf, sign_entry
from inkgrove.messages import cbor, encode_message
from inkgrove.messages.yaml_form import parse_messages
from scripts.ed25519_cases import ed25519_cases
from tests.support.logs import LogBuilder, key, resign

VECTORS = ROOT / "tests" / "vectors"
OK = "ok"


def line(entry: bytes, payload: bytes | None = None) -> dict[str, str | None]:
    return {"entry": entry.hex(), "payload": None if payload is None else payload.hex()}


def log_lines(log: LogBuilder, *seq_nums: int, payloads: bool = True) -> list[dict[str, str | None]]:
    return [line(h.signed.entry.encoded, h.payload) for h in log.held(*seq_nums, payloads=payloads)]


def log_case(about: str, lines: list, verdicts: list[str], *, partial: bool = False) -> dict:
    return {"about": about, "form": "log", "partial": partial, "lines": lines, "verdicts": verdicts}


def message_case(about: str, payload: bytes, verdict: str) -> dict:
    return {"about": about, "form": "message", "payload": payload.hex(), "verdict": verdict}


def valid_logs() -> dict[str, dict]:
    forty = LogBuilder().grow(40)
    ended = LogBuilder().grow(2)
    ended.append(is_end_of_log=True)
    other = LogBuilder(key(2), log_id=2**40).grow(2)
    mixed = [*log_lines(forty, 3, 1), *log_lines(other, 2), *log_lines(forty, 2), *log_lines(other, 1)]
    pool = certificate_pool(23, 40)
    return {
        "one-entry": log_case("A log of one entry.", log_lines(LogBuilder().grow(1)), [OK]),
        "forty-entries": log_case("Every lipmaa link up to 40.", log_lines(forty), [OK] * 40),
        "yasmf-log": log_case(
            "BLAKE3 hashes are read too.", log_lines(LogBuilder(flavour=Flavour.YASMF).grow(13)), [OK] * 13
        ),
        "end-of-log": log_case("The last entry ends the log.", log_lines(ended), [OK] * 3),
        "any-order-two-logs": log_case("Two logs, interleaved and out of order.", mixed, [OK] * 5),
        "same-line-twice": log_case("The same entry twice is one entry.", log_lines(forty, 1, 1), [OK, OK]),
        "payloads-absent": log_case("No payload is needed.", log_lines(forty, 1, 2, payloads=False), [OK, OK]),
        "empty-payload": log_case("A payload of no bytes.", [line(LogBuilder().append(b"").encoded, b"")], [OK]),
        "certificate-pool": log_case(
            "A pool proves its entry.", log_lines(forty, *pool), [OK] * len(pool), partial=True
        ),
    }


def forged(**links: object) -> LogBuilder:
    log = LogBuilder().grow(3)
    log.append(**links)  # type: ignore[arg-type]
    return log


def invalid_logs() -> dict[str, dict]:
    log = LogBuilder().grow(8)
    first, second = log.entry(1).encoded, log.entry(2).encoded
    wrong = hash_yamf(b"something else")
    ended = LogBuilder()
    ended.append(is_end_of_log=True)
    ended.append()
    gap = LogBuilder().grow(1)
    gap.append(is_end_of_log=True)
    gap.grow(2)
    fork = log.fork_at(3)
    lie = LogBuilder().grow(1)
    size_at = 1 + 32 + 1 + 1 + 66
    unsigned = bytearray(log.entry(2).encoded)
    unsigned[size_at] += 1
    lie.entries.append(decode_entry(resign(lie.secret, bytes(unsigned))))
    lie.payloads.append(log.payloads[1])
    lie.append()
    yasmf_second = sign_entry(
        key(1), b"payload 2", log_id=1, seq_num=2, backlink=hash_yasmf(first), flavour=Flavour.YASMF
    )
    return {
        "entry-empty": log_case("No bytes at all.", [line(b"")], ["entry.truncated"]),
        "entry-truncated": log_case("The signature is cut off.", [line(first[:-1])], ["entry.truncated"]),
        "entry-trailing-bytes": log_case("A byte too many.", [line(first + b"\0")], ["entry.trailing-bytes"]),
        "entry-bad-tag": log_case("Tag 2.", [line(resign(key(1), b"\2" + first[1:]))], ["entry.bad-tag"]),
        "entry-zero-seq-num": log_case(
            "Sequence number 0.", [line(resign(key(1), first[:34] + b"\0" + first[35:]))], ["entry.zero-seq-num"]
        ),
        "entry-mixed-hashes": log_case(
            "A YASMF backlink beside a YAMF payload hash.",
            [line(resign(key(1), second[:35] + hash_yasmf(b"x") + second[101:]))],
            ["entry.mixed-hashes"],
        ),
        "entry-bad-signature": log_case(
            "A flipped bit in the signature.",
            [line(first[:-1] + bytes([first[-1] ^ 1])), *log_lines(log, 2)],
            ["entry.bad-signature", "log.missing-predecessor"],
        ),
        "entry-signed-by-another": log_case(
            "Another author's key.", [line(resign(key(2), first))], ["entry.bad-signature"]
        ),
        "varu64-not-shortest": log_case(
            "Log id 1 in two bytes.",
            [line(resign(key(1), first[:33] + b"\xf8\x01" + first[34:]))],
            ["varu64.not-shortest"],
        ),
        "varu64-truncated": log_case(
            "The bytes end inside the log id.", [line(first[:33] + b"\xff\0\0")], ["varu64.truncated"]
        ),
        "hash-unknown": log_case(
            "A payload hash of an unknown kind.",
            [line(resign(key(1), first[:36] + b"\x01\x40" + first[38:]))],
            ["hash.unknown"],
        ),
        "hash-wrong-length-byte": log_case(
            "BLAKE2b with a length byte of 32.",
            [line(resign(key(1), first[:36] + b"\x00\x41" + first[38:]))],
            ["hash.unknown"],
        ),
        "hash-truncated": log_case("The bytes end inside a hash.", [line(first[:60])], ["hash.truncated"]),
        "backlink-mismatch": log_case(
            "A signed entry with a wrong backlink forks the log at the entry before.",
            log_lines(forged(backlink=wrong)),
            [OK, OK, "log.forked", "entry.backlink-mismatch"],
        ),
        "lipmaa-mismatch": log_case(
            "A signed entry with a wrong lipmaa link forks the log at the entry it should point to.",
            log_lines(forged(lipmaa_link=wrong)),
            ["log.forked", "log.forked", "log.forked", "entry.lipmaa-mismatch"],
        ),
        "after-end-of-log": log_case("An entry after the end.", log_lines(ended), [OK, "entry.after-end-of-log"]),
        "after-end-of-log-across-a-gap": log_case(
            "Entry 2 ends the log; entry 4 reaches entry 1 by its lipmaa link all the same.",
            log_lines(gap, 1, 2, 4),
            [OK, OK, "entry.after-end-of-log"],
            partial=True,
        ),
        "missing-predecessor": log_case(
            "A gap in a log that should be whole.", log_lines(log, 1, 2, 4), [OK, OK, "log.missing-predecessor"]
        ),
        "no-path-to-first": log_case(
            "A gap that no link leads across.",
            log_lines(log, 1, 2, 7),
            [OK, OK, "entry.no-path-to-first"],
            partial=True,
        ),
        "forked": log_case(
            "Two entries 3: the log is invalid from 3 on, in both branches.",
            [*log_lines(log, 1, 2, 3, 4), *log_lines(fork, 3)],
            [OK, OK, "log.forked", "log.forked", "log.forked"],
        ),
        "forked-by-links-alone": log_case(
            "A later entry of the other branch contradicts by its backlink; entry 3 of its own branch is not held.",
            [*log_lines(log, 1, 2, 3), *log_lines(fork.grow(1), 4)],
            [OK, OK, "log.forked", "entry.backlink-mismatch"],
        ),
        "two-flavours-in-one-log": log_case(
            "Entry 2 claims a BLAKE3 hash for entry 1.",
            [*log_lines(log, 1), line(yasmf_second.encoded)],
            ["log.forked", "entry.backlink-mismatch"],
        ),
        "payload-hash-mismatch": log_case(
            "Rubbish instead of a payload; the log stays good.",
            [*log_lines(log, 1), line(second, b"rubbish"), *log_lines(log, 3)],
            [OK, "payload.hash-mismatch", OK],
        ),
        "payload-size-mismatch": log_case(
            "The author lied about a size: the log is invalid from there on.",
            log_lines(lie),
            [OK, "payload.size-mismatch", "log.invalid-since"],
        ),
    }


SCHEMA = '["88e1cb88a66f02f8db635ce26441cc5dac1b08420ceaac230839b755845a9ffb", 12, 1]'
SLOTHMAIL = {
    "create": f'kind: create\nschema: {SCHEMA}\nfields: [subject: "Hello!\\n...friend", body: , created: 2020-05-22T11:58:50+0000]',
    "update": f'kind: update\nschema: {SCHEMA}\ninstance: "{"98" * 32}"\nfields: [subject: Hello! ...friend]',
    "update-access-only": f"kind: update\nschema: {SCHEMA}\ninstance: 3\naccess: {{mode: closed, to: []}}",
    "update-expires-null": f"kind: update\nschema: {SCHEMA}\ninstance: 3\nexpires:",
    "delete": f'kind: delete\ninstance: "{"98" * 32}"',
    "create-that-continues": f'kind: create\nschema: {SCHEMA}\nfields: [subject: Hello!]\ncontinues: "0040{"98" * 64}"',
    "delete-in-another-log": f'kind: delete\nschema: {SCHEMA}\ninstance: "0040{"98" * 64}"',
    "schema-meta": "kind: schema-meta\nname: slothmail\nspec: 1\nfqdn: messages.schema.ink\nlicense: CC0-1.0",
    "schema-migration": (
        "kind: schema-migration\nfields:\n"
        "  - subject: {action: update, validation: '^[^#\\r\\n].*$', default: <Subject>}\n"
        "  - attachments: {action: remove}\n"
        f'  - to: {{action: create, type: relation, schema: ["{"88" * 32}", 3], cascade: true}}\n'
    ),
    "schema-revert": "kind: schema-revert\ntarget: 3",
    "identity": (
        "kind: identity\nfqdn: jane.haiku.ink\nendpoint: https://haiku.ink\nname: Jane\nprofile: {likes: sloths}\n"
        f'keys: [{{key: "{"77" * 32}", revoked: [[0, 1], [4, 9]]}}]'
    ),
    "identity-controller": (
        "kind: identity\nfqdn: jane.haiku.ink\nendpoint: https://haiku.ink\n"
        f'keys: [{{key: "{"55" * 32}", label: server}}, {{key: "{"77" * 32}", label: phone, '
        f'revoked: [[0, 1], [4, 9, "0040{"44" * 64}"], [5, 2, "0020{"33" * 32}"]]}}]\n'
        f'controller: "{"55" * 32}"\nunder: "0040{"22" * 64}"\nclosed: true'
    ),
    "key-of": f'kind: key-of\nidentity: "{"66" * 32}"',
}


def valid_messages() -> dict[str, dict]:
    return {
        f"message-{name}": {
            **message_case(f"A {name} message and its only encoding.", encode_message(*parse_messages(text)), OK),
            "yaml": text,
        }
        for name, text in SLOTHMAIL.items()
    }


def overlong_messages() -> dict[str, dict]:
    """One create, each time with one head longer than it need be: numbers, lengths and tags are read all the same."""
    text = {
        name: (0x60 | len(name), name.encode()) for name in ("kind", "create", "salt", "fields", "schema", "expires")
    }
    moment = b"1970-01-01T00:00:00Z"
    # Head and content of every part, in the order of the shortest form.
    parts = {
        "map": (0xA5, b""),
        "key": text["kind"],
        "text": text["create"],
        "of salt": text["salt"],
        "bytes": (0x44, b"salt"),
        "of fields": text["fields"],
        "array": (0x80, b""),
        "of schema": text["schema"],
        "array-of-three": (0x83, b"\x58\x20" + b"\x88" * 32),
        "integer": (0x0C, b""),
        "version": (0x01, b""),
        "of expires": text["expires"],
        "tag": (0xC0, b""),
        "moment": (0x60 | len(moment), moment),
    }

    def write(longer: str | None = None, width: int = 0) -> bytes:
        written = b""
        for name, (head, content) in parts.items():
            major, argument = head & 0xE0, head & 0x1F
            if name == longer:
                written += bytes([major | {1: 24, 2: 25, 4: 26, 8: 27}[width]]) + argument.to_bytes(width, "big")
            else:
                written += bytes([head])
            written += content
        return written

    return {
        f"message-cbor-overlong-{part}-{width}": {
            **message_case(f"The head of the {part} takes {width} bytes more than it need.", write(part, width), OK),
            "same_as": write().hex(),
        }
        for part in ("map", "key", "text", "bytes", "array", "array-of-three", "integer", "tag")
        for width in (1, 2, 4, 8)
    }


def invalid_messages() -> dict[str, dict]:
    author, instance = b"\x88" * 32, b"\0\x40" + b"\x99" * 64
    delete = {"kind": "delete", "instance": instance}
    create = {"kind": "create", "schema": [author, 12, 1], "fields": [{"a": 1}]}
    update = {"kind": "update", "schema": [author, 12, 1], "instance": 1}

    def raw(text: str) -> bytes:
        return bytes.fromhex(text.replace(" ", ""))

    def migration(change: object, name: str = "a") -> dict:
        return {"kind": "schema-migration", "fields": [{name: change}]}

    cases: dict[str, tuple[str, bytes | dict, str]] = {
        "cbor-empty": ("No bytes.", b"", "cbor.truncated"),
        "cbor-truncated": ("A map of two with one pair and a key.", raw("a2 6161 01 6162"), "cbor.truncated"),
        "cbor-number-cut-off": ("An integer of eight bytes with one.", raw("1b 00"), "cbor.truncated"),
        "cbor-float-cut-off": ("A float of eight bytes with one.", raw("fb 00"), "cbor.truncated"),
        "cbor-huge-array": (
            "An array that claims 2^40 elements.",
            raw("9b 0000010000000000"),
            "cbor.length-exceeds-input",
        ),
        "cbor-huge-map": ("A map that claims 2^40 pairs.", raw("bb 0000010000000000"), "cbor.length-exceeds-input"),
        "cbor-huge-bytes": (
            "A byte string that claims 2^63 bytes.",
            raw("5b 8000000000000000"),
            "cbor.length-exceeds-input",
        ),
        "cbor-huge-text": ("A text that claims 4 GiB.", raw("7a ffffffff 61"), "cbor.length-exceeds-input"),
        "cbor-trailing-bytes": ("A byte after the message.", cbor.encode(delete) + b"\0", "cbor.trailing-bytes"),
        "cbor-duplicate-key": ("The key test twice.", raw("a2 6474657374 0c 6474657374 0d"), "cbor.duplicate-key"),
        "cbor-key-not-text": ("A map with an integer key.", raw("a1 01 02"), "cbor.key-not-text"),
        "cbor-indefinite-map": ("A map without a length.", raw("bf 6161 01 ff"), "cbor.indefinite-length"),
        "cbor-indefinite-text": ("A text in chunks.", raw("7f 6161 6162 ff"), "cbor.indefinite-length"),
        "cbor-lone-break": ("A break.", raw("ff"), "cbor.indefinite-length"),
        "cbor-too-deep": ("Seventeen arrays.", b"\x81" * 17 + b"\0", "cbor.too-deep"),
        "cbor-bad-utf8": ("A text of the byte ff.", raw("61 ff"), "cbor.bad-utf8"),
        "cbor-surrogate": ("A surrogate in UTF-8.", raw("63 eda080"), "cbor.bad-utf8"),
        "cbor-nul-character": ("A text with U+0000.", raw("63 610062"), "cbor.nul-character"),
        "cbor-nan": ("NaN.", raw("a1 6161 f97e00"), "cbor.not-finite"),
        "cbor-infinity": ("Infinity.", raw("a1 6161 fb7ff0000000000000"), "cbor.not-finite"),
        "cbor-bignum": ("2^64 as a bignum.", raw("c2 49 010000000000000000"), "cbor.bignum"),
        "cbor-forbidden-tag": ("Tag 32.", raw("d820 6161"), "cbor.forbidden-tag"),
        "cbor-shared-reference": ("Tag 28.", raw("d81c 80"), "cbor.forbidden-tag"),
        "cbor-undefined": ("undefined.", raw("a1 6161 f7"), "cbor.undefined"),
        "cbor-simple-value": ("simple(16).", raw("a1 6161 f0"), "cbor.simple-value"),
        "cbor-reserved": ("Additional information 28.", raw("1c"), "cbor.reserved"),
        "cbor-bad-timestamp-text": (
            "Tag 0 of a text without an offset.",
            raw("c0 73") + b"2020-05-22T11:58:50",
            "cbor.bad-timestamp",
        ),
        "cbor-bad-timestamp-kind": ("Tag 1 of a text.", raw("c1 6131"), "cbor.bad-timestamp"),
        "cbor-timestamp-year-10000": (
            "Tag 1 beyond the year 9999.",
            raw("c1 1b 000000ffffffffff"),
            "cbor.bad-timestamp",
        ),
        "not-a-map": ("A text.", raw("68") + b"hello ba", "message.not-a-map"),
        "no-kind": ("A map without kind.", {"instance": instance}, "message.unknown-kind"),
        "unknown-kind": ("A kind nobody knows.", {**delete, "kind": "erase"}, "message.unknown-kind"),
        "kind-not-text": ("A kind that is a number.", {**delete, "kind": 1}, "message.unknown-kind"),
        "unknown-key": ("A create with a colour.", {**create, "colour": "red"}, "message.unknown-key"),
        "missing-key": ("A delete of nothing.", {"kind": "delete"}, "message.missing-key"),
        "schema-without-version": (
            "A create of [author, log id].",
            {**create, "schema": [author, 12]},
            "message.bad-value",
        ),
        "schema-author-short": (
            "An author of 31 bytes.",
            {**create, "schema": [author[1:], 12, 1]},
            "message.bad-value",
        ),
        "schema-log-zero": ("A schema in log 0.", {**create, "schema": [author, 0, 1]}, "message.bad-value"),
        "schema-version-zero": ("Version 0.", {**create, "schema": [author, 12, 0]}, "message.bad-value"),
        "schema-log-too-large": ("Log 2^63.", {**create, "schema": [author, 2**63, 1]}, "message.bad-value"),
        "schema-version-too-large": ("Version 2^63.", {**create, "schema": [author, 12, 2**63]}, "message.bad-value"),
        "schema-version-negative": ("Version -1.", {**create, "schema": [author, 12, -1]}, "message.bad-value"),
        "schema-version-boolean": ("Version true.", {**create, "schema": [author, 12, True]}, "message.bad-value"),
        "fields-not-a-list": ("fields: 1.", {**create, "fields": 1}, "message.bad-value"),
        "fields-two-keys-in-one": (
            "A field map with two keys.",
            {**create, "fields": [{"a": 1, "b": 2}]},
            "message.bad-value",
        ),
        "duplicate-field": (
            "One field twice in the list.",
            {**create, "fields": [{"a": 1}, {"a": 2}]},
            "message.duplicate-field",
        ),
        "instance-empty": ("An id of no bytes.", {**delete, "instance": b""}, "message.bad-value"),
        "instance-too-long": ("An id of 67 bytes.", {**delete, "instance": b"x" * 67}, "message.bad-value"),
        "instance-not-hex": ("An id that is not hex.", {**delete, "instance": "xyz"}, "message.bad-value"),
        "continues-a-number": ("A create that continues entry 3.", {**create, "continues": 3}, "message.bad-value"),
        "continues-too-long": ("An id of 67 bytes.", {**create, "continues": b"x" * 67}, "message.bad-value"),
        "update-continues": ("An update that continues.", {**update, "continues": instance}, "message.unknown-key"),
        "instance-zero": ("Sequence number 0.", {**delete, "instance": 0}, "message.bad-value"),
        "empty-update": ("An update of nothing.", update, "message.empty-update"),
        "salt-not-bytes": ("A salt of text.", {**delete, "salt": "ab"}, "message.bad-value"),
        "salt-too-long": ("A salt of 513 bytes.", {**delete, "salt": b"s" * 513}, "message.over-limit"),
        "access-unknown-mode": ("A mode nobody knows.", {**create, "access": {"mode": "secret"}}, "message.bad-value"),
        "access-closed-to-nobody-named": (
            "closed without to.",
            {**create, "access": {"mode": "closed"}},
            "message.bad-value",
        ),
        "access-public-to": (
            "public with to.",
            {**create, "access": {"mode": "public", "to": []}},
            "message.bad-value",
        ),
        "access-without-mode": ("access without a mode.", {**create, "access": {}}, "message.missing-key"),
        "expires-not-a-timestamp": ("expires: 1.", {**create, "expires": 1}, "message.bad-value"),
        "expires-without-offset": (
            "expires without an offset.",
            {**create, "expires": "2020-05-22T11:58:50"},
            "message.bad-timestamp",
        ),
        "meta-bad-name": (
            "A name with a space.",
            {"kind": "schema-meta", "spec": 1, "name": "sloth mail"},
            "message.bad-name",
        ),
        "meta-long-name": (
            "A name of 64 characters.",
            {"kind": "schema-meta", "spec": 1, "name": "a" * 64},
            "message.bad-name",
        ),
        "meta-other-spec": ("spec 2.", {"kind": "schema-meta", "spec": 2, "name": "a"}, "message.bad-value"),
        "meta-bad-fqdn": (
            "An upper-case host.",
            {"kind": "schema-meta", "spec": 1, "name": "a", "fqdn": "X.ink"},
            "message.bad-value",
        ),
        "migration-empty": ("A migration of nothing.", {"kind": "schema-migration", "fields": []}, "message.bad-value"),
        "migration-unknown-action": ("action: rename.", migration({"action": "rename"}), "message.bad-value"),
        "migration-create-without-type": (
            "A field of no type.",
            migration({"action": "create"}),
            "message.missing-key",
        ),
        "migration-update-without-default": (
            "An update without default.",
            migration({"action": "update", "type": "text"}),
            "message.missing-key",
        ),
        "migration-remove-with-default": (
            "A removal with a default.",
            migration({"action": "remove", "default": None}),
            "message.unknown-key",
        ),
        "migration-own-column": (
            "A field that begins with _.",
            migration({"action": "create", "type": "text"}, "_seq"),
            "message.bad-name",
        ),
        "migration-schema-with-version": (
            "A relation to a version.",
            migration({"action": "create", "type": "relation", "schema": [author, 3, 1]}),
            "message.bad-value",
        ),
        "migration-long-pattern": (
            "A pattern of 513 bytes.",
            migration({"action": "create", "type": "text", "validation": "a" * 513}),
            "message.over-limit",
        ),
        "revert-to-zero": ("A revert to version 0.", {"kind": "schema-revert", "target": 0}, "message.bad-value"),
        "revert-too-large": ("A revert to 2^63.", {"kind": "schema-revert", "target": 2**63}, "message.bad-value"),
        "instance-too-large": ("Entry 2^63.", {**delete, "instance": 2**63}, "message.bad-value"),
        "migration-schema-log-zero": (
            "A relation to log 0.",
            migration({"action": "create", "type": "relation", "schema": [author, 0]}),
            "message.bad-value",
        ),
        "identity-revoked-too-large": (
            "A key revoked from entry 2^63 on.",
            {
                "kind": "identity",
                "fqdn": "a.ink",
                "endpoint": "https://a.ink",
                "keys": [{"key": author, "revoked": [[1, 2**63]]}],
            },
            "message.bad-value",
        ),
        **{
            f"identity-{name}": (
                about,
                {"kind": "identity", "fqdn": "a.ink", "endpoint": "https://a.ink", **wrong},
                "message.bad-value",
            )
            for name, about, wrong in (
                ("controller-short", "A controller of 31 bytes.", {"controller": b"x" * 31}),
                (
                    "under-unknown-hash",
                    "A document under a hash with another header.",
                    {"under": b"\0\x30" + b"x" * 64},
                ),
                ("under-cut-off", "A document under half a hash.", {"under": b"\0\x40" + b"x" * 32}),
                ("under-longer", "A document under a hash with a byte behind it.", {"under": b"\0\x20" + b"x" * 33}),
                ("not-closed", "A document that says it is not closed.", {"closed": False}),
                ("label-not-text", "A key with a number for a label.", {"keys": [{"key": author, "label": 1}]}),
                ("pin-no-hash", "A pin with a text for a hash.", {"keys": [{"key": author, "revoked": [[1, 2, "x"]]}]}),
                (
                    "pin-of-nothing",
                    "A pin of entry 0.",
                    {"keys": [{"key": author, "revoked": [[1, 0, b"\0\x40" + b"x" * 64]]}]},
                ),
                (
                    "pin-with-more",
                    "A pin of four parts.",
                    {"keys": [{"key": author, "revoked": [[1, 2, b"\0\x40" + b"x" * 64, 4]]}]},
                ),
            )
        },
        "identity-log-ends-twice": (
            "One log of a key ends twice.",
            {
                "kind": "identity",
                "fqdn": "a.ink",
                "endpoint": "https://a.ink",
                "keys": [{"key": author, "revoked": [[1, 2], [1, 2, b"\0\x40" + b"x" * 64]]}],
            },
            "message.duplicate-field",
        ),
        "key-of-short": ("An identity id of 31 bytes.", {"kind": "key-of", "identity": b"x" * 31}, "message.bad-value"),
        "identity-key-twice": (
            "One key listed twice.",
            {"kind": "identity", "fqdn": "a.ink", "endpoint": "https://a.ink", "keys": [{"key": author}] * 2},
            "message.duplicate-field",
        ),
    }
    return {
        f"message-{name}": message_case(about, body if isinstance(body, bytes) else cbor.encode(body), code)
        for name, (about, body, code) in cases.items()
    }


def main() -> int:
    cases = {
        "valid": {**valid_logs(), **valid_messages(), **overlong_messages()},
        "invalid": {**invalid_logs(), **invalid_messages()},
    }
    wanted = {
        VECTORS / folder / f"{name}.json": json.dumps(case, indent=1) + "\n"
        for folder, named in cases.items()
        for name, case in named.items()
    }
    wanted[VECTORS / "ed25519.json"] = json.dumps(ed25519_cases(), indent=1) + "\n"
    there = {path: path.read_text() for path in VECTORS.glob("*.json")}
    there |= {path: path.read_text() for folder in cases for path in (VECTORS / folder).glob("*.json")}
    if "--check" in sys.argv:
        for path in sorted(wanted.keys() | there.keys()):
            if wanted.get(path) != there.get(path):
                print(f"differs: {path.relative_to(ROOT)}")
        return int(wanted != there)
    for path in there.keys() - wanted.keys():
        path.unlink()
    for path, text in wanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    print(f"{len(wanted)} vectors written")
    return 0


if __name__ == "__main__":
    sys.exit(main())

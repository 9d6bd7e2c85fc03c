"""Small worlds written by hand: signed logs in, views out (docs/protocol.md sections 2 and 4 to 6).

`tests/vectors/views/<rule>/world.yaml` says which entries are held, `expected.yaml` what any implementation has to
make of them. Keys come from the authors' names and nothing is random, so a world is always the same bytes.

world.yaml::

    registered: [["@dev", 12]]      # the schemas to materialise; default: every schema defined or named here
    logs:
      - author: jane
        log: 1
        hashes: yasmf               # default: yamf
        entries:
          - {kind: create, schema: ["@dev", 12, 2], fields: [{subject: Hi}]}     # a message in its YAML form
          - {message: {kind: delete, instance: 1}, held: entry, end: true}       # the same with options
          - {cbor: "a2 'kind' 'delete' 'instance' c1 f92000"}                    # the payload byte by byte
        branches:
          - {name: b, from: 2, entries: [...]}      # other entries from 2 on: a fork

Options of an entry: `held`: `all` (default), `entry` (the payload is withheld), `nothing` (the entry too: a gap);
`held_payload`: other bytes, in the notation of `cbor`, that are held as its payload; `size`: the payload size that
it claims; `end`: it ends the log; `signature: broken`. A message need not be valid, only CBOR. In `cbor`, `'word'` is a
short text with its head, `01*9` is nine times 01, and symbols stand for their bytes.

Symbols, wherever a text can stand: `@jane` (public key), `@jane/1/3` and `@jane/1/3#b` (entry hash), `@id:jane`
(identity id), `@hash:words` (a hash of something nobody holds), `@hex:jane/1/3` (the hex of a symbol, as text),
`@repeat:255:a` (a long text).

expected.yaml: a list with `{schema, version, rows, outcomes}` for each schema. A row is `{instance, fields}` and
whatever else it should hold; author, log_id and seq_num follow from the instance, `last_seq_num` is that of the create
unless given. An outcome is `[entry, outcome, code]`, a line `[instance, the last of its line]` (of several
the one with the least hash). Rows, outcomes and lines are complete. `absent` and `field_order` count if stated.
Timestamps are compared as rendered, bytes as hex. A schema that is not listed has neither version, rows nor outcomes.
"""

import json
import re
from binascii import unhexlify
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from inkgrove.core import (
    Entry,
    Flavour,
    Hash,
    SecretKey,
    decode_entry,
    encode_varu64,
    has_lipmaa_link,
    hash_entry,
    hash_yamf,
    identity_of,
    lipmaa,
    sign_entry,
)
from inkgrove.messages import SchemaId, Timestamp, cbor, render_timestamp
from inkgrove.messages.yaml_form import parse_values

AUTHORS = ("dev", "jane", "john", "alice", "bob", "carol")
_ENTRY = re.compile(r"(\w+)/(\d+)/(\d+)(?:#(\w+))?")
_OPTIONS = {"message", "cbor", "held", "held_payload", "size", "end", "signature"}
_HELD = ("all", "entry", "nothing")
_EMPTY: dict[str, Any] = {"version": None, "rows": [], "outcomes": []}

View = Mapping[str, Any]
Find = Callable[[str], bytes]


class Place(NamedTuple):
    """Where an entry stands; `branch` is empty on the main line of a log."""

    author: str
    log_id: int
    seq_num: int
    branch: str = ""

    def __str__(self) -> str:
        return f"{self.author}/{self.log_id}/{self.seq_num}{'#' if self.branch else ''}{self.branch}"


@dataclass(frozen=True, slots=True)
class World:
    """What is held, and what the symbols stand for."""

    entries: list[tuple[Entry, bytes | None]]
    symbols: dict[str, bytes]
    """By name without the `@`; withheld entries too."""
    registered: list[SchemaId]


@cache
def key_of(author: str, salt: str = "") -> SecretKey:
    """The key of an author of worlds; another one for each salt."""
    if author not in AUTHORS:
        raise ValueError(f"no author of worlds: {author}")
    return SecretKey.from_seed(sha256(f"{author}{salt}".encode()).digest())


def load_world(path: Path, salt: str = "") -> World:
    """Build and sign the entries of a `world.yaml`; with a salt, by other keys than those of the published vectors."""
    document: Any = parse_values(path.read_text())[0]
    _check_keys(document, {"logs", "registered"})
    builder = _Builder(document["logs"], salt)
    held = [(builder.entry(place), payload) for place, payload in builder.held()]
    symbols: dict[str, bytes] = {author: key_of(author, salt).public for author in AUTHORS}
    symbols |= {f"id:{author}": identity_of(key_of(author, salt).public) for author in AUTHORS}
    symbols |= {str(place): hash_entry(builder.entry(place)) for place in builder.items}
    named = document["registered"] if "registered" in document else _schemas_in(document["logs"])
    registered = [SchemaId(key_of(author.removeprefix("@"), salt).public, log_id) for author, log_id in named]
    return World(held, symbols, list(dict.fromkeys(registered)))


def _schemas_in(logs: Any) -> Iterator[tuple[str, int]]:
    """Every schema that a log defines or a message names."""
    for log in logs:
        if log["entries"] and log["entries"][0].get("kind") == "schema-meta":
            yield log["author"], log["log"]
    yield from _named_schemas(logs)


def _named_schemas(value: Any) -> Iterator[tuple[str, int]]:
    if isinstance(value, dict):
        schema = value.get("schema")
        if isinstance(schema, list) and str(schema[0]).removeprefix("@") in AUTHORS and schema[1] > 0:
            yield schema[0], schema[1]
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _named_schemas(item)


class _Builder:
    """Signs entries when they are asked for, so that messages may name entries of any log."""

    def __init__(self, logs: list[dict[str, Any]], salt: str) -> None:
        self._salt = salt
        self.items: dict[Place, dict[str, Any]] = {}
        self._flavours: dict[tuple[str, int], Flavour] = {}
        self._built: dict[Place, tuple[Entry, bytes]] = {}
        for log in logs:
            _check_keys(log, {"author", "log", "hashes", "entries", "branches"})
            self._flavours[log["author"], log["log"]] = Flavour[log.get("hashes", "yamf").upper()]
            for line in ({"name": "", "from": 1, "entries": log["entries"]}, *log.get("branches", ())):
                _check_keys(line, {"name", "from", "entries"})
                for seq_num, item in enumerate(line["entries"], start=line["from"]):
                    place = Place(log["author"], log["log"], seq_num, line["name"])
                    self.items[place] = {"message": item} if "kind" in item else item
                    _check_keys(self.items[place], _OPTIONS)

    def held(self) -> Iterator[tuple[Place, bytes | None]]:
        """The places whose entries are held, with the payloads that are."""
        for place, item in self.items.items():
            held = item.get("held", "all")
            if held not in _HELD:
                raise ValueError(f"{place}: held is one of {_HELD}")
            if "held_payload" in item:
                yield place, _parse_bytes(item["held_payload"], self.find)
            elif held != "nothing":
                yield place, self._build(place)[1] if held == "all" else None

    def entry(self, place: Place) -> Entry:
        return self._build(place)[0]

    def find(self, name: str) -> bytes:
        """The bytes of a symbol for a key, an identity or an entry."""
        if name.startswith("id:"):
            return identity_of(key_of(name.removeprefix("id:"), self._salt).public)
        match = _ENTRY.fullmatch(name)
        if match is None:
            return key_of(name, self._salt).public
        return hash_entry(self.entry(Place(match[1], int(match[2]), int(match[3]), match[4] or "")))

    def _build(self, place: Place) -> tuple[Entry, bytes]:
        if place not in self._built:
            item = self.items[place]
            if "cbor" in item:
                payload = _parse_bytes(item["cbor"], self.find)
            else:
                payload = cbor.encode(_resolve(item["message"], self.find))
            self._built[place] = self._sign(place, item, payload), payload
        return self._built[place]

    def _sign(self, place: Place, item: Mapping[str, Any], payload: bytes) -> Entry:
        key, seq_num = key_of(place.author, self._salt), place.seq_num
        entry = sign_entry(
            key,
            payload,
            log_id=place.log_id,
            seq_num=seq_num,
            lipmaa_link=self._link(place, lipmaa(seq_num)) if has_lipmaa_link(seq_num) else None,
            backlink=self._link(place, seq_num - 1) if seq_num > 1 else None,
            is_end_of_log=item.get("end", False),
            flavour=self._flavours[place.author, place.log_id],
        )
        if "size" in item:
            honest = encode_varu64(entry.payload_size) + entry.payload_hash
            claimed = encode_varu64(item["size"]) + entry.payload_hash
            unsigned = entry.signed_bytes.removesuffix(honest) + claimed
            entry = decode_entry(unsigned + key.sign(unsigned))
        if "signature" in item:
            entry = decode_entry(entry.signed_bytes + key.sign(b"something else"))
        return entry

    def _link(self, place: Place, seq_num: int) -> Hash:
        target = place._replace(seq_num=seq_num)
        return hash_entry(self.entry(target if target in self.items else target._replace(branch="")))


def _check_keys(item: Mapping[str, Any], allowed: set[str]) -> None:
    if unknown := item.keys() - allowed:
        raise ValueError(f"worlds know no {sorted(unknown)}; perhaps {sorted(allowed)}")


def _resolve(value: Any, find: Find) -> Any:
    """The value with every symbol replaced."""
    if isinstance(value, dict):
        return {key: _resolve(item, find) for key, item in value.items()}
    if isinstance(value, list):
        return [_resolve(item, find) for item in value]
    return _resolve_symbol(value[1:], find) if isinstance(value, str) and value.startswith("@") else value


def _resolve_symbol(name: str, find: Find) -> bytes | str:
    form, _, rest = name.partition(":")
    if form == "hash":
        return hash_yamf(rest.encode())
    if form == "hex":
        return find(rest).hex()
    if form == "repeat":
        times, _, text = rest.partition(":")
        return int(times) * text
    return bytes(find(name))


def _parse_bytes(text: str, find: Find) -> bytes:
    """Bytes in the notation of `cbor`."""
    result = b""
    for part in text.split():
        word, _, times = part.partition("*")
        if word.startswith("@"):
            data = _resolve_symbol(word[1:], find)
            assert isinstance(data, bytes), f"{word} is no bytes"
        elif word.startswith("'"):
            data = cbor.encode(word.strip("'"))
        else:
            data = unhexlify(word)
        result += data * int(times or 1)
    return result


def load_expected(path: Path, world: World) -> list[dict[str, Any]]:
    """The views of an `expected.yaml`, in neutral form."""
    return [_expand(item, world) for item in parse_values(path.read_text())[0]]  # type: ignore[union-attr]


def _expand(item: Any, world: World) -> dict[str, Any]:
    _check_keys(item, {"schema", "version", "rows", "outcomes", "absent", "field_order", "lines"})
    rows = [
        {**(place := _placed(row["instance"], world)), "last_seq_num": place["seq_num"], **row} for row in item["rows"]
    ]
    outcomes = [
        {**_placed(entry, world), "outcome": outcome, "code": code} for entry, outcome, code in item["outcomes"]
    ]
    find = world.symbols.__getitem__
    lines = [[find(first[1:]), _least(last, find)] for first, last in item.get("lines", [])]
    view = neutral({**_resolve({**item, "rows": rows, "outcomes": outcomes}, find), "lines": lines})
    assert isinstance(view, dict)
    return view


def _least(last: str | list[str], find: Find) -> bytes:
    """The last of a line: an entry, or of several the one with the least hash, which differs from salt to salt."""
    return min(find(name[1:]) for name in ([last] if isinstance(last, str) else last))


def _placed(symbol: str, world: World) -> dict[str, Any]:
    if symbol[1:] not in world.symbols or (match := _ENTRY.fullmatch(symbol[1:])) is None:
        raise ValueError(f"no entry of this world: {symbol}")
    return {"author": f"@{match[1]}", "log_id": int(match[2]), "seq_num": int(match[3])}


def neutral(value: Any) -> Any:
    """A value as JSON holds it: bytes as hex, timestamps as rendered, tuples as lists."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Timestamp):
        return render_timestamp(value)
    if isinstance(value, Mapping):
        return {key: neutral(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [neutral(item) for item in value]
    return value


def differences(world: World, actual: Iterable[View], expected: Iterable[View]) -> list[str]:
    """What is wrong with the views that an implementation made of a world, line by line; empty if nothing is."""
    found, wanted = ({_exact(view["schema"]): view for view in neutral(list(views))} for views in (actual, expected))
    lines = [
        f"schema {schema}: {line}"
        for schema in sorted(found | wanted)
        for line in _differences_of_view(found.get(schema, _EMPTY), wanted.get(schema, _EMPTY))
    ]
    names = {value.hex(): f"@{name}" for name, value in world.symbols.items()}
    pattern = re.compile("|".join(names))
    return [pattern.sub(lambda match: names[match[0]], line) for line in lines]


def _differences_of_view(actual: View, expected: View) -> Iterator[str]:
    for key in ("version", "absent"):
        if key in expected and actual.get(key) != expected[key]:
            yield f"{key} is {actual.get(key)}, should be {expected[key]}"
    found, wanted = ({row["instance"]: row for row in view["rows"]} for view in (actual, expected))
    if len(found) != len(actual["rows"]):
        yield "an instance has more than one row"
    for instance in sorted(found.keys() | wanted.keys()):
        if instance not in wanted:
            yield f"row {instance} should not be there"
        elif instance not in found:
            yield f"row {instance} is missing"
        else:
            yield from _differences_of_row(found[instance], wanted[instance], expected.get("field_order"))
    outcomes = [Counter(map(_outcome_line, view["outcomes"])) for view in (actual, expected)]
    yield from (f"outcome that should not be there: {line}" for line in sorted((outcomes[0] - outcomes[1]).elements()))
    yield from (f"outcome that is missing: {line}" for line in sorted((outcomes[1] - outcomes[0]).elements()))
    lines = [sorted(view.get("lines", [])) for view in (actual, expected)]
    if lines[0] != lines[1]:
        yield f"lines are {lines[0]}, should be {lines[1]}"


def _differences_of_row(actual: View, expected: View, field_order: list[str] | None) -> Iterator[str]:
    instance = expected["instance"]
    found, wanted = _columns(actual), _columns(expected)
    for column in sorted(wanted.keys() | {name for name in found if name.startswith("field ")}):
        nothing = "not there" if column.startswith("field ") else "null"
        is_, should = found.get(column, nothing), wanted.get(column, nothing)
        if is_ != should:
            yield f"row {instance}: {column} is {is_}, should be {should}"
    if field_order is not None and list(actual["fields"]) != field_order:
        yield f"row {instance}: the fields come as {list(actual['fields'])}, should come as {field_order}"


def _columns(row: View) -> dict[str, str]:
    columns = {key: value for key, value in row.items() if key != "fields"}
    if (access := row.get("access")) and not access.get("to"):
        columns["access"] = {"mode": access["mode"]}  # whether nobody is listed or there is no list is a matter of form
    columns |= {f"field {name}": value for name, value in row["fields"].items()}
    return {key: _exact(value) for key, value in columns.items()}


def _outcome_line(outcome: View) -> str:
    return "{author}/{log_id}/{seq_num} {outcome} {code}".format_map(outcome)


def _exact(value: Any) -> str:
    """A text that differs wherever values do: 1, 1.0 and true are three."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)

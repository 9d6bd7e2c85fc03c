"""What may be kept, and which fungus takes the rest: a policy, read from settings and checked as a whole.

docs/protocol.md section 9. A limit of 0 is none. A policy is checked before anybody waits for Spark to start.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from inkgrove.core import IdentityId
from inkgrove.core.errors import RotError
from inkgrove.messages import SchemaId, parse_schema_id
from inkgrove.store.rot import SOFT_GUARDS

_SECOND: Final = 1_000_000

FUNGUS_NAMES: Final = ("fifo", "uniform", "anterograde", "area", "egi", "rot", "overexposed", "stratified")
"""The fungi of `pipeline/rot/fungi.py`, which loads Spark: a node checks its policy without it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much may be kept; 0 is no limit."""

    bytes: int = 0
    rows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Budgets, fungi and guards of a run; raises RotError (`rot.bad-policy`) if they make no sense."""

    fungus: str = "rot"
    seed: int = 0
    node: Limits = Limits()
    per_identity: Limits = Limits()
    """Of each owner."""
    per_schema: Limits = Limits()
    identities: Mapping[str, Limits] = field(default_factory=dict)
    """Of single owners, by id in hex, in place of `per_identity`."""
    schemas: Mapping[str, Limits] = field(default_factory=dict)
    """Of single schemas, by AUTHOR/LOG, in place of `per_schema`."""
    fungi: Mapping[str, str] = field(default_factory=dict)
    """Of single schemas."""
    guards: tuple[str, ...] = SOFT_GUARDS
    absence_seconds: int = 30 * 86_400
    """The longest tolerated absence of a peer: how long tombstones and stubs stay at least."""
    cooked_seconds: int = 7 * 86_400
    """How long a cooked copy is remembered before it is a stub."""

    def __post_init__(self) -> None:
        for name in (self.fungus, *self.fungi.values()):
            if name not in FUNGUS_NAMES:
                raise RotError("rot.bad-policy", f"{name!r} is no fungus; there are: {', '.join(FUNGUS_NAMES)}")
        for name in self.guards:
            if name not in SOFT_GUARDS:
                raise RotError(
                    "rot.bad-policy", f"{name!r} is no guard that can be chosen; there are: {', '.join(SOFT_GUARDS)}"
                )
        for limits in (
            self.node,
            self.per_identity,
            self.per_schema,
            *self.identities.values(),
            *self.schemas.values(),
        ):
            if min(limits.bytes, limits.rows) < 0:
                raise RotError("rot.bad-policy", "a limit is at least 0, which is none")
        if min(self.absence_seconds, self.cooked_seconds) < 0:
            raise RotError("rot.bad-policy", "a time is at least 0 seconds")
        for text in (*self.schemas, *self.fungi):
            parse_schema(text)
        for text in self.identities:
            parse_identity(text)

    @property
    def absence(self) -> int:
        """In microseconds."""
        return self.absence_seconds * _SECOND

    @property
    def cooked(self) -> int:
        """In microseconds."""
        return self.cooked_seconds * _SECOND

    def render(self) -> str:
        """The policy as JSON, which a run stores."""
        return json.dumps(asdict(self), sort_keys=True)


def restore_policy(text: str) -> Policy:
    """The policy from `Policy.render`."""
    values: dict[str, Any] = json.loads(text)
    for name in ("node", "per_identity", "per_schema"):
        values[name] = Limits(**values[name])
    for name in ("identities", "schemas"):
        values[name] = {key: Limits(**limits) for key, limits in values[name].items()}
    values["guards"] = tuple(values["guards"])
    return Policy(**values)


def parse_schema(text: str) -> SchemaId:
    """Parse `AUTHOR/LOG`; raises `rot.bad-policy` if the text is anything else."""
    schema = parse_schema_id(text)
    if schema is None:
        raise RotError("rot.bad-policy", f"{text[:80]!r} is no schema: write AUTHOR/LOG")
    return schema


def parse_identity(text: str) -> IdentityId:
    """The identity of an id in hex; raises RotError."""
    try:
        found = bytes.fromhex(text)
    except ValueError:
        found = b""
    if len(found) != 32:
        raise RotError("rot.bad-policy", f"{text[:80]!r} is no id of an identity: write its 64 hex characters")
    return IdentityId(found)


def parse_rules(text: str, allowed: Sequence[str]) -> dict[str, str]:
    """The rules of a text like `bytes=1000000 rows=500 fungus=fifo`, by name; raises RotError."""
    rules: dict[str, str] = {}
    for part in text.split():
        name, found, value = part.partition("=")
        if not found or name not in allowed or name in rules:
            raise RotError(
                "rot.bad-policy",
                f"{part[:80]!r} is no rule: write {', '.join(f'{item}=...' for item in allowed)}, each once",
            )
        rules[name] = value
    return rules


def limits_of(rules: Mapping[str, str]) -> Limits:
    """The numbers among rules."""
    return Limits(*(_number(name, rules.get(name, "0")) for name in ("bytes", "rows")))


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise RotError("rot.bad-policy", f"{name}={text[:40]} is no whole number")
    return int(text)


def named_limits(table: Mapping[str, str], allowed: Sequence[str]) -> Iterator[tuple[str, Limits, str | None]]:
    """Of a table of rules: the name of each, its limits and its fungus."""
    for name, text in table.items():
        rules = parse_rules(text, allowed)
        yield name, limits_of(rules), rules.get("fungus")

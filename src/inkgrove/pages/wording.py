"""Wording of pages: times, numbers, values, access, migrations and grants as text for people."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from inkgrove.messages import SchemaMeta, SchemaMigration, SchemaRevert, Timestamp, Unset, value_to_json
from inkgrove.node.identity import ACTIONS, RELATIONS_READ, SchemaScope, parse_scope
from inkgrove.node.runtime import Node
from inkgrove.node.services import find_schema_meta
from inkgrove.schema import Field, FieldUpdate, Version

FOR_TEMPLATES: Final = ("ago", "moment", "count", "plural", "short", "cell", "access_words", "rate_words", "sentence")
_STEPS: Final = ((86_400 * 2, 86_400, "day"), (3_600 * 2, 3_600, "hour"), (60 * 2, 60, "minute"), (0, 1, "second"))
_ACCESS: Final = {
    "self": "only its owner",
    "closed": "only those it names and was sent to",
    "listed": "those it was sent to",
    "relations": "its owner’s followers",
    "public": "everybody",
}
DOES: Final = {
    "read": "see all of it that you can see",
    "create": "add to it in your name, and pass on what it can see",
    "update": "change what is yours, and share it",
    "delete": "delete what is yours",
}
DID: Final = {
    "read": "read",
    "create": "wrote to",
    "update": "changed",
    "delete": "deleted from",
    "share": "shared from",
    "pass-on": "passed on from",
    "upload": "uploaded",
    "download": "downloaded",
}


def ago(then: int | None, now: int) -> str:
    """Render how long ago `then` was; both times are microseconds, and None is never."""
    if then is None:
        return "never"
    seconds = max(0, (now - then) // 1_000_000)
    if seconds < 2:
        return "just now"
    size, name = next((size, name) for least, size, name in _STEPS if seconds >= least)
    return f"{plural(seconds // size, name)} ago"


def moment(microseconds: int) -> str:
    """Render a time to the second, in UTC."""
    return str(Timestamp(microseconds - microseconds % 1_000_000)).replace("T", " ").replace("Z", " UTC")


def count(number: int | None) -> str:
    """Render a number with separators; None is a dash."""
    return "–" if number is None else f"{number:,}"


def plural(number: int, noun: str) -> str:
    """Render a number with its noun: `1 row`, `2 rows`."""
    ending = "" if number == 1 else "s"
    noun = f"{noun[:-1]}ie" if ending and noun.endswith(("ry", "py")) else noun
    return f"{number:,} {noun}{ending}"


def rate_words(rate: float | None) -> str:
    """Render how many there are a second; None is not measured yet."""
    return "not measured yet" if rate is None else f"{rate:,.0f} a second"


def sentence(text: str) -> str:
    """Render a reason as a sentence: with a capital and a full stop."""
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', '!', '?')) else '.'}"


def short(text: object, length: int = 8) -> str:
    """Render a long id by its beginning and its end."""
    plain_text = text.hex() if isinstance(text, bytes) else str(text)
    return plain_text if len(plain_text) <= 2 * length else f"{plain_text[:length]}…{plain_text[-4:]}"


def cell(value: Any, length: int = 120) -> str:
    """Render a value for a table, cut after `length` characters."""
    text = render_value(value)
    return text if len(text) <= length else f"{text[:length]}…"


def render_value(value: Any) -> str:
    """Render a whole value of a field."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Timestamp):
        return moment(value.microseconds) if not value.microseconds % 1_000_000 else str(value)
    if isinstance(value, bytes):
        return short(value)
    if isinstance(value, Mapping):
        shown = value_to_json(value)
        if {"hash", "size"} <= shown.keys():
            return f"{shown.get('type') or 'file'}, {shown['size']:,} bytes"
        return json.dumps(shown, ensure_ascii=False)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(render_value, value)) or "none"
    return str(value)


def access_words(access: Any) -> str:
    """Render who may see a row."""
    return _ACCESS["listed" if access is None else access.mode]


# Schemas


def title_of_version(version: Version) -> str:
    """Render in a few words what a version does."""
    message = version.message
    if isinstance(message, SchemaRevert):
        return f"Goes back to version {message.target}"
    if isinstance(message, SchemaMeta):
        return "Names the schema" if version.number == 1 else "Describes the schema anew"
    assert isinstance(message, SchemaMigration)
    return "Changes fields" if version.updated or version.removed else "Adds fields"


def steps_of(version: Version) -> list[str]:
    """Render what a version does in sentences, one for each field."""
    message = version.message
    if isinstance(message, SchemaRevert):
        return [
            f"The fields are those of version {message.target} again. Messages of the versions in between are kept but"
            " count no more, unless a later version goes back to them."
        ]
    if isinstance(message, SchemaMeta):
        about = f": {message.description}" if message.description else ""
        return [f"It is called {message.name}{about}."]
    steps = [f"Adds {_describe_field(field)}{_describe_default(default)}." for field, default in version.created]
    steps += [_describe_update(update) for update in version.updated]
    steps += [f"Removes {field.name}; its values stay in the logs." for field in version.removed]
    return steps


def _describe_field(field: Field) -> str:
    pattern = f" matching {field.validation}" if field.validation is not None else ""
    return f"{field.name}, {_describe_type(field)}{pattern}"


def _describe_type(field: Field) -> str:
    if field.type.endswith("[]"):
        kind = f"a list of {field.type[:-2]}"
    else:
        kind = f"{'an' if field.type[0] in 'aeio' else 'a'} {field.type}"
    return f"{kind} that takes the row with it when its target goes" if field.cascade else kind


def _describe_default(default: Any) -> str:
    return "" if default is None else f"; rows from before have {render_value(default)!r}"


def _describe_update(update: FieldUpdate) -> str:
    before, after = update.before, update.after
    changes = []
    if before.type != after.type:
        changes.append(f"from {before.type} to {after.type}")
    if before.validation != after.validation:
        pattern = "any value again" if after.validation is None else f"only values that match {after.validation}"
        changes.append(f"to take {pattern}")
    if before.schema != after.schema:
        changes.append("to point to another schema")
    if before.cascade != after.cascade:
        changes.append("to go with its target" if after.cascade else "to stay when its target goes")
    default = "nothing" if update.default is None or isinstance(update.default, Unset) else repr(update.default)
    told = " and ".join(changes) or "in nothing that shows"
    return f"Changes {after.name} {told}. Where an older value does not fit, {default} stands in."


# Services


def describe_grant(node: Node, scopes: str) -> list[str]:
    """Render what the scopes of a grant let a service do, a line for each schema."""
    found: dict[str, list[str]] = {}
    relations = False
    for text in scopes.split():
        scope = parse_scope(text)
        if isinstance(scope, SchemaScope):
            found.setdefault(str(scope.schema), []).append(scope.action)
        relations |= scope == RELATIONS_READ
    told = []
    for schema, actions in found.items():
        does = [DOES[action] for action in sorted(actions, key=list(ACTIONS).index)]
        told.append(f"{schema_name(node, schema)}: {', '.join(does)}")
    return [*told, *(["see whom you follow and who follows you"] if relations else [])]


def schema_name(node: Node, schema: str | None) -> str:
    """Return the name of a schema, or a short form of its id if it has none here."""
    if schema is None:
        return "your relations"
    scope = parse_scope(f"schema:{schema}:read")
    assert isinstance(scope, SchemaScope)
    meta = find_schema_meta(node, scope.schema)
    return meta.name if meta is not None else f"{short(scope.schema.author)}/{scope.schema.log_id}"


KEY_STATES: Final = {
    "key.counts": "yours",
    "key.ended": "revoked: it counts up to the ends that you have set",
    "key.unclaimed": "not yours yet: it has not said that it is, or that has not arrived",
    "key.contested": "nobody's: it has named two identities, so whoever has it may be a thief",
}
"""What the state of a key in one's own document means."""
DOCUMENT_STATES: Final = {
    "document.in-effect": "in effect",
    "document.replaced": "replaced by a newer one",
    "document.overruled": "overruled",
    "document.waits": "waits for what it stands under",
}
"""What the state of an identity document means."""
IDENTITY_STATES: Final = {
    "identity.forked": "forked: nothing counts from the fork on",
    "identity.words-used-twice": "the words were used twice: the longer branch counts",
}
"""What a fork of log 0 of a first key means."""

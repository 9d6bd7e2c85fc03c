"""Writes the reference pages that follow from the code: errors, outcomes, commands, settings, HTTP, glossary; --check compares."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

os.environ["TERMINAL_WIDTH"] = os.environ["COLUMNS"] = "80"

import typer

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from inkgrove.api.app import make_app
from inkgrove.cli.main import app
from inkgrove.client import errors as _client_errors  # noqa: F401
from inkgrove.core import errors
from inkgrove.core.errors import InkgroveError
from inkgrove.federation import errors as _federation_errors  # noqa: F401
from inkgrove.messages import Outcome, OutcomeCode
from inkgrove.node import errors as _node_errors  # noqa: F401
from inkgrove.node.runtime import Node
from inkgrove.node.settings import NodeSettings
from inkgrove.settings import all_settings, sections
from scripts import make_glossary
from scripts.outcome_examples import CONTROL_STATES, OUTCOMES, SCHEMA_ENDS


def error_page() -> str:
    lines = [
        "# Error codes",
        "",
        "Everything that Inkgrove refuses has a code that never changes its meaning. Commands print it in brackets,",
        "and with `--json` as `code`. What became of a message in a view is told by [outcomes](outcomes.md).",
        "A [delivery](federation.md#what-is-sent) that the other node refused has the code that its node gave, or `http.STATUS` if that",
        "refused the whole request with this status, such as `http.413`.",
        "",
        "The status is that of the HTTP answer, where a node answers with the code at all.",
        "",
        "This page is made from `core/errors.py`, `node/errors.py`, `federation/errors.py` and `client/errors.py` by `scripts/make_docs.py`.",
    ]
    sections: dict[str, list[type[InkgroveError]]] = {}
    # By module: else the order would be that in which they are loaded.
    for family in sorted(InkgroveError.__subclasses__(), key=lambda family: family.__module__):
        if family.codes:
            sections.setdefault(family.codes[0].name.partition(".")[0], []).append(family)
    for prefix, families in sections.items():
        lines += ["", f"## {prefix}.\\*"]
        for family in families:
            lines += ["", family.__doc__ or "", "", "| code | status | meaning | what to do |", "|---|---|---|---|"]
            lines += [f"| `{item.name}` | {item.status} | {item.sentence} | {item.advice} |" for item in family.codes]
    return "\n".join(lines) + "\n"


def outcome_page() -> str:
    lines = [
        "# Outcomes",
        "",
        "What became of a message. Every message whose payload is held has exactly one outcome, and a code that says why.",
        "The rules, in the order in which they are asked, are in [section 6 of the protocol](protocol.md#outcomes).",
        "The examples are real: each names a world under `tests/vectors/views` that the tests hold every implementation to.",
        "",
        "This page is made from `messages/outcomes.py` by `scripts/make_docs.py`.",
    ]
    for outcome, about in OUTCOME_SENTENCES.items():
        lines += ["", f"## {outcome.value}", "", about, "", "| code | meaning | example | world |", "|---|---|---|---|"]
        for item in OutcomeCode:
            if item.outcome is outcome:
                lines.append(_example_row(item.code, item.meaning, *OUTCOMES[item.code]))
        if outcome is Outcome.QUARANTINED:
            lines += [
                _example_row("cbor.*, message.*", MALFORMED, "A payload of NaN.", "malformed-cbor-is-quarantined"),
                _example_row("log.forked", FORKED, "Two entries 3.", "fork-takes-back-what-later-entries-did"),
                _example_row("log.invalid-since", LIED, "7 for 8.", "size-lie-makes-the-log-invalid-from-there"),
            ]
    lines += [
        "",
        "## Identity documents, keys and identities",
        "",
        STATES,
        "",
        "| code | meaning | world |",
        "|---|---|---|",
    ]
    for state, (meaning, world) in CONTROL_STATES.items():
        lines.append(f"| `{state}` | {meaning} | [`{world}`](../tests/vectors/views/{world}/world.yaml) |")
    lines += [
        "",
        "## What ends a schema",
        "",
        "An entry of a schema's log that is invalid ends the schema at the version before, for good; messages that name it",
        "or a later version are quarantined. So try a migration with `inkgrove schema lint` before publishing it;",
        "`inkgrove schema migrate` refuses to sign an invalid one. Malformed messages (`cbor.*`, `message.*`) end it too.",
        "",
        "| code | meaning | example | world |",
        "|---|---|---|---|",
    ]
    lines += [_example_row(e.name, e.sentence, *SCHEMA_ENDS[e.name]) for e in errors.SchemaError.codes]
    return "\n".join(lines) + "\n"


STATES = (
    "Messages of log 0 have states instead ([section 7.2](protocol.md#log-0)), and so have keys and identities: `GET /identities/{name}/documents` and `GET /identities/{name}` show them, "
    "and so do the pages of an account and of log 0."
)
OUTCOME_SENTENCES = {
    Outcome.APPLIED: "The message did what it says.",
    Outcome.PENDING: "Something it needs is not here yet. It is looked at again whenever that changes.",
    Outcome.QUARANTINED: "It is wrong and has no effect. Its entry stays stored and replicated.",
    Outcome.OBSOLETE: "It is right, and has no effect any more.",
}
MALFORMED = "The payload is no message; the code is that of the [error](errors.md)."
FORKED = "The log is forked at or before this entry. Deletes still count."
LIED = "The author lied about the size of a payload at or before this entry. Deletes still count."


def _example_row(code: str, meaning: str, example: str, world: str) -> str:
    assert (ROOT / "tests" / "vectors" / "views" / world).is_dir(), world
    return f"| `{code}` | {meaning} | {example} | [`{world}`](../tests/vectors/views/{world}/world.yaml) |"


def command_page() -> str:
    lines = [
        "# Commands",
        "",
        "Every command takes `--json` for programs and `--help`. Exit codes: 0 done, 1 the input is not valid or the",
        "work could not be done, 2 the command was misused. Errors are one line on standard error, with a [code](errors.md) in brackets.",
        "",
        "`inkgrove --install-completion` lets your shell (bash, zsh, fish) complete commands and options.",
        "",
        "This page is made from the command's own help by `scripts/make_docs.py`.",
    ]
    for path, command in commands(typer.main.get_command(app), ["inkgrove"]):
        context = command.make_context(path[-1], [], resilient_parsing=True)
        context.info_name = " ".join(path)
        lines += ["", f"## {' '.join(path)}", "", "```text", command.get_help(context).rstrip(), "```"]
    return "\n".join(line.rstrip() for line in "\n".join(lines).splitlines()) + "\n"


def settings_page() -> str:
    lines = [
        "# Settings",
        "",
        "Set in `inkgrove.toml` in the home directory (or the file that `--config` or `INKGROVE_CONFIG` names), over that by a variable of",
        "the environment, over that by a flag: `--home` and `--store` of most commands, and `inkgrove --set NAME=VALUE COMMAND` for any.",
        "`inkgrove settings` shows what is in effect and where it came from. A name that does not exist is an error",
        "(`settings.unknown`), and so is a value of the wrong type (`settings.invalid`).",
        "",
        "```toml",
        'store = "postgresql://inkgrove@db.example/inkgrove"',
        "",
        "[spark]",
        'master = "spark://spark.example:7077"',
        'memory = "4g"',
        "",
        "[spark.conf]",
        '"spark.cores.max" = "16"',
        "```",
        "",
        "The variable of a setting is `INKGROVE_` and its name in capitals, with `_` for each dot. There and behind `--set`, a table is written",
        'on one line: `{"spark.cores.max" = "16"}`. In a file, a path is relative to the file.',
        "",
        "This page is made from `settings.py` by `scripts/make_docs.py`.",
    ]
    for section, about in sections().items():
        lines += ["", f"## {section or 'Everywhere'}", "", about, ""]
        lines += ["| setting | type | default | meaning |", "|---|---|---|---|"]
        for item in all_settings().values():
            if item.name.rpartition(".")[0] == section:
                default = "" if item.default in (None, {}) else f"`{item.default}`"
                lines.append(f"| `{item.name}`<br>`{item.variable}` | {item.kind_name} | {default} | {item.about} |")
    return "\n".join(lines) + "\n"


def http_page() -> str:
    with TemporaryDirectory() as home:
        node = Node(Path(home), NodeSettings(), home=Path(home))
        document = make_app(node).openapi()
        node.close()
    lines = [
        "# HTTP",
        "",
        "Every route of a node. The same as OpenAPI, with the form of every body and answer: `GET /openapi.json`.",
        "",
        "- Send a token as `Authorization: Bearer TOKEN`: that of `POST /sessions`, or the access token of a service.",
        "- Bodies are strict JSON (no NaN, no key twice, 64 levels, UTF-8) unless a route says otherwise.",
        "- HEAD works wherever GET does; OPTIONS and 405 say which methods there are.",
        "- Refusals are problem details (RFC 9457): `type`, `title`, `status`, `code`, `detail`. The [codes](errors.md) never",
        "  change their meaning. Any request can meet " + _codes(_common(document)) + ".",
        "- Every answer has `X-Request-Id`, the client's own if it sent one; the node's log has it too.",
        "",
        "This page is made from the OpenAPI document by `scripts/make_docs.py`.",
    ]
    tag = None
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if operation["tags"][0] != tag:
                tag = operation["tags"][0]
                lines += ["", f"## {tag.capitalize()}"]
            lines += [
                "",
                f"### {method.upper()} {path}",
                "",
                operation["description"],
                "",
                *_details(document, operation),
            ]
    return "\n".join(lines) + "\n"


def _details(document: dict[str, Any], operation: dict[str, Any]) -> Iterator[str]:
    for parameter in operation.get("parameters", []):
        about = parameter.get("description") or parameter["schema"].get("description", "")
        yield f"- {parameter['in']} `{parameter['name']}`{': ' + about if about else ''}"
    for media_type, content in operation.get("requestBody", {}).get("content", {}).items():
        schema = document["components"]["schemas"].get(content.get("schema", {}).get("$ref", "").rpartition("/")[2], {})
        needed = set(schema.get("required", []))
        names = ", ".join(f"`{name}`" + ("" if name in needed else "?") for name in schema.get("properties", {}))
        about = operation["requestBody"].get("description", "")
        yield f"- body `{media_type}`" + (f": {names}" if names else "") + (f": {about}" if about else "")
    common = _common(document)
    for status, answer in operation["responses"].items():
        if int(status) < 400:
            yield f"- {status}: {answer['description']}"
        elif codes := [code for code in _problem_codes(answer) if code not in common]:
            yield f"- {status}: {_codes(codes)}"


def _common(document: dict[str, Any]) -> list[str]:
    """What every operation can answer, and what everyone that takes a body or a token can."""
    found = dict.fromkeys(
        code
        for path in ("/blobs", "/sessions")
        for answer in document["paths"][path]["post"]["responses"].values()
        for code in _problem_codes(answer)
        if code.startswith(("request.", "store.")) or code == "auth.bad-token"
    )
    return sorted(found)


def _problem_codes(answer: dict[str, Any]) -> list[str]:
    return list(answer.get("content", {}).get("application/problem+json", {}).get("examples", {}))


def _codes(codes: list[str]) -> str:
    return ", ".join(f"`{code}`" for code in codes)


def commands(command: Any, path: list[str]) -> Iterator[tuple[list[str], Any]]:
    if not hasattr(command, "commands"):
        yield path, command
        return
    for name, inner in command.commands.items():
        yield from commands(inner, [*path, name])


def main() -> int:
    pages = {
        "errors.md": error_page(),
        "outcomes.md": outcome_page(),
        "commands.md": command_page(),
        "settings.md": settings_page(),
        "http.md": http_page(),
        "glossary.md": make_glossary.make_page(),
    }
    stale = [
        name for name, text in pages.items() if not (path := ROOT / "docs" / name).exists() or path.read_text() != text
    ]
    if "--check" in sys.argv:
        print("".join(f"docs/{name} is not what the code says; run make docs\n" for name in stale), end="")
        return int(bool(stale))
    for name in stale:
        (ROOT / "docs" / name).write_text(pages[name])
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The OpenAPI document is complete, and true: nothing that schemathesis sends gets an answer that it does not name."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from inkgrove.api.http.problems import MEDIA_TYPE, status_of
from inkgrove.core.errors import CODES, InkgroveError
from inkgrove.node.runtime import Node
from inkgrove.node.settings import NodeSettings
from inkgrove.store.logs import register_schema
from tests.support.node_processes import Serving
from tests.support.nodes import PASSWORD
from tests.support.plain_views import build_views
from tests.support.publishing import create, make_schema, schema_id
from tests.support.tiers import IS_THOROUGH, amount

CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,"
    "response_headers_conformance"
)

KNOWN = "^/(views|instances|schemas|blobs|identities)"
READ = {
    "/views",
    "/views/{schema}",
    "/views/{author}/{log_id}",
    "/views/{schema}/outcomes",
    "/views/{author}/{log_id}/outcomes",
    "/views/{schema}/summary",
    "/views/{author}/{log_id}/summary",
    "/instances/{instance}",
    "/instances/{instance}/history",
    "/instances/{instance}/proof",
    "/schemas/{author}/{log_id}",
    "/blobs/{hash}",
    "/identities/{name}",
}
PUBLIC = {"mode": "public"}


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    settings = {"registration": "open", "domains": "haiku.ink", "metrics": "local", "body_seconds": "5"}
    settings["log_level"] = "warning"
    with Serving(tmp_path_factory.mktemp("openapi"), settings) as node:
        yield node


@pytest.fixture(scope="module")
def tokens(serving: Serving) -> dict[str, str]:
    """Of Jane, who tries everything, and of Carol, who reads."""
    found = {}
    for name in ("jane", "carol"):
        facts = {"fqdn": f"{name}.haiku.ink", "password": f"not the one of the examples {PASSWORD}"}
        assert serving.client.post("/identities", json=facts).status_code == 201
        found[name] = serving.client.post("/sessions", json=facts).json()["token"]
    return found


@pytest.fixture(scope="module")
def document(serving: Serving) -> dict[str, Any]:
    found: dict[str, Any] = serving.client.get("/openapi.json").json()
    return found


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            yield f"{method.upper()} {path}", operation


@pytest.fixture(scope="module")
def filled(serving: Serving, tokens: dict[str, str]) -> Path:
    """A file that names what the node holds now: a view as the examples in the document have it, a row, a blob."""
    with httpx.Client(
        base_url=serving.url, headers={"Authorization": f"Bearer {tokens['carol']}"}, timeout=60
    ) as carol:
        author = carol.get("/me").json()["key"]
        people = make_schema(carol, "people", [{"name": {"action": "create", "type": "text"}}])
        fields = {"subject": "text", "body": "text", "created": "timestamp", "attachment": "blob"}
        changes: list[dict[str, Any]] = [{name: {"action": "create", "type": kind}} for name, kind in fields.items()]
        changes.append({"recipient": {"action": "create", "type": "relation", "schema": people}})
        mails = make_schema(carol, "slothmail", changes)
        person = create(carol, people, fields={"name": "John"}, access=PUBLIC)["instance"]
        blob = carol.post("/blobs", content=b"leaf", headers={"Content-Type": "text/plain"}).json()
        content = {"subject": "Hello", "created": "2020-05-22T11:58:50Z", "attachment": blob, "recipient": person}
        mail = create(carol, mails, fields=content, access=PUBLIC)["instance"]
    node = Node(serving.home, NodeSettings(), home=serving.home)
    for schema in (people, mails):
        node.store.write(register_schema, schema_id(schema))
    build_views(node)
    node.close()
    names = {"schema": "slothmail", "author": author, "instance": mail, "hash": blob["hash"], "name": "carol.haiku.ink"}
    lines = [f'"path.{name}" = "{value}"' for name, value in names.items()]
    config = serving.home / "filled.toml"
    config.write_text("\n".join(["[parameters]", *lines, f'"path.log_id" = {mails.partition("/")[2]}', ""]))
    return config


def schemathesis(
    serving: Serving, token: str | None, *options: str, seconds: int = 45, config: Path | None = None
) -> None:
    """Runs the real command, deterministically and for a bounded time."""
    command = [sys.executable, "-m", "schemathesis.cli", "--no-color"]
    command += [] if config is None else ["--config-file", str(config)]
    command += ["run", f"{serving.url}/openapi.json"]
    command += [
        "--checks",
        CHECKS,
        "--seed",
        "1",
        "--generation-deterministic",
        "--max-time",
        str(seconds),
        "--max-examples",
        "15",
    ]
    command += ["--phases", "examples,coverage,fuzzing", "--no-shrink", "--warnings", "off"]
    command += ["--suppress-health-check", "all", *options]
    if token is not None:
        command += ["--header", f"Authorization: Bearer {token}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=150, cwd=serving.home)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert "Traceback" not in serving.log(), serving.log()[-4000:]


def test_signed_in_client_meets_no_5xx_and_no_undocumented_answer(
    serving: Serving, tokens: dict[str, str], filled: Path
) -> None:
    # Signing out would leave nothing but 401 to be seen behind it. What nodes send each other is signed CBOR, which the
    # tool cannot write; tests/federation sends it what is wrong.
    left = ("--exclude-path-regex", "^(/sessions/(current|{session})|/federation/.*)$")
    # In the first tier it finds what the next two look at in the second.
    schemathesis(serving, tokens["jane"], *left, seconds=amount(20, 45), config=None if IS_THOROUGH else filled)
    answer = serving.client.get("/me", headers={"Authorization": f"Bearer {tokens['jane']}"})
    assert answer.status_code == 200, "still signed in, so all of it was"


@pytest.mark.thorough
def test_unknown_client_meets_no_5xx_and_no_undocumented_answer(serving: Serving, filled: Path) -> None:
    # Before the next one, which may change who sees the row and what it attaches.
    before = count_answers(serving)
    left = ("--exclude-path-regex", "(/changes|/federation/.*)$")
    schemathesis(serving, None, "--include-path-regex", f"{KNOWN}|^/sessions", *left, config=filled)
    assert answered_well(serving, before) >= READ


@pytest.mark.thorough
def test_reader_meets_no_5xx_and_no_undocumented_answer(serving: Serving, tokens: dict[str, str], filled: Path) -> None:
    before = count_answers(serving)
    # What ends rows or keys would leave nothing behind it to be seen; a stream of changes never ends.
    left = ("--exclude-method", "DELETE", "--exclude-path-regex", "(/changes|/federation/.*)$")
    schemathesis(serving, tokens["carol"], "--include-path-regex", KNOWN, *left, seconds=25, config=filled)
    assert answered_well(serving, before) >= READ


def count_answers(serving: Serving) -> dict[tuple[str, int], int]:
    """How many answers each route with GET has given, by status."""
    found = re.findall(
        r'^inkgrove_http_requests_total{method="GET",route="([^"]*)",status="(\d+)"} (\d+)',
        serving.client.get("/metrics").text,
        re.MULTILINE,
    )
    return {(route, int(status)): int(count) for route, status, count in found}


def answered_well(serving: Serving, before: dict[tuple[str, int], int]) -> set[str]:
    """The routes that have answered 200 meanwhile."""
    now = count_answers(serving)
    return {route for (route, status), count in now.items() if status == 200 and count > before.get((route, 200), 0)}


def test_every_operation_documents_what_any_request_can_meet(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1")
    for name, operation in operations(document):
        statuses = set(operation["responses"])
        assert {"400", "431", "500", "503"} <= statuses, name
        if "requestBody" in operation:
            assert {"408", "413", "415"} <= statuses, name
        if "security" in operation:
            assert "401" in statuses, name
        assert operation["description"], name


def test_every_refusal_is_a_problem_with_an_example_of_its_code(document: dict[str, Any]) -> None:

    for name, operation in operations(document):
        for status, answer in operation["responses"].items():
            if int(status) < 400:
                continue
            if answer["content"].keys() == {"text/html"}:
                continue  # a page for people
            is_oauth = answer["content"].keys() == {"application/json"}
            content = answer["content"]["application/json" if is_oauth else MEDIA_TYPE]
            assert content["schema"] == {"$ref": "#/components/schemas/Problem"}, name
            assert content["examples"], name
            for code, example in content["examples"].items():
                assert example["value"]["code"] == code
                assert example["value"]["status"] == int(status) == CODES[code].status, f"{name} {code}"
                assert f"`{code}`" in answer["description"], name


def test_bodies_have_examples(document: dict[str, Any]) -> None:
    for name, operation in operations(document):
        for media_type, content in operation.get("requestBody", {}).get("content", {}).items():
            if media_type == "*/*":
                continue
            assert "example" in json.dumps(resolved(document, content)), f"{name} {media_type}"


def test_what_can_be_repeated_by_key_says_so(document: dict[str, Any]) -> None:
    keyed = {
        name
        for name, operation in operations(document)
        if "Idempotency-Key" in {item["name"] for item in operation.get("parameters", ())}
    }
    assert keyed == {
        "POST /schemas",
        "POST /schemas/{author}/{log_id}/versions",
        "POST /instances",
        "PATCH /instances/{instance}",
        "PUT /instances/{instance}",
        "DELETE /instances/{instance}",
        "POST /instances/{instance}/copy",
        "POST /instances/{instance}/share",
        "POST /instances/{instance}/pass-on",
    }


def test_security_schemes_are_documented(document: dict[str, Any]) -> None:
    schemes = document["components"]["securitySchemes"]
    assert schemes["session"]["scheme"] == "bearer"
    assert schemes["service"]["flows"]["authorizationCode"]["tokenUrl"] == "/oauth/token"
    assert document["paths"]["/blobs"]["post"]["security"] == [{}, {"session": []}, {"service": []}]
    assert "security" not in document["paths"]["/healthz"]["get"]


def resolved(document: dict[str, Any], content: dict[str, Any]) -> list[Any]:
    """The content with the schema that it points to."""
    reference = content.get("schema", {}).get("$ref", "")
    return [content, document["components"]["schemas"].get(reference.rpartition("/")[2])]


def test_problem_without_a_table_entry_is_a_422() -> None:
    assert status_of(InkgroveError("odd.reason", "nobody gave this a status")) == 422

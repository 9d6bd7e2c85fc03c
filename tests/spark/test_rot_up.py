"""The commands of rot as processes: a plan, `inkgrove up` that lets copies rot by itself, a report and a summary."""

import json
from pathlib import Path
from typing import Any

from inkgrove.messages.ids import SchemaId, SchemaVersion
from inkgrove.messages.instance import Create
from inkgrove.messages.message import encode_message
from inkgrove.messages.schema import FieldChange, SchemaMeta, SchemaMigration
from inkgrove.store.opening import open_store
from inkgrove.store.rot_runs import list_runs
from inkgrove.store.view_store import open_views
from tests.support.logs import LogBuilder, key
from tests.support.node_processes import Serving
from tests.support.processes import running, wait_until
from tests.support.views import Stores, materialised

NOTES = SchemaId(key(90).public, 3)


def ask(home: Path, *arguments: str) -> dict[str, Any]:
    """What a command answers."""
    with running(*arguments, "--home", str(home), "--json") as process:
        out, err = process.communicate(timeout=180)
    assert process.returncode == 0, err
    answer: dict[str, Any] = json.loads(out)
    return answer


def take_in(home: Path) -> Stores:
    """Five notes of somebody else, with one to five stars."""
    stores = Stores(open_store(home), open_views(home))
    schema, notes = LogBuilder(key(90), log_id=3), LogBuilder(key(1), log_id=4)
    for message in (SchemaMeta("notes"), SchemaMigration((FieldChange("stars", "create", "integer"),))):
        schema.append(encode_message(message))
    for stars in range(1, 6):
        notes.append(encode_message(Create(SchemaVersion(*NOTES, 2), {"stars": stars})))
    for log in (schema, notes):
        stores.store.ingest([(e.encoded, payload) for e, payload in zip(log.entries, log.payloads, strict=True)])
    stores.store.register(NOTES)
    return stores


def test_what_is_planned_is_done_on_schedule_and_summed_up(tmp_path: Path) -> None:
    (tmp_path / "inkgrove.toml").write_text('[rot]\nrows = 3\nfungus = "fifo"\nguards = []\nevery_seconds = 1\n')
    stores = take_in(tmp_path)
    plan = ask(tmp_path, "rot", "plan")
    size = plan["freed"]
    move = {"step": "full", "to_step": "cooked", "why": "node rows", "copies": 2, "bytes": size}
    assert (plan["moves"], plan["before"]["full"]["copies"]) == ([move], 5)

    def count_done() -> int:
        runs = stores.store.database.read(list_runs)
        return sum(run.state == "done" for run in runs)

    def count_shown() -> int | None:
        view = stores.views.views().get(NOTES)
        return len(materialised(stores)[NOTES]["rows"]) if view is not None and view.is_built else None

    with Serving(tmp_path, command="up") as up:
        wait_until(lambda: count_done() >= 2, seconds=300)
        wait_until(lambda: count_shown() == 3, seconds=120)
        assert up.stop() == 0, up.log()
    report = ask(tmp_path, "rot", "report")
    assert {step: facts["copies"] for step, facts in report["steps"].items()} == {"full": 3, "cooked": 2}
    assert [(run["moved"], run["freed"]) for run in report["runs"][:2]] == [(2, size), (0, 0)]
    first = report["runs"][0]
    assert first["bytes_before"] - first["bytes_after"] == size

    summary = ask(tmp_path, "summary", "notes")
    counts = {part: summary[part]["fields"]["stars"]["count"] for part in ("exact", "cooked", "together")}
    sums = {part: summary[part]["fields"]["stars"]["sum"] for part in ("exact", "cooked", "together")}
    assert counts == {"exact": 3, "cooked": 2, "together": 5}
    assert sums == {"exact": 12.0, "cooked": 3.0, "together": 15.0}
    stores.store.close()
    stores.views.close()

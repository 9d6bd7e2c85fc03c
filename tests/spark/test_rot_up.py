"""`inkgrove up` lets copies rot by itself; views, report and summary follow."""

import json
from pathlib import Path
from typing import Any

import pytest

from inkgrove.cli.main import main
from inkgrove.messages import Create, FieldChange, SchemaId, SchemaMeta, SchemaMigration, SchemaVersion, encode_message
from inkgrove.store.logs import open_store, register_schema
from inkgrove.store.rot import list_rot_runs
from inkgrove.store.views import open_views
from tests.support.logs import LogBuilder, key
from tests.support.node_processes import Serving
from tests.support.processes import wait_until
from tests.support.views import Stores, materialised

NOTES = SchemaId(key(90).public, 3)


def ask(capsys: pytest.CaptureFixture[str], home: Path, *arguments: str) -> dict[str, Any]:
    """What a command answers that needs no Spark."""
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--home", str(home), "--json"])
    told = capsys.readouterr()
    assert ended.value.code == 0, told.err
    answer: dict[str, Any] = json.loads(told.out)
    return answer


def take_in(home: Path) -> tuple[Stores, int]:
    """Five notes of somebody else, with one to five stars; the bytes of the first two."""
    stores = Stores(open_store(home), open_views(home))
    schema, notes = LogBuilder(key(90), log_id=3), LogBuilder(key(1), log_id=4)
    for message in (SchemaMeta("notes"), SchemaMigration((FieldChange("stars", "create", "integer"),))):
        schema.append(encode_message(message))
    for stars in range(1, 6):
        notes.append(encode_message(Create(SchemaVersion(*NOTES, 2), {"stars": stars})))
    for log in (schema, notes):
        stores.store.ingest([(e.encoded, payload) for e, payload in zip(log.entries, log.payloads, strict=True)])
    stores.store.write(register_schema, NOTES)
    return stores, sum(len(payload) for payload in notes.payloads[:2])


def test_copies_rot_on_schedule_and_are_summed_up(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    # Seldom enough that the next run does not begin before all is seen: each takes a JVM of its own.
    (tmp_path / "inkgrove.toml").write_text('[rot]\nrows = 3\nfungus = "fifo"\nguards = []\nevery_seconds = 5\n')
    stores, size = take_in(tmp_path)

    def is_done() -> bool:
        return any(run.state == "done" for run in stores.store.database.read(list_rot_runs))

    def count_shown() -> int | None:
        view = stores.views.views().get(NOTES)
        return len(materialised(stores)[NOTES]["rows"]) if view is not None and view.is_built else None

    with Serving(tmp_path, command="up") as up:
        wait_until(is_done, seconds=300)
        wait_until(lambda: count_shown() == 3, seconds=300)
        assert up.stop() == 0, up.log()
    report = ask(capsys, tmp_path, "rot", "report")
    assert {step: facts["copies"] for step, facts in report["steps"].items()} == {"full": 3, "cooked": 2}
    first = report["runs"][0]
    assert (first["moved"], first["freed"], first["bytes_before"] - first["bytes_after"]) == (2, size, size)

    summary = ask(capsys, tmp_path, "summary", "notes")
    found = {part: summary[part]["fields"]["stars"] for part in ("exact", "cooked", "together")}
    assert {part: facts["count"] for part, facts in found.items()} == {"exact": 3, "cooked": 2, "together": 5}
    assert {part: facts["sum"] for part, facts in found.items()} == {"exact": 12.0, "cooked": 3.0, "together": 15.0}
    stores.store.close()
    stores.views.close()

"""The commands of rot that need no Spark: what they say of copies, runs and summaries; and refusals before Spark."""

import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert

from inkgrove.cli.main import main
from inkgrove.core import parse_hash
from inkgrove.messages import Create, SchemaVersion, encode_message
from inkgrove.store.db import rot_victims
from inkgrove.store.logs import open_store
from inkgrove.store.rot import apply_moves, begin_rot_run, find_copy, finish_rot_run, note_copies, put_report
from tests.support.logs import LogBuilder, key

SCHEMA = SchemaVersion(key(9).public, 1, 2)


@pytest.fixture
def names(tmp_path: Path) -> list[str]:
    """Two copies in a home, the first of them cooked by a run."""
    log = LogBuilder(key(1), log_id=4)
    for number in range(2):
        log.append(encode_message(Create(SCHEMA, {"a": number})))
    with open_store(tmp_path) as store:
        store.ingest([(entry.encoded, payload) for entry, payload in zip(log.entries, log.payloads, strict=True)])

        def work(connection: Any) -> None:
            note_copies(connection, 1, 1000)
            run = begin_rot_run(connection, 0, 1000, "{}")
            put_report(connection, 1, {"freshness": [0, 2], "moves": [{"copies": 1, "bytes": 7}]})
            copy = find_copy(connection, log.hash(1))
            assert copy is not None
            place = {"instance": log.hash(1), "log": copy.log, "create_seq": copy.create_seq}
            connection.execute(insert(rot_victims), {**place, "step": "cooked", "why": "node rows: it was the oldest"})
            apply_moves(connection, run, ())
            finish_rot_run(connection, 1, 2000, {})

        store.database.write(work)
    return [log.hash(1).hex(), log.hash(2).hex()]


def run(capsys: pytest.CaptureFixture[str], home: Path, *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--home", str(home)])
    told = capsys.readouterr()
    return int(str(ended.value.code)), told.out, told.err


def test_explain_says_how_a_copy_stands(capsys: pytest.CaptureFixture[str], tmp_path: Path, names: list[str]) -> None:
    code, out, _ = run(capsys, tmp_path, "rot", "explain", names[0], "--json")
    facts = json.loads(out)
    assert (code, facts["step"], facts["why"], facts["bytes"]) == (0, "cooked", "node rows: it was the oldest", 0)
    code, out, _ = run(capsys, tmp_path, "rot", "explain", names[1], "--json")
    assert (json.loads(out)["step"], json.loads(out)["guard"]) == ("full", "newest")
    assert run(capsys, tmp_path, "rot", "keep", names[1])[0] == 0
    _, out, _ = run(capsys, tmp_path, "rot", "explain", names[1], "--json")
    assert json.loads(out)["guard"] == "pinned"
    assert run(capsys, tmp_path, "rot", "keep", names[1], "--off")[0] == 0
    assert "newest" in run(capsys, tmp_path, "rot", "explain", names[1])[1]
    code, _, err = run(capsys, tmp_path, "rot", "explain", "0040" + "ab" * 64)
    assert (code, "rot.no-such-copy" in err) == (1, True)


def test_explain_says_what_a_planned_run_is_to_do(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, names: list[str]
) -> None:
    with open_store(tmp_path) as store:
        place = {"instance": parse_hash(names[1]), "log": 1, "create_seq": 2}
        planned = {**place, "step": "cooked", "why": "node rows: it was the oldest"}
        store.database.write(lambda connection: connection.execute(insert(rot_victims), planned))
    for name, wanted in ((names[0], (None, None)), (names[1], ("cooked", "node rows: it was the oldest"))):
        facts = json.loads(run(capsys, tmp_path, "rot", "explain", name, "--json")[1])
        assert (facts["planned_step"], facts["planned_why"]) == wanted


def test_plan_is_listed_in_a_new_directory_only(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "plan.parquet").mkdir()
    code, _, err = run(capsys, tmp_path, "rot", "plan", "--out", str(tmp_path / "plan.parquet"))
    assert (code, "input.unreadable-file" in err) == (2, True), err


def test_report_counts_steps_and_draws(capsys: pytest.CaptureFixture[str], tmp_path: Path, names: list[str]) -> None:
    picture = tmp_path / "fresh.svg"
    _, out, _ = run(capsys, tmp_path, "rot", "report", "--json", "--svg", str(picture))
    facts = json.loads(out)
    assert {step: told["copies"] for step, told in facts["steps"].items()} == {"cooked": 1, "full": 1}
    assert (facts["regret"], facts["runs"][0]["moved"], facts["runs"][0]["freed"]) == (0, 1, 7)
    assert picture.read_text().startswith("<svg")
    assert "no-blobs" in run(capsys, tmp_path, "rot", "report")[1]


def test_policy_is_checked_before_anybody_waits(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for text in (
        '[rot]\nguards = ["own"]\n',
        '[rot.schemas]\nslothmail = "rows=5"\n',
        '[rot.identities]\nx = "size=5"\n',
    ):
        (tmp_path / "inkgrove.toml").write_text(text)
        code, _, err = run(capsys, tmp_path, "rot", "plan")
        assert (code, "rot.bad-policy" in err) == (1, True), err
    (tmp_path / "inkgrove.toml").write_text('[rot]\nfungus = "penicillin"\n')
    code, _, err = run(capsys, tmp_path, "rot", "plan")
    assert (code, "settings.invalid" in err) == (2, True), err


def test_summary_of_a_schema_that_is_not_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    open_store(tmp_path).close()
    code, _, err = run(capsys, tmp_path, "summary", "slothmail")
    assert (code, "input.unknown-schema" in err) == (2, True), err

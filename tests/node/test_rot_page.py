"""The page of rot: for administrators, with what the runs did and one copy explained."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import Connection

from inkgrove.pages.rot import draw_freshness
from inkgrove.store.logs import register_schema
from inkgrove.store.rot import RotRun, begin_rot_run, finish_rot_run
from tests.support.command import inkgrove
from tests.support.logs import LogBuilder, key
from tests.support.node_processes import Serving
from tests.support.nodes import Person, RunningNode
from tests.support.publishing import mail, make_schema, schema_id
from tests.support.rot_by_hand import take_down

POLICY = {
    "fungus": "stratified",
    "node": {"bytes": 5_000_000, "rows": 0},
    "per_identity": {"bytes": 0, "rows": 1},
    "per_schema": {"bytes": 1_000, "rows": 20},
    "identities": {"ab" * 32: {"bytes": 7, "rows": 0}},
    "schemas": {"cd" * 32 + "/4": {"bytes": 0, "rows": 0}},
    "fungi": {"cd" * 32 + "/4": "fifo"},
    "guards": ["pinned"],
}


def test_administrator_sees_the_ladder_and_why_a_copy_went(running: RunningNode) -> None:
    from inkgrove.messages import encode_message

    with Person(running, "admin.haiku.ink") as admin, Person(running, "jane.haiku.ink") as jane:
        schema = make_schema(jane)
        running.node.store.write(register_schema, schema_id(schema))
        log = LogBuilder(key(44))
        for number in range(2):
            log.append(encode_message(mail(schema, f"Copy {number}")))
        running.node.store.ingest(zip((entry.encoded for entry in log.entries), log.payloads, strict=True))
        take_down(running.node, log.hash(1).hex(), "stub")

        def look(person: Person, query: str = "") -> httpx.Response:
            return running.anybody.get(f"/pages/rot{query}", headers={"cookie": f"__Host-inkgrove={person.token}"})

        assert look(jane).status_code == 403
        page = look(admin, f"?instance={log.hash(1).hex()}")
        assert page.status_code == 200
        assert "is <strong>stub</strong>: only signatures; can be fetched again." in page.text
        assert "because of a test" in page.text
        assert look(admin, "?instance=rubbish").status_code == 404
        assert look(admin, f"?instance={'0040' + 'ab' * 64}").status_code == 404


def test_plot_has_a_column_for_each_run_that_saw_copies() -> None:
    run = RotRun(1, 0, 0, "{}", "done", {"freshness": [0, 2, 6]})
    plot = draw_freshness([run, replace(run, tick=2, report={}), replace(run, tick=3, report={"freshness": [4, 0, 0]})])
    assert plot is not None
    boxes: list[Any] = [(box.x, box.share) for box in plot.boxes]
    assert boxes == [(56, 0.62), (56, 1.0), (82, 1.0)]
    assert [tick for _, tick in plot.labels] == [1, 3]
    assert "In run 3, the last, 4 copies left were 17% fresh on average." in plot.text
    assert draw_freshness([replace(run, report={})]) is None


def test_budgets_of_the_settings_are_shown_before_any_run_and_the_plan_of_the_last_run_after_it(tmp_path: Path) -> None:
    with RunningNode(tmp_path, tmp_path, rot_policy=POLICY) as running, Person(running, "admin.haiku.ink") as admin:

        def look() -> str:
            page = running.anybody.get("/pages/rot", headers={"cookie": f"__Host-inkgrove={admin.token}"})
            assert page.status_code == 200
            return page.text

        def run(policy: Any, now: int, report: dict[str, Any]) -> None:
            def work(connection: Connection) -> None:
                begun = begin_rot_run(connection, 0, now, json.dumps(policy))
                finish_rot_run(connection, begun.tick, now, report)

            running.node.database.write(work)

        before = look()
        for name, text in (
            ("All copies together", "5,000,000 bytes"),
            ("Each owner", "1 copy"),
            ("Each schema", "1,000 bytes and 20 copies"),
            ("Owner abababab…", "7 bytes"),
            ("Schema cdcdcdcd…/4", "no limit"),
            ("Fungus", "stratified"),
            ("Fungus of schema cdcdcdcd…/4", "fifo"),
            ("Spared", "pinned"),
        ):
            assert f"<dt>{name}</dt><dd>{text}</dd>" in before, name
        assert "No run has looked at copies yet." in before
        assert "inkgrove rot plan" in before
        moves = [{"step": "full", "to_step": "no-blobs", "why": "node bytes", "copies": 3, "bytes": 12_345}]
        report = {"moves": moves, "kept": {"pinned": 2}, "freshness": [0, 5]}
        now = running.node.clock()
        run({**POLICY, "fungus": "egi"}, now - 3 * 86_400_000_000, report)
        changed = look()
        assert "Run 1 went by others: they have been changed since." in changed
        assert "<dt>Fungus</dt><dd>stratified</dd>" in changed
        assert "<h3>3 from full to no-blobs</h3>" in changed
        assert "Because of node bytes; 12,345 bytes." in changed
        assert "Spared: 2 pinned." in changed
        assert "Run 1, 3 days ago." in changed
        run(POLICY, now, {"moves": [], "kept": {}, "freshness": [0, 5]})
        same = look()
        assert "went by others" not in same
        assert "Nothing had to go." in same


def test_served_pages_show_the_budgets_of_the_settings(tmp_path: Path) -> None:
    settings = {"administrators": "admin.haiku.ink", "registration": "open", "domains": "haiku.ink"}
    with Serving(tmp_path, settings, options=("--set", "rot.rows=4321", "--set", "rot.fungus=fifo")) as serving:
        who = {"fqdn": "admin.haiku.ink", "password": "correct horse battery"}
        made = ["identity", "create", who["fqdn"], "--home", str(tmp_path)]  # beside the running node, as operators do
        assert inkgrove(*made, stdin=f"{who['password']}\n").returncode == 0
        token = serving.client.post("/sessions", json=who).json()["token"]
        page = serving.client.get("/pages/rot", headers={"cookie": f"__Host-inkgrove={token}"})
        assert "<dt>All copies together</dt><dd>4,321 copies</dd>" in page.text
        assert "<dt>Fungus</dt><dd>fifo</dd>" in page.text

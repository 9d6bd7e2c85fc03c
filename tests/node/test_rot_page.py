"""The page of rot: for administrators, with what the runs did and one copy explained."""

from dataclasses import replace
from typing import Any

import httpx

from inkgrove.pages.rot import draw_freshness
from inkgrove.store.rot_runs import RotRun
from tests.support.logs import LogBuilder, key
from tests.support.nodes import Person, RunningNode
from tests.support.publishing import mail, make_schema, schema_id
from tests.support.rot_by_hand import take_down


def test_administrator_sees_the_ladder_and_why_a_copy_went(running: RunningNode) -> None:
    from inkgrove.messages.message import encode_message

    with Person(running, "admin.haiku.ink") as admin, Person(running, "jane.haiku.ink") as jane:
        schema = make_schema(jane)
        running.node.store.register(schema_id(schema))
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

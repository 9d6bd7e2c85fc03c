"""The pages that show HTTP are true: their commands run and print what is shown."""

import shutil
from pathlib import Path

import pytest

from examples.demo.ports import free_port
from tests.support.components import require_component
from tests.support.node_processes import Serving
from tests.support.pages import DEFAULT_URL, Step, make_people, matches, read_start, read_steps, run_page

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_walkthrough_does_what_it_shows(tmp_path: Path) -> None:
    require_component("curl", shutil.which("curl"), "install curl")
    require_component("Java", shutil.which("java"), "install a headless JRE, 17 or newer")
    here, there = free_port(), free_port()
    told = read_start(DOCS / "walkthrough.md")
    assert told.keys() == {"registration", "domains", "administrators", "metrics", "resolve"}
    told["resolve"] = told["resolve"].replace("8750", str(here)).replace("8760", str(there))
    settings = {**told, "at_least_seconds": "120"}
    make_people(DOCS / "walkthrough.md", tmp_path / "home")
    with (
        Serving(tmp_path / "home", settings, command="up", port=here) as jane,
        Serving(
            tmp_path / "alice-data", {**settings, "administrators": "", "domains": "sloth.example"}, port=there
        ) as alice,
    ):
        nodes = {DEFAULT_URL: jane.url, "http://127.0.0.1:8760": alice.url}
        assert run_page(DOCS / "walkthrough.md", nodes, tmp_path) == []


def test_page_that_shows_something_else_is_found_out(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```sh\necho one\n```\n\n```text\ntwo\n```\n\n```sh\nfalse\n```\n\n```sh\necho three\n```\n")
    wrong, failed = run_page(page, "http://127.0.0.1:1", tmp_path)
    assert wrong == "echo one\nprinted\none\nand the page shows\ntwo\n"
    assert failed.startswith("failed with exit code 1:\nfalse\n")


def test_steps_are_shell_blocks_with_what_follows_them() -> None:
    page = "```text\nno step\n```\n\n```sh\na\n```\n\nwords\n\n```json\nnot its own\n```\n\n"
    page += "```sh\nb\n```\n\n```json\n{}\n```\n"
    assert read_steps(page) == [Step("a\n", None), Step("b\n", "{}\n")]


@pytest.mark.parametrize(
    ("shown", "printed", "fits"),
    [
        ('{"id":"…"}\n', '{"id":"7"}', True),
        ('{"id":"…"}\n', '{"no":"7"}', False),
        ("a…b", "a\nb", False),
        ("a.c", "abc", False),
        ("one\n", "one\ntwo\n", False),
    ],
)
def test_ellipsis_stands_for_anything_on_a_line(shown: str, printed: str, fits: bool) -> None:
    assert matches(shown, printed) is fits

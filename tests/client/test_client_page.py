"""The page on the client is true: its examples run against a real node and print what is shown."""

import shutil
import sys
import webbrowser
from pathlib import Path

import pytest

from tests.client.conftest import Person
from tests.support.components import require_component
from tests.support.node_processes import Serving
from tests.support.pages import DEFAULT_URL, run_page

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_examples_of_the_client_do_what_they_show(node: Serving, tmp_path: Path) -> None:
    person = Person(node.url, "jane.haiku.ink", "correct horse battery")
    webbrowser.register("person", None, person, preferred=True)
    assert run_page(DOCS / "client.md", node.url, tmp_path) == []


def test_tutorial_does_what_it_shows(node: Serving, tmp_path: Path) -> None:
    require_component("curl", shutil.which("curl"), "install curl")
    webbrowser.register("reader", None, Person(node.url, "ada.haiku.ink", "correct horse battery"), preferred=True)
    assert run_page(DOCS / "tutorial.md", node.url, tmp_path) == []


def test_page_for_data_engineers_does_what_it_shows(
    node: Serving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    places = {DEFAULT_URL: node.url, "inkgrove-data": str(node.home)}
    assert run_page(DOCS / "data-engineers.md", places, tmp_path) == []

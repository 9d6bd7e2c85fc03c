"""The page on the client is true: its examples run against a real node and print what is shown."""

import os
import shutil
import subprocess
import sys
import webbrowser
from pathlib import Path

import pytest

from tests.client.conftest import SETTINGS, Person
from tests.support.components import require_component
from tests.support.node_processes import Serving
from tests.support.pages import DEFAULT_URL, read_start, read_steps, run_page

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize("page", ["tutorial.md", "data-engineers.md"])
def test_page_starts_a_node_like_the_one_that_it_is_run_against(page: str) -> None:
    told = read_start(DOCS / page)
    assert told.keys() == {"registration", "domains", "administrators"}
    assert (told["registration"], told["domains"]) == (SETTINGS["registration"], SETTINGS["domains"])
    assert told["administrators"] in SETTINGS["administrators"].split(",")


def test_examples_of_the_client_do_what_they_show(node: Serving, tmp_path: Path) -> None:
    person = Person(node.url, "jane.haiku.ink", "correct horse battery")
    webbrowser.register("person", None, person, preferred=True)
    assert run_page(DOCS / "client.md", node.url, tmp_path) == []


def test_tutorial_does_what_it_shows(node: Serving, tmp_path: Path) -> None:
    require_component("curl", shutil.which("curl"), "install curl")
    webbrowser.register("reader", None, Person(node.url, "ada.haiku.ink", "correct horse battery"), preferred=True)
    assert run_page(DOCS / "tutorial.md", node.url, tmp_path) == []


def test_page_for_data_engineers_does_what_it_shows(node: Serving, tmp_path: Path) -> None:
    places = {DEFAULT_URL: node.url, "inkgrove-data": str(node.home)}
    # In a process of its own: the page starts a Spark in its folder, and stops it.
    program = f"from pathlib import Path\nfrom {run_page.__module__} import run_page\n"
    program += f"print(*run_page(Path({str(DOCS / 'data-engineers.md')!r}), {places!r}, Path({str(tmp_path)!r})))"
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert (done.stdout.strip(), done.returncode) == ("", 0), done.stderr


def test_first_exercise_of_the_readme_does_what_it_shows(node: Serving) -> None:
    (step,) = (step for step in read_steps((DOCS.parent / "README.md").read_text()) if step.language == "python")
    script, _, shown = step.script.rpartition("  # ")
    program = [sys.executable, "-c", script.replace(DEFAULT_URL, node.url)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=600, check=False)
    assert (done.stdout, done.returncode) == (shown, 0), done.stderr

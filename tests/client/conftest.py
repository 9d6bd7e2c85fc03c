"""A node with its pipeline for tests of the client: the real `inkgrove up`, one for all of them."""

import shutil
import time
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import httpx
import pytest

from tests.support.command import inkgrove
from tests.support.components import require_component
from tests.support.node_processes import Serving
from tests.support.pages import make_people
from tests.support.services import Address, Browser

DOCS = Path(__file__).resolve().parents[2] / "docs"
SETTINGS = {
    "registration": "open",
    "domains": "haiku.ink",
    "administrators": "jane.haiku.ink,ada.haiku.ink,kim.haiku.ink,admin.haiku.ink",
    "at_least_seconds": "120",
    "heartbeat_seconds": "0.5",
    "clients_per_address": "1000",
}


def start_node(factory: pytest.TempPathFactory) -> Serving:
    """A node and its pipeline in a directory of their own."""
    require_component("Java", shutil.which("java"), "install a headless JRE, 17 or newer")
    home = factory.mktemp("client")
    for page in ("tutorial.md", "data-engineers.md"):
        make_people(DOCS / page, home)
    for name in ("jane", "admin"):
        made = ["identity", "create", f"{name}.haiku.ink", "--name", name.title(), "--home", str(home)]
        assert inkgrove(*made, stdin="correct horse battery\n").returncode == 0
    return Serving(home, SETTINGS, command="up")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with start_node(tmp_path_factory) as serving:
        wait_for_pipeline(serving)
        yield serving


def wait_for_pipeline(serving: Serving) -> None:
    """Until it has taken in what is there: starting Spark takes longer than a reader waits."""
    deadline = time.monotonic() + 600
    while serving.client.get("/readyz").json()["view_lag"]:
        assert time.monotonic() < deadline, serving.log()
        time.sleep(0.2)


class Person(webbrowser.BaseBrowser):
    """Somebody in front of a browser who signs in and agrees to whatever an app asks."""

    def __init__(self, url: str, fqdn: str, password: str, action: str = "allow") -> None:
        super().__init__()
        self.node, self.fqdn, self.password, self.action = Address(url), fqdn, password, action

    def open(self, url: str, new: int = 0, autoraise: bool = True) -> bool:
        Thread(target=self._visit, args=(url,)).start()
        return True

    def _visit(self, url: str) -> None:
        browser = Browser(self.node)
        page = browser.get(url.removeprefix(self.node.url))
        answer = browser.submit(browser.sign_in(page, self.fqdn, self.password), action=self.action)
        assert answer.status_code == 302, answer.text
        httpx.get(answer.headers["location"])
        self.node.anybody.close()

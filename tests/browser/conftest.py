"""A real Chromium, axe-core, and a node with a small history to look at."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright._impl._driver import compute_driver_executable
from playwright.sync_api import Browser, sync_playwright
from pyspark.sql import SparkSession

from inkgrove.pipeline.views import Materialiser
from tests.browser.elsewhere import POLICY
from tests.browser.visitor import Visitor
from tests.browser.world import SETTINGS, World
from tests.spark.conftest import spark  # noqa: F401  (fixture)
from tests.support.certificates import environment_for_downloads
from tests.support.components import require_component
from tests.support.nodes import RunningNode

AXE = Path(__file__).parent / "axe"


# Not for the session: while it is open an event loop runs in this thread, and other tests want one of their own.
@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """The distribution's Chromium, without a window."""
    found = os.environ.get("INKGROVE_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    require_component("Chromium", found, "install the distribution's package chromium")
    program, *_ = compute_driver_executable()
    answers = subprocess.run([program, "--version"], capture_output=True, check=False).returncode == 0
    require_component("what Playwright runs on", answers, "install the distribution's package libatomic1")
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-dev-shm-usage", "--force-prefers-reduced-motion"]
        browser = playwright.chromium.launch(executable_path=found, args=arguments)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core, from npm; it is no part of the project."""
    script = AXE / "node_modules" / "axe-core" / "axe.min.js"
    if not script.is_file():
        npm = shutil.which("npm")
        require_component("npm", npm, "install the distribution's package npm")
        install = [
            npm or "",
            "install",
            "--prefix",
            str(AXE),
            "--no-audit",
            "--no-fund",
            "--no-package-lock",
            "--loglevel=error",
        ]
        environment = environment_for_downloads()
        done = subprocess.run(install, env=environment, capture_output=True, text=True, check=False, timeout=300)
        require_component("axe-core", done.returncode == 0, f"npm install failed: {done.stderr[-300:]}")
    return script.read_text()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession, chromium: Browser) -> Iterator[World]:  # noqa: F811
    """One node for all tests of a module; its views are built once, by Spark."""
    home = tmp_path_factory.mktemp("pages")
    materialiser = Materialiser(spark, str(home))
    with RunningNode(home, home, SETTINGS, rot_policy=json.loads(POLICY.render())) as running:
        yield World(running, materialiser)
    materialiser.close()


@pytest.fixture
def visit(world: World, chromium: Browser) -> Iterator[Visitor]:
    """Somebody with a browser of their own; what goes wrong in it fails the test."""
    visitor = Visitor(chromium, world.running.url)
    yield visitor
    visitor.close()

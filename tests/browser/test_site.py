"""The documentation as a site: it builds without a warning, and its pages fit a phone."""

import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Browser

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make site` builds it."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("width", [390, 1280])
def test_no_page_of_the_site_is_wider_than_the_screen(site: Path, chromium: Browser, width: int) -> None:
    page = chromium.new_page(viewport={"width": width, "height": 800})
    files = sorted(site.glob("**/index.html"))
    assert len(files) >= 25
    too_wide = []
    for file in files:
        page.goto(file.as_uri())
        if page.evaluate("document.documentElement.scrollWidth > window.innerWidth"):
            too_wide.append(file.parent.name)
    page.close()
    assert too_wide == []

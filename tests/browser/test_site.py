"""The documentation as a site: it builds without a warning, and its pages fit a phone."""

import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Browser

ROOT = Path(__file__).resolve().parents[2]
WIDTHS = (390, 1280)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make site` builds it."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def too_wide(site: Path, chromium: Browser) -> dict[int, list[str]]:
    """The pages that are wider than the screen, by the width of the screen; each page is loaded once."""
    page = chromium.new_page()
    files = sorted(site.glob("**/index.html"))
    assert len(files) >= 25
    found: dict[int, list[str]] = {width: [] for width in WIDTHS}
    for file in files:
        page.goto(file.as_uri())
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 800})
            if page.evaluate("document.documentElement.scrollWidth > window.innerWidth"):
                found[width].append(file.parent.name)
    page.close()
    return found


@pytest.mark.parametrize("width", WIDTHS)
def test_no_page_of_the_site_is_wider_than_the_screen(too_wide: dict[int, list[str]], width: int) -> None:
    assert too_wide[width] == []

"""Published vectors live outside the repository, in the folder that INKGROVE_VECTORS names."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.components import require_component


@pytest.fixture(scope="session")
def published() -> Callable[[str], Any]:
    """Reads one published file as JSON."""
    folder = os.environ.get("INKGROVE_VECTORS")
    require_component("the folder of published vectors", folder, "set INKGROVE_VECTORS to it")

    def read(name: str) -> Any:
        return json.loads((Path(folder or "") / name).read_text())

    return read

"""What scripts make is what is committed: vectors, entries of worlds, reference pages."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.mark.parametrize("name", ["make_vectors.py", "make_views.py", "make_docs.py"])
def test_script_makes_what_is_there(name: str) -> None:
    done = subprocess.run([sys.executable, SCRIPTS / name, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

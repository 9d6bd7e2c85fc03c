"""What a command loads before it does anything: little, for every command pays for it."""

import subprocess
import sys

import pytest

# Not pydantic: typer itself loads it to read the arguments of a command.
HEAVY = ("sqlalchemy", "alembic", "fastapi", "pyspark", "pyarrow", "pandas", "numpy", "yaml", "argon2")


@pytest.mark.parametrize("arguments", [["--help"], ["key", "new"], ["view", "--help"], ["serve", "--help"]])
def test_small_command_loads_neither_databases_nor_frameworks(arguments: list[str]) -> None:
    program = (
        "import sys; from inkgrove.cli.main import main\n"
        f"try: main({arguments!r})\n"
        f"except SystemExit: print('loaded:', *sorted(set({HEAVY!r}) & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "loaded:"

"""What a command loads before it does anything: little, for every command pays for it."""

import subprocess
import sys
from pathlib import Path

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


@pytest.mark.parametrize(
    ("missing", "arguments", "extra"),
    [
        ("typer", ["--help"], "node"),
        ("rich", ["key", "new"], "node"),
        ("fastapi", ["serve"], "node"),
        ("sqlalchemy", ["identity", "create", "jane.haiku.ink", "--no-password"], "node"),
        ("yaml", ["message", "encode", "-"], "node"),
        ("pyspark", ["import", "."], "pipeline"),
        ("psycopg", ["views", "--store", "postgresql://nobody@127.0.0.1:1/none"], "postgres"),
    ],
)
def test_command_says_which_extra_brings_a_package_that_is_missing(
    missing: str, arguments: list[str], extra: str, tmp_path: Path
) -> None:
    program = (
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] == {missing!r}:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Missing())\n"
        f"sys.argv[1:] = {arguments!r}\n"
        "from inkgrove.cli.start import main; main()"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=tmp_path, input="")
    expected = f"error: the package {missing} is not installed, install it with: pip install 'inkgrove[{extra}]'\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", expected)

"""Where the `inkgrove` command begins: before anything large is loaded, and before anybody knows what is installed."""

import gc
import sys
from typing import Final

# Loading makes hundreds of thousands of objects and hardly any garbage; looking for it took a tenth of the time.
gc.set_threshold(50_000, 20, 50)

_EXTRAS: Final = {
    "pipeline": {"deltalake", "numpy", "pandas", "py4j", "pyarrow", "pyspark"},
    "postgres": {"psycopg", "psycopg_binary"},
    "node": {
        *("alembic", "argon2", "authlib", "datasketches", "fastapi", "http_message_signatures", "http_sf", "jinja2"),
        *("orjson", "prometheus_client", "pydantic", "re2", "rich", "sqlalchemy", "starlette", "structlog", "typer"),
        *("uvicorn", "yaml"),
    },
}
"""Which extra of the distribution brings a package; `pip install inkgrove` brings the client alone."""


def main() -> None:
    """Load the commands and run one; if a package is missing, say which extra brings it, with exit code 1."""
    try:
        from inkgrove.cli.main import main as run

        run()
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        extra = next((name for name, packages in _EXTRAS.items() if package in packages), None)
        if extra is None:
            raise
        sys.exit(f"error: the package {package} is not installed, install it with: pip install 'inkgrove[{extra}]'")
    except Exception as error:
        # A library that is not fit for the work; `InkgroveError` is in a package that does not load with it.
        if all(kind.__name__ != "InkgroveError" for kind in type(error).__mro__):
            raise
        sys.exit(f"error: {error}")

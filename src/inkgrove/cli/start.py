"""Where the `inkgrove` command begins: before anything large is loaded."""

import gc
import sys

from inkgrove.core.errors import InkgroveError

# Loading makes hundreds of thousands of objects and hardly any garbage; looking for it took a tenth of the time.
gc.set_threshold(50_000, 20, 50)


def main() -> None:
    """Load the commands and run one."""
    try:
        from inkgrove.cli.main import main as run  # noqa: PLC0415
    except InkgroveError as error:  # a library that is not fit for the work
        sys.exit(f"error: {error.message} [{error.code}]")
    run()

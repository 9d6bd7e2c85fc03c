"""Where the `inkgrove` command begins: before anything large is loaded."""

import gc

# Loading makes hundreds of thousands of objects and hardly any garbage; looking for it took a tenth of the time.
gc.set_threshold(50_000, 20, 50)


def main() -> None:
    """Load the commands and run one."""
    from inkgrove.cli.main import main as run  # noqa: PLC0415

    run()

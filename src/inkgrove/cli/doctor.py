"""`inkgrove doctor`: is this machine fit, and if not, what to do."""

from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from inkgrove.cli.options import CommandGroup, CommandOptions, current
from inkgrove.cli.output import NOT_VALID, console, note, print_json, printable


def add_to(app: CommandGroup) -> None:
    """Put the command beside the groups."""
    app.command(epilog="Example: inkgrove doctor --spark")(doctor)


def doctor(
    options: CommandOptions,
    spark: Annotated[bool, typer.Option("--spark", help="Start Spark too, and let it count.")] = False,
) -> None:
    """Check Java, memory, disk, store, keys, pipeline, clock, names, port, Spark; say what to do about faults."""
    # Imported here: every other command starts faster without.
    from inkgrove.cli.checks import Installation, examine

    installation = Installation(current(), options.home, options.store_location)
    findings = list(examine(installation, with_spark=spark))
    is_well = all(item.is_right for item in findings)
    if options.as_json:
        checks = [
            {"check": item.check, "ok": item.is_right, "found": item.found, "next": item.advice} for item in findings
        ]
        print_json({"ok": is_well, "checks": checks})
    else:
        table = Table("", "check", "found", "what to do next")
        for item in findings:
            mark = Text("✓", "green") if item.is_right else Text("✗", "bold red")
            table.add_row(mark, item.check, printable(item.found), printable(item.advice or ""))
        console().print(table)
        note("All is well." if is_well else "Something is wrong: see what to do next, then run this again.")
    if not is_well:
        raise typer.Exit(NOT_VALID)

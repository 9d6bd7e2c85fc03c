"""`inkgrove doctor`: is this machine fit, and if not, what to do."""

from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from inkgrove.cli.configuration import current
from inkgrove.cli.home import DEFAULT_HOME, HomeOption
from inkgrove.cli.output import NOT_VALID, JsonOption, console, note, print_json, printable
from inkgrove.cli.place import StoreOption, store_place


def add_to(app: typer.Typer) -> None:
    """Put the command beside the groups."""
    app.command(epilog="Example: inkgrove doctor --spark")(doctor)


def doctor(
    spark: Annotated[bool, typer.Option("--spark", help="Start Spark too, and let it count.")] = False,
    home: HomeOption = DEFAULT_HOME,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check Java, memory, disk, store, keys, pipeline, clock, names, port, Spark; say what to do about faults."""
    # Imported here: every other command starts faster without.
    from inkgrove.cli.checks import Patient, examine  # noqa: PLC0415

    patient = Patient(current(), home, store_place(home, store))
    findings = list(examine(patient, with_spark=spark))
    is_well = all(item.is_right for item in findings)
    if as_json:
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

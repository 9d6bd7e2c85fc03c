"""`inkgrove erase`: takes out of the database and its files what was deleted or has expired, after its grace."""

from typing import Annotated

import typer

from inkgrove.cli.options import CommandGroup, CommandOptions, set_flag
from inkgrove.cli.output import note, print_json
from inkgrove.cli.progress import progress


def add_to(app: CommandGroup) -> None:
    """Put the command beside the groups."""
    app.command(epilog="Example: inkgrove erase --dry-run")(erase)


def erase(
    options: CommandOptions,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what is due; nothing is erased.")] = False,
    grace: Annotated[
        int | None,
        typer.Option("--grace", min=0, help="Seconds since the delete, instead of the setting.", metavar="SECONDS"),
    ] = None,
) -> None:
    """Erase what was deleted or has expired, then rewrite the database without it; safe while the node runs."""
    from inkgrove.node.errors import StorageError
    from inkgrove.node.runtime import count_due, erase_due

    set_flag("node.erase_grace_seconds", grace)
    with options.open_node() as node:
        if dry_run:
            due, waiting = count_due(node)
            if options.as_json:
                print_json({"due": due, "waiting": waiting - due})
            else:
                typer.echo(f"{due:,} instances would be erased; the grace of {waiting - due:,} others is not over")
            return
        with progress("looking for what is due", quiet=options.as_json) as bar:
            report = erase_due(node, compact=True, on_progress=bar.show)
    if report is None:
        raise StorageError("storage.erasing", "another process of this home is erasing: wait for its end")
    if options.as_json:
        print_json(report.document())
        return
    typer.echo(f"{report.instances:,} instances erased, {report.payloads:,} payloads; {report.waiting:,} wait")
    if report.is_compacted is False:
        note("The files still hold what was erased, for others read them all the time: run it with the node stopped.")

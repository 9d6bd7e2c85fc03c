"""`inkgrove backup|restore|resume`: all of a home in one directory, while the node runs, and back."""

import time
from pathlib import Path
from typing import Annotated

import typer

from inkgrove.cli.options import CommandGroup, CommandOptions, current
from inkgrove.cli.output import note, print_json, printable
from inkgrove.cli.progress import progress
from inkgrove.messages import Timestamp


def add_to(app: CommandGroup) -> None:
    """Put the commands beside the groups."""
    app.command(epilog="Example: inkgrove backup /mnt/backups/monday")(backup)
    app.command(epilog="Example: inkgrove restore /mnt/backups/monday")(restore)
    app.command(epilog="Example: inkgrove resume --accept-loss")(resume)


def backup(
    options: CommandOptions,
    target: Annotated[Path, typer.Argument(help="A directory that does not exist yet.", metavar="TARGET")],
    with_vault_key: Annotated[
        bool,
        typer.Option(
            "--with-vault-key",
            help="Put vault.key into it too: who has the backup can then sign as everybody on this node.",
        ),
    ] = False,
) -> None:
    """Write all of a node to a directory while it runs, and check what was written."""
    # Imported here and below: every other command starts faster without.
    from inkgrove.node.runtime import write_backup

    with options.open_logs() as logs, progress("backing up", quiet=options.as_json) as bar:
        manifest = write_backup(
            logs.database,
            options.home.resolve(),
            target.resolve(),
            vault_key=_vault_key(options.home) if with_vault_key else None,
            now=_now(),
            on_progress=bar.show,
        )
    if options.as_json:
        print_json(
            {
                "backup": str(target),
                "store": manifest.store,
                "files": len(manifest.files),
                "bytes": manifest.bytes,
                "entries": manifest.rows["entries"],
                "missing_blobs": manifest.missing_blobs,
                "vault_key": manifest.has_vault_key,
            }
        )
        return
    entries = manifest.rows["entries"]
    typer.echo(
        f"{target}: {entries:,} entries, {len(manifest.files):,} files, {manifest.bytes:,} bytes, all read again"
    )
    if manifest.missing_blobs:
        note(f"{manifest.missing_blobs:,} blobs that the database names were not on the disk.")
    if not manifest.has_vault_key:
        note("vault.key is not in it: keep a copy apart, or the keys in this backup can never be opened.")


def restore(
    options: CommandOptions,
    source: Annotated[Path, typer.Argument(help="A directory that `inkgrove backup` wrote.", metavar="BACKUP")],
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace what is in the home and its database, newer or not.")
    ] = False,
) -> None:
    """Check a backup and put it in place; the node then asks others for what it lacks before it signs again."""
    from inkgrove.node.runtime import restore_backup

    with progress("restoring", quiet=options.as_json) as bar:
        done = restore_backup(
            source.resolve(),
            options.home.resolve(),
            options.store_location,
            vault_key=_vault_key(options.home),
            replace=replace,
            now=_now(),
            on_progress=bar.show,
        )
    if options.as_json:
        print_json(
            {
                "home": str(options.home),
                "entries": done.manifest.rows["entries"],
                "files": len(done.manifest.files),
                "vault_key": done.vault_key,
                "replaced": str(done.moved_to) if done.moved_to is not None else None,
                "kept": list(done.skipped_files),
            }
        )
        return
    typer.echo(
        f"{options.home}: {done.manifest.rows['entries']:,} entries and {len(done.manifest.files):,} files put back"
    )
    if done.moved_to is not None:
        note(f"What was there before is in {done.moved_to}; remove it when all is well.")
    for name in done.skipped_files:
        note(f"{name} was there already and stays as it is.")
    if done.vault_key == "missing":
        note(f"vault.key is not in the backup: put your copy at {_vault_key(options.home)} before you start the node.")
    note("Everybody has to sign in again. Start the node: it asks those who hold its logs before it signs anything.")


def _vault_key(home: Path) -> Path:
    return Path(current().node.vault_key_file or home.resolve() / "vault.key")


def _now() -> int:
    return time.time_ns() // 1000


def resume(
    options: CommandOptions,
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss",
            help="Sign again without having asked: a log of which others hold more is forked, and ends for good.",
        ),
    ] = False,
) -> None:
    """Say what a node that was put back from a copy waits for before it signs again, or let it sign at once."""
    from inkgrove.node.errors import Restored

    with options.open_node() as node:
        behind = node.signing.read_behind_state()
        if behind is not None and accept_loss:
            node.signing.resume()
    if options.as_json and (behind is None or accept_loss):
        print_json({"signs": True, "resumed": behind is not None})
    elif behind is None:
        note("This node signs; there is nothing to resume.")
    elif accept_loss:
        note("This node signs again. Whoever holds entries that it lacks refuses what it signs in those logs.")
    else:
        since = Timestamp(behind.behind_since or 0)
        waits = "; ".join(f"{name} ({why or 'not asked yet'})" for name, why in sorted(behind.waits_for.items()))
        who = (
            f"It waits for {printable(waits)}." if waits else "Nobody is known whom it could ask; is the node running?"
        )
        raise Restored(
            f"nothing is signed since {since}: {behind.reason}. {who} A running node goes on by itself when all have"
            " answered. `inkgrove resume --accept-loss` goes on at once: every log of which somebody holds more than"
            " this node is then forked and ends for good, log 0 and with it the identity included",
            waits_for=dict(behind.waits_for),
        )

"""`inkgrove backup|restore`: all of a home in one directory, while the node runs, and back."""

import time
from pathlib import Path
from typing import Annotated

import typer

from inkgrove.cli.configuration import current
from inkgrove.cli.home import DEFAULT_HOME, HomeOption
from inkgrove.cli.output import JsonOption, note, print_json
from inkgrove.cli.place import StoreOption, existing_store, store_place
from inkgrove.cli.progress import progress


def add_to(app: typer.Typer) -> None:
    """Put the commands beside the groups."""
    app.command(epilog="Example: inkgrove backup /mnt/backups/monday")(backup)
    app.command(epilog="Example: inkgrove restore /mnt/backups/monday")(restore)


def backup(
    target: Annotated[Path, typer.Argument(help="A directory that does not exist yet.", metavar="TARGET")],
    with_vault_key: Annotated[
        bool,
        typer.Option(
            "--with-vault-key",
            help="Put vault.key into it too: who has the backup can then sign as everybody on this node.",
        ),
    ] = False,
    home: HomeOption = DEFAULT_HOME,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write all of a node to a directory while it runs, and check what was written."""
    # Imported here and below: every other command starts faster without.
    from inkgrove.node.backup import write_backup  # noqa: PLC0415
    from inkgrove.store.opening import open_store  # noqa: PLC0415

    with open_store(existing_store(home, store)) as logs, progress("backing up", quiet=as_json) as bar:
        manifest = write_backup(
            logs.database,
            home.resolve(),
            target.resolve(),
            vault_key=_vault_key(home) if with_vault_key else None,
            now=_now(),
            on_progress=bar.show,
        )
    if as_json:
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
    source: Annotated[Path, typer.Argument(help="A directory that `inkgrove backup` wrote.", metavar="BACKUP")],
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace what is in the home and its database, newer or not.")
    ] = False,
    home: HomeOption = DEFAULT_HOME,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check a backup and put it in place; the node then asks others for what it lacks before it signs again."""
    from inkgrove.node.restore import restore_backup  # noqa: PLC0415

    with progress("restoring", quiet=as_json) as bar:
        done = restore_backup(
            source.resolve(),
            home.resolve(),
            store_place(home, store),
            vault_key=_vault_key(home),
            replace=replace,
            now=_now(),
            on_progress=bar.show,
        )
    if as_json:
        print_json(
            {
                "home": str(home),
                "entries": done.manifest.rows["entries"],
                "files": len(done.manifest.files),
                "vault_key": done.vault_key,
                "replaced": str(done.aside) if done.aside is not None else None,
                "kept": list(done.kept),
            }
        )
        return
    typer.echo(f"{home}: {done.manifest.rows['entries']:,} entries and {len(done.manifest.files):,} files put back")
    if done.aside is not None:
        note(f"What was there before is in {done.aside}; remove it when all is well.")
    for name in done.kept:
        note(f"{name} was there already and stays as it is.")
    if done.vault_key == "missing":
        note(f"vault.key is not in the backup: put your copy at {_vault_key(home)} before you start the node.")
    note("Everybody has to sign in again. Start the node: it asks those who hold its logs before it signs anything.")


def _vault_key(home: Path) -> Path:
    return Path(current().node.vault_key_file or home.resolve() / "vault.key")


def _now() -> int:
    return time.time_ns() // 1000

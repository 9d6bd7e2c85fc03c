"""`inkgrove bundle`: instances with their proofs as a file, handed over without a network."""

from pathlib import Path
from typing import Annotated

import typer

from inkgrove.cli.files import read_bytes, write_new
from inkgrove.cli.home import DEFAULT_HOME, HomeOption
from inkgrove.cli.output import NOT_VALID, JsonOption, note, print_json
from inkgrove.cli.peer import open_node
from inkgrove.cli.place import StoreOption
from inkgrove.core.hashing import parse_hash
from inkgrove.messages.bundle import decode_bundle, encode_bundle

app = typer.Typer(
    no_args_is_help=True,
    help="Instances as a file, with everything that proves them.",
    epilog="Example: inkgrove bundle write 00407ac3... --out greetings.bundle",
)


@app.command(epilog="Example: inkgrove bundle write 00407ac3... --out greetings.bundle")
def write(
    instances: Annotated[list[str], typer.Argument(metavar="INSTANCE...", help="Ids of instances, in hex.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="A new file.")],
    home: HomeOption = DEFAULT_HOME,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write instances that may be passed on, with their proofs and schemas, into a file."""
    # Imported here: every other command starts faster without.
    from inkgrove.federation.bundles import write_bundle  # noqa: PLC0415

    with open_node(home, store) as node:
        bundle = write_bundle(node, [parse_hash(text) for text in instances])
    data = encode_bundle(bundle)
    write_new(out, data)
    entries = sum(len(item.entries) for item in bundle.instances)
    if as_json:
        print_json({"instances": len(bundle.instances), "entries": entries, "bytes": len(data), "path": str(out)})
    else:
        note(f"{len(bundle.instances)} instances with {entries} entries in {out}, {len(data):,} bytes")


@app.command(epilog="Example: inkgrove bundle read greetings.bundle --to jane.haiku.ink")
def read(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A bundle; - is stdin.")],
    to: Annotated[
        list[str] | None, typer.Option(metavar="FQDN", help="An identity of this node that is to see it; repeatable.")
    ] = None,
    home: HomeOption = DEFAULT_HOME,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Verify a bundle like a delivery from another node, and take it in."""
    from inkgrove.federation.bundles import read_bundle  # noqa: PLC0415
    from inkgrove.node.identities import parse_identity_name, show_identity  # noqa: PLC0415

    bundle = decode_bundle(read_bytes(file))
    with open_node(home, store, create=True) as node:
        recipients = [show_identity(node, parse_identity_name(name)).id for name in to or []]
        receipts = read_bundle(node, bundle, recipients)
    refused = [receipt for receipt in receipts if receipt.code is not None]
    if as_json:
        rows = [{"instance": item.instance, "recipient": item.recipient or None, "fate": item.fate.value,
                 "code": item.code} for item in receipts]  # fmt: skip
        print_json({"ok": not refused, "receipts": rows})
    else:
        for receipt in refused:
            note(f"refused: {receipt.instance.hex()} [{receipt.code}]")
        note(f"{len({item.instance for item in receipts} - {item.instance for item in refused})} instances taken in")
    if refused:
        raise typer.Exit(NOT_VALID)

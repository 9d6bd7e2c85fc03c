"""`inkgrove bundle`: instances with their proofs as a file; `inkgrove proof`: verify such a proof without a node."""

from pathlib import Path
from typing import Annotated

import typer

from inkgrove.cli.files import read_bytes, write_new
from inkgrove.cli.options import CommandGroup, CommandOptions
from inkgrove.cli.output import NOT_VALID, JsonOption, note, print_facts, print_json
from inkgrove.core import parse_hash
from inkgrove.messages import ProvedInstance, decode_bundle, encode_bundle, message_to_value, read_proof, verify_proof

app = CommandGroup(
    "Instances as a file, with everything that proves them.", "bundle write 00407ac3... --out greetings.bundle"
)


@app.command(epilog="Example: inkgrove bundle write 00407ac3... --out greetings.bundle")
def write(
    options: CommandOptions,
    instances: Annotated[list[str], typer.Argument(metavar="INSTANCE...", help="Ids of instances, in hex.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="A new file.")],
) -> None:
    """Write instances that may be passed on, with their proofs and schemas, into a file."""
    # Imported here: every other command starts faster without.
    from inkgrove.federation.sharing import write_bundle

    with options.open_node() as node:
        bundle = write_bundle(node, [parse_hash(text) for text in instances])
    data = encode_bundle(bundle)
    write_new(out, data)
    entries = sum(len(item.entries) for item in bundle.instances)
    if options.as_json:
        print_json({"instances": len(bundle.instances), "entries": entries, "bytes": len(data), "path": str(out)})
    else:
        note(f"{len(bundle.instances)} instances with {entries} entries in {out}, {len(data):,} bytes")


@app.command(epilog="Example: inkgrove bundle read greetings.bundle --to jane.haiku.ink")
def read(
    options: CommandOptions,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A bundle; - is stdin.")],
    to: Annotated[
        list[str] | None, typer.Option(metavar="FQDN", help="An identity of this node that is to see it; repeatable.")
    ] = None,
) -> None:
    """Verify a bundle like a delivery from another node, and take it in."""
    from inkgrove.federation.sharing import read_bundle
    from inkgrove.node.identity import parse_identity_name, show_identity

    bundle = decode_bundle(read_bytes(file))
    with options.open_node(create=True) as node:
        recipients = [show_identity(node, parse_identity_name(name)).id for name in to or []]
        receipts = read_bundle(node, bundle, recipients)
    refused = [receipt for receipt in receipts if receipt.code is not None]
    if options.as_json:
        rows = [{"instance": item.instance, "recipient": item.recipient or None, "fate": item.decision.value,
                 "code": item.code} for item in receipts]  # fmt: skip
        print_json({"ok": not refused, "receipts": rows})
    else:
        for receipt in refused:
            note(f"refused: {receipt.instance.hex()} [{receipt.code}]")
        note(f"{len({item.instance for item in receipts} - {item.instance for item in refused})} instances taken in")
    if refused:
        raise typer.Exit(NOT_VALID)


# Proofs

proof_app = CommandGroup("Check what others say about an instance.", "proof verify instance.proof")


@proof_app.callback()
def _group() -> None:
    pass


@proof_app.command(epilog="Example: inkgrove proof verify instance.proof")
def verify(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A proof as CBOR or JSON; - is stdin.")],
    as_json: JsonOption = False,
) -> None:
    """Verify the proof of an instance and print what it proves.

    Signatures, links, the path to entry 1 and payloads are checked; no node and no store is asked.
    """
    proved = verify_proof(read_proof(read_bytes(file)))
    if as_json:
        print_json({"ok": True, **_facts(proved), "messages": _messages(proved)})
        return
    print_facts("Proved", _facts(proved))
    for message in _messages(proved):
        print_json(message)
    note("The author signed these messages in this order. That there are no others, or none since, is not proved.")


def _facts(proved: ProvedInstance) -> dict[str, object]:
    return {
        "instance": proved.instance,
        "author": proved.author,
        "log_id": proved.log_id,
        "entries_of_the_log_at_least": proved.height,
    }


def _messages(proved: ProvedInstance) -> list[dict[str, object]]:
    return [
        {"seq_num": item.seq_num, "hash": item.hash, "message": message_to_value(item.message)}
        for item in proved.messages
    ]

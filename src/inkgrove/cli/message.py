"""`inkgrove message`: messages between YAML and CBOR."""

import secrets
from pathlib import Path
from typing import Annotated

import typer

from inkgrove.cli.files import parse_hex, read_text
from inkgrove.cli.options import CommandGroup
from inkgrove.cli.output import JsonOption, print_json
from inkgrove.core import hash_yamf
from inkgrove.messages import Create, Delete, Update, decode_message, encode_message, message_to_value, with_salt

app = CommandGroup("Turn messages from YAML into CBOR and back.", "message encode mail.yaml --salt")


@app.command(epilog="Example: inkgrove message encode mail.yaml --salt")
def encode(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="YAML with one message, or several separated by ---; - is stdin.")
    ],
    salt: Annotated[bool, typer.Option("--salt", help="Salt and pad instance messages, as writers should.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print the payload of each message in hex, one line each."""
    from inkgrove.messages.yaml_form import parse_messages

    for message in parse_messages(read_text(file)):
        if salt and isinstance(message, Create | Update | Delete):
            payload = encode_message(with_salt(message, secrets.token_bytes))
        else:
            payload = encode_message(message)
        if as_json:
            print_json({"payload": payload, "size": len(payload), "hash": hash_yamf(payload)})
        else:
            typer.echo(payload.hex())


@app.command(epilog="Example: inkgrove message decode a2646b696e64...")
def decode(
    payload_hex: Annotated[str, typer.Argument(metavar="HEX", help="The payload in hex; - reads it from stdin.")],
    as_json: JsonOption = False,
) -> None:
    """Decode a payload strictly and print the message as YAML."""
    from inkgrove.messages.yaml_form import render_messages

    message = decode_message(parse_hex(payload_hex))
    if as_json:
        print_json(message_to_value(message))
    else:
        typer.echo(render_messages([message]), nl=False)

"""`inkgrove proof`: check what others say, with nothing else at hand."""

from pathlib import Path
from typing import Annotated

import typer

from inkgrove.cli.files import read_bytes
from inkgrove.cli.output import JsonOption, note, print_facts, print_json
from inkgrove.messages.message import message_to_value
from inkgrove.messages.proof import ProvedInstance, read_proof, verify_proof

app = typer.Typer(
    no_args_is_help=True,
    help="Check what others say about an instance.",
    epilog="Example: inkgrove proof verify instance.proof",
)


@app.callback()
def _group() -> None:
    pass


@app.command(epilog="Example: inkgrove proof verify instance.proof")
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

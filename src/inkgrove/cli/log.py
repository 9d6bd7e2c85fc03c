"""`inkgrove log`: verify log files, show certificate pools."""

from collections import Counter, defaultdict
from pathlib import Path
from typing import Annotated

import typer

from inkgrove.cli.files import read_entry_lines
from inkgrove.cli.home import DEFAULT_HOME, HomeOption
from inkgrove.cli.output import NOT_VALID, JsonOption, note, print_facts, print_json
from inkgrove.cli.place import StoreOption, store_place
from inkgrove.cli.progress import progress
from inkgrove.core.certificate import certificate_pool, shortest_path
from inkgrove.core.entry import decode_entry
from inkgrove.core.errors import InkgroveError
from inkgrove.core.log import HeldEntry, Verdict, verify_log
from inkgrove.core.verify import VerifiedEntry, verify_signed

app = typer.Typer(
    no_args_is_help=True,
    help="Verify logs and show what proves an entry.",
    epilog="Example: inkgrove log verify feed.jsonl",
)


@app.command(epilog="Example: inkgrove log verify feed.jsonl")
def verify(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help='JSON lines {"entry": hex, "payload": hex or null}; - is stdin.')
    ],
    partial: Annotated[bool, typer.Option("--partial", help="Allow gaps that links lead across.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Verify entries of any number of logs, in any order; one JSON line per line of FILE."""
    verdicts: dict[int, Verdict] = {}
    logs: dict[tuple[bytes, int], dict[int, HeldEntry]] = defaultdict(dict)
    with progress("verifying signatures ...", quiet=as_json, unit="lines") as bar:
        for line in bar.over(list(read_entry_lines(file))):
            if isinstance(line, tuple):
                verdicts[line[0]] = line[1]
                continue
            try:
                signed = verify_signed(decode_entry(line.entry))
                logs[signed.entry.author, signed.entry.log_id][line.number] = HeldEntry(signed, line.payload)
            except InkgroveError as error:
                verdicts[line.number] = error
        bar.begin("verifying links ...", unit="logs")
        for log in bar.over(list(logs.values())):
            verdicts.update(zip(log, verify_log(log.values(), partial=partial).verdicts, strict=True))
    bad = 0
    for number, verdict in sorted(verdicts.items()):
        bad += not isinstance(verdict, VerifiedEntry)
        print_json({"line": number, **_describe(verdict)})
    verdict_on_all = f"{bad} not valid" if bad else "all valid" if verdicts else "nothing to verify"
    note(f"{len(verdicts)} lines, {len(logs)} logs: {verdict_on_all}")
    if bad:
        raise typer.Exit(NOT_VALID)


def _describe(verdict: Verdict) -> dict[str, object]:
    if isinstance(verdict, VerifiedEntry):
        entry = verdict.entry
        facts = {"author": entry.author, "log_id": entry.log_id, "seq_num": entry.seq_num, "hash": verdict.hash}
        return {"ok": True, **facts}
    return {"ok": False, "code": verdict.code, "message": verdict.message}


@app.command(epilog="Example: inkgrove log ingest slothmail.jsonl feed.jsonl")
def ingest(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Log files as for verify; - is stdin.")],
    home: HomeOption = DEFAULT_HOME,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take entries into the store, verified; those it has already change nothing."""
    from inkgrove.node.identity_log import follow_since  # noqa: PLC0415
    from inkgrove.store.opening import open_store  # noqa: PLC0415

    logs = open_store(store_place(home, store))
    before = logs.newest_offset()
    counts: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    with progress("reading ...", quiet=as_json, unit="entries") as bar:
        for file in files:
            lines = []
            for line in read_entry_lines(file):
                if isinstance(line, tuple):
                    refused[line[1].code] += 1
                else:
                    lines.append((line.entry, line.payload))
            bar.begin(f"taking in {file.name} ...", unit="entries")
            # They are counted as their signatures are verified; what the store then writes, it writes at once.
            for receipt in logs.ingest(bar.over(lines)):
                if receipt.error is not None:
                    refused[receipt.error.code] += 1
                else:
                    counts[receipt.status.value] += 1
    logs.database.write(lambda connection: follow_since(connection, before))
    logs.close()
    if as_json:
        print_json({**counts, "refused": dict(refused)})
    else:
        told = [f"{count:,} {name}" for name, count in counts.items()]
        told += [f"{count:,} refused [{code}]" for code, count in refused.items()]
        typer.echo(", ".join(told) or "nothing to take in")
    if refused:
        raise typer.Exit(NOT_VALID)


@app.command(epilog="Example: inkgrove log pool 23 --height 30")
def pool(
    seq_num: Annotated[int, typer.Argument(metavar="N", min=1, max=2**64 - 1, help="Sequence number of the entry.")],
    height: Annotated[int | None, typer.Option(min=1, help="Length of the log: the pool ends there.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the certificate pool of entry N and its shortest path to entry 1."""
    if height is not None and height < seq_num:
        raise typer.BadParameter(f"a log of height {height} has no entry {seq_num}")
    facts = {"seq_num": seq_num, "path": shortest_path(seq_num, 1), "pool": certificate_pool(seq_num, height)}
    if as_json:
        print_json(facts)
    else:
        print_facts(
            f"Entry {seq_num}",
            {
                "path to 1": " ".join(map(str, shortest_path(seq_num, 1))),
                "pool": " ".join(map(str, certificate_pool(seq_num, height))),
            },
        )

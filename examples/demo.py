"""The slothmail story (`make demo`): a schema in four versions, a mail that outlives them, a forger, a revert.

Every step is checked; if anything is not as it should be, the demo fails.
"""

import sys
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

from inkgrove.core.entry import Entry, decode_entry, hash_entry, sign_entry
from inkgrove.core.errors import BadSignature
from inkgrove.core.hashing import Hash
from inkgrove.core.keys import SecretKey
from inkgrove.core.lipmaa import has_lipmaa_link, lipmaa
from inkgrove.core.log import HeldEntry
from inkgrove.core.verify import verify_signed
from inkgrove.messages.ids import SchemaId
from inkgrove.messages.message import encode_message
from inkgrove.messages.yaml_form import parse_messages
from inkgrove.reference import ReferenceView, fold

console = Console(highlight=False, width=110)


@dataclass
class Log:
    """A log that somebody keeps."""

    owner: str
    key: SecretKey
    log_id: int
    held: list[HeldEntry] = field(default_factory=list)

    def publish(self, yaml: str) -> Hash:
        """Sign the next message."""
        payload = encode_message(*parse_messages(yaml))
        seq_num = len(self.held) + 1
        hashes = [item.signed.hash for item in self.held]
        entry = sign_entry(
            self.key,
            payload,
            log_id=self.log_id,
            seq_num=seq_num,
            lipmaa_link=hashes[lipmaa(seq_num) - 1] if has_lipmaa_link(seq_num) else None,
            backlink=hashes[-1] if hashes else None,
        )
        self.held.append(HeldEntry(verify_signed(entry), payload))
        return hash_entry(entry)


def step(title: str, yaml: str = "") -> None:
    console.rule(f"[bold]{title}", align="left")
    if yaml:
        console.print(yaml.strip(), style="dim", markup=False)


def show(view: ReferenceView) -> None:
    columns = list(view.rows[0].fields) if view.rows else []
    table = Table("seq", *columns, title=f"slothmail, version {view.version}", title_justify="left")
    for row in view.rows:
        values = [
            "-" if value is None else repr(value) if "\n" in str(value) else str(value) for value in row.fields.values()
        ]
        table.add_row(str(row.seq_num), *values)
    console.print(table if view.rows else f"slothmail, version {view.version}: no rows")
    said = ", ".join(f"entry {item.seq_num} {item.outcome.value}" for item in view.outcomes)
    console.print(f"outcomes: {said}\n")


def expect(is_so: bool, what: str) -> None:
    if not is_so:
        console.print(f"[red]not as it should be: {what}")
        sys.exit(1)


def main() -> None:
    dev = Log("dev", SecretKey.from_seed(b"d" * 32), 12)
    jane = Log("jane", SecretKey.from_seed(b"j" * 32), 1)
    schema = SchemaId(dev.key.public, dev.log_id)
    name = f'"{schema.author.hex()}", {schema.log_id}'

    def view() -> ReferenceView:
        return fold([*dev.held, *jane.held], [schema])[0]

    def subjects() -> list[object]:
        return [row.fields["subject"] for row in view().rows]

    versions = [
        "kind: schema-meta\nname: slothmail\nspec: 1",
        """kind: schema-migration
fields:
  - subject: {action: create, type: text}
  - body: {action: create, type: text}
  - recipient: {action: create, type: relation}
  - created: {action: create, type: timestamp}""",
        "kind: schema-migration\nfields:\n  - attachments: {action: create, type: 'relation[]'}",
    ]
    step("A developer publishes a schema: one signed log, every entry a version", "\n---\n".join(versions))
    for version in versions:
        dev.publish(version)

    mail = f"""kind: create
schema: [{name[:12]}…", {schema.log_id}, 1]
fields:
  - subject: "Hello!\\n...friend"
  - body:
  - created: 2020-05-22T11:58:50+0000"""
    step("Jane writes a mail, naming the first version", mail)
    instance = jane.publish(mail.replace(f'{name[:12]}…", {schema.log_id}', name))
    show(view())
    expect(subjects() == ["Hello!\n...friend"], "the subject has two lines")

    narrower = """kind: schema-migration
fields:
  - attachments: {action: remove}
  - subject: {action: update, validation: '^[^#\\r\\n].*$', default: <Subject>}"""
    step("Version 4: a subject is one line now. Old mails are migrated, not lost", narrower)
    dev.publish(narrower)
    show(view())
    expect(subjects() == ["<Subject>"], "the two-line subject falls back to the default")

    step("Jane mends her subject, at version 4")
    jane.publish(f'kind: update\nschema: [{name}, 4]\ninstance: "{instance}"\nfields:\n  - subject: Hello! ...friend')
    show(view())
    expect(subjects() == ["Hello! ...friend"], "the update wins")

    step("A forger changes one bit of Jane's entry")
    forged = forge(jane.held[1].signed.entry)
    try:
        verify_signed(decode_entry(forged))
        expect(False, "the forged entry is refused")
    except BadSignature as error:
        console.print(f"refused: {error.message[:60]}… \\[{error.code}]\n")

    step("The developer takes version 4 back: version 5 goes on from version 3")
    dev.publish("kind: schema-revert\ntarget: 3")
    show(view())
    expect(subjects() == ["Hello!\n...friend"], "the first subject is back")
    expect(view().outcomes[1].outcome.value == "obsolete", "the update at version 4 is obsolete")

    step("Jane deletes her mail. Nobody can bring it back, whatever becomes of the schema")
    jane.publish(f'kind: delete\ninstance: "{instance}"')
    dev.publish("kind: schema-revert\ntarget: 4")
    show(view())
    expect(view().rows == [], "the row is gone")

    console.rule("[bold]Where to go next", align="left")
    console.print("docs/protocol.md   every rule        .venv/bin/inkgrove --help   every command")
    console.print("docs/outcomes.md   what became of a message, and why")


def forge(entry: Entry) -> bytes:
    """The entry with its log id changed."""
    forged = bytearray(entry.encoded)
    forged[33] ^= 1
    return bytes(forged)


if __name__ == "__main__":
    main()

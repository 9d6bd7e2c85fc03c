"""`inkgrove schema`: publish schemas and migrations as logs, look at them, try migrations out."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from inkgrove.cli.files import read_entry_lines, read_text
from inkgrove.cli.options import CommandGroup, CommandOptions
from inkgrove.cli.output import console, facts_of, note, print_facts, print_json, printable
from inkgrove.cli.schema_files import create_schema, find_schema, publish_schema_messages
from inkgrove.cli.schema_lookup import RelationTarget, open_lookup
from inkgrove.core.errors import BadValue, InkgroveError, InputError
from inkgrove.messages import Create, SchemaMeta, SchemaMigration, SchemaRevert, Update, decode_message, read_name
from inkgrove.schema import Field, LintReport, Schema, differences, lint_migration, relations_of

app = CommandGroup("Publish schemas and migrations; try them out before.", "schema init slothmail")

SchemaOption = Annotated[str | None, typer.Option("--schema", help="Name of the schema, if there are several.")]
AnySchemaOption = Annotated[
    str | None, typer.Option("--schema", help="Name of a schema here, or AUTHOR/LOG of one that the store holds.")
]


@app.command(epilog="Example: inkgrove schema init slothmail --description 'Mail, slowly'")
def init(
    options: CommandOptions,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A letter, then letters, digits and _.")],
    description: Annotated[str | None, typer.Option(help="What the schema is for.")] = None,
    homepage: Annotated[str | None, typer.Option(help="Where to read about it.")] = None,
    license_: Annotated[str | None, typer.Option("--license", help="Under which terms it is published.")] = None,
    contact: Annotated[str | None, typer.Option(help="Whom to ask.")] = None,
) -> None:
    """Start a schema: a new log with version 1, which has a name and no fields yet."""
    meta = SchemaMeta(read_name(name, "name"), description, homepage, license_, contact)
    schema = create_schema(options.home, options.store, name, meta)
    if options.as_json:
        print_json(_facts(schema, 1))
    else:
        typer.echo(f"{name} is schema {schema.id}, version 1. Next: inkgrove schema migrate FILE.yaml")


@app.command(epilog="Example: inkgrove schema migrate add-attachments.yaml --schema slothmail")
def migrate(
    options: CommandOptions,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="YAML with schema-migration messages; - is stdin.")],
    schema_name: SchemaOption = None,
) -> None:
    """Publish migrations: one new version for each message of FILE."""
    migrations = _read_migrations(file)
    schema = find_schema(options.home, schema_name).schema
    reports = []
    for migration in migrations:
        report, schema = lint_migration(schema, migration)
        reports.append(report)
    after = publish_schema_messages(options.home, options.store, schema_name, migrations)
    for report in reports:
        if options.as_json:
            print_json(_facts(after, report.version))
        else:
            typer.echo(f"version {report.version} of {after.meta.name if after.meta else after.id}")
            _print_report(report)


@app.command(epilog="Example: inkgrove schema revert 3 --schema slothmail")
def revert(
    options: CommandOptions,
    target: Annotated[int, typer.Argument(metavar="VERSION", min=1, help="The version to go on from.")],
    schema_name: SchemaOption = None,
) -> None:
    """Publish a version that takes up an earlier one; messages of those between become obsolete."""
    after = publish_schema_messages(options.home, options.store, schema_name, [SchemaRevert(target)])
    number = len(after.versions)
    if options.as_json:
        print_json(_facts(after, number))
    else:
        typer.echo(f"version {number} has the fields of version {target}; live path {_path(after, number)}")


@app.command(epilog="Example: inkgrove schema show --version 2")
def show(
    options: CommandOptions,
    version: Annotated[int | None, typer.Option(min=1, help="The version to show; the newest by default.")] = None,
    schema_name: AnySchemaOption = None,
) -> None:
    """Show a schema at a version: its fields, where it comes from, and why its known versions end."""
    with open_lookup(options) as schemas:
        schema = schemas.find(schema_name)
    number = _known_version(schema, version)
    facts = _facts(schema, number)
    if options.as_json:
        print_json(facts)
        return
    title = f"{facts['name']} at version {number} of {facts['newest']}"
    print_facts(
        title, {key: facts[key] for key in ("id", "description", "parent", "stopped") if facts[key] is not None}
    )
    table = Table()
    for heading in ("field", "type", "schema", "cascade", "validation"):
        table.add_column(heading, overflow="fold")
    for field in schema.version(number).fields:
        target = field.schema.short if field.schema else ""
        table.add_row(field.name, field.type, target, "yes" if field.cascade else "", field.validation or "")
    console().print(table if schema.version(number).fields else "no fields yet")
    typer.echo(f"live path: {_path(schema, number)}")


@app.command(epilog="Example: inkgrove schema lint add-attachments.yaml --messages feed.jsonl")
def lint(
    options: CommandOptions,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="YAML with schema-migration messages; - is stdin.")],
    messages: Annotated[
        Path | None, typer.Option(metavar="LOG", help="Log file: count how many of its values would fall back.")
    ] = None,
    held: Annotated[bool, typer.Option("--held", help="Count in the messages that the store holds.")] = False,
    schema_name: AnySchemaOption = None,
) -> None:
    """Say what migrations would do to data that is already there; nothing is published."""
    with open_lookup(options) as schemas:
        schema = schemas.find(schema_name)
        known = _read_instance_messages(messages) if messages is not None else []
        if held:
            known += schemas.messages(schema.id)
        results = []
        for migration in _read_migrations(file):
            report, schema = lint_migration(schema, migration, known)
            relations = [schemas.relation(field, target) for field, target in relations_of(schema).items()]
            results.append((report, relations))
    for report, relations in results:
        if options.as_json:
            print_json(
                {
                    "version": report.version,
                    "only_adds": report.only_adds,
                    "messages": report.messages,
                    "findings": [
                        facts_of(finding, "field effect reason values fallbacks") for finding in report.findings
                    ],
                    "relations": [
                        {
                            "field": item.field,
                            "schema": list(item.schema_id),
                            "name": item.name,
                            "version": item.version,
                            "registered": item.is_registered,
                        }
                        for item in relations
                    ],
                }
            )
        else:
            typer.echo(f"version {report.version} {'only adds' if report.only_adds else 'can lose data'}")
            _print_report(report, with_counts=held or messages is not None)
            for item in relations:
                typer.echo(f"  > {item.field}: {_describe_relation(item)}")


@app.command(epilog="Example: inkgrove schema diff 2 4")
def diff(
    options: CommandOptions,
    first: Annotated[int, typer.Argument(metavar="V1", min=1, help="One version.")],
    second: Annotated[int, typer.Argument(metavar="V2", min=1, help="Another version.")],
    schema_name: AnySchemaOption = None,
) -> None:
    """Show which fields differ between two versions."""
    with open_lookup(options) as schemas:
        schema = schemas.find(schema_name)
    found = differences(schema, _known_version(schema, first), _known_version(schema, second))
    if options.as_json:
        for item in found:
            before, after = (None if f is None else _field_facts(f) for f in (item.before, item.after))
            print_json({"kind": item.kind, "field": item.name, "before": before, "after": after})
        return
    table = Table("", "field", f"version {first}", f"version {second}")
    for item in found:
        table.add_row(item.kind, item.name, _describe(item.before), _describe(item.after))
    console().print(table if found else "no difference")


def _read_migrations(file: Path) -> list[SchemaMigration]:
    from inkgrove.messages.yaml_form import parse_messages

    migrations = []
    for message in parse_messages(read_text(file)):
        if not isinstance(message, SchemaMigration):
            raise BadValue("the file must hold schema-migration messages only", key="kind")
        migrations.append(message)
    return migrations


def _read_instance_messages(path: Path) -> list[Create | Update]:
    """Read the creates and updates of a log file; says on standard error how many lines hold something else."""
    messages: list[Create | Update] = []
    skipped = 0
    for line in read_entry_lines(path):
        try:
            message = decode_message(line.payload or b"") if not isinstance(line, tuple) else None
        except InkgroveError:
            message = None
        if isinstance(message, Create | Update):
            messages.append(message)
        else:
            skipped += 1
    if skipped:
        note(f"{skipped} lines of {path} hold no create or update and were passed over")
    return messages


def _known_version(schema: Schema, version: int | None) -> int:
    newest = len(schema.versions)
    if version is not None and version > newest:
        raise InputError(
            "input.unknown-version", f"version {version} is not known; the newest is {newest}", version=version
        )
    return version or newest


def _path(schema: Schema, newest: int) -> str:
    return " → ".join(map(str, schema.live_path(newest)))


def _field_facts(field: Field) -> dict[str, object]:
    schema = None if field.schema is None else [field.schema.author, field.schema.log_id]
    facts = {"name": field.name, "type": field.type, "schema": schema}
    return {**facts, "cascade": field.cascade, "validation": field.validation}


def _describe(field: Field | None) -> str:
    if field is None:
        return ""
    return field.type + (f" matching {field.validation}" if field.validation else "") + (", cascade" * field.cascade)


def _facts(schema: Schema, version: int) -> dict[str, object]:
    meta = schema.meta
    return {
        "schema": [schema.id.author, schema.id.log_id],
        "id": str(schema.id),
        "name": meta.name if meta else None,
        "description": meta.description if meta else None,
        "version": version,
        "newest": len(schema.versions),
        "parent": schema.version(version).parent or None,
        "live_path": list(schema.live_path(version)),
        "fields": [_field_facts(field) for field in schema.version(version).fields],
        "stopped": None if schema.stopped_by is None else f"version {schema.stopped_at}: {schema.stopped_by.message}",
    }


def _describe_relation(item: RelationTarget) -> str:
    what = f"{item.name}, version {item.version}" if item.version else "a schema that is not held here"
    waits = "; not registered: the view waits for it" if item.is_registered is False else ""
    return f"points to {item.schema_id.short}, {printable(what)}{waits}"


_MARKS = {"adds": "+", "keeps": "=", "may-lose": "!", "loses": "-"}


def _print_report(report: LintReport, *, with_counts: bool = False) -> None:
    for finding in report.findings:
        count = f" ({finding.fallbacks} of {finding.values} values)" if with_counts and finding.effect != "adds" else ""
        typer.echo(f"  {_MARKS[finding.effect]} {finding.field}: {finding.reason}{count}")

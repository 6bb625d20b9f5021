"""`lakestream schema`: the schemas of values, in the registry."""

from pathlib import Path
from typing import Annotated, Any

import typer

from lakestream.cli.clients.registry import Registry, RegistryError, read_schema
from lakestream.cli.console import complain, emit_json, fail, out, show_table
from lakestream.cli.options import DEFAULT_CATALOG, DEFAULT_REGISTRY, Catalog, Json, RegistryUrl
from lakestream.cli.tables.columns import added_columns, shape_in
from lakestream.cli.tables.rest import CatalogError, RestTables
from lakestream.metadata.topics.tables import value_subject

app = typer.Typer(no_args_is_help=True, help="Register, list and check the schemas of values.")

_NOT_FOUND = 404
SubjectName = Annotated[str, typer.Argument(metavar="SUBJECT", help="The subject: TOPIC-value has those of a topic.")]
SchemaFile = Annotated[Path, typer.Argument(metavar="FILE", help="The schema: .avsc, .proto or .json (JSON Schema).")]


@app.command()
def register(
    subject: SubjectName, file: SchemaFile, registry: RegistryUrl = DEFAULT_REGISTRY, json: Json = False
) -> None:
    """Make the schema the subject's next version, if it is compatible."""
    schema = read_schema(file)
    try:
        schema_id = Registry(registry).register(subject, schema)
    except RegistryError as error:
        fail(str(error))
    if json:
        emit_json({"subject": subject, "id": schema_id})
    else:
        out.print(f"[bold]{subject}[/] has the schema, its id is {schema_id}.")


@app.command("list")
def list_(registry: RegistryUrl = DEFAULT_REGISTRY, json: Json = False) -> None:
    """List the subjects with their latest versions."""
    known = Registry(registry)
    try:
        found = [known.version(subject) for subject in known.subjects()]
    except RegistryError as error:
        fail(str(error))
    rows = [(each["subject"], each["version"], each["id"], each.get("schemaType") or "AVRO") for each in found]
    if json:
        emit_json([dict(zip(("subject", "version", "id", "type"), row, strict=True)) for row in rows])
    elif rows:
        show_table(["subject", "version", "id", "type"], rows)
    else:
        out.print("There are no schemas yet. Try: lakestream schema register orders-value orders.avsc")


@app.command()
def check(subject: SubjectName, file: SchemaFile, registry: RegistryUrl = DEFAULT_REGISTRY, json: Json = False) -> None:
    """Say whether the schema could be the subject's next version, and what is in its way. Changes nothing."""
    problems = _problems(Registry(registry), subject, file)
    if json:
        emit_json({"subject": subject, "compatible": not problems, "messages": problems})
    elif not problems:
        out.print(f"The schema can be the next version of [bold]{subject}[/].")
    for each in () if json else problems:
        complain(each)
    if problems:
        raise typer.Exit(1)


@app.command()
def evolve(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic, or namespace.table.")],
    file: SchemaFile,
    subject: Annotated[str, typer.Option("--subject", help="If it is not TOPIC-value.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would change, and change nothing.")] = False,
    registry: RegistryUrl = DEFAULT_REGISTRY,
    catalog: Catalog = DEFAULT_CATALOG,
    json: Json = False,
) -> None:
    """Make the schema the next version of a topic's values, and say what its table gets with it.

    The columns appear with the first record that needs them.
    """
    known, name = Registry(registry), value_subject(topic, subject)
    problems = _problems(known, name, file)
    if problems:
        for each in problems:
            complain(each)
        fail(f"the schema is not compatible with what {name} has")
    schema = read_schema(file)
    tables = RestTables(catalog)
    try:
        table = tables.of_topic(topic)
        shape = shape_in({} if table is None else tables.properties(table.name))
        schema_id = 0 if dry_run else known.register(name, schema)
        described = known.as_value_schema(schema_id, {"schema": schema.text, "schemaType": schema.type})
    except (RegistryError, CatalogError) as error:
        fail(str(error))
    changes, trouble = added_columns(shape, described)
    if json:
        told: dict[str, Any] = {"subject": name, "id": None if dry_run else schema_id}
        emit_json(told | {"columns": [dict(zip(("column", "type", "change"), row, strict=True)) for row in changes]})
        return
    if trouble:
        complain(f"values of this schema stay bytes in the table: {trouble}")
    if changes:
        show_table(["column", "type", "change"], changes)
    else:
        out.print("The table has all columns that the schema needs.")
    if not dry_run:
        out.print(f"[bold]{name}[/] has the schema, its id is {schema_id}.")


def _problems(registry: Registry, subject: str, file: Path) -> list[str]:
    schema = read_schema(file)
    try:
        return registry.incompatibilities(subject, schema)
    except RegistryError as error:
        if error.status == _NOT_FOUND:
            return []
        fail(str(error))

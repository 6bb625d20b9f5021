"""Which tables are derived from a topic's, as its settings have it. Pure."""

from lakestream.metadata.names.derived import DerivedKind, DerivedRow
from lakestream.metadata.names.rows import TableName
from lakestream.metadata.topics.options import TopicOptions
from lakestream.metadata.topics.tables import clashing_name
from lakestream.table.deriving.recipe import LETTERS, DerivedShape, Recipe, recipe_text
from lakestream.table.shape import TableColumn, TableShape
from lakestream.table.view import View


def latest_recipe(options: TopicOptions) -> Recipe | None:
    """None: there is no table of latest rows."""
    if not options.upsert:
        return None
    return Recipe("latest", options.upsert, options.order_column, options.transform)


def recipes(options: TopicOptions, shape: TableShape) -> dict[DerivedKind, Recipe]:
    """Of a topic whose table has this shape: only a typed one can have dead letters."""
    found: dict[DerivedKind, Recipe] = {}
    latest = latest_recipe(options)
    if latest is not None:
        found["latest"] = latest
    if options.dead_letters and shape.codec:
        found["dlq"] = LETTERS
    return found


def may_stay(row: DerivedRow, options: TopicOptions) -> bool:
    """Whether the topic's settings still ask for what was derived."""
    if row.kind == "dlq":
        return options.dead_letters and row.recipe == recipe_text(LETTERS)
    latest = latest_recipe(options)
    return latest is not None and row.recipe == recipe_text(latest)


def wanted_name(view: View, kind: DerivedKind) -> TableName:
    """Beside the stream's table."""
    *namespace, name = view.table.split(".")
    return TableName(tuple(namespace), f"{name}__{kind}")


def has_name(row: DerivedRow, table: str, wanted: TableName) -> bool:
    return table in (str(wanted), str(clashing_name(wanted, row.table_id)))


def followed(present: DerivedShape, wanted: DerivedShape) -> DerivedShape:
    """The columns of a derived table after those of its stream have changed: what is new comes behind the others, what
    is wider is wider, what is gone stays with its rows. Names stay. Raises ValueError where that cannot be."""
    asked = {column.field_id: column for column in wanted.columns.columns}
    columns = [_named_as(column, asked.get(column.field_id)) for column in present.columns.columns]
    known = {column.field_id for column in columns}
    columns += [column for column in wanted.columns.columns if column.field_id not in known]
    names = [column.name for column in columns]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(
            f"the stream's table has dropped {', '.join(twice)} and has another column of that name now: set"
            " lakestream.table.upsert to nothing and back, and the table is made anew"
        )
    return DerivedShape(present.recipe, TableShape(tuple(columns)))


def _named_as(present: TableColumn, wanted: TableColumn | None) -> TableColumn:
    if wanted is None:
        return present
    return TableColumn(
        present.field_id,
        present.name,
        wanted.kind,
        present.is_required,
        present.encoding,
        present.has_statistics,
        present.is_full,
        present.is_noise,
        wanted.below,
        wanted.precision,
        wanted.scale,
        wanted.content,
        present.source,
    )

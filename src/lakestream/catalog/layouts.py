"""The layout that a table's default partition spec asks for. Pure."""

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import UnknownTransform, VoidTransform

from lakestream.table.layout import Layout, LayoutField
from lakestream.table.schema import STREAM_SPEC_ID, stream_spec
from lakestream.table.shape import TableShape


def layout_of(metadata: TableMetadata, shape: TableShape) -> Layout | None:
    """None: files lie as streams have them. So they do, too, where a field is of a column that no stream fills, or that
    is inside of another, and where the spec lacks the log's own fields."""
    spec = metadata.spec()
    if spec.spec_id <= STREAM_SPEC_ID:
        return None
    columns = {column.field_id: column for column in shape.columns}
    fields = [field for field in spec.fields if not isinstance(field.transform, VoidTransform)]
    if len(fields) < len(spec.fields) or any(isinstance(field.transform, UnknownTransform) for field in fields):
        return None
    if any(field.source_id not in columns or columns[field.source_id].below for field in fields):
        return None
    ours = {(field.source_id, str(field.transform)) for field in stream_spec(shape).fields}
    if not ours <= {(field.source_id, str(field.transform)) for field in fields}:
        return None
    return Layout(
        spec.spec_id, tuple(LayoutField(columns[field.source_id].name, str(field.transform)) for field in fields)
    )

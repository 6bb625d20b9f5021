"""What a table's default partition spec and sort order ask of its files. Pure."""

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import NullOrder, SortDirection
from pyiceberg.transforms import UnknownTransform, VoidTransform

from lakestream.table.layout import Layout, LayoutField, OrderField, RowOrder
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


def order_of(metadata: TableMetadata, shape: TableShape) -> RowOrder | None:
    """None: rows lie in the log's order. So they do, too, where a field is of a column that no stream fills, or that is
    inside of another."""
    order = metadata.sort_order()
    columns = {column.field_id: column for column in shape.columns}
    if not order.fields or any(isinstance(field.transform, UnknownTransform | VoidTransform) for field in order.fields):
        return None
    if any(field.source_id not in columns or columns[field.source_id].below for field in order.fields):
        return None
    return RowOrder(
        order.order_id,
        tuple(
            OrderField(
                columns[field.source_id].name,
                str(field.transform),
                field.direction == SortDirection.DESC,
                field.null_order == NullOrder.NULLS_FIRST,
            )
            for field in order.fields
        ),
    )

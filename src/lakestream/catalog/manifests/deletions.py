"""Rows that engines have deleted without rewriting their file, as manifests name them. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from pyiceberg.manifest import DATA_FILE_TYPE, DataFileContent, FileFormat
from pyiceberg.manifest import DataFile as IcebergFile

from lakestream.model import DataFile, DeletionVector, PositionDeletes
from lakestream.objects.paths import same_form

_DATA_FILE, _START, _SIZE = (
    [field.name for field in DATA_FILE_TYPE[3].fields].index(name)
    for name in ("referenced_data_file", "content_offset", "content_size_in_bytes")
)


def to_deletes(file: IcebergFile) -> PositionDeletes:
    """What is wrong with an entry by itself is its trouble."""
    deletes = PositionDeletes(file.file_path, file.record_count)
    if file.content == DataFileContent.EQUALITY_DELETES:
        trouble = (
            f"{file.file_path} has equality deletes, which cannot be applied to a stream: let the engine delete by"
            " position or by copy (merge-on-read or copy-on-write in Spark), or rewrite the data files with it"
        )
        return replace(deletes, trouble=trouble)
    if file.file_format == FileFormat.PUFFIN:
        return _vector(file, deletes)
    if file.file_format != FileFormat.PARQUET:
        trouble = (
            f"{file.file_path} has deletes that are not Parquet, which are not read: set"
            " write.delete.format.default=parquet and rewrite the data files with the engine that wrote them"
        )
        return replace(deletes, trouble=trouble)
    return deletes


def _vector(file: IcebergFile, deletes: PositionDeletes) -> PositionDeletes:
    """Its place is told by manifests of deletes alone, in format version 3."""
    told: list[Any] = [file[place] if place < len(file) else None for place in (_DATA_FILE, _START, _SIZE)]
    if None in told:
        trouble = (
            f"{file.file_path} has deletion vectors, and the manifest does not tell where they are and of which data"
            " file: rewrite the data files with the engine that wrote them"
        )
        return replace(deletes, trouble=trouble)
    data_file, start, size_bytes = told
    return replace(deletes, vector=DeletionVector(data_file, start, size_bytes, file.file_size_in_bytes))


def placed(files: Iterable[DataFile], deletes: Sequence[PositionDeletes]) -> tuple[PositionDeletes, ...]:
    """The deletes of a view, with what its data files say of the vectors among them. A vector of no file of the view,
    or one of two of the same file, is in trouble: the row that it deletes may be served by mistake."""
    vectors = [delete.vector for delete in deletes if delete.vector is not None]
    if not vectors:
        return tuple(deletes)
    wanted = Counter(same_form(vector.data_file) for vector in vectors)
    row_counts = {path: file.record_count for file in files if (path := same_form(file.path)) in wanted}
    return tuple(_placed(delete, row_counts, wanted) for delete in deletes)


def _placed(delete: PositionDeletes, row_counts: dict[str, int], wanted: Counter[str]) -> PositionDeletes:
    vector = delete.vector
    if vector is None:
        return delete
    path = same_form(vector.data_file)
    trouble = ""
    if path not in row_counts:
        trouble = f"{delete.path} has a deletion vector of {path}, which is none of the table's files"
    elif wanted[path] > 1:
        trouble = f"{path} has {wanted[path]} deletion vectors, and nobody can tell which of them holds"
    elif not 0 <= delete.record_count <= row_counts[path]:
        trouble = f"{delete.path} deletes {delete.record_count} rows of {path}, which has {row_counts[path]}"
    if trouble:
        return replace(delete, trouble=f"{trouble}: rewrite the data files with the engine that wrote it")
    return replace(delete, vector=replace(vector, row_count=row_counts[path]))

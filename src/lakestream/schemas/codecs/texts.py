"""Values that are text as a whole, in the one column `value`: any UTF-8 (`text-1`), or any JSON (`json-text-1`). What
is not that stays bytes."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakestream.records import Binary
from lakestream.records.native import address
from lakestream.schemas.codecs.kernels.json.layout import MAX_JSON_LEVELS
from lakestream.schemas.codecs.native import kernels
from lakestream.schemas.mapping import ROOT
from lakestream.table.parquet.arrow import bytes_in, offsets_in, valid_rows
from lakestream.table.parquet.codec import DecodedValues
from lakestream.table.shape import TableShape

TEXT: Final = "text-1"
JSON_TEXT: Final = "json-text-1"
NO_SCHEMA: Final = 0
"""Stands where rows of other codecs have the id of their schema. No registry gives it."""


class TextCodec:
    """Implements `ValueCodec`."""

    def __init__(self, *, is_json: bool) -> None:
        self._is_json = is_json

    def decode(self, values: pa.Array, shape: TableShape) -> DecodedValues:
        states = self._checked(values)
        is_text = states != 0
        offsets = pa.py_buffer(offsets_in(values))
        bitmap = None if is_text.all() else pa.py_buffer(np.packbits(is_text, bitorder="little"))
        texts = pa.Array.from_buffers(pa.string(), len(values), [bitmap, offsets, pa.py_buffer(bytes_in(values))])
        ids = pa.array(np.full(len(values), NO_SCHEMA, np.int32), mask=~is_text)
        return DecodedValues({ROOT: texts}, is_text, is_text, ids)

    def encode(
        self, columns: Mapping[str, pa.Array], schema_ids: npt.NDArray[np.int64], raw: Binary, shape: TableShape
    ) -> Binary:
        """A text that an engine has put in a text's place is the value, whatever it holds: its checksum tells."""
        kept = pa.Array.from_buffers(
            pa.binary(),
            len(raw.valid),
            [
                pa.py_buffer(np.packbits(raw.valid != 0, bitorder="little")),
                pa.py_buffer(raw.offsets),
                pa.py_buffer(raw.data),
            ],
        )
        texts = pc.fill_null(columns[ROOT].cast(pa.binary()), b"")
        values = pc.if_else(pa.array(schema_ids >= 0), texts, kept)
        return Binary(offsets_in(values), bytes_in(values), valid_rows(values))

    def explain(self, value: bytes, shape: TableShape) -> str:
        if self._checked(pa.array([value], pa.binary()))[0]:
            return "the value is as it should be"
        try:
            value.decode()
        except UnicodeDecodeError as error:
            return f"the value is not UTF-8: {error.reason} at byte {error.start}"
        return f"the value is not JSON, or nests deeper than {MAX_JSON_LEVELS} levels"

    def _checked(self, values: pa.Array) -> npt.NDArray[np.uint8]:
        states = np.zeros(len(values), np.uint8)
        arrays: list[npt.NDArray[Any]] = [offsets_in(values), bytes_in(values), valid_rows(values)]
        where = [int(address(array)) for array in arrays]
        kernels().check_texts(*where, len(values), int(self._is_json), address(states))
        return states

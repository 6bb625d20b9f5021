"""The container of statistics: PyIceberg reads what we write; what is damaged is refused, never misread."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.table.puffin import PuffinFile

from lakestream.errors import CorruptObject
from lakestream.model import Blob
from lakestream.table.parquet.puffin import StoredBlob, read_puffin, write_puffin
from lakestream.table.rewriting.distinct import BadSketch, KeySketch

BLOBS = st.lists(
    st.builds(
        StoredBlob,
        st.builds(
            Blob,
            st.sampled_from(["apache-datasketches-theta-v1", "another-v1"]),
            st.lists(st.integers(0, 2**31 - 1)).map(tuple),
            st.integers(-(2**63), 2**63 - 1),
            st.integers(0, 2**63 - 1),
            st.dictionaries(st.text(), st.text(), max_size=3),
        ),
        st.binary(max_size=200),
        st.none(),
    ),
    max_size=4,
)


@given(BLOBS)
def test_what_is_written_is_read_also_by_pyiceberg(blobs: list[StoredBlob]) -> None:
    data, footer_bytes = write_puffin(blobs)
    assert read_puffin("x", data) == blobs
    theirs = PuffinFile(data)
    assert [theirs.get_blob_payload(blob) for blob in theirs.footer.blobs] == [stored.data for stored in blobs]
    assert data[-footer_bytes:][:4] == data[:4] == data[-4:] == b"PFA1"
    assert len(data) - footer_bytes == 4 + sum(len(stored.data) for stored in blobs)


@given(BLOBS, st.data())
def test_damage_is_refused_or_is_somebodys_words(blobs: list[StoredBlob], draw: st.DataObject) -> None:
    data = bytearray(write_puffin(blobs)[0])
    at = draw.draw(st.integers(0, len(data) - 1))
    data[at] ^= draw.draw(st.integers(1, 255))
    cut = bytes(data[: draw.draw(st.integers(0, len(data)))])
    for damaged in (bytes(data), cut):
        try:
            found = read_puffin("x", damaged)
        except CorruptObject:
            continue
        assert sum(len(stored.data) for stored in found) <= len(damaged) * max(1, len(found))


@given(st.binary(max_size=300))
def test_bytes_that_are_no_sketch_are_refused(data: bytes) -> None:
    with pytest.raises(BadSketch):
        KeySketch().join(b"\x7f" + data)

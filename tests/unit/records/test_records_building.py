"""Records told one by one, as batches."""

from hypothesis import given
from hypothesis import strategies as st
from support.clients.records import parse

from lakestream.records import BatchRules, validate, walk
from lakestream.records.building import PlainRecord, batches_of

BYTES = st.none() | st.binary(max_size=20)
HEADERS = st.lists(st.tuples(st.text(max_size=4).map(str.encode), BYTES), max_size=3)
RECORDS = st.builds(PlainRecord, BYTES, BYTES, st.integers(0, 1 << 42), HEADERS)


@given(st.lists(RECORDS, min_size=1, max_size=30), st.sampled_from([1, 100, 1 << 20]))
def test_batches_have_the_records_as_they_were_told(records: list[PlainRecord], most_bytes: int) -> None:
    found = []
    for built in batches_of(records, most_bytes):
        [info] = walk(built.run)
        assert info.record_count == built.record_count
        validate(built.run, BatchRules(1 << 30), 0)
        parsed = parse([built.run])
        assert [each.offset for each in parsed] == list(range(parsed[0].offset, parsed[0].offset + built.record_count))
        found += parsed
    told = [(each.key, each.value, each.timestamp_ms, list(each.headers)) for each in found]
    assert told == [
        (each.key, each.value, each.timestamp_ms, [(name.decode(), value) for name, value in each.headers])
        for each in records
    ]

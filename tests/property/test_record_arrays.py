"""Decoding many batches in one call gives the records of each batch decoded alone; a batch that cannot be decoded gives
no records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow", reason="the extra pipeline is not installed")

from tests.support.examples import examples  # noqa: E402

from oncelog.consumer.records import ColumnBatch, UndecodedBatch, undecoded  # noqa: E402
from oncelog.errors import CorruptRecords  # noqa: E402
from oncelog_pipeline.spark.record_arrays import record_arrays  # noqa: E402
from oncelog_pipeline.spark.source_columns import BatchBuilder  # noqa: E402
from oncelog_protocol.records.batch import ATTRIBUTES_AT, TIMESTAMP_TYPE_BIT, CorruptBatch, RecordBatch  # noqa: E402
from oncelog_protocol.records.builder import build_batch  # noqa: E402
from oncelog_protocol.records.columns import MAX_DECOMPRESSED_BYTES  # noqa: E402
from oncelog_protocol.records.compression import Compression  # noqa: E402
from oncelog_protocol.records.record import Record  # noqa: E402
from oncelog_protocol.records.record_scan import scan_spans  # noqa: E402
from oncelog_protocol.records.rewrite import rewrite_batch  # noqa: E402

TOPIC = "t"
TIMES = st.one_of(st.just(1_700_000_000_000), st.integers(-1, 2**43))
SIZES = st.one_of(st.none(), st.sampled_from([0, 1, 62, 63, 64, 70, 127, 128, 8191, 8200]), st.integers(0, 300))
RUN = st.tuples(
    st.integers(1, 90),  # number of similar records
    SIZES,  # bytes of the key; None means a null key
    SIZES,  # bytes of the value; None means a null value
    st.sampled_from([0, 0, 1, 40, -3000, 10**7]),  # milliseconds between consecutive records
)
BATCH = st.fixed_dictionaries(
    {
        "runs": st.lists(RUN, min_size=1, max_size=4),
        "time": TIMES,
        "compression": st.sampled_from(list(Compression)),
        "is_append_time": st.booleans(),
        "kept": st.one_of(st.none(), st.integers(1, 5)),  # keep every n-th record; None keeps all
        "gap": st.sampled_from([0, 0, 7]),  # number of unused offsets before the batch
        "has_headers": st.sampled_from([False] * 9 + [True]),
    }
)

SMALL_RUN = st.tuples(st.integers(1, 12), st.sampled_from([None, 0, 2]), st.sampled_from([None, 0, 2]), st.just(1))
SMALL_BATCH = st.fixed_dictionaries(
    {
        "runs": st.lists(SMALL_RUN, min_size=1, max_size=2),
        "time": st.just(1000),
        "compression": st.just(Compression.NONE),
        "is_append_time": st.just(False),
        "kept": st.none(),
        "gap": st.just(0),
        "has_headers": st.just(False),
    }
)
"""A batch small enough that nearly every byte is a length, a delta or a count."""
DAMAGE = st.tuples(
    st.sampled_from([0, 0xFF]),  # Bits of a byte to keep, and bits to flip.
    st.one_of(st.sampled_from([1, 2, 3, 4, 5, 6, 7, 0x7F, 0x80, 0x81, 0xFF]), st.integers(0, 255)),
)


def made(described: dict[str, Any], base_offset: int) -> RecordBatch:
    records, time = [], described["time"]
    for count, key_size, value_size, gap_ms in described["runs"]:
        for index in range(count):
            key = None if key_size is None else (b"%d" % index * key_size)[:key_size]
            value = None if value_size is None else (b"%d" % (index * 7) * value_size)[:value_size]
            records.append(Record(0, max(-1, time), key, value, []))
            time += gap_ms
    if described["has_headers"]:
        records[len(records) // 2].headers.append(("h", b"v"))
    data = build_batch(records, compression=described["compression"], base_offset=base_offset)
    if described["is_append_time"]:
        data[ATTRIBUTES_AT + 1] |= TIMESTAMP_TYPE_BIT
    batch = RecordBatch(data)
    if described["kept"] is None:
        return batch
    plain = undecoded(batch, 0, MAX_DECOMPRESSED_BYTES)
    assert plain is not None
    spans = [span for spans in scan_spans(batch, plain.data) for span in spans]
    return RecordBatch(rewrite_batch(batch, plain.data, spans[:: described["kept"]], delete_horizon_ms=None))


def parts_of(described: Sequence[dict[str, Any]]) -> list[UndecodedBatch]:
    parts, offset = [], 5
    for each in described:
        batch = made(each, offset + each["gap"])
        offset = batch.next_offset
        part = undecoded(batch, batch.base_offset, MAX_DECOMPRESSED_BYTES)
        assert part is not None
        parts.append(part)
    return parts


def together(parts: Sequence[UndecodedBatch]) -> list[UndecodedBatch]:
    """Decode batches as a Fetch response contains them: a view of a buffer that has other bytes before them."""
    answer = memoryview(bytearray(b"an answer" + b"".join(part.batch.view for part in parts)))[9:]
    found, position = [], 0
    for part in parts:
        batch = RecordBatch(answer, position)
        data = batch.payload if batch.compression == Compression.NONE else part.data
        found.append(part._replace(batch=batch, data=data))
        position += batch.size
    return found


def rows(columns: Sequence[ColumnBatch]) -> list[tuple[Any, ...]]:
    return [
        (key, value, TOPIC, 3, offset, time * 1000 if time >= 0 else None, batch.timestamp_type)
        for batch in columns
        for key, value, offset, time in zip(batch.keys, batch.values, batch.offsets, batch.timestamps_ms, strict=True)
    ]


def gathered(parts: Sequence[UndecodedBatch]) -> list[tuple[Any, ...]]:
    builder = BatchBuilder(TOPIC, 3, includes_headers=False)
    for part in parts:
        builder.add(part)
    batch = builder.take()
    if batch is None:
        return []
    batch.validate(full=True)
    columns = [
        batch["timestamp"].cast(pa.int64()) if name == "timestamp" else batch[name] for name in batch.schema.names
    ]
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


@examples(60, of=150)
@given(st.lists(BATCH, min_size=1, max_size=5), st.data())
def test_the_rows_are_those_of_each_batch(described: list[dict[str, Any]], data: st.DataObject) -> None:
    repeats = data.draw(st.integers(1, 3), "repeats")  # consecutive batches with the same lengths
    parts = parts_of([each for each in described for _ in range(repeats)])
    if data.draw(st.booleans(), "cut"):
        start = data.draw(st.integers(0, parts[-1].end), "start")
        end = data.draw(st.integers(start, parts[-1].end + 5), "end")
        parts = [cut for part in parts if (cut := part.cut(start, end)) is not None]
    expected = rows([columns for part in parts if (columns := part.decoded()) is not None])
    if data.draw(st.booleans(), "of one answer"):
        parts = together(parts)
    assert gathered(parts) == expected
    if parts and not any(each["has_headers"] for each in described):
        arrays = record_arrays(parts)
        assert arrays is not None, "not the way of plain records"
        assert len(arrays.offsets) == len(expected)


@settings(examples(150, of=400), suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(SMALL_BATCH, min_size=1, max_size=2), st.data())
def test_damaged_records_are_no_rows(described: list[dict[str, Any]], data: st.DataObject) -> None:
    """Whatever bytes a batch has, rows and errors equal those of the decoder of single batches."""
    parts = parts_of(described)
    which = data.draw(st.integers(0, len(parts) - 1), "batch")
    content = bytearray(parts[which].data)
    for _ in range(data.draw(st.integers(1, 2), "changes")):
        at = data.draw(st.integers(0, len(content) - 1), "at")
        kept, changed = data.draw(DAMAGE, "change")
        content[at] = content[at] & kept ^ changed
    content = content[: len(content) - data.draw(st.sampled_from([0, 0, 0, 1, 5]), "cut")]
    parts[which] = damaged(parts[which], bytes(content))
    if data.draw(st.booleans(), "of one answer"):
        parts = together(parts)
    try:
        expected = rows([columns for part in parts if (columns := part.decoded()) is not None])
    except CorruptBatch as error:
        event("refused")
        with pytest.raises(CorruptRecords) as raised:
            gathered(parts)
        assert str(error) in str(raised.value)
        assert f"{TOPIC}-3: the batch of offsets {parts[which].batch.base_offset} to " in str(raised.value)
    else:
        assert gathered(parts) == expected


def damaged(part: UndecodedBatch, content: bytes) -> UndecodedBatch:
    """Return the batch with these bytes in place of its records."""
    whole = bytearray(part.batch.view)[: -len(part.data)] + content
    whole[8:12] = (len(whole) - 12).to_bytes(4, "big")
    return part._replace(batch=RecordBatch(whole), data=content)

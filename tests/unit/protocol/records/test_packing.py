"""Records packed in bulk equal, byte for byte, records that are appended one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog_protocol.records.builder import RecordBatchBuilder
from oncelog_protocol.records.varint import TWO_BYTES

LARGE = 1 << 20
sizes = st.lists(st.integers(0, 40) | st.sampled_from([63, 64, 8191, 8192]), min_size=1, max_size=80)


def batch_with(count: int, limit: int) -> RecordBatchBuilder:
    builder = RecordBatchBuilder(limit)
    for _ in range(count):
        assert builder.append(1_000, None, b"") is not None
    return builder


def extended(builder: RecordBatchBuilder, timestamp: int, keys: list[bytes] | None, values: list[bytes]) -> bytes:
    done = 0
    while done < len(values):
        count = builder.extend(timestamp, keys[done:] if keys is not None else None, values[done:])
        if not count:
            break
        done += count
    builder.close()
    return bytes(builder.build())


def appended(builder: RecordBatchBuilder, timestamp: int, keys: list[bytes] | None, values: list[bytes]) -> bytes:
    for index, value in enumerate(values):
        if builder.append(timestamp, keys[index] if keys is not None else None, value) is None:
            break
    builder.close()
    return bytes(builder.build())


@given(sizes, st.none() | sizes, st.integers(1, 70), st.sampled_from([0, 999, 1_000, 2**40]), st.integers(800, 20_000))
def test_packed_records_equal_appended_ones(
    value_sizes: list[int], key_sizes: list[int] | None, before: int, timestamp: int, limit: int
) -> None:
    values = [b"v" * size for size in value_sizes]
    keys = key_sizes and [b"k" * key_sizes[index % len(key_sizes)] for index in range(len(values))]
    one_by_one, at_once = batch_with(before, limit), batch_with(before, limit)
    assert extended(at_once, timestamp, keys, values) == appended(one_by_one, timestamp, keys, values)
    assert at_once.records_count == one_by_one.records_count
    assert at_once.max_timestamp == one_by_one.max_timestamp


@pytest.mark.parametrize("before", [TWO_BYTES - 2, TWO_BYTES - 1, TWO_BYTES, TWO_BYTES + 1])
def test_packing_is_right_where_offset_deltas_grow_by_a_byte(before: int) -> None:
    values = [b"%d" % number for number in range(5)]
    expected = appended(batch_with(before, LARGE), 1_000, None, values)
    assert extended(batch_with(before, LARGE), 1_000, None, values) == expected


def test_records_that_will_not_fit_are_not_examined() -> None:
    """The batch has room for only a few of the many large values."""
    looks = []

    class Value(bytes):
        def __len__(self) -> int:
            looks.append(1)
            return super().__len__()

    builder = batch_with(1, 10_000)
    assert builder.extend(1_000, None, [Value(b"v" * 3_000)] * 1_000) == 3
    assert len(looks) < 10

"""A task that writes does not import pandas, which takes longer than most tasks; programs in the same process can use
pandas afterwards.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa

from oncelog_pipeline.arrow import without_pandas
from oncelog_pipeline.arrow.without_pandas import (
    arrow_array,
    binary_scalar,
    one_value,
    patch_next_pa_array,
    zero,
)

SECONDS = 60
WRITES = """
import asyncio, sys

import pyarrow as pa
from oncelog_pipeline.arrow.record_columns import record_columns
from oncelog_pipeline.arrow.without_pandas import patch_next_pa_array
from oncelog_pipeline.spark.row_sender import RowSender

class Sender:
    sent = 0

    async def partition_count(self, topic):
        return 3

    def count(self, topic, rows):
        assert rows.digest(topic).rows == len(rows)

    async def send_packed(self, topic, partition, rows):
        self.sent += len(rows)
        rows.row(0, 1)
        rows.pack(0, 1, 1, 1, 100_000)
        for batch in rows.batches(1, 200) or ():
            assert batch.timestamps_ms

with pa.ipc.open_stream(sys.stdin.buffer) as stream:
    batches = list(stream)
for joined in (batches[:1], batches):
    sender = Sender()
    asyncio.run(RowSender(sender, TOPIC, 0, 0).send_all(iter(joined)))
    assert sender.sent == 40 * len(joined)
patch_next_pa_array()
patch_next_pa_array()
message = pa.record_batch([pa.array([b"message"])], names=["message"])
assert "pandas" not in sys.modules
assert message.to_pylist() == [{"message": b"message"}] and message.schema.field(0).type == pa.binary()
assert pa.array is pa.lib.array

# pyarrow finds pandas afterwards
import pandas
assert pa.array(pandas.Series([1.0, float("nan")])).to_pylist() == [1.0, None]
assert pa.array([1]).to_pandas().to_list() == [1]
"""

FIELDS: dict[str, Any] = {
    "value": [b"v" * number for number in range(40)],
    "key": [None if number % 7 == 0 else b"%d" % number for number in range(40)],
    "timestamp": [None if number % 7 == 0 else number for number in range(40)],
    "partition": [None if number % 7 == 0 else number % 3 for number in range(40)],
    "headers": [[] if number % 7 == 0 else [{"key": "h", "value": b"x"}] for number in range(40)],
    "topic": ["a" if number % 2 else "b" for number in range(40)],
}
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
KINDS = {
    "value": pa.binary(),
    "key": pa.binary(),
    "timestamp": pa.timestamp("us", "UTC"),
    "partition": pa.int32(),
    "headers": HEADERS,
    "topic": pa.string(),
}


@pytest.mark.skipif(not without_pandas.FAST_LISTS, reason="pandas is imported for the digest of short values")
@pytest.mark.parametrize("nulls", [True, False], ids=["nulls", "no nulls"])
@pytest.mark.parametrize("names", [["value"], ["value", "key"], list(KINDS)], ids=["values", "keys", "all columns"])
def test_a_task_does_not_import_pandas(names: list[str], nulls: bool) -> None:
    fields = {
        name: pa.array([FIELDS[name][1] if each is None and not nulls else each for each in FIELDS[name]], KINDS[name])
        for name in names
    }
    batch = pa.RecordBatch.from_pydict(fields)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write(batch)
        stream.write(batch)
    topic = None if "topic" in names else "t"
    program = f"TOPIC = {topic!r}\n{WRITES}"
    subprocess.run([sys.executable, "-c", program], input=sink.getvalue(), check=True, timeout=SECONDS)


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_values_equal_those_of_pyarrow(kind: Any) -> None:
    assert binary_scalar(b"abc", kind) == pa.scalar(b"abc", kind)
    assert binary_scalar(b"", kind) == pa.scalar(b"", kind)
    assert one_value(b"abc", kind).equals(pa.array([b"abc"], kind))
    for number in (pa.int8(), pa.int32(), pa.int64()):
        assert zero(number) == pa.scalar(0, number)
    values = np.arange(20, dtype=np.int64)[::2]
    assert arrow_array(values, pa.int64(), values > 9).equals(pa.array(values, mask=values > 9))


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (([b"a"],), {}),
        (([b"a", b"b"],), {}),
        (([None],), {}),
        ((["a"],), {}),
        (([bytearray(b"a")],), {}),
        (([b"a"],), {"type": pa.large_binary()}),
        (([b"a"], pa.string()), {}),
        ((), {"obj": [b"a"]}),
        ((np.arange(3),), {}),
    ],
)
def test_the_replaced_function_returns_what_pyarrow_returns(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[Any, ...], options: dict[str, Any]
) -> None:
    monkeypatch.delitem(sys.modules, "pandas", raising=False)
    original, expected = pa.array, pa.array(*arguments, **options)
    patch_next_pa_array()
    assert pa.array is not original
    found = pa.array(*arguments, **options)
    assert pa.array is original, "only the next call is replaced"
    assert found.equals(expected) and found.type == expected.type


def test_nothing_is_replaced_if_pandas_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", object())  # type: ignore[arg-type]
    patch_next_pa_array()
    assert pa.array is without_pandas._array

import asyncio

import pytest

from oncelog.errors import DeliveryTimeout, KafkaError
from oncelog.producer.batch import ProducerBatch, RecordMetadata
from oncelog_protocol.records.batch import RecordBatch
from oncelog_protocol.records.builder import RecordBatchBuilder
from oncelog_protocol.records.compression import Compression
from oncelog_protocol.records.record import read_records


async def batch_of(values: list[bytes], size_limit: int = 100_000) -> ProducerBatch:
    loop = asyncio.get_running_loop()
    batch = ProducerBatch("t", 3, (7,), RecordBatchBuilder(size_limit), 0.0, 1.0)
    for index, value in enumerate(values):
        assert batch.append(1000 + index, b"k", value, [("h", b"v")], loop.create_future())
    return batch


async def test_each_record_learns_its_offset() -> None:
    batch = await batch_of([b"a", b"b"])
    batch.acknowledge(40)
    assert [future.result() for future in batch.waiters] == [  # type: ignore[attr-defined]
        RecordMetadata("t", 3, 40, 1000),
        RecordMetadata("t", 3, 41, 1001),
    ]


async def test_the_log_append_time_is_returned_where_the_log_stamps() -> None:
    batch = await batch_of([b"a", b"b"])
    batch.acknowledge(40, 5555)
    assert {future.result().timestamp_ms for future in batch.waiters} == {5555}  # type: ignore[attr-defined]


async def test_a_record_sent_without_acks_has_no_offset() -> None:
    batch = await batch_of([b"a", b"b"])
    batch.acknowledge(-1)
    assert {future.result().offset for future in batch.waiters} == {-1}  # type: ignore[attr-defined]


async def test_a_future_that_was_cancelled_is_left_alone() -> None:
    batch = await batch_of([b"a", b"b", b"c"])
    batch.waiters[1].cancel()  # type: ignore[attr-defined]
    batch.acknowledge(0)
    assert [waiter.done() for waiter in batch.waiters] == [True, True, True]
    batch.fail(DeliveryTimeout("late"))
    assert batch.waiters[0].exception() is None


async def test_all_records_of_a_batch_fail_together() -> None:
    batch = await batch_of([b"a", b"b"])
    batch.fail(DeliveryTimeout("late"))
    for waiter in batch.waiters:
        assert isinstance(waiter.exception(), KafkaError)


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.LZ4])
async def test_a_split_keeps_every_record_and_its_waiter_in_order(compression: Compression) -> None:
    values = [bytes([65 + index]) * 50 for index in range(11)]
    batch = await batch_of(values)
    batch.close(compression)
    pieces = batch.split(batch.uncompressed_size // 2)
    for piece in pieces:
        piece.close(compression)
    records = [record for piece in pieces for record in read_records(RecordBatch(piece.builder.build()))]
    assert [record.value for record in records] == values
    assert [record.timestamp for record in records] == [1000 + index for index in range(11)]
    assert all(record.key == b"k" and record.headers == [("h", b"v")] for record in records)
    assert [waiter for piece in pieces for waiter in piece.waiters] == batch.waiters
    assert len(pieces) >= 2
    assert [piece.order for piece in pieces] == [(7, index) for index in range(len(pieces))]


async def test_pieces_sort_between_the_batches_around() -> None:
    assert sorted([(8,), (7, 1), (7, 0, 1), (6,), (7, 0, 0)]) == [(6,), (7, 0, 0), (7, 0, 1), (7, 1), (8,)]

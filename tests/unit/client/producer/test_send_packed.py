"""Records that encode themselves (`send_packed`) result in the same batches, futures, errors and traces as
`send_columns`.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.fake_transactions import FakeCoordinator
from tests.support.self_encoding_rows import Rows
from tests.support.transactional_producers import P0, started

from oncelog import Producer
from oncelog.errors import AbortableError, ErrorCode, InvalidTransactionState, MessageTooLarge, StaleMetadata
from oncelog.producer.columns import Columns
from oncelog.producer.packable_rows import all_columns
from oncelog_protocol.messages.produce import ProduceRequest
from oncelog_protocol.records.batch import RecordBatch

VALUES = [b"%d" % number * (number % 20) for number in range(300)]


def written(broker: Any) -> list[tuple[bytes, bytes]]:
    return [(bytes(record.key), bytes(record.value)) for record in broker.records()]


async def test_packed_records_are_written_in_order_over_many_batches(fake_broker: Any) -> None:
    rows = Rows(VALUES)
    async with Producer(fake_broker.address, batch_size=1000, linger_ms=1000) as producer:
        before = await producer.send("topic", b"before", b"before", partition=0)
        future = await producer.send_packed("topic", 0, rows)
        after = await producer.send("topic", b"after", b"after", partition=0)
        await producer.flush()
        assert [(await each).offset for each in (before, future, after)] == [0, 1, len(VALUES) + 1]
    assert written(fake_broker) == [(each, each) for each in (b"before", *VALUES, b"after")]
    assert rows.asked < len(VALUES) / 5


async def test_packed_records_that_cannot_be_sent_are_refused(fake_broker: Any) -> None:
    async with Producer(fake_broker.address, max_request_size=1000) as producer:
        with pytest.raises(StaleMetadata):
            await producer.send_packed("topic", 9, Rows([b"v"]))
        with pytest.raises(MessageTooLarge, match=r"max\.request\.size is 1000"):
            await producer.send_packed("topic", 0, Rows([b"v", b"v" * 2000]))
        await producer.flush()
    assert written(fake_broker) == [(b"v", b"v")]


@pytest.mark.parametrize("compression", ["none", "gzip"])
async def test_whole_batches_come_after_the_records_before_them(fake_broker: Any, compression: str) -> None:
    """The records before and after whole batches are in batches of their own."""
    async with Producer(fake_broker.address, linger_ms=1000, compression_type=compression) as producer:
        before = await producer.send("topic", b"before", b"before", partition=0)
        future = await producer.send_packed("topic", 0, Rows(VALUES, rows_in_a_batch=70))
        after = await producer.send("topic", b"after", b"after", partition=0)
        await producer.flush()
        assert [(await each).offset for each in (before, future, after)] == [0, 1, len(VALUES) + 1]
    assert written(fake_broker) == [(each, each) for each in (b"before", *VALUES, b"after")]
    found = [RecordBatch(data).records_count for data in fake_broker.logs["topic", 0]]
    assert found == [1, 70, 70, 70, 70, 20, 1]


async def test_a_whole_batch_that_must_be_sent_again_is_written_once(fake_broker: Any) -> None:
    refusals = [ErrorCode.NOT_LEADER_OR_FOLLOWER]

    def produce(request: ProduceRequest) -> Any:
        if refusals:
            code = refusals.pop()
            return fake_broker.produced(request, lambda topic, data: (code, -1))
        return fake_broker.on_produce(request)

    fake_broker.handlers[ProduceRequest] = produce
    async with Producer(fake_broker.address, retry_backoff_ms=1) as producer:
        future = await producer.send_packed("topic", 0, Rows(VALUES, rows_in_a_batch=len(VALUES)))
        assert (await future).offset == 0
        assert producer.metrics()["record-retry-total"] == len(VALUES)
    assert written(fake_broker) == [(each, each) for each in VALUES]


async def test_whole_batches_wait_for_room(fake_broker: Any) -> None:
    values = [b"%03d" % number * 100 for number in range(100)]
    async with Producer(fake_broker.address, buffer_memory=8000, batch_size=8000) as producer:
        await (await producer.send_packed("topic", 0, Rows(values, rows_in_a_batch=10)))
        with pytest.raises(MessageTooLarge, match=r"buffer\.memory is 8000"):
            await producer.send_packed("topic", 0, Rows(values, rows_in_a_batch=20))
    assert written(fake_broker) == [(each, each) for each in values]


async def test_packed_records_are_part_of_a_transaction(coordinator: FakeCoordinator) -> None:
    async with started(coordinator, batch_size=500, max_request_size=500) as producer:
        with pytest.raises(InvalidTransactionState):
            await producer.send_packed("topic", 0, Rows([b"v"]))
        producer.begin_transaction()
        await producer.send_packed("topic", 0, Rows([b"%d" % number for number in range(100)]))
        await producer.commit_transaction()
        producer.begin_transaction()
        with pytest.raises(MessageTooLarge):
            await producer.send_packed("topic", 0, Rows([b"v" * 1000]))
        with pytest.raises(AbortableError):
            await producer.commit_transaction()
        await producer.abort_transaction()
    assert coordinator.committed == {P0: [b"%d" % number for number in range(100)]}


def test_pieces_of_packed_records_are_joined() -> None:
    values = [b"a", b"b", b"c"]
    assert all_columns(Rows(values)) == Columns(values, values, None, None)

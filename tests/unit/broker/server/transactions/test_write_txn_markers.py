"""WriteTxnMarkers returns results in the order of the markers, and no marker delays the response for long."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from tests.support.handlers import answered, asked
from tests.support.served import Timers

from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.coordinator.transaction.markers import Marker
from oncelog_broker.coordinator.transaction.metadata import TopicPartition
from oncelog_broker.server.transactions import write_txn_markers
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from oncelog_protocol.producer_id import ProducerIdAndEpoch

Asked = WriteTxnMarkersRequest.WritableTxnMarker


class Appender:
    """Responds with the code in `codes` for a partition, and with NONE for the other partitions."""

    def __init__(self, codes: dict[TopicPartition, Any]) -> None:
        self.codes = codes
        self.markers: list[tuple[Marker, TopicPartition]] = []

    def append(self, marker: Marker, where: TopicPartition) -> Any:
        self.markers.append((marker, where))
        return self.codes.get(where, ErrorCode.NONE)


def marker(producer_id: int, commits: bool, **partitions: list[int]) -> Asked:
    topics = [
        Asked.WritableTxnMarkerTopic(name=name, partition_indexes=indexes) for name, indexes in partitions.items()
    ]
    return Asked(
        producer_id=producer_id,
        producer_epoch=1,
        transaction_result=commits,
        topics=topics,
        coordinator_epoch=4,
        transaction_version=2,
    )


def context_of(appender: Appender, deadlines: Any) -> Any:
    config = BrokerConfig.of({})
    return asked(ApiKey.WRITE_TXN_MARKERS, 2, config=config, markers=appender, deadlines=deadlines)


def codes(answer: Any) -> list[tuple[int, str, int, int]]:
    return [
        (result.producer_id, topic.name, partition.partition_index, partition.error_code)
        for result in answer.markers
        for topic in result.topics
        for partition in topic.partitions
    ]


async def test_each_marker_has_its_answer_at_its_place() -> None:
    refusing = TopicPartition("returns", 1)
    appender = Appender({refusing: ErrorCode.NOT_LEADER_OR_FOLLOWER})
    request = WriteTxnMarkersRequest(
        markers=[marker(7, True, orders=[0], returns=[1, 0]), marker(8, False, orders=[0])]
    )
    answer = await answered(write_txn_markers.handle, request, context_of(appender, Timers()))
    assert codes(answer) == [
        (7, "orders", 0, ErrorCode.NONE),
        (7, "returns", 1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (7, "returns", 0, ErrorCode.NONE),
        (8, "orders", 0, ErrorCode.NONE),
    ]
    first, last = appender.markers[0], appender.markers[-1]
    assert first == (Marker(ProducerIdAndEpoch(7, 1), True, 4, 2), TopicPartition("orders", 0))
    assert last[0].commits is False


async def test_a_marker_with_an_invalid_producer_or_transaction_version_is_not_appended() -> None:
    appender = Appender({})
    unsound = [
        replace(marker(7, True, orders=[0]), **{field: -1})
        for field in ("producer_id", "producer_epoch", "transaction_version")
    ]
    request = WriteTxnMarkersRequest(markers=[*unsound, marker(7, True, orders=[0])])
    answer = await answered(write_txn_markers.handle, request, context_of(appender, Timers()))
    assert [code for *_, code in codes(answer)] == [ErrorCode.INVALID_REQUEST] * 3 + [ErrorCode.NONE]
    assert len(appender.markers) == 1


async def test_a_marker_whose_replicas_are_slow_is_sent_again_and_delays_no_other() -> None:
    slow: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
    timers = Timers()
    appender = Appender({TopicPartition("orders", 0): slow})
    request = WriteTxnMarkersRequest(markers=[marker(7, True, orders=[0, 1])])
    context = context_of(appender, timers)
    answering = asyncio.ensure_future(answered(write_txn_markers.handle, request, context))
    while not timers.set:  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0)
    assert [seconds for seconds, _ in timers.set] == [write_txn_markers.COMMIT_SECONDS]
    timers.fire()
    assert codes(await answering) == [(7, "orders", 0, ErrorCode.REQUEST_TIMED_OUT), (7, "orders", 1, ErrorCode.NONE)]

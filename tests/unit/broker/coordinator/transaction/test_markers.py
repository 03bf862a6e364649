"""A partition leader writes each marker once. It responds with success only after the marker is replicated, because
that response completes the transaction (S39).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.hosts import Shown
from tests.support.producers import sequenced
from tests.support.served import FOLLOWER, LEADER, TOPIC, Served

from oncelog_broker.coordinator.transaction.markers import Marker, MarkerAppender
from oncelog_broker.coordinator.transaction.metadata import TopicPartition
from oncelog_broker.metadata.model.image import ClusterImage, PartitionState, Topic
from oncelog_broker.metadata.topic_names import TRANSACTION_STATE
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.features import TRANSACTIONS_V2
from oncelog_protocol.producer_id import ProducerIdAndEpoch

PRODUCER_ID = 7
WHERE = TopicPartition(TOPIC, 0)
BOTH = (LEADER, FOLLOWER)
NEWEST_EPOCH = 5
"""The newest leader epoch of the partitions of `__transaction_state`."""


def image(*epochs: int) -> ClusterImage:
    states = {index: PartitionState((1,), (1,), 1, epoch, epoch) for index, epoch in enumerate(epochs)}
    return ClusterImage("").with_topic(Topic(TRANSACTION_STATE, bytes(16), states))


def marker(epoch: int = 1, *, coordinator_epoch: int = 3) -> Marker:
    return Marker(ProducerIdAndEpoch(PRODUCER_ID, epoch), True, coordinator_epoch, TRANSACTIONS_V2)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A partition with an open transaction, whose records a follower has replicated."""
    made = Served(tmp_path)
    partition = made.partitions[0]
    partition.lead(0, BOTH, BOTH)
    partition.append(memoryview(bytearray(sequenced(PRODUCER_ID, 0, transactional=True))), required_acks=-1)
    partition.on_follower_fetch(FOLLOWER, 1)
    yield made
    made.leave()


@pytest.fixture
def appender(served: Served) -> MarkerAppender:
    return MarkerAppender(served, None, Shown(image(NEWEST_EPOCH)))  # type: ignore[arg-type]


async def test_s39_a_marker_is_answered_when_it_is_replicated(served: Served, appender: MarkerAppender) -> None:
    answer = appender.append(marker(), WHERE)
    assert isinstance(answer, asyncio.Future)
    assert not answer.done()
    served.partitions[0].on_follower_fetch(FOLLOWER, 2)
    assert await answer is ErrorCode.NONE


async def test_s39_a_repeated_marker_is_not_answered_before_the_first_is_replicated(
    served: Served, appender: MarkerAppender
) -> None:
    """The response INVALID_PRODUCER_EPOCH means for the coordinator that the partition needs no marker.

    If only the leader's log had the newer producer epoch and the leader then died, the transaction would stay open
    after its coordinator removed it.
    """
    appender.append(marker(), WHERE)
    again = appender.append(marker(), WHERE)
    assert isinstance(again, asyncio.Future)
    assert served.partitions[0].log.log_end_offset == 2, "it is not written twice"
    served.partitions[0].on_follower_fetch(FOLLOWER, 2)
    assert await again is ErrorCode.INVALID_PRODUCER_EPOCH


async def test_s39_a_leader_that_resigns_does_not_say_that_no_marker_is_needed(
    served: Served, appender: MarkerAppender
) -> None:
    appender.append(marker(), WHERE)
    again = appender.append(marker(), WHERE)
    assert isinstance(again, asyncio.Future)
    served.partitions[0].resign()
    assert await again is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_too_few_replicas_take_no_marker(tmp_path: Path) -> None:
    served = Served(tmp_path / "strict", min_insync_replicas=2)
    served.partitions[0].lead(0, (LEADER,), BOTH)
    appender = MarkerAppender(served, None, Shown(image(NEWEST_EPOCH)))  # type: ignore[arg-type]
    assert appender.append(marker(), WHERE) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert served.partitions[0].log.log_end_offset == 0
    served.leave()


async def test_s40_an_earlier_coordinator_is_fenced(served: Served, appender: MarkerAppender) -> None:
    appender.append(marker(1, coordinator_epoch=3), WHERE)
    assert appender.append(marker(2, coordinator_epoch=2), WHERE) is ErrorCode.TRANSACTION_COORDINATOR_FENCED


async def test_s40_a_marker_of_no_coordinator_keeps_no_real_one_out(served: Served) -> None:
    """A marker with an invented coordinator epoch would fence all later coordinators, whose epochs would be too low to
    end the transaction.
    """
    now = Shown(image(0, NEWEST_EPOCH, 2))
    appender = MarkerAppender(served, None, now)  # type: ignore[arg-type]
    log = served.partitions[0].log
    forged = marker(coordinator_epoch=NEWEST_EPOCH + 1)
    assert appender.append(forged, WHERE) is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert ErrorCode.UNKNOWN_LEADER_EPOCH.retriable, "the image may lag: the coordinator sends it again"
    assert log.log_end_offset == 1
    now.image = image(0, NEWEST_EPOCH + 1, 2)
    assert isinstance(appender.append(forged, WHERE), asyncio.Future)
    assert log.log_end_offset == 2


async def test_s40_a_known_marker_may_be_repeated(served: Served) -> None:
    """A tool ends a hanging transaction with the coordinator epoch that the log has for the producer, wherever that
    epoch came from.
    """
    before = MarkerAppender(served, None, Shown(image(1000)))  # type: ignore[arg-type]
    before.append(marker(1, coordinator_epoch=1000), WHERE)
    appender = MarkerAppender(served, None, Shown(image(0)))  # type: ignore[arg-type]
    assert isinstance(appender.append(marker(2, coordinator_epoch=1000), WHERE), asyncio.Future)
    assert appender.append(marker(3, coordinator_epoch=1001), WHERE) is ErrorCode.UNKNOWN_LEADER_EPOCH


async def test_a_tool_ends_a_hanging_transaction_without_a_transaction_log(served: Served) -> None:
    appender = MarkerAppender(served, None, Shown(ClusterImage("")))  # type: ignore[arg-type]
    assert isinstance(appender.append(marker(coordinator_epoch=0), WHERE), asyncio.Future)


async def test_no_marker_is_written_while_the_gate_is_shut(served: Served, appender: MarkerAppender) -> None:
    served.may_lead = False
    assert appender.append(marker(), WHERE) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert served.partitions[0].log.log_end_offset == 1
    served.may_lead = True
    assert isinstance(appender.append(marker(), WHERE), asyncio.Future)


def test_no_marker_is_written_to_the_transaction_log(appender: MarkerAppender) -> None:
    where = TopicPartition(TRANSACTION_STATE, 0)
    assert appender.append(marker(), where) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_log_with_an_unexpected_exception_keeps_no_marker_from_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken:
        def led_by_name(self, topic: str, index: int) -> Any:
            raise ValueError("I/O operation on closed file")

    broken = MarkerAppender(Broken(), None, Shown(image(NEWEST_EPOCH)))  # type: ignore[arg-type]
    assert broken.append(marker(), WHERE) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "closed file" in caplog.text

"""Writing one marker where its partition is led; no answer by which the coordinator is done comes too early (S39)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.producers import sequenced
from tests.support.served import FOLLOWER, LEADER, TOPIC, Served

from oncelog_broker.coordinator.transaction.markers import Marker, MarkerAppender
from oncelog_broker.coordinator.transaction.metadata import TopicPartition
from oncelog_broker.metadata.topic_names import TRANSACTION_STATE
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.features import TRANSACTIONS_V2
from oncelog_protocol.producer_id import ProducerIdAndEpoch

PRODUCER_ID = 7
WHERE = TopicPartition(TOPIC, 0)
BOTH = (LEADER, FOLLOWER)


def marker(epoch: int = 1, *, coordinator_epoch: int = 3) -> Marker:
    return Marker(ProducerIdAndEpoch(PRODUCER_ID, epoch), True, coordinator_epoch, TRANSACTIONS_V2)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A partition with an open transaction, which a follower has as far."""
    made = Served(tmp_path)
    partition = made.partitions[0]
    partition.lead(0, BOTH, BOTH)
    partition.append(memoryview(bytearray(sequenced(PRODUCER_ID, 0, transactional=True))), required_acks=-1)
    partition.on_follower_fetch(FOLLOWER, 1)
    yield made
    made.leave()


@pytest.fixture
def appender(served: Served) -> MarkerAppender:
    return MarkerAppender(served, None)  # type: ignore[arg-type]


async def test_s39_a_marker_is_answered_when_it_is_replicated(served: Served, appender: MarkerAppender) -> None:
    answer = appender.append(marker(), WHERE)
    assert isinstance(answer, asyncio.Future)
    assert not answer.done()
    served.partitions[0].on_follower_fetch(FOLLOWER, 2)
    assert await answer is ErrorCode.NONE


async def test_s39_one_that_comes_again_is_not_answered_before_the_first_is_replicated(
    served: Served, appender: MarkerAppender
) -> None:
    """INVALID_PRODUCER_EPOCH says that the log needs no marker. If that is known on the leader alone, and the leader
    dies, the transaction would hang, and its coordinator has forgotten it."""
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
    assert MarkerAppender(served, None).append(marker(), WHERE) is ErrorCode.NOT_ENOUGH_REPLICAS  # type: ignore[arg-type]
    assert served.partitions[0].log.log_end_offset == 0
    served.leave()


async def test_s40_an_earlier_coordinator_is_fenced(served: Served, appender: MarkerAppender) -> None:
    appender.append(marker(1, coordinator_epoch=3), WHERE)
    assert appender.append(marker(2, coordinator_epoch=2), WHERE) is ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_nobody_ends_a_transaction_in_the_log_of_transactions(appender: MarkerAppender) -> None:
    where = TopicPartition(TRANSACTION_STATE, 0)
    assert appender.append(marker(), where) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_log_that_raises_what_nobody_thought_of_keeps_no_marker_from_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken:
        def leader(self, topic: str, index: int) -> Any:
            raise ValueError("I/O operation on closed file")

    broken = MarkerAppender(Broken(), None)  # type: ignore[arg-type]
    assert broken.append(marker(), WHERE) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "closed file" in caplog.text

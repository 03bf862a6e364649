"""OffsetForLeaderEpoch returns the ends of leader epochs, and the ends of logs, which only brokers may request."""

from __future__ import annotations

from typing import Any

from tests.support.handlers import answered, asked
from tests.support.served import LEADER, TOPIC, Served
from tests.support.storage import make_batch

from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.records import offset_for_leader_epoch
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest

Topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic


async def ask(
    served: Served, epoch: int, *, index: int = 0, current: int = -1, log_ends: bool = False, refused: Any = ()
) -> tuple[int, int, int, bool]:
    """Return (error code, leader epoch, end offset, whether the end is that of the log)."""
    partition = Topic.OffsetForLeaderPartition(partition=index, current_leader_epoch=current, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(
        topics=[Topic(topic=TOPIC, partitions=[partition])], asks_for_log_ends=log_ends
    )
    context = asked(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, refused=refused, replicas=served)
    answer = await answered(offset_for_leader_epoch.handle, request, context)
    ((found,),) = (topic.partitions for topic in answer.topics)
    return found.error_code, found.leader_epoch, found.end_offset, answer.are_log_ends


def two_epochs(served: Served) -> None:
    """Write records 0 and 1 in leader epoch 0, and record 2 in leader epoch 4."""
    partition = served.partitions[0]
    for epoch, count in ((0, 2), (4, 1)):
        partition.lead(epoch, (LEADER,))
        for _ in range(count):
            partition.append(memoryview(make_batch()), required_acks=1)
    served.log_end = lambda topic, index: (4, 3)  # type: ignore[attr-defined]


async def test_the_end_of_a_known_and_an_unknown_epoch_is_returned(served: Served) -> None:
    two_epochs(served)
    assert [(await ask(served, epoch))[:3] for epoch in (0, 2, 4)] == [(0, 0, 2), (0, 0, 2), (0, 4, 3)]
    assert (await ask(served, 5))[:3] == (ErrorCode.NONE, -1, -1)


async def test_errors_of_a_partition_are_returned(served: Served) -> None:
    two_epochs(served)
    assert (await ask(served, 0, index=9))[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await ask(served, 0, current=3))[0] == ErrorCode.FENCED_LEADER_EPOCH


async def test_one_of_two_rights_is_enough(served: Served) -> None:
    two_epochs(served)
    both = {rules.EPOCH_OF_ALL, rules.OFFSET_FOR_LEADER_EPOCH}
    for right in both:
        assert (await ask(served, 0, refused={right}))[0] == ErrorCode.NONE
    assert (await ask(served, 0, refused=both))[0] == ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_the_ends_of_logs_are_for_brokers(served: Served) -> None:
    two_epochs(served)
    assert await ask(served, 0, log_ends=True) == (ErrorCode.NONE, 4, 3, True)
    client = await ask(served, 0, log_ends=True, refused={rules.EPOCH_OF_ALL})
    assert client == (ErrorCode.NONE, 0, 2, False), "answered as anybody else"

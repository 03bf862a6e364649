"""ListOffsets: the meaning of each special timestamp, the first version that has it, and withheld offsets (KIP-207)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.handlers import answered, asked
from tests.support.served import FOLLOWER, LEADER, TOPIC, Served
from tests.support.storage import NOW, make_batch

from oncelog_broker.replication.partition import READ_COMMITTED, READ_UNCOMMITTED
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.records import list_offsets
from oncelog_broker.server.records.list_offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    FIRST_VERSION,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
)
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.list_offsets import ListOffsetsRequest

Topic = ListOffsetsRequest.ListOffsetsTopic
NEWEST = 11


async def ask(
    served: Served,
    *timestamps: int,
    version: int = NEWEST,
    isolation: int = READ_UNCOMMITTED,
    topic: str = TOPIC,
    indexes: tuple[int, ...] = (),
    epoch: int = -1,
    refused: Any = (),
) -> list[tuple[int, int, int, int]]:
    """Return (error code, offset, timestamp, leader epoch) of each requested timestamp, for partition 0 by default."""
    indexes = indexes or (0,) * len(timestamps)
    partitions = [
        Topic.ListOffsetsPartition(partition_index=index, current_leader_epoch=epoch, timestamp=timestamp)
        for index, timestamp in zip(indexes, timestamps, strict=True)
    ]
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=isolation, topics=[Topic(name=topic, partitions=partitions)]
    )
    context = asked(ApiKey.LIST_OFFSETS, version, refused=refused, replicas=served)
    (answer,) = (await answered(list_offsets.handle, request, context)).topics
    return [(each.error_code, each.offset, each.timestamp, each.leader_epoch) for each in answer.partitions]


def fill(served: Served, *timestamps: int) -> None:
    for timestamp in timestamps:
        served.partitions[0].append(memoryview(make_batch(timestamp=timestamp)), required_acks=1)


@pytest.mark.parametrize(
    ("timestamp", "found"),
    [
        (LATEST, (0, 4, -1, 0)),
        (EARLIEST, (0, 1, -1, 0)),
        (EARLIEST_LOCAL, (0, 1, -1, 0)),
        (MAX_TIMESTAMP, (0, 2, NOW + 9, 0)),
        (LATEST_TIERED, (0, -1, -1, -1)),
        (EARLIEST_PENDING_UPLOAD, (0, -1, -1, -1)),
        (NOW + 1, (0, 2, NOW + 9, 0)),
        (NOW + 10, (0, -1, -1, -1)),
    ],
)
async def test_special_timestamps_stand_for_offsets(served: Served, timestamp: int, found: tuple[int, ...]) -> None:
    fill(served, NOW, NOW, NOW + 9, NOW + 5)
    served.partitions[0].log.trimmer.delete_records_before(1)
    assert await ask(served, timestamp) == [found]


async def test_special_timestamps_are_accepted_since_their_versions(served: Served) -> None:
    for timestamp, version in FIRST_VERSION.items():
        if version > 1:
            assert (await ask(served, timestamp, version=version - 1))[0][0] == ErrorCode.UNSUPPORTED_VERSION
        assert (await ask(served, timestamp, version=max(1, version)))[0][0] == ErrorCode.NONE
    assert (await ask(served, -99))[0][0] == ErrorCode.UNSUPPORTED_VERSION


async def test_s50_latest_is_the_last_stable_offset_for_read_committed(served: Served) -> None:
    fill(served, NOW)
    batch = make_batch(producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    served.partitions[0].append(memoryview(batch), required_acks=1)
    assert [(await ask(served, LATEST, isolation=level))[0][1] for level in (READ_UNCOMMITTED, READ_COMMITTED)] == [
        2,
        1,
    ]


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (4, ErrorCode.LEADER_NOT_AVAILABLE),
        (5, ErrorCode.OFFSET_NOT_AVAILABLE),
        (7, ErrorCode.OFFSET_NOT_AVAILABLE),
    ],
)
async def test_a_new_leader_does_not_tell_latest_below_where_the_one_before_had_it(
    served: Served, version: int, code: ErrorCode
) -> None:
    partition = served.partitions[0]
    fill(served, NOW, NOW)
    partition.high_watermark = 1
    partition.lead(1, (LEADER, FOLLOWER))
    assert (await ask(served, LATEST, version=version))[0][0] == code
    if version >= FIRST_VERSION[MAX_TIMESTAMP]:
        assert (await ask(served, MAX_TIMESTAMP, version=version))[0][0] == code
    assert (await ask(served, EARLIEST, version=version))[0][0] == ErrorCode.NONE
    partition.on_follower_fetch(FOLLOWER, 2)
    assert (await ask(served, LATEST, version=version))[0][:2] == (ErrorCode.NONE, 2)


async def test_each_listed_partition_has_its_own_error(served: Served) -> None:
    served.partitions[1].follow(FOLLOWER, 1)
    codes = [each[0] for each in await ask(served, LATEST, LATEST, LATEST, indexes=(0, 1, 9))]
    assert codes == [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


async def test_a_partition_named_twice_is_refused(served: Served) -> None:
    assert [each[0] for each in await ask(served, LATEST, EARLIEST)] == [ErrorCode.INVALID_REQUEST] * 2


async def test_leader_epochs_and_rights_of_clients_are_checked(served: Served) -> None:
    served.partitions[0].lead(3, (LEADER,))
    assert (await ask(served, LATEST, epoch=2))[0][0] == ErrorCode.FENCED_LEADER_EPOCH
    assert (await ask(served, LATEST, epoch=4))[0][0] == ErrorCode.UNKNOWN_LEADER_EPOCH
    denied = await ask(served, LATEST, refused={(rules.LIST_OFFSETS, TOPIC)})
    assert denied[0][0] == ErrorCode.TOPIC_AUTHORIZATION_FAILED

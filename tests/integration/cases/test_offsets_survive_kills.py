"""Tests committed offsets under `kill -9` of the broker, repeatedly on the same data: no committed offset decreases.

The raw committer shows exactly which commits were acknowledged: it has several requests in flight and no retries.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

import pytest
from broker_process import BrokerFactory
from raw_client import RawClient

from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.find_coordinator import FindCoordinatorRequest
from oncelog_protocol.messages.offset_commit import OffsetCommitRequest
from oncelog_protocol.messages.offset_fetch import OffsetFetchRequest

SEED = 20_250_112
GROUPS = [f"group-{number}" for number in range(8)]
PARTITIONS = 3
IN_FLIGHT = 5
COMMIT_VERSION, FETCH_VERSION = 8, 8

CommitTopic = OffsetCommitRequest.OffsetCommitRequestTopic
GroupRequest = OffsetFetchRequest.OffsetFetchRequestGroup


def commit_request(group: str, offset: int) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=group,
        member_id="",
        topics=[
            CommitTopic(
                name="t",
                partitions=[
                    CommitTopic.OffsetCommitRequestPartition(
                        partition_index=partition, committed_offset=offset, committed_metadata=f"{group}@{offset}"
                    )
                    for partition in range(PARTITIONS)
                ],
            )
        ],
    )


def commit_until_killed(
    client: RawClient,
    rng: random.Random,
    sent: dict[str, int],
    acknowledged: dict[str, int],
    kill_soon: Callable[[], object],
) -> None:
    """Commit increasing offsets until the connection breaks, with `IN_FLIGHT` requests in flight. `kill_soon` is called
    when each group has one more acknowledged commit.
    """
    wanted = set(GROUPS)
    waiting: list[tuple[str, int]] = []
    try:
        while True:
            while len(waiting) < IN_FLIGHT:
                group = rng.choice(GROUPS)
                sent[group] += 1
                waiting.append((group, sent[group]))
                client.send(commit_request(group, sent[group]), ApiKey.OFFSET_COMMIT, COMMIT_VERSION)
            answer = client.receive()
            group, offset = waiting.pop(0)
            codes = {partition.error_code for topic in answer.topics for partition in topic.partitions}
            if codes == {ErrorCode.NONE}:
                acknowledged[group] = offset
                if wanted:
                    wanted.discard(group)
                    if not wanted:
                        kill_soon()
            else:  # a coordinator that is still loading returns these errors just after a start
                assert codes <= {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}, codes
    except OSError:
        return


def committed(client: RawClient) -> dict[str, set[tuple[int, str | None]]]:
    """Return (offset, metadata) of all partitions of each group, after the coordinators have loaded."""
    topics = [GroupRequest.OffsetFetchRequestTopics(name="t", partition_indexes=list(range(PARTITIONS)))]
    request = OffsetFetchRequest(groups=[GroupRequest(group_id=group, topics=topics) for group in GROUPS])
    while True:
        answer = client.call(request, ApiKey.OFFSET_FETCH, FETCH_VERSION)
        if not any(group.error_code for group in answer.groups):
            return {
                group.group_id: {
                    (partition.committed_offset, partition.metadata)
                    for topic in group.topics
                    for partition in topic.partitions
                }
                for group in answer.groups
            }
        codes = {group.error_code for group in answer.groups} - {0}
        assert codes == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}, codes
        time.sleep(0.01)


@pytest.mark.parametrize("kills", [4, pytest.param(100, marks=pytest.mark.soak)])
def test_no_acknowledged_offset_is_lost_in_kills(broker_factory: BrokerFactory, kills: int) -> None:
    rng = random.Random(SEED)
    broker = broker_factory({"offsets.topic.num.partitions": "5", "offsets.topic.segment.bytes": "30000"}).start()
    with RawClient(broker.port) as client:
        client.create_topic("t", PARTITIONS)
        client.call(FindCoordinatorRequest(key="any"), ApiKey.FIND_COORDINATOR, 1)
    sent, acknowledged = dict.fromkeys(GROUPS, -1), dict.fromkeys(GROUPS, -1)
    for round_number in range(kills):
        with RawClient(broker.port) as client:
            killer = threading.Timer(rng.uniform(0, 0.25), broker.kill)
            commit_until_killed(client, rng, sent, acknowledged, killer.start)
            killer.join()
        broker.start()
        with RawClient(broker.port) as client:
            for group, found in committed(client).items():
                # A commit is one batch, so all its partitions and their metadata change together.
                assert len(found) == 1, (round_number, group, found)
                ((offset, metadata),) = found
                assert acknowledged[group] <= offset <= sent[group], (round_number, group)
                assert metadata == ("" if offset < 0 else f"{group}@{offset}")
    assert "Traceback" not in broker.log.read_text()

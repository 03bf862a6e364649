"""Tests DeleteRecords in a cluster: deleted records remain deleted, whichever broker is killed and whichever broker
leads next.
"""

from __future__ import annotations

from foreign_clients import Record
from librdkafka_client import Librdkafka
from replicated_cluster import BROKERS, ReplicatedCluster

from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from oncelog_protocol.messages.list_offsets import EARLIEST_TIMESTAMP

DELETE_RECORDS_VERSION = 2
HIGH_WATERMARK = -1
RECORDS = 20
PASSING = {ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER}
"""Error codes that the test accepts, because sessions may end on a busy machine."""


def wanted(topic: str, offset: int, timeout_ms: int = 60_000) -> DeleteRecordsRequest:
    of_topic = DeleteRecordsRequest.DeleteRecordsTopic
    partition = of_topic.DeleteRecordsPartition(partition_index=0, offset=offset)
    return DeleteRecordsRequest(topics=[of_topic(name=topic, partitions=[partition])], timeout_ms=timeout_ms)


def result(
    response: DeleteRecordsResponse,
) -> DeleteRecordsResponse.DeleteRecordsTopicResult.DeleteRecordsPartitionResult:
    return response.topics[0].partitions[0]


def write(cluster: ReplicatedCluster, topic: str) -> list[int]:
    """The offsets."""
    client = Librdkafka(cluster.addresses)
    placed = client.produce(topic, [Record(b"%d" % number) for number in range(RECORDS)])
    client.close()
    return [each.offset for each in placed]


def earliest(cluster: ReplicatedCluster, topic: str) -> int:
    with cluster.client(cluster.until_led(topic).leader) as leader:
        return leader.list_offset(topic, 0, EARLIEST_TIMESTAMP)[0]


def delete(cluster: ReplicatedCluster, topic: str, offset: int) -> int:
    """Repeat the deletion until the leader confirms it; return the low watermark."""

    def is_done() -> DeleteRecordsResponse.DeleteRecordsTopicResult.DeleteRecordsPartitionResult | None:
        with cluster.client(cluster.until_led(topic).leader, timeout=70) as leader:
            answer = result(leader.call(wanted(topic, offset), ApiKey.DELETE_RECORDS, DELETE_RECORDS_VERSION))
        assert answer.error_code in PASSING, answer
        return None if answer.error_code else answer

    return int(cluster.until(is_done, f"the records of {topic} are deleted").low_watermark)  # type: ignore[union-attr]


def checkpointed(cluster: ReplicatedCluster, topic: str, node_id: int) -> bool:
    """Return whether the broker has stored on its disk a log start offset of the topic that lies inside a segment."""
    checkpoint = cluster.brokers[node_id].data / "log-start-offset-checkpoint"
    return checkpoint.exists() and any(line.startswith(f"{topic} 0 ") for line in checkpoint.read_text().splitlines())


def test_deleted_records_stay_deleted_when_all_brokers_are_killed(cluster: ReplicatedCluster, topic: str) -> None:
    """The next leader had already stored the deletion on its disk when the response was sent."""
    cluster.create_topic(topic, BROKERS)
    write(cluster, topic)
    assert delete(cluster, topic, 15) == 15
    cluster.kill(*BROKERS)
    cluster.start(*BROKERS)
    assert earliest(cluster, topic) == 15
    cluster.until(lambda: all(checkpointed(cluster, topic, node_id) for node_id in BROKERS), "all have noted it")


def test_a_follower_that_hangs_is_waited_for_until_it_leaves_the_isr(cluster: ReplicatedCluster, topic: str) -> None:
    """The paused follower may become leader until it leaves the ISR, so the records that only it still has do not count
    as deleted yet.
    """
    cluster.create_topic(topic, BROKERS)
    write(cluster, topic)
    leader = cluster.until_led(topic).leader
    hanging = next(node_id for node_id in cluster.part(topic).isr if node_id not in (leader, cluster.controller()))
    with cluster.paused(hanging):
        with cluster.client(leader) as impatient:
            request = wanted(topic, 10, timeout_ms=1)
            answer = result(impatient.call(request, ApiKey.DELETE_RECORDS, DELETE_RECORDS_VERSION))
        # On a busy machine the paused broker's session may have ended already, which changes the error code.
        assert answer.error_code in PASSING | {ErrorCode.REQUEST_TIMED_OUT}
        assert delete(cluster, topic, 10) == 10
        cluster.until(lambda: hanging not in cluster.part(topic).isr, "it has left the ISR")
    cluster.until(lambda: checkpointed(cluster, topic, hanging), "it has deleted the same")
    cluster.until_whole(topic)


def test_the_next_leader_continues_behind_deleted_records(cluster: ReplicatedCluster, topic: str) -> None:
    cluster.create_topic(topic, BROKERS)
    write(cluster, topic)
    leader = cluster.until_led(topic).leader
    assert delete(cluster, topic, HIGH_WATERMARK) == RECORDS
    cluster.kill(leader)
    cluster.until_led(topic, but_by=leader)
    assert earliest(cluster, topic) == RECORDS
    assert write(cluster, topic) == list(range(RECORDS, 2 * RECORDS))

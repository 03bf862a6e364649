"""DeleteRecords in a cluster: what it said to be gone is gone, whoever leads next and whatever was killed."""

from __future__ import annotations

from foreign_clients import Record
from librdkafka_client import Librdkafka
from raw_client import RawClient
from replicated_cluster import BROKERS, ReplicatedCluster

from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from oncelog_protocol.messages.list_offsets import EARLIEST_TIMESTAMP

DELETE_RECORDS_VERSION = 2
HIGH_WATERMARK = -1
RECORDS = 20


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


def test_what_was_deleted_stays_so_when_all_are_killed(cluster: ReplicatedCluster, topic: str) -> None:
    """Each of them may lead then: all had it on the disk before the answer."""
    cluster.create_topic(topic, BROKERS)
    write(cluster, topic)
    admin = Librdkafka(cluster.addresses)
    assert admin.delete_records(topic, 15) == 15
    cluster.kill(*BROKERS)
    admin.close()
    for node_id in BROKERS:
        checkpoint = cluster.brokers[node_id].data / "log-start-offset-checkpoint"
        assert f"{topic} 0 15" in checkpoint.read_text().splitlines()
    cluster.start(*BROKERS)
    cluster.until_whole(topic)
    assert earliest(cluster, topic) == 15


def test_a_follower_that_hangs_is_waited_for_until_it_leaves_the_isr(cluster: ReplicatedCluster, topic: str) -> None:
    """It may lead until then, so that what it holds is not gone."""
    cluster.create_topic(topic, BROKERS)
    write(cluster, topic)
    leader = cluster.until_led(topic).leader
    hanging = next(node_id for node_id in cluster.part(topic).isr if node_id not in (leader, cluster.controller()))
    with cluster.client(leader, timeout=60) as admin, RawClient(cluster.brokers[leader].port) as impatient:
        with cluster.paused(hanging):
            admin.send(wanted(topic, 10), ApiKey.DELETE_RECORDS, DELETE_RECORDS_VERSION)
            timed_out = result(impatient.call(wanted(topic, 10, 1), ApiKey.DELETE_RECORDS, DELETE_RECORDS_VERSION))
            assert timed_out.low_watermark in (0, 10)  # 10: the machine has let its session end already
            cluster.until_isr(topic, set(BROKERS) - {hanging})
            answer = result(admin.receive())
            assert (answer.error_code, answer.low_watermark) == (0, 10)
        cluster.until_whole(topic)
    # Back in sync it has deleted the same.
    checkpoint = cluster.brokers[hanging].data / "log-start-offset-checkpoint"
    assert f"{topic} 0 10" in checkpoint.read_text().splitlines()


def test_all_records_are_deleted_and_the_next_leader_goes_on_behind_them(
    cluster: ReplicatedCluster, topic: str
) -> None:
    cluster.create_topic(topic, BROKERS)
    write(cluster, topic)
    leader = cluster.until_led(topic).leader
    with cluster.client(leader) as admin:
        answer = result(admin.call(wanted(topic, HIGH_WATERMARK), ApiKey.DELETE_RECORDS, DELETE_RECORDS_VERSION))
    assert (answer.error_code, answer.low_watermark) == (0, RECORDS)
    cluster.kill(leader)
    cluster.until_led(topic, but_by=leader)
    assert earliest(cluster, topic) == RECORDS
    assert write(cluster, topic) == list(range(RECORDS, 2 * RECORDS))

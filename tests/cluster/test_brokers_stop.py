"""Tests brokers that get the order to stop, one broker or all in succession, while clients work: other brokers become
leaders before any client notices.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from elections import NOT_NEEDED, elect, until_preferred_lead
from final_state import settle_and_check
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError as KafkaPythonError
from recording_clients import PATIENCE_SECONDS, PRODUCERS, Abortable, RecordingProducer, Writer
from replicated_cluster import BROKERS, METADATA_VERSION, ReplicatedCluster
from tests.support.background import Background

import oncelog
from oncelog.admin import Admin
from oncelog_protocol.api import ApiKey
from oncelog_protocol.elections import ElectionType
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.metadata import MetadataRequest
from oncelog_testing.history.events import Place
from oncelog_testing.history.recorder import History

LIBRARIES = pytest.mark.parametrize("library", PRODUCERS)
MAX_WAIT_SECONDS = 0.5
"""How many seconds a client may have to wait because a broker is restarted."""


def is_whole(cluster: ReplicatedCluster) -> bool:
    """Return whether all replicas of all topics are in sync, including internal topics."""
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    described = cluster.ask(request, ApiKey.METADATA, METADATA_VERSION).topics
    parts = [part for topic in described for part in topic.partitions]
    return all(part.leader_id >= 0 and set(part.isr_nodes) == set(part.replica_nodes) for part in parts)


def restart_all(cluster: ReplicatedCluster) -> None:
    """Restart the brokers one after another, like an operator; at the end the preferred leaders lead."""
    for node_id in BROKERS:
        cluster.until(lambda: is_whole(cluster), "all replicas are in sync")
        assert cluster.brokers[node_id].stop() == 0
        cluster.start(node_id)
        cluster.until_registered(*BROKERS)
    cluster.until(lambda: is_whole(cluster), "all replicas are in sync")
    elect(cluster, None)


class Transactions(Background):
    """Commits one transaction after another; each transaction has records for all partitions."""

    def __init__(self, producer: RecordingProducer, *places: Place) -> None:
        super().__init__(PATIENCE_SECONDS)
        self._producer = producer
        self._places = places
        self.committed = 0

    def _work(self) -> None:
        while not self.is_over:
            self._producer.begin()
            try:
                for place in self._places:
                    self._producer.send(place)
                self._producer.commit()
                self.committed += 1
            except Abortable:
                self._producer.abort()


@contextmanager
def at_work(
    cluster: ReplicatedCluster, history: History, topic: str, library: str
) -> Iterator[tuple[Writer, Transactions]]:
    """Let an idempotent and a transactional producer of one library work on all partitions of a topic."""
    places = [Place(topic, index) for index in cluster.parts(topic)]
    with ExitStack() as stack:
        plain = stack.enter_context(PRODUCERS[library](cluster.addresses, history, "plain"))
        transactional = stack.enter_context(PRODUCERS[library](cluster.addresses, history, "anna", topic))
        transactions = stack.enter_context(Transactions(transactional, *places))
        yield stack.enter_context(Writer(plain, *places)), transactions
    assert plain.acknowledged == plain.sent


def test_a_leader_serves_on_until_somebody_else_is_in_sync(
    cluster: ReplicatedCluster, history: History, topic: str
) -> None:
    """The leader gets the order to stop while its only follower is down, so that no other broker could lead. The leader
    therefore waits, and stops when another broker can lead.
    """
    leader, follower = 1, 2
    cluster.create_topic(topic, (leader, follower), min_insync_replicas="1")
    place = Place(topic)
    cluster.kill(follower)
    cluster.until_isr(topic, {leader})
    before = cluster.until_led(topic, by=leader)
    with PRODUCERS["oncelog"](cluster.addresses, history, "anna") as producer, Writer(producer, place) as writer:
        os.kill(cluster.brokers[leader].pid, signal.SIGTERM)
        writer.until_more(20)
        cluster.start(follower)
        writer.until_more(20)
        assert cluster.brokers[leader].wait_stopped() == 0
        part = cluster.until_led(topic, by=follower)
        assert part.epoch == before.epoch + 1
        assert part.isr == (follower,)
        writer.until_more(20)
    settle_and_check(cluster, history, topic)


def test_the_last_broker_does_not_wait_for_others(cluster: ReplicatedCluster, topic: str) -> None:
    """All brokers get the order to stop simultaneously, but stop one after another; the ISR remains known."""
    cluster.create_topic(topic, (1, 2, 3), (2, 3, 1), (3, 1, 2))
    for node_id in BROKERS:
        os.kill(cluster.brokers[node_id].pid, signal.SIGTERM)
    assert [cluster.brokers[node_id].wait_stopped() for node_id in BROKERS] == [0, 0, 0]
    cluster.mend()
    cluster.until_whole(topic)


@LIBRARIES
@pytest.mark.parametrize("rounds", [1, pytest.param(10, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])])
def test_c24_a_rolling_restart_loses_nothing(
    cluster: ReplicatedCluster, history: History, topic: str, library: str, rounds: int
) -> None:
    """While the brokers restart, no record is lost or duplicated, and at the end the preferred leaders lead."""
    cluster.create_topic(topic, (1, 2, 3), (2, 3, 1), (3, 1, 2))
    with at_work(cluster, history, topic, library) as (writer, transactions):
        for _ in range(rounds):
            before = transactions.committed
            writer.until_more(20)
            restart_all(cluster)
            writer.until_more(20)
            cluster.until(lambda: transactions.committed > before, "a transaction is committed")  # noqa: B023
    until_preferred_lead(cluster, topic)
    assert [cluster.until_led(topic, index).leader for index in range(3)] == [1, 2, 3]
    settle_and_check(cluster, history, topic)


@pytest.mark.measured
@pytest.mark.parametrize("library", ["oncelog", pytest.param("librdkafka", marks=pytest.mark.soak)])
def test_clients_do_not_wait_long_for_a_restarted_broker(
    cluster: ReplicatedCluster, history: History, topic: str, library: str
) -> None:
    """While brokers restart, no produce request takes much longer than at other times. The test uses the best of three
    measurements, because durations vary on one machine. A client's waiting time depends on the broker and not on the
    library, so `make test` measures one library, and a soak measures both.
    """
    cluster.create_topic(topic, (1, 2, 3), (2, 3, 1), (3, 1, 2))
    places = [Place(topic, index) for index in range(3)]
    extra = []
    with PRODUCERS[library](cluster.addresses, history, "plain") as producer, Writer(producer, *places) as writer:
        for _ in range(3):
            writer.until_more(50)
            producer.longest_wait()
            writer.until_more(500)
            usual = producer.longest_wait()
            restart_all(cluster)
            extra.append(producer.longest_wait() - usual)
            print(f"longest wait: {usual * 1000:.0f} ms, {extra[-1] * 1000:.0f} ms more while brokers are restarted")
            if extra[-1] <= MAX_WAIT_SECONDS:
                break
    assert min(extra) <= MAX_WAIT_SECONDS, extra


def test_kafka_python_and_our_client_elect_leaders(cluster: ReplicatedCluster, topic: str) -> None:
    """oncelog's client and kafka-python elect preferred leaders that are in sync. With unclean elections they elect a
    replica that has fallen behind, and records are lost.

    confluent_kafka 2.16 cannot elect leaders: its call fails before anything is sent.
    """
    cluster.create_topic(topic, (1, 2), (1, 2), min_insync_replicas="1")

    def elect_foreign() -> dict[int, int] | None:
        # Only live brokers are given as bootstrap servers, because kafka-python does not close the sockets of failed
        # attempts.
        up = [cluster.brokers[node_id].address for node_id in cluster.up]
        client = KafkaAdminClient(bootstrap_servers=up, request_timeout_ms=10_000)
        try:
            answer = client.elect_leaders(0, {topic: [0, 1]}, timeout_ms=10_000, raise_errors=False)
        except KafkaPythonError:
            return None
        finally:
            client.close()
        if answer.error_code:
            return None
        return {each.partition_id: each.error_code for one in answer.replica_election_results
                for each in one.partition_result}  # fmt: skip

    assert cluster.brokers[1].stop() == 0
    cluster.until_registered(2, 3)
    unavailable = dict.fromkeys(range(2), ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
    cluster.until(lambda: elect_foreign() == unavailable, "who is away is not elected")
    cluster.start(1)
    cluster.until_whole(topic)
    # Repeat the election, because on a busy machine a broker may lose its session, and with the session its new
    # leadership.
    led = {ErrorCode.NONE, *NOT_NEEDED}
    cluster.until(lambda: set((elect_foreign() or unavailable).values()) <= led, "preferred leaders are elected")
    for index in range(2):
        cluster.until_led(topic, index, by=1)

    cluster.kill(2)
    cluster.until_isr(topic, {1}, 1)
    cluster.kill(1)
    cluster.start(2)
    cluster.until(lambda: cluster.part(topic, 1).leader == -1, "nobody in sync is left")

    async def elect_ours() -> list[oncelog.TopicPartition]:
        async with Admin(cluster.addresses, request_timeout_ms=10_000) as admin:
            return await admin.elect_leaders(ElectionType.UNCLEAN, [oncelog.TopicPartition(topic, 1)])

    # The list of elected partitions may be empty on a busy machine: if the first response was lost, the repeated
    # request finds the election already done.
    assert asyncio.run(elect_ours()) in ([(topic, 1)], [])
    assert cluster.until_led(topic, 1).leader == 2

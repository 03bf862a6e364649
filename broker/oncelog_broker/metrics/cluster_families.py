"""Metrics of leadership, of offline and under-replicated partitions, and of the controller. In Kafka, these are metrics
of ReplicaManager, KafkaController and KafkaServer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from oncelog_broker.config.broker_keys import TRANSACTION_MAX_TIMEOUT_MS
from oncelog_broker.metrics.family import NO_LABELS, Families, Sample, Samples
from oncelog_broker.metrics.source import CONTROLLED_SHUTDOWN, RUNNING, ClusterCounts, Source, in_steps
from oncelog_broker.replication.partition import Partition

families = Families()

LATE_TRANSACTION_BUFFER_MS: Final = 5 * 60 * 1000
"""A transaction counts as late when it has been silent for transaction.max.timeout.ms and this number of milliseconds,
as in Kafka.
"""


def _of_replicas(name: str, text: str, value: Callable[[Source], float]) -> None:
    @families.gauge(f"kafka_server_replicamanager_{name}", text)
    def read(source: Source) -> Samples:
        yield Sample(NO_LABELS, value(source))


def _of_led(name: str, text: str, is_so: Callable[[Partition], bool]) -> None:
    @families.gauge(f"kafka_server_replicamanager_{name}", text)
    def read(source: Source) -> Samples:
        count = 0
        for number, partition in enumerate(source.led, 1):
            count += partition.leads and is_so(partition)
            if number % 200 == 0:
                yield None
        yield Sample(NO_LABELS, count)


def _of_cluster(name: str, text: str, value: Callable[[ClusterCounts], float]) -> None:
    @families.gauge(f"kafka_controller_kafkacontroller_{name}", text)
    def read(source: Source) -> Samples:
        yield Sample(NO_LABELS, value(source.cluster))


_of_replicas("partitioncount", "Partitions that this broker hosts.", lambda source: len(source.hosted))
_of_replicas("leadercount", "Partitions that this broker leads.", lambda source: len(source.led))
_of_replicas(
    "offlinereplicacount",
    "Logs that could not be opened, or failed: the broker's log says why.",
    lambda source: source.replicas.offline,
)
_of_led(
    "underreplicatedpartitions",
    "Partitions led here with a replica that is out of sync.",
    lambda partition: partition.is_under_replicated,
)
_of_led(
    "underminisrpartitioncount",
    "Partitions led here that refuse acks=all: the ISR is smaller than min.insync.replicas.",
    lambda partition: len(partition.isr) < partition.needed_in_sync,
)
_of_led(
    "atminisrpartitioncount",
    "Partitions led by this broker whose ISR equals min.insync.replicas.",
    lambda partition: len(partition.isr) == partition.needed_in_sync,
)


@families.gauge(
    "kafka_server_replicamanager_partitionswithlatetransactionscount",
    "Partitions led here whose oldest open transaction wrote nothing for transaction.max.timeout.ms and five minutes:"
    " its coordinator should have aborted it, so it hangs and holds readers back.",
)
def late_transactions(source: Source) -> Samples:
    config, count = source.services.config, 0
    late_ms = source.services.clock.now_ms() - config[TRANSACTION_MAX_TIMEOUT_MS] - LATE_TRANSACTION_BUFFER_MS
    for partition, ends_step in in_steps(source.led):
        oldest = partition.log.producer_state.oldest_open if partition.leads else None
        count += oldest is not None and 0 < oldest.timestamp < late_ms
        if ends_step:
            yield None
    yield Sample(NO_LABELS, count)


@families.counter("kafka_server_replicamanager_isrshrinks_total", "ISR shrinks of partitions led here.")
def isr_shrinks(source: Source) -> Samples:
    yield Sample(NO_LABELS, source.all_topics.isr_shrinks)


@families.counter("kafka_server_replicamanager_isrexpands_total", "ISR expands of partitions led here.")
def isr_expands(source: Source) -> Samples:
    yield Sample(NO_LABELS, source.all_topics.isr_expands)


_of_cluster("activecontrollercount", "1 if this broker is the controller.", lambda cluster: cluster.is_controller)
_of_cluster("activebrokercount", "Live brokers; 0 unless this is the controller.", lambda cluster: cluster.brokers)
_of_cluster(
    "offlinepartitionscount",
    "Partitions of the cluster without a leader; 0 unless this is the controller.",
    lambda cluster: cluster.offline,
)
_of_cluster(
    "preferredreplicaimbalancecount",
    "Partitions not led by their preferred replica; 0 unless this is the controller.",
    lambda cluster: cluster.not_preferred,
)
_of_cluster(
    "globaltopiccount", "Topics of the cluster; 0 unless this is the controller.", lambda cluster: cluster.topics
)
_of_cluster(
    "globalpartitioncount",
    "Partitions of the cluster; 0 unless this is the controller.",
    lambda cluster: cluster.partitions,
)


@families.gauge("kafka_server_kafkaserver_brokerstate", "3: running; 6: controlled shutdown.")
def broker_state(source: Source) -> Samples:
    yield Sample(NO_LABELS, CONTROLLED_SHUTDOWN if source.replicas.is_leaving else RUNNING)


@families.gauge(
    "oncelog_follower_lag_records",
    "The largest lag of a follower in records, over the partitions led here.",
    "follower",
)
def follower_lag(source: Source) -> Samples:
    for follower, records in sorted(source.lag.items()):
        yield Sample({"follower": str(follower)}, records)

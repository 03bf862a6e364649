"""Metrics with one sample for each partition that this broker hosts or leads: kafka.log:type=Log,
kafka.cluster:type=Partition.

Partitions of topics that were never used have no samples, unless a partition has a problem, such as an offline log.
"""

from __future__ import annotations

from collections.abc import Callable

from oncelog_broker.metrics.family import Families, Sample, Samples
from oncelog_broker.metrics.source import Source, in_steps
from oncelog_broker.replication.partition import Partition

families = Families()


def _hosted(name: str, text: str, value: Callable[[Partition], float]) -> None:
    @families.gauge(name, text, "topic", "partition")
    def read(source: Source) -> Samples:
        return (_sample(partition, value) for partition in source.hosted_used)


def _led(name: str, text: str, value: Callable[[Partition], float]) -> None:
    @families.gauge(name, text, "topic", "partition")
    def read(source: Source) -> Samples:
        for partition, ends_step in in_steps(source.led_used):
            if partition.leads:  # leadership may have changed since `led_used` was collected
                yield _sample(partition, value)
            elif ends_step:
                yield None


def _alarm(name: str, text: str, is_wrong: Callable[[Partition], bool]) -> None:
    """Declare a gauge whose value is 0 or 1; for topics that were never used, a value of 0 is not reported."""

    @families.gauge(name, text, "topic", "partition")
    def read(source: Source) -> Samples:
        for partition, ends_step in in_steps(source.led):
            if partition.leads and (partition.topic in source.topics or is_wrong(partition)):
                yield _sample(partition, is_wrong)
            elif ends_step:
                yield None


def _sample(partition: Partition, value: Callable[[Partition], float]) -> Sample:
    return Sample({"topic": partition.topic, "partition": str(partition.index)}, value(partition))


_hosted("kafka_log_log_size", "Bytes of the log's segments.", lambda partition: partition.log.size_bytes)
_hosted(
    "kafka_log_log_numlogsegments",
    "Segments of the log.",
    lambda partition: len(partition.log.segment_base_offsets),
)
_hosted(
    "kafka_log_log_logstartoffset", "The first offset of the log.", lambda partition: partition.log.log_start_offset
)
_hosted(
    "kafka_log_log_logendoffset",
    "The offset that the next record gets.",
    lambda partition: partition.log.log_end_offset,
)
_led(
    "kafka_cluster_partition_replicascount",
    "Replicas of a partition led here.",
    lambda partition: len(partition.followers) + 1,
)
_led(
    "kafka_cluster_partition_insyncreplicascount",
    "In-sync replicas of a partition led here.",
    lambda partition: len(partition.isr),
)
_alarm(
    "kafka_cluster_partition_underreplicated",
    "1 if a replica is out of sync.",
    lambda partition: partition.is_under_replicated,
)
_alarm(
    "kafka_cluster_partition_underminisr",
    "1 if the ISR is smaller than min.insync.replicas: acks=all is refused.",
    lambda partition: len(partition.isr) < partition.needed_in_sync,
)
_led(
    "kafka_cluster_partition_atminisr",
    "1 if the ISR equals min.insync.replicas: with one replica less, acks=all is refused.",
    lambda partition: len(partition.isr) == partition.needed_in_sync,
)
_led(
    "kafka_cluster_partition_laststableoffsetlag",
    "Records between last stable offset and high watermark, which open transactions hide from read_committed.",
    lambda partition: partition.high_watermark - partition.last_stable_offset,
)

"""Metrics of the share partitions that this broker leads (KIP-932). Kafka's names are those of KIP-1103:
kafka.server:type=ShareGroupMetrics and type=SharePartitionMetrics.

A share partition has samples while members of its group read from this broker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from oncelog_broker.metrics.family import NO_LABELS, Families, Sample, Samples
from oncelog_broker.metrics.source import Source
from oncelog_broker.sharing.hosted_share_partition import HostedSharePartition
from oncelog_protocol.messages.share_fetch import AcknowledgeType

families = Families()

ACK_NAMES: Final[Mapping[int, str]] = {
    AcknowledgeType.ACCEPT: "Accept",
    AcknowledgeType.RELEASE: "Release",
    AcknowledgeType.REJECT: "Reject",
    AcknowledgeType.RENEW: "Renew",
}
"""The values of Kafka's label ackType."""


@families.gauge(
    "kafka_server_sharesessioncache_sharesessionscount", "Share sessions of members that read from this broker."
)
def share_sessions(source: Source) -> Samples:
    yield Sample(NO_LABELS, len(source.services.share_partitions.sessions))


@families.gauge(
    "oncelog_share_partition_inflight_records",
    "Records of share partitions at this broker from the first one that is not done to the last one handed out.",
)
def share_records_in_flight(source: Source) -> Samples:
    records = 0
    for hosted in list(source.services.share_partitions.all()):
        records += len(hosted.share.runs)
        yield None
    yield Sample(NO_LABELS, records)


def _of_partitions(name: str, text: str, value: Callable[[HostedSharePartition], float]) -> None:
    @families.gauge(name, text, "group", "topic", "partition")
    def read(source: Source) -> Samples:
        for hosted in list(source.services.share_partitions.all()):
            if hosted.is_current:  # a share partition may have been dropped since the list was made
                partition = hosted.partition
                labels = {
                    "group": hosted.key.group_id, "topic": partition.topic, "partition": str(partition.index),
                }  # fmt: skip
                yield Sample(labels, value(hosted))
            else:
                yield None


_of_partitions(
    "kafka_server_sharepartitionmetrics_inflightmessagecount",
    "Records from the first one that is not done to the last one handed out.",
    lambda hosted: len(hosted.share.runs),
)
_of_partitions(
    "oncelog_share_partition_acquired_records",
    "Records that members have now: neither acknowledged nor released, and their locks have not expired.",
    lambda hosted: hosted.share.acquired_records,
)
_of_partitions(
    "oncelog_share_partition_lag_records",
    "Records that the group may read and that are neither accepted nor archived; with share.isolation.level="
    "read_committed without the records that an open transaction hides.",
    lambda hosted: hosted.lag,
)


@families.counter(
    "oncelog_share_deliveries_total",
    "Records handed out to members of share groups. first: for the first time; repeated: after a release, an expired "
    "lock or a closed session.",
    "attempt",
)
def deliveries(source: Source) -> Samples:
    counts = source.services.share_partitions.counts
    yield Sample({"attempt": "first"}, counts.first_deliveries)
    yield Sample({"attempt": "repeated"}, counts.repeated_deliveries)


@families.counter(
    "kafka_server_sharegroupmetrics_recordacknowledgements_total",
    "Records that members of share groups have acknowledged, by the type of acknowledgement.",
    "ackType",
)
def acknowledgements(source: Source) -> Samples:
    for kind, records in source.services.share_partitions.counts.acknowledged.items():
        yield Sample({"ackType": ACK_NAMES[kind]}, records)


@families.counter(
    "oncelog_share_lock_timeouts_total",
    "Records whose acquisition lock has expired: their members were too slow, or died.",
)
def lock_timeouts(source: Source) -> Samples:
    yield Sample(NO_LABELS, source.services.share_partitions.counts.lock_timeouts)


@families.counter(
    "oncelog_share_records_used_up_total",
    "Records that were archived without being accepted or rejected, because they were delivered "
    "share.delivery.count.limit times.",
)
def used_up(source: Source) -> Samples:
    yield Sample(NO_LABELS, source.services.share_partitions.counts.used_up)

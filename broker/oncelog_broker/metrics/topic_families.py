"""Metrics of the traffic of each topic: kafka.server:type=BrokerTopicMetrics.

A sample without the label `topic` is the sum of all topics, as in Kafka. Dashboards select single topics with
topic!="", and the sum with topic="". Topics that were never used have no samples, as in Kafka.
"""

from __future__ import annotations

from typing import Final

from oncelog_broker.metrics.family import NO_LABELS, Families, Sample, Samples
from oncelog_broker.metrics.source import Source

families = Families()

COUNTERS: Final = (
    ("messagesin", "messages_in", "Records appended by this broker as leader, transaction markers included."),
    ("bytesin", "bytes_in", "Bytes of record batches appended by this broker as leader."),
    ("bytesout", "bytes_out", "Bytes of record batches in responses to consumers."),
    ("replicationbytesin", "replication_bytes_in", "Bytes of record batches fetched from leaders (replication)."),
    ("replicationbytesout", "replication_bytes_out", "Bytes of record batches in responses to followers."),
    ("totalproducerequests", "produces", "Batches appended by this broker as leader: a request may have several."),
    ("failedproducerequests", "failed_produces", "Batches that were refused, of partitions that this broker leads."),
    ("totalfetchrequests", "fetches", "Partitions in Fetch responses to consumers."),
    ("failedfetchrequests", "failed_fetches", "Partitions in Fetch responses with an error."),
)
"""Each entry is a tuple: name of Kafka's metric, counter in `TopicTraffic`, meaning."""


def _declare(kafkas: str, ours: str, text: str) -> None:
    @families.counter(f"kafka_server_brokertopicmetrics_{kafkas}_total", text, "topic")
    def read(source: Source) -> Samples:
        yield Sample(NO_LABELS, getattr(source.all_topics, ours))
        for topic, counted in source.topics.items():
            yield Sample({"topic": topic}, getattr(counted, ours))


for _counter in COUNTERS:
    _declare(*_counter)

"""A record of a share group, which its consumer must acknowledge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple

from oncelog.cluster import TopicPartition
from oncelog.consumer.records import ConsumerRecord, K, V
from oncelog_protocol.messages.share_fetch import AcknowledgeType

Acknowledge = Callable[["ShareRecord[Any, Any]", AcknowledgeType], None]


class ShareRecord(NamedTuple, Generic[K, V]):
    """A record that this consumer has acquired for the duration of its acquisition lock. `delivery_count` is the number
    of deliveries of the record to the group, including this one. Key and value are bytes, the results of the
    deserializers (types K and V), or None.

    `accept` acknowledges that the record is processed. `release` returns the record to the group, to be delivered
    again. `reject` says that the record cannot be processed and must not be delivered again. `renew` restarts the
    acquisition lock, because the record needs more time. All four methods raise ValueError for a record that is already
    acknowledged.
    """

    record: ConsumerRecord[K, V]
    delivery_count: int
    acknowledge: Acknowledge

    @property
    def topic(self) -> str:
        return self.record.topic

    @property
    def partition(self) -> int:
        return self.record.partition

    @property
    def offset(self) -> int:
        return self.record.offset

    @property
    def key(self) -> K | None:
        return self.record.key

    @property
    def value(self) -> V | None:
        return self.record.value

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.record.topic, self.record.partition)

    def accept(self) -> None:
        self.acknowledge(self, AcknowledgeType.ACCEPT)

    def release(self) -> None:
        self.acknowledge(self, AcknowledgeType.RELEASE)

    def reject(self) -> None:
        self.acknowledge(self, AcknowledgeType.REJECT)

    def renew(self) -> None:
        self.acknowledge(self, AcknowledgeType.RENEW)

"""The read-only view of a consumer: its partitions, the ends of their logs, and its counters."""

from __future__ import annotations

from oncelog.cluster import TopicPartition
from oncelog.config import ConsumerConfig
from oncelog.connection.pool import ConnectionPool
from oncelog.consumer.counts import ConsumerCounts
from oncelog.consumer.fetcher import Fetcher
from oncelog.consumer.group.members import GroupMember
from oncelog.consumer.positions import UNKNOWN_OFFSET, Positions
from oncelog.lifecycle import Lifecycle


class ConsumerView(Lifecycle):
    """The part of a Consumer that sends no requests and changes nothing. The subclass `Consumer` sets the fields."""

    config: ConsumerConfig
    _positions: Positions
    _group: GroupMember | None
    _pool: ConnectionPool | None
    _fetcher: Fetcher
    _consumed: int

    def assignment(self) -> set[TopicPartition]:
        """Return the partitions that this consumer reads."""
        return self._positions.assignment

    def subscription(self) -> frozenset[str]:
        """Return the topics of `subscribe`; for a pattern, the topics that match now. The result is empty without a
        subscription.
        """
        return frozenset() if self._group is None else self._group.subscription

    def paused(self) -> set[TopicPartition]:
        """Return the partitions that are paused."""
        return {position.topic_partition for position in self._positions if position.is_paused}

    def lag(self, partition: TopicPartition) -> int | None:
        """Return the number of offsets between the position and the end, according to the last Fetch response; None if
        unknown.

        Raises ValueError for a partition that is not assigned.
        """
        state = self._positions.get(partition)
        is_committed = self.config.isolation_level == "read_committed"
        end = state.last_stable_offset if is_committed else state.high_watermark
        if state.position is None or end == UNKNOWN_OFFSET:
            return None
        return max(0, end - state.position)

    def highwater(self, partition: TopicPartition) -> int | None:
        """Return the high watermark as of the last response: the offset after the last record that all in-sync replicas
        have. The result is None while the high watermark is unknown. Raises ValueError for a partition that is not
        assigned.
        """
        end = self._positions.get(partition).high_watermark
        return None if end == UNKNOWN_OFFSET else end

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """Return the last stable offset as of the last response; read_committed readers see only records below it. The
        result is None while the offset is unknown. Raises ValueError for a partition that is not assigned.
        """
        end = self._positions.get(partition).last_stable_offset
        return None if end == UNKNOWN_OFFSET else end

    def metrics(self) -> dict[str, float]:
        """Return the counters and the state of this consumer, by the metric names of Kafka's client. The values are
        zero before `start`.

        records-consumed-total counts returned records; fetch-total and bytes-consumed-total count fetches.
        records-lag-max (the largest known `lag`), assigned-partitions and connection-count are current values.
        """
        counts = ConsumerCounts() if self._pool is None else self._fetcher.counts
        counts.records_consumed = self._consumed
        lags = [lag for partition in self.assignment() if (lag := self.lag(partition)) is not None]
        return counts.metrics() | {
            "records-lag-max": max(lags, default=0),
            "assigned-partitions": len(self._positions),
            "connection-count": 0 if self._pool is None else self._pool.open_connections,
        }

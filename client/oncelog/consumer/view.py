"""What a consumer shows of itself: its partitions, how far their logs go, its counters."""

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
    """The part of a Consumer that asks no broker and changes nothing. `Consumer` sets the fields."""

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
        """Return the topics of `subscribe`; of a pattern, those that match now. Empty without a subscription."""
        return frozenset() if self._group is None else self._group.subscription

    def paused(self) -> set[TopicPartition]:
        """Return the partitions that are paused."""
        return {position.topic_partition for position in self._positions if position.is_paused}

    def lag(self, partition: TopicPartition) -> int | None:
        """Return the number of offsets between the position and the end, as of the last response; None while unknown.

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
        have.
        None while unknown. Raises ValueError for a partition that is not assigned."""
        end = self._positions.get(partition).high_watermark
        return None if end == UNKNOWN_OFFSET else end

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """Return the last stable offset as of the last response: read_committed readers see records below it. None
        while
        unknown. Raises ValueError for a partition that is not assigned."""
        end = self._positions.get(partition).last_stable_offset
        return None if end == UNKNOWN_OFFSET else end

    def metrics(self) -> dict[str, float]:
        """Return the counters of this consumer and its state, by the names of Kafka's client. Zero before `start`.

        records-consumed-total counts returned records, fetch-total and bytes-consumed-total what was fetched;
        records-lag-max (the largest known `lag`), assigned-partitions and connection-count are as of now.
        """
        counts = ConsumerCounts() if self._pool is None else self._fetcher.counts
        counts.records_consumed = self._consumed
        lags = [lag for partition in self.assignment() if (lag := self.lag(partition)) is not None]
        return counts.metrics() | {
            "records-lag-max": max(lags, default=0),
            "assigned-partitions": len(self._positions),
            "connection-count": 0 if self._pool is None else self._pool.open_connections,
        }

"""The assigned partitions of a consumer: position, buffered data, errors."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple, NoReturn, TypeVar

from oncelog.backoff import backoff_s
from oncelog.cluster import NO_LEADER_EPOCH, NO_NODE, TopicPartition
from oncelog.config import ConsumerConfig
from oncelog.consumer.fetched import FetchedPartition
from oncelog.consumer.records import ConsumerRecord
from oncelog.errors import CorruptRecords, KafkaError
from oncelog.group_offsets import OffsetAndMetadata

T = TypeVar("T")

UNKNOWN_OFFSET: Final = -1


class DoneWith(NamedTuple):
    """The offset up to which the application had processed a partition when poll number `poll` began; `offset` is None
    if there was no position. A later manual commit replaces this progress; `handed_out` is the position at that commit,
    None if there
    was no commit.
    """

    poll: int
    offset: int | None
    epoch: int
    handed_out: int | None = None


class PartitionPosition:
    """One assigned partition.

    - `fetch_offset`: offset of the next Fetch, None until a start is looked up. The start is the committed offset if
      the position `wants_committed` and there is one, otherwise `came_from` if known, otherwise the offset for
      `reset_timestamp` (None means auto.offset.reset).
    - `failures`: number of consecutive responses without a record; after each such response, the next request waits
      until `not_before` (loop time).
    - `preferred_replica`: a nearer replica, used until `preferred_until` (loop time).
    - `fetching_from`: the node of the outstanding Fetch; `starting_from`: the node of the last look-up
      (`offset_reset`).
    - `agreed_epoch`: leader epoch of the last leader whose log contained the records before the position.
    - `behind`: number of consecutive metadata refreshes in which the leader's epoch was below the position's epoch
      (`validation`).
    - `seeks`: incremented by every action that invalidates outstanding responses.
    - `epoch_is_read`: whether `_last_epoch` is the epoch of a batch that was read; the epoch of a committed offset or a
      seek may belong to no batch.
    - `done_with`: the processed offset at the beginning of the last poll that moved the position.

    Invariant: the items of `fetched` are consecutive, and the last item ends at `fetch_offset`.
    """

    __slots__ = (
        "_last_epoch",
        "agreed_epoch",
        "behind",
        "came_from",
        "done_with",
        "epoch_is_read",
        "error",
        "failures",
        "fetch_offset",
        "fetched",
        "fetching_from",
        "high_watermark",
        "is_paused",
        "last_stable_offset",
        "log_start_offset",
        "not_before",
        "preferred_replica",
        "preferred_until",
        "reset_timestamp",
        "seeks",
        "starting_from",
        "topic_partition",
        "wants_committed",
    )

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.fetch_offset: int | None = None
        self.reset_timestamp: int | None = None
        self.fetched: deque[FetchedPartition] = deque()
        self.seeks = 0
        self.is_paused = False
        self.fetching_from = self.starting_from = NO_NODE
        self.failures = 0
        self.not_before = 0.0
        self.error: KafkaError | None = None
        self.preferred_replica = NO_NODE
        self.preferred_until = 0.0
        self.wants_committed = True
        self.came_from: int | None = None
        self._last_epoch = NO_LEADER_EPOCH
        self.epoch_is_read = False
        self.done_with: DoneWith | None = None
        self.agreed_epoch = NO_LEADER_EPOCH
        self.behind = 0
        self.high_watermark = UNKNOWN_OFFSET
        self.last_stable_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET

    @property
    def position(self) -> int | None:
        """The offset of the next record to return; None while the offset must be looked up."""
        return self.fetched[0].next_offset if self.fetched else self.fetch_offset

    @property
    def last_epoch(self) -> int:
        """The leader epoch of the last batch before `position`; -1 if unknown, as after a seek."""
        epoch = self.fetched[0].last_epoch if self.fetched else NO_LEADER_EPOCH
        return self._last_epoch if epoch == NO_LEADER_EPOCH else epoch

    @property
    def fetch_epoch(self) -> int:
        """The leader epoch of the last batch before `fetch_offset`; -1 if unknown."""
        return self.fetched[-1].end_epoch if self.fetched else self._last_epoch

    @property
    def fetch_epoch_is_read(self) -> bool:
        """Whether `fetch_epoch` belongs to a batch that was read, which proves the content of the log."""
        return bool(self.fetched) or self.epoch_is_read

    @property
    def buffered_bytes(self) -> int:
        return sum(fetched.size for fetched in self.fetched)

    def seek(self, offset: int, leader_epoch: int = NO_LEADER_EPOCH) -> None:
        """Continue from `offset`; `leader_epoch` is the epoch of the batch before it."""
        self._forget()
        self.fetch_offset = offset
        self._last_epoch = leader_epoch

    def go_back(self, came_from: int) -> None:
        """Continue from the committed offset, or from `came_from` if there is none."""
        self._forget()
        self.fetch_offset = None
        self.wants_committed = True
        self.came_from = came_from

    def start_at(self, offset: int, leader_epoch: int) -> None:
        """Continue from a committed or looked-up offset."""
        self.fetch_offset = offset
        self.wants_committed = False
        self._last_epoch, self.epoch_is_read = leader_epoch, False

    def has_no_committed(self) -> None:
        """Record that the group has no committed offset: continue from `came_from`, or look up a start."""
        self.wants_committed = False
        self.fetch_offset = self.came_from

    def reset(self, timestamp: int | None) -> None:
        """Continue from the offset of `timestamp`; None means that auto.offset.reset determines the offset."""
        self._forget()
        self.fetch_offset = None
        self.reset_timestamp = timestamp

    def add(self, fetched: FetchedPartition) -> None:
        """Add the batches of the response to the last Fetch."""
        self.fetched.append(fetched)
        self.fetch_offset = fetched.end_offset
        self.behind = 0

    def fetch_again(self) -> None:
        """Fetch again from the same position, because the buffered data are unreadable."""
        self._remember_epoch()
        self.fetch_offset = self.position
        self.fetched.clear()
        self.seeks += 1
        self.error = None

    def back_off(self, now: float, config: ConsumerConfig, rng: random.Random) -> None:
        """Delay the next request after a response without progress; each further delay is longer."""
        self.failures += 1
        self.not_before = now + backoff_s(self.failures, config.retry_backoff_ms, config.retry_backoff_max_ms, rng)

    def take(self, limit: int) -> list[ConsumerRecord]:
        """Remove and return at most `limit` buffered records. Raises CorruptRecords."""
        taken: list[ConsumerRecord] = []
        while self.fetched and len(taken) < limit:
            head = self.fetched[0]
            try:
                part = head.take(limit - len(taken))
            except CorruptRecords:
                if taken:
                    break  # stop here: the next call raises the error
                raise
            taken = taken + part if taken else part
            if not head.is_exhausted:
                break  # enough records, or unreadable data after them, for which the next call raises the error
            self.drop_head()
        return taken

    def take_all(self, take: Callable[[FetchedPartition], list[T]]) -> list[T]:
        """Return all buffered data of the partition as the function `take` returns them, such as columns. Raises
        CorruptRecords.
        """
        taken: list[T] = []
        while self.fetched:
            head = self.fetched[0]
            try:
                taken += take(head)
            except CorruptRecords:
                if taken:
                    # stop here: the next call raises the error
                    break
                raise
            if not head.is_exhausted:
                break  # unreadable data follow; the next call raises the error
            self.drop_head()
        return taken

    def drop_head(self) -> None:
        """Remove the first buffered response, whose records have all been taken."""
        self._remember_epoch()
        self.fetched.popleft()
        self.failures = 0

    def _remember_epoch(self) -> None:
        """Store the epoch of the last returned batch before its response is dropped."""
        epoch = self.fetched[0].last_epoch if self.fetched else NO_LEADER_EPOCH
        if epoch != NO_LEADER_EPOCH:
            self._last_epoch, self.epoch_is_read = epoch, True

    def _forget(self) -> None:
        self.wants_committed = False
        self.came_from = None
        self._last_epoch, self.epoch_is_read = NO_LEADER_EPOCH, False
        self.agreed_epoch = NO_LEADER_EPOCH
        self.behind = 0
        self.fetched.clear()
        self.seeks += 1
        self.error = None
        self.not_before = 0.0


class Positions:
    """All assigned partitions in round-robin order.

    Records and errors are taken in the same round-robin order, so that a backlog of one partition does not delay the
    error of another partition (E53). `poll` counts the calls of the application to `Consumer.poll` so far. `withheld`
    contains the end of the returned records for partitions whose next records are taken but not returned yet
    (`deserializing`). If the application drops or moves such a partition, its entry is removed, and the partition's own
    position is used again.
    """

    def __init__(self) -> None:
        self._by_partition: dict[TopicPartition, PartitionPosition] = {}
        self.poll = 0
        self.withheld: dict[TopicPartition, OffsetAndMetadata] = {}

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Make these partitions the entire assignment; partitions that were already assigned keep their position and
        buffered data.
        """
        before = self._by_partition
        self._by_partition = {}
        for topic_partition in partitions:
            kept = before.pop(topic_partition, None)
            self._by_partition.setdefault(topic_partition, kept or PartitionPosition(topic_partition))
        for dropped in before.values():
            dropped.seek(UNKNOWN_OFFSET)  # responses to outstanding Fetch requests become invalid
            self.withheld.pop(dropped.topic_partition, None)

    def __iter__(self) -> Iterator[PartitionPosition]:
        return iter(self._by_partition.values())

    def __len__(self) -> int:
        return len(self._by_partition)

    @property
    def assignment(self) -> set[TopicPartition]:
        return set(self._by_partition)

    @property
    def topics(self) -> set[str]:
        return {partition.topic for partition in self._by_partition}

    def get(self, topic_partition: TopicPartition) -> PartitionPosition:
        """Return the position of a partition. Raises ValueError for a partition that is not assigned."""
        found = self._by_partition.get(topic_partition)
        if found is None:
            raise ValueError(f"{topic_partition} is not assigned to this consumer")
        return found

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the position after all returned records, for each partition that has a position."""
        return {
            place.topic_partition: self.withheld.get(place.topic_partition)
            or OffsetAndMetadata(place.position, "", place.last_epoch)
            for place in self
            if place.position is not None
        }

    def withhold(self, taken: Iterable[TopicPartition]) -> None:
        """Make `consumed` return the positions of these partitions from before this poll, until the records of the poll
        are returned.
        """
        for partition in taken:
            done = self._by_partition[partition].done_with
            assert done is not None  # `done_with` was set when the records were taken
            assert done.offset is not None
            self.withheld[partition] = OffsetAndMetadata(done.offset, "", done.epoch)

    def owns(self, position: PartitionPosition) -> bool:
        """Return whether `position` is still assigned."""
        return self._by_partition.get(position.topic_partition) is position

    def to_reset(self, now: float) -> list[PartitionPosition]:
        """Return the positions without an offset, whose start must be looked up."""
        return [
            position
            for position in self
            if position.fetch_offset is None and position.error is None and position.not_before <= now
        ]

    def fetchable(self, now: float, *, buffer_bytes: int, total_bytes: int) -> list[PartitionPosition]:
        """Return the positions to fetch. A partition with buffered data is fetched only if it has less than
        `buffer_bytes` of them, and all partitions together less than `total_bytes`.

        A partition with some buffered data is fetched too, so that the next response arrives while the application
        processes the buffered data. After a failure, a partition with buffered data is fetched only when these data
        have proved readable.
        """
        total = sum(position.buffered_bytes for position in self)
        return [
            position
            for position in self
            if position.fetch_offset is not None
            and not position.is_paused
            and position.error is None
            and position.not_before <= now
            and (
                not position.fetched
                or (not position.failures and position.buffered_bytes < buffer_bytes and total < total_bytes)
            )
        ]

    def next_retry(self, now: float) -> float | None:
        """Return the time at which the first backoff of a partition ends; None if no partition backs off."""
        return min((position.not_before for position in self if position.not_before > now), default=None)

    def take(
        self, limit: int, *, damaged: Callable[[PartitionPosition], None]
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Return at most `limit` records, from as few partitions as possible. Raises the error of a partition when the
        round-robin order reaches it. Raises CorruptRecords after calling `damaged` with the position.
        """
        taken: dict[TopicPartition, list[ConsumerRecord]] = {}
        for position in self._with_news():
            if not position.fetched:
                if taken:
                    break  # return the records; the next call raises the error of this partition
                self._raise_error(position)
            self._mark_taken(position)
            try:
                records = position.take(limit)
            except CorruptRecords:
                if taken:
                    break  # return the records; the next call raises the error
                damaged(position)
                raise
            if records:
                taken[position.topic_partition] = records
                limit -= len(records)
                self.served(position)
                if limit <= 0:
                    break
        return taken

    def take_all(
        self, take: Callable[[FetchedPartition], list[T]], *, damaged: Callable[[PartitionPosition], None]
    ) -> dict[TopicPartition, list[T]]:
        """Return all buffered data of the next partition in turn, batch by batch, in the form of `take`. Raises the
        errors of `take`, and the error of the partition that is next in the order.
        """
        for position in self._with_news():
            if not position.fetched:
                self._raise_error(position)
            self._mark_taken(position)
            try:
                batches = position.take_all(take)
            except CorruptRecords:
                damaged(position)
                raise
            if batches:
                self.served(position)
                return {position.topic_partition: batches}
        return {}

    def next_in_turn(self) -> PartitionPosition | None:
        """Return the partition to iterate over next, and move it to the end of the order; None if no partition has
        buffered data. Raises the error of an earlier partition in the order."""
        for position in self._with_news():
            if not position.fetched:
                self._raise_error(position)
            self.served(position)
            return position
        return None

    def served(self, position: PartitionPosition) -> None:
        """Move the partition to the end of the order."""
        self._by_partition[position.topic_partition] = self._by_partition.pop(position.topic_partition)

    def mark(self, position: PartitionPosition) -> None:
        """Store the offset of `position` at the beginning of this poll, before the application moves it."""
        self.withheld.pop(position.topic_partition, None)
        if position.done_with is None or position.done_with.poll != self.poll:
            position.done_with = DoneWith(self.poll, position.position, position.last_epoch)

    def _mark_taken(self, position: PartitionPosition) -> None:
        """Store the start of the records that this poll takes. The position is stored now because a listener may have
        called `seek` earlier in this poll, and the records before the new position must not be read.
        """
        done = position.done_with
        if done is None or done.poll != self.poll or done.handed_out is None:
            position.done_with = DoneWith(self.poll, position.position, position.last_epoch)

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], poll: int) -> None:
        """Record offsets that the application has committed itself, with a commit that was requested after poll number
        `poll`. The records before these offsets count as processed.
        """
        for partition, told in offsets.items():
            position = self._by_partition.get(partition)
            if position is not None and (position.done_with is None or position.done_with.poll <= poll):
                position.done_with = DoneWith(poll, told.offset, told.leader_epoch, handed_out=position.position)

    def go_back(self, iterated: tuple[PartitionPosition, FetchedPartition] | None) -> None:
        """Go back to the processed offsets, because the work on the last returned records has failed.

        The processed offsets are the positions at the last poll, or at a later manual commit. In the partition that
        `async for` iterates over (`iterated`), the processed offset is the offset of the last returned record.
        """
        for position in list(self):
            done = position.done_with
            if iterated is not None and position is iterated[0]:
                head = iterated[1]
                if done is None or done.poll != self.poll or done.handed_out != position.position:
                    epoch = head.epoch_before_last
                    if epoch == NO_LEADER_EPOCH:
                        epoch = position._last_epoch
                    done = DoneWith(self.poll, head.next_offset - 1, epoch)
            if done is None or done.poll != self.poll:
                continue
            if done.offset is None:
                position.reset(None)
            else:
                position.seek(done.offset, done.epoch)

    def _with_news(self) -> list[PartitionPosition]:
        """Return the positions that have records or an error for the application, in order."""
        return [
            position for position in self if (position.fetched or position.error is not None) and not position.is_paused
        ]

    def _raise_error(self, position: PartitionPosition) -> NoReturn:
        """Raise the error of the partition; the partition is fetched again after its backoff."""
        error, position.error = position.error, None
        assert error is not None
        self.served(position)
        raise error

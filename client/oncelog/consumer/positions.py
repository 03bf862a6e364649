"""The partitions that a consumer is assigned: where each one is, what it has buffered, whether it wants more."""

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
    """How far the application was done with a partition's records when poll number `poll` began: `offset` is None where
    the partition had no position. The application's own commit since then takes its place (`handed_out` is the position
    at which it asked for that commit, None where there was no such commit)."""

    poll: int
    offset: int | None
    epoch: int
    handed_out: int | None = None


class PartitionPosition:
    """One assigned partition.

    `fetch_offset` is where the next Fetch begins, None until a start is looked up: the committed offset if it
    `wants_committed` and there is one, else `came_from` if that is known, else by `reset_timestamp` (None: by the
    policy). `failures` counts answers in a row of which none could be handed out whole, after each of which it waits
    until `not_before` (loop time). `preferred_replica` is nearer than the leader, and to be asked until
    `preferred_until` (loop time). `fetching_from` is the node that a Fetch is under way to. `agreed_epoch` is that of
    the last leader whose log was found to have what is before the position, `behind` how often in a row only older
    leaders than that of the position were known (see `validation`). `seeks` counts whatever made answers under way
    void. `starting_from` is the node that the last look-up of a start went to (see `starts`). `epoch_is_read` says
    whether `_last_epoch` is that of a batch that was read here; an epoch that was only told (a committed offset, a
    seek) may belong to no batch at all. `done_with` is how far the application was done with the records when the
    last poll began, where that poll moved the position. Invariant: `fetched` continue one another, and the last one
    ends at `fetch_offset`.
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
        """The offset of the next record that is handed out; None while it has to be looked up."""
        return self.fetched[0].next_offset if self.fetched else self.fetch_offset

    @property
    def last_epoch(self) -> int:
        """The leader epoch of the last batch before `position`; -1 where that is not known, as after a seek."""
        epoch = self.fetched[0].last_epoch if self.fetched else NO_LEADER_EPOCH
        return self._last_epoch if epoch == NO_LEADER_EPOCH else epoch

    @property
    def fetch_epoch(self) -> int:
        """The leader epoch of the last batch before `fetch_offset`; -1 where that is not known."""
        return self.fetched[-1].end_epoch if self.fetched else self._last_epoch

    @property
    def fetch_epoch_is_read(self) -> bool:
        """Whether `fetch_epoch` is that of a batch that was read here, and so is evidence of what the log had."""
        return bool(self.fetched) or self.epoch_is_read

    @property
    def buffered_bytes(self) -> int:
        return sum(fetched.size for fetched in self.fetched)

    def seek(self, offset: int, leader_epoch: int = NO_LEADER_EPOCH) -> None:
        """Go on from `offset`; `leader_epoch` is that of the batch before it."""
        self._forget()
        self.fetch_offset = offset
        self._last_epoch = leader_epoch

    def go_back(self, came_from: int) -> None:
        """Go on from what is committed, else from `came_from`."""
        self._forget()
        self.fetch_offset = None
        self.wants_committed = True
        self.came_from = came_from

    def start_at(self, offset: int, leader_epoch: int) -> None:
        """Go on from where somebody had come to, or from what was looked up."""
        self.fetch_offset = offset
        self.wants_committed = False
        self._last_epoch, self.epoch_is_read = leader_epoch, False

    def has_no_committed(self) -> None:
        """Nothing is committed: go on from where it came from, or have a start looked up."""
        self.wants_committed = False
        self.fetch_offset = self.came_from

    def reset(self, timestamp: int | None) -> None:
        """Go on from where `timestamp` is found (None: the policy decides)."""
        self._forget()
        self.fetch_offset = None
        self.reset_timestamp = timestamp

    def add(self, fetched: FetchedPartition) -> None:
        """An answer to the last Fetch."""
        self.fetched.append(fetched)
        self.fetch_offset = fetched.end_offset
        self.behind = 0

    def fetch_again(self) -> None:
        """What comes next of what is buffered cannot be read: go on from the same place, with another answer."""
        self._remember_epoch()
        self.fetch_offset = self.position
        self.fetched.clear()
        self.seeks += 1
        self.error = None

    def back_off(self, now: float, config: ConsumerConfig, rng: random.Random) -> None:
        """The last answer brought it no further: the next request waits, longer after each that follows."""
        self.failures += 1
        self.not_before = now + backoff_s(self.failures, config.retry_backoff_ms, config.retry_backoff_max_ms, rng)

    def take(self, limit: int) -> list[ConsumerRecord]:
        """At most `limit` buffered records. Raises CorruptRecords."""
        taken: list[ConsumerRecord] = []
        while self.fetched and len(taken) < limit:
            head = self.fetched[0]
            try:
                part = head.take(limit - len(taken))
            except CorruptRecords:
                if taken:
                    break  # the next call raises it
                raise
            taken = taken + part if taken else part
            if not head.is_exhausted:
                break  # enough, or damage behind what was taken: the next call raises it
            self.drop_head()
        return taken

    def take_all(self, take: Callable[[FetchedPartition], list[T]]) -> list[T]:
        """All that is buffered, as `take` has it. Raises CorruptRecords."""
        taken: list[T] = []
        while self.fetched:
            head = self.fetched[0]
            try:
                taken += take(head)
            except CorruptRecords:
                if taken:
                    break  # the next call raises it
                raise
            if not head.is_exhausted:
                break  # damage behind what was taken
            self.drop_head()
        return taken

    def drop_head(self) -> None:
        """The first answer has been handed out."""
        self._remember_epoch()
        self.fetched.popleft()
        self.failures = 0

    def _remember_epoch(self) -> None:
        """What was handed out of the first answer is gone: keep the epoch of its last batch."""
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
    """All assigned partitions, in the order of their turns: who was served goes to the end of the line.

    Records and errors take turns alike, so no backlog of one partition keeps another one's error from being raised
    (E53). `poll` counts the polls of the application.
    """

    def __init__(self) -> None:
        self._by_partition: dict[TopicPartition, PartitionPosition] = {}
        self.poll = 0

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Have exactly these; those that stay keep their position and what they have buffered."""
        before = self._by_partition
        self._by_partition = {}
        for topic_partition in partitions:
            kept = before.pop(topic_partition, None)
            self._by_partition.setdefault(topic_partition, kept or PartitionPosition(topic_partition))
        for dropped in before.values():
            dropped.seek(UNKNOWN_OFFSET)  # answers under way are void

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
        """Raises ValueError for a partition that is not assigned."""
        found = self._by_partition.get(topic_partition)
        if found is None:
            raise ValueError(f"{topic_partition} is not assigned to this consumer")
        return found

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Behind all records that were handed out, of each partition whose position is known."""
        return {
            place.topic_partition: OffsetAndMetadata(place.position, "", place.last_epoch)
            for place in self
            if place.position is not None
        }

    def owns(self, position: PartitionPosition) -> bool:
        """Whether `position` is still one of these."""
        return self._by_partition.get(position.topic_partition) is position

    def to_reset(self, now: float) -> list[PartitionPosition]:
        """Those whose start has to be looked up."""
        return [
            position
            for position in self
            if position.fetch_offset is None and position.error is None and position.not_before <= now
        ]

    def fetchable(self, now: float, *, buffer_bytes: int, total_bytes: int) -> list[PartitionPosition]:
        """Those to ask for more: `buffer_bytes` are enough for one partition, `total_bytes` for all of them.

        A partition with some data buffered is asked for more, so that the next answer is on its way while this one is
        worked on; after a failure not before what is buffered has proved to be good.
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
        """When the first of the partitions that wait after an error is to be asked again; None if none does."""
        return min((position.not_before for position in self if position.not_before > now), default=None)

    def take(
        self, limit: int, *, damaged: Callable[[PartitionPosition], None]
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """At most `limit` records, of as few partitions as have them. Raises the error of a partition whose turn it is,
        and CorruptRecords, once it has called `damaged` with the position whose data it is about."""
        taken: dict[TopicPartition, list[ConsumerRecord]] = {}
        for position in self._with_news():
            if not position.fetched:
                if taken:
                    break  # the next call raises its error
                self._raise_error(position)
            self.mark(position)
            try:
                records = position.take(limit)
            except CorruptRecords:
                if taken:
                    break  # the next call raises it
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
        """All that one partition, the next in turn, has buffered: batch by batch, as `take` has it. Raises as `take`
        of one, and the error of a partition whose turn it is."""
        for position in self._with_news():
            if not position.fetched:
                self._raise_error(position)
            self.mark(position)
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
        """The partition to iterate over next, which then goes to the end of the line; None where none has anything
        buffered. Raises the error of a partition whose turn comes before that."""
        for position in self._with_news():
            if not position.fetched:
                self._raise_error(position)
            self.served(position)
            return position
        return None

    def served(self, position: PartitionPosition) -> None:
        """To the end of the line."""
        self._by_partition[position.topic_partition] = self._by_partition.pop(position.topic_partition)

    def mark(self, position: PartitionPosition) -> None:
        """This poll, or a seek after it, is about to move `position`: note where it was when the poll began."""
        if position.done_with is None or position.done_with.poll != self.poll:
            position.done_with = DoneWith(self.poll, position.position, position.last_epoch)

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], poll: int) -> None:
        """The application has committed these itself, which it asked for after poll number `poll`: it is done with what
        is before them."""
        for partition, told in offsets.items():
            position = self._by_partition.get(partition)
            if position is not None and (position.done_with is None or position.done_with.poll <= poll):
                position.done_with = DoneWith(poll, told.offset, told.leader_epoch, handed_out=position.position)

    def go_back(self, iterated: tuple[PartitionPosition, FetchedPartition] | None) -> None:
        """The work on what was handed out last has failed: go back to what the application was done with before.

        That is where the last poll began, or what the application has committed itself since; of the partition that
        was `iterated` over it is the offset of the last record.
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
        """Those that have records or an error for the application, in the order of their turns."""
        return [
            position for position in self if (position.fetched or position.error is not None) and not position.is_paused
        ]

    def _raise_error(self, position: PartitionPosition) -> NoReturn:
        """It is asked for again after that, once its backoff is over."""
        error, position.error = position.error, None
        assert error is not None
        self.served(position)
        raise error

"""Plans the next Fetch request to one leader: partitions and positions, in one incremental fetch session (KIP-227).

Each leader has at most one outstanding Fetch request of this follower. A partition is fetched from its log end offset;
it joins or leaves the fetch session with the next request. After an error, a partition is skipped for a back-off, which
doubles with each further error.

The leader sends each value once in a session, so it does not repeat a high watermark or log start offset that this
follower received but did not apply. A partition whose last response may not have been applied therefore leaves the
session with one request, and joins it as a new partition with the next request.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oncelog_broker.config import broker_keys as keys
from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.replication.fetch_response import PartitionAnswer
from oncelog_broker.replication.follower_progress import FetchPosition
from oncelog_protocol.light_classes import NamedTuple, dataclass
from oncelog_protocol.messages.fetch import FetchRequest, FetchResponse

Key = tuple[bytes, int]
"""Type of a partition in a fetch plan: (topic id, partition index)."""

FIRST_REST_SECONDS: Final = 0.02
"""Seconds of the first back-off after an error. The first back-off is short, because the usual cause is that a new
leader has not yet learned of its election. The back-off doubles each time, up to `max_rest_seconds`.
"""
NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
MAX_EPOCH: Final = 2**31 - 1
READ_UNCOMMITTED: Final = 0


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Limits of the fetches of one broker, in bytes and seconds."""

    partition_bytes: int
    response_bytes: int
    min_bytes: int
    max_wait_seconds: float
    max_rest_seconds: float
    lag_seconds: float = 30.0
    """Seconds without a response from the leader after which the follower counts as out of date
    (`replica.lag.time.max.ms`).
    """

    @classmethod
    def of(cls, config: BrokerConfig) -> FetchLimits:
        """Return the limits in the broker's configuration."""
        return cls(
            partition_bytes=config[keys.REPLICA_FETCH_MAX_BYTES],
            response_bytes=config[keys.REPLICA_FETCH_RESPONSE_MAX_BYTES],
            min_bytes=config[keys.REPLICA_FETCH_MIN_BYTES],
            max_wait_seconds=config[keys.REPLICA_FETCH_WAIT_MAX_MS] / 1000,
            max_rest_seconds=config[keys.REPLICA_FETCH_BACKOFF_MS] / 1000,
            lag_seconds=config[keys.REPLICA_LAG_TIME_MAX_MS] / 1000,
        )


class Asked(NamedTuple):
    """One partition of a Fetch response, with the position in the corresponding request."""

    key: Key
    position: FetchPosition
    answer: PartitionAnswer


class FetchPlan:
    """The partitions fetched from one leader, and their fetch session."""

    def __init__(self, limits: FetchLimits) -> None:
        self._limits = limits
        self._wanted: dict[Key, FetchPosition] = {}
        self._resting: dict[Key, tuple[float, FetchPosition]] = {}
        """Maps each partition in back-off to a pair: the monotonic time at which the back-off ends, and the position
        from which it is fetched after that.
        """
        self._rests: dict[Key, float] = {}
        """Maps a partition to the seconds of its last back-off. A response without an error removes the entry."""
        self._told: dict[Key, FetchPosition] = {}
        """The fetch positions that the leader has stored in the fetch session."""
        self._changed: dict[Key, None] = {}
        """The partitions to look at for the next request, in the order of their changes."""
        self._unapplied: set[Key] = set()
        """Partitions of the fetch session whose last response may not have been applied."""
        self._session_id = NO_SESSION
        self._session_epoch = INITIAL_EPOCH

    def __contains__(self, key: Key) -> bool:
        return key in self._wanted or key in self._resting

    def is_fetched(self, key: Key) -> bool:
        """Whether the partition is fetched, and is not in back-off after an error."""
        return key in self._wanted

    # --- changes of the fetch plan

    def ask_for(self, key: Key, position: FetchPosition) -> None:
        """Fetch this partition from `position` on."""
        self._resting.pop(key, None)
        self._wanted[key] = position
        self._changed[key] = None

    def ask_again(self, key: Key, position: FetchPosition) -> None:
        """Fetch this partition from `position` on, after a response that was not applied."""
        self._refetch(key)
        self.ask_for(key, position)

    def update_position(self, key: Key, position: FetchPosition) -> None:
        """Fetch this partition, if it is in the plan, from `position` on; a back-off does not end."""
        if key in self._wanted:
            self.ask_for(key, position)
        elif key in self._resting:
            until, _ = self._resting[key]
            self._resting[key] = until, position

    def leave_out(self, key: Key) -> None:
        """Stop fetching the partition. If a response is outstanding, it is not applied."""
        self._resting.pop(key, None)
        self._rests.pop(key, None)
        self.pause(key)
        self._refetch(key)

    def rest(self, key: Key, position: FetchPosition, now: float) -> None:
        """Skip the partition for a back-off, after an error."""
        self.pause(key)
        self._refetch(key)
        seconds = min(max(FIRST_REST_SECONDS, 2 * self._rests.get(key, 0.0)), self._limits.max_rest_seconds)
        self._rests[key] = seconds
        self._resting[key] = now + seconds, position

    def hold_back(self, key: Key, position: FetchPosition, until: float) -> None:
        """Skip a throttled partition until the monotonic time `until`."""
        self.pause(key)
        self._resting[key] = until, position

    def pause(self, key: Key) -> None:
        """Leave the partition out of the next Fetch requests."""
        if self._wanted.pop(key, None) is not None:
            self._changed[key] = None

    def _refetch(self, key: Key) -> None:
        """Remove the partition from the fetch session before it is fetched again."""
        if key in self._told:
            self._unapplied.add(key)
            self._changed[key] = None

    def went_well(self, key: Key) -> None:
        """Reset the partition's back-off after a response without an error."""
        self._rests.pop(key, None)

    def next_end_of_a_rest(self) -> float | None:
        """Return the monotonic time, in seconds, when the next back-off ends; None if no partition is in back-off."""
        return min((until for until, _ in self._resting.values()), default=None)

    # --- requests and responses

    def next_request(self, broker_id: int, broker_epoch: int, now: float) -> FetchRequest | None:
        """Return the next Fetch request; None while no partition needs a request."""
        for key, (until, position) in list(self._resting.items()):
            if until <= now:
                self.ask_for(key, position)
        if not self._wanted:
            return None
        forgotten: dict[bytes, list[int]] = {}
        to_join: dict[Key, None] = {}
        if self._session_id == NO_SESSION:
            asked = dict(self._wanted)
            self._told = dict(asked)
        else:
            asked = {}
            for key in self._changed:
                wanted = self._wanted.get(key)
                if wanted is None or key in self._unapplied:
                    if self._told.pop(key, None) is not None:
                        forgotten.setdefault(key[0], []).append(key[1])
                    if wanted is not None:
                        to_join[key] = None
                elif self._told.get(key) != wanted:
                    asked[key] = self._told[key] = wanted
        self._changed = to_join
        self._unapplied.clear()
        limits = self._limits
        return FetchRequest(
            replica_state=FetchRequest.ReplicaState(replica_id=broker_id, replica_epoch=broker_epoch),
            max_wait_ms=0 if to_join else int(limits.max_wait_seconds * 1000),
            min_bytes=limits.min_bytes,
            max_bytes=limits.response_bytes,
            isolation_level=READ_UNCOMMITTED,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=self._topics(asked),
            forgotten_topics_data=[
                FetchRequest.ForgottenTopic(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in forgotten.items()
            ],
        )

    def _topics(self, asked: dict[Key, FetchPosition]) -> list[FetchRequest.FetchTopic]:
        topics: dict[bytes, FetchRequest.FetchTopic] = {}
        for (topic_id, index), position in asked.items():
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = FetchRequest.FetchTopic(topic_id=topic_id, partitions=[])
            topic.partitions.append(
                FetchRequest.FetchTopic.FetchPartition(
                    partition=index,
                    current_leader_epoch=position.leader_epoch,
                    fetch_offset=position.offset,
                    last_fetched_epoch=position.last_fetched_epoch,
                    log_start_offset=position.log_start_offset,
                    partition_max_bytes=self._limits.partition_bytes,
                )
            )
        return list(topics.values())

    def on_lost(self) -> None:
        """Start a new session with the next request, because no response came, or the leader does not have the session
        any more.
        """
        self._session_id, self._session_epoch = NO_SESSION, INITIAL_EPOCH

    def on_response(self, response: FetchResponse) -> Iterator[Asked]:
        """Yield the partitions of a response that has no top-level error. Partitions that were removed since the
        request are skipped.
        """
        if response.session_id == NO_SESSION:
            self.on_lost()
        else:
            self._session_id = response.session_id
            self._session_epoch = 1 if self._session_epoch == MAX_EPOCH else self._session_epoch + 1
        for topic in response.responses:
            for answer in topic.partitions:
                key = topic.topic_id, answer.partition_index
                position = self._told.get(key)
                if position is not None and key in self._wanted:
                    yield Asked(key, position, answer)

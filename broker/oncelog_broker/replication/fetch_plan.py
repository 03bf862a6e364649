"""What is to be asked of one leader next: its partitions, in one incremental session (KIP-227). Pure.

One request is outstanding at a time. A partition is asked for from where its log ends; it joins the running session and
leaves it with the next request, and rests for a while after an error, each time for longer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from oncelog_broker.config import broker_keys as keys
from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.replication.fetch_response import PartitionAnswer
from oncelog_broker.replication.follower_progress import FetchPosition
from oncelog_protocol.messages.fetch import FetchRequest, FetchResponse

Key = tuple[bytes, int]
"""Topic id and partition."""

FIRST_REST_SECONDS: Final = 0.02
"""After an error: the leader may only not have heard yet that it is one. Twice as long each time, up to the limit."""
NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
MAX_EPOCH: Final = 2**31 - 1
READ_UNCOMMITTED: Final = 0


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """How much is asked for, and how long it may take. Bytes, seconds."""

    partition_bytes: int
    response_bytes: int
    min_bytes: int
    max_wait_seconds: float
    max_rest_seconds: float
    lag_seconds: float = 30.0
    """One that has not heard from its leader for so long knows nothing of what is new there."""

    @classmethod
    def of(cls, config: BrokerConfig) -> FetchLimits:
        """Those of a broker."""
        return cls(
            partition_bytes=config[keys.REPLICA_FETCH_MAX_BYTES],
            response_bytes=config[keys.REPLICA_FETCH_RESPONSE_MAX_BYTES],
            min_bytes=config[keys.REPLICA_FETCH_MIN_BYTES],
            max_wait_seconds=config[keys.REPLICA_FETCH_WAIT_MAX_MS] / 1000,
            max_rest_seconds=config[keys.REPLICA_FETCH_BACKOFF_MS] / 1000,
            lag_seconds=config[keys.REPLICA_LAG_TIME_MAX_MS] / 1000,
        )


class Asked(NamedTuple):
    """One answered partition, and what was asked about it."""

    key: Key
    position: FetchPosition
    answer: PartitionAnswer


class FetchPlan:
    """The partitions that are followed from one leader."""

    def __init__(self, limits: FetchLimits) -> None:
        self._limits = limits
        self._wanted: dict[Key, FetchPosition] = {}
        self._resting: dict[Key, tuple[float, FetchPosition]] = {}
        """Until when, and what is to be asked then."""
        self._rests: dict[Key, float] = {}
        """How long the last rest of a partition was, since it was last answered without an error."""
        self._told: dict[Key, FetchPosition] = {}
        """What the session holds at the leader."""
        self._changed: set[Key] = set()
        self._session_id = NO_SESSION
        self._session_epoch = INITIAL_EPOCH

    def __contains__(self, key: Key) -> bool:
        return key in self._wanted or key in self._resting

    def is_fetched(self, key: Key) -> bool:
        """Whether it is asked for, and does not rest after an error."""
        return key in self._wanted

    # --- what is wanted

    def ask_for(self, key: Key, position: FetchPosition) -> None:
        """Fetch this partition, from there on."""
        self._resting.pop(key, None)
        self._wanted[key] = position
        self._changed.add(key)

    def leave_out(self, key: Key) -> None:
        """Fetch it no more."""
        self._resting.pop(key, None)
        self._rests.pop(key, None)
        if self._wanted.pop(key, None) is not None:
            self._changed.add(key)

    def rest(self, key: Key, position: FetchPosition, now: float) -> None:
        """Something is wrong with it: fetch it again after a while."""
        self.pause(key)
        seconds = min(max(FIRST_REST_SECONDS, 2 * self._rests.get(key, 0.0)), self._limits.max_rest_seconds)
        self._rests[key] = seconds
        self._resting[key] = now + seconds, position

    def hold_back(self, key: Key, position: FetchPosition, until: float) -> None:
        """It is throttled: fetch it again from then on."""
        self.pause(key)
        self._resting[key] = until, position

    def pause(self, key: Key) -> None:
        """Fetch it no more for now."""
        if self._wanted.pop(key, None) is not None:
            self._changed.add(key)

    def went_well(self, key: Key) -> None:
        """It was answered without an error."""
        self._rests.pop(key, None)

    def next_end_of_a_rest(self) -> float | None:
        """When the next partition will have rested; None if none does."""
        return min((until for until, _ in self._resting.values()), default=None)

    # --- requests and responses

    def next_request(self, broker_id: int, broker_epoch: int, now: float) -> FetchRequest | None:
        """The request of this broker; None while there is nothing to fetch."""
        for key, (until, position) in list(self._resting.items()):
            if until <= now:
                self.ask_for(key, position)
        if not self._wanted:
            return None
        forgotten: dict[bytes, list[int]] = {}
        if self._session_id == NO_SESSION:
            asked = dict(self._wanted)
            self._told = dict(asked)
        else:
            asked = {}
            for key in self._changed:
                wanted = self._wanted.get(key)
                if wanted is None:
                    if self._told.pop(key, None) is not None:
                        forgotten.setdefault(key[0], []).append(key[1])
                elif self._told.get(key) != wanted:
                    asked[key] = self._told[key] = wanted
        self._changed.clear()
        limits = self._limits
        return FetchRequest(
            replica_state=FetchRequest.ReplicaState(replica_id=broker_id, replica_epoch=broker_epoch),
            max_wait_ms=int(limits.max_wait_seconds * 1000),
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
        """There was no answer, or the session is not known: the next request makes a new one."""
        self._session_id, self._session_epoch = NO_SESSION, INITIAL_EPOCH

    def on_response(self, response: FetchResponse) -> Iterator[Asked]:
        """What was answered without an error of the whole. Partitions that were left out since are passed over."""
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

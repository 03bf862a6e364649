"""One partition of a fetch session: what the client wants to read, and what it was told last.

A follower's session leaves out its *idle* partitions, so that a Fetch costs what has changed, not what there is. A
partition is idle while no visit could find anything new for this follower:

- the follower has all records of the leader, in the leader's epoch, and is in the ISR
- it was told the high watermark and the log start offset
- the partition is not throttled, and its log is online

Each event that ends one of these conditions makes the partition active (`Purgatory.activate`): an append, a new high
watermark or log start offset, a change of the leader, the ISR or the settings. The fetches of the session meanwhile
count as fetches of the idle partition from its last position (`FollowerProgress.on_unchanged_fetches`).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NamedTuple, Protocol

from oncelog_protocol.messages.fetch import FetchRequest, FetchResponse

PartitionRequest = FetchRequest.FetchTopic.FetchPartition
PartitionResponse = FetchResponse.FetchableTopicResponse.PartitionData


class TopicName(NamedTuple):
    """A topic as the request names it: by name before v13, by id since v13."""

    name: str
    topic_id: bytes


class Wanted(NamedTuple):
    """One partition that a request reads."""

    topic: TopicName
    request: PartitionRequest


class FollowerSession(Protocol):
    """What a partition uses of the follower's fetch session in which it is idle (`FetchSession`)."""

    active: OrderedDict[tuple[TopicName, int], SessionPartition]
    activations: int
    last_used: float
    waiting: Any


class SessionPartition:
    """One partition of a fetch session. `high_watermark` and `log_start_offset`: the values last sent to the client, -1
    before the first response.
    """

    __slots__ = ("_progress", "high_watermark", "idle_in", "log_start_offset", "partition", "wanted")

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.partition: Any = None
        """The Partition object of the last request, kept for the fast lane (fast path for repeated requests) and while
        the partition is idle; None before the first request. The partition may have lost its leadership since that
        request.
        """
        self.high_watermark = -1
        self.log_start_offset = -1
        self.idle_in: FollowerSession | None = None
        """The session in which this partition is idle; None while it is active."""
        self._progress: Any = None
        """The progress of the follower while the partition is idle."""

    def update_sent(self, answer: PartitionResponse) -> bool:
        """Store the high watermark and log start offset in `answer` as the values last sent to the client. Returns
        whether they differ from the previous values; if so, the client must get them.
        """
        if answer.error_code:
            self.high_watermark = -1  # an invalid value, so that the next value counts as changed
            return True
        if answer.diverging_epoch is not None or answer.preferred_read_replica >= 0:
            return True
        told = (self.high_watermark, self.log_start_offset)
        self.high_watermark, self.log_start_offset = answer.high_watermark, answer.log_start_offset
        return bool(answer.records) or told != (answer.high_watermark, answer.log_start_offset)

    def rest_if_idle(self, session: FollowerSession, follower_id: int) -> None:
        """Make the partition idle in a follower's session if a visit could find nothing new. Call this after a visit,
        when the values that the follower was told are stored. `partition` is the visited Partition, or None after an
        error.
        """
        partition, request = self.partition, self.wanted.request
        if partition is None or partition.is_resigned or partition.is_throttled_as_leader:
            return
        state, progress = partition.log.state, partition.followers.get(follower_id)
        offset = request.fetch_offset
        if (
            progress is None
            or follower_id not in partition.in_sync.committed
            or progress.may_be_gone
            or progress.log_end_offset != offset
            or request.last_fetched_epoch not in (-1, partition.log.leader_epochs.latest_epoch)
            or progress.log_start_offset != request.log_start_offset
            or partition.log.local.log_end_offset != offset
            or partition.leader_epoch != request.current_leader_epoch
            or partition.high_watermark != self.high_watermark
            or state.log_start_offset != self.log_start_offset
            or state.offline_reason is not None
        ):
            return
        self.idle_in, self._progress = session, progress
        session.active.pop((self.wanted.topic, request.partition), None)
        partition.purgatory.idle[self] = None

    def activate(self) -> Any:
        """Let the next Fetch of the session visit this partition. Returns the last DelayedFetch of the session, if the
        partition was idle.
        """
        session = self.idle_in
        if session is None:
            return None
        self._progress.on_unchanged_fetches(session.last_used)
        self.idle_in = self._progress = None
        self.partition.purgatory.idle.pop(self, None)
        session.active[self.wanted.topic, self.wanted.request.partition] = self
        session.activations += 1
        return session.waiting


Key = tuple[TopicName, int]
Named = dict[Key, SessionPartition]
"""The partitions that a request names, in the request's order."""

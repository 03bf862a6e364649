"""All partitions that this broker hosts, which are updated with each cluster image.

The cluster image decides: a partition assigned to this broker is opened (or created), then led or followed; a partition
that is no longer assigned to this broker is deleted. Request handlers look up the leader of a partition here, and get
the partition or the precise error. While a worker thread opens (`log_opener`) or truncates the partition's log,
handlers get NOT_LEADER_OR_FOLLOWER, after which clients retry. If one cluster image changes very many partitions, some
of them are changed in later iterations of the event loop (`image_changes`).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final, Protocol

from oncelog_broker.log.config import LogConfig
from oncelog_broker.log.directories.log_changes import WantedLog
from oncelog_broker.log.directories.log_manager import LogManager
from oncelog_broker.log.partition_log import PartitionLog
from oncelog_broker.metadata.model.image import ClusterImage, PartitionState, Topic
from oncelog_broker.observability.topic_traffic import TopicTraffic
from oncelog_broker.replication.group_commit import GroupCommit
from oncelog_broker.replication.image_changes import ImageChanges
from oncelog_broker.replication.leader_check import Led
from oncelog_broker.replication.log_opener import LogOpener, Opened
from oncelog_broker.replication.lost_epochs import LostEpochs
from oncelog_broker.replication.partition import Partition, in_doubt
from oncelog_broker.replication.purgatory import DelayedFetch, NewsPace
from oncelog_broker.replication.roles import Follow, Lead, Role, Stop, Wait, role_of
from oncelog_broker.runtime.disk_troubles import DISK_TROUBLES
from oncelog_broker.runtime.host import Host
from oncelog_protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

WRITTEN_BACK_MS: Final = 300_000
"""After this many milliseconds the operating system has certainly written a dirty page to disk (by default Linux starts
to write a page after 30 seconds).
"""
AWAITED_SECONDS: Final = 1.0
"""During this many seconds after a leader epoch begins, a follower that has not fetched in that epoch gets early
responses to its fetches. The early response is needed because the follower may learn of the epoch later than this
broker, and can fetch in the new epoch only with its next request.
"""


class Fetching(Protocol):
    """Interface of the fetch loops for the partitions that this broker follows (`fetcher.Fetchers`)."""

    def follow(self, partition: Partition) -> None:
        """Fetch the partition from its leader, in its present leader epoch; stop fetching if it has no leader."""

    def forget(self, partition: Partition) -> None:
        """Stop fetching the partition."""

    def restart_log(self, partition: Partition) -> None:
        """Delete and re-create the replica's log as soon as its leader has confirmed that it leads, then call
        `Replicas.on_truncated`.
        """

    def hears(self, partition: Partition) -> bool:
        """Whether the leader responds, so that this follower is up to date."""


OnOpened = Callable[[Collection[str]], None]
"""Type of a callback that is called when partitions that this broker leads have changed without a new cluster image,
for example because a log was opened. The argument is the topics of these partitions.
"""
MakeFetching = Callable[[Callable[[Partition], None]], Fetching]
"""Type of the function that creates the `Fetching`; its argument is `Replicas.on_truncated`. `Replicas` calls this
function in its constructor, because `Replicas` and `Fetching` refer to each other.
"""


class Replicas:
    """The partitions of one broker, and their roles."""

    def __init__(
        self,
        broker_id: int,
        logs: LogManager,
        log_config: Callable[[Mapping[str, str]], LogConfig],
        host: Host,
        make_fetching: MakeFetching,
        *,
        broker_epoch: int = -1,
        may_lead: Callable[[], bool] | None = None,
    ) -> None:
        """`log_config` returns the full settings of a topic from its overrides. `broker_epoch` is the broker epoch of
        this broker's registration. `may_lead` returns whether this broker's session is valid, so that no other broker
        can have been elected; None in a single-broker cluster.
        """
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._logs = logs
        self._log_config = log_config
        self._image = ClusterImage("")
        self._monotonic = host.clock.monotonic
        self._hosts: dict[tuple[str, int], Partition] = {}
        """All hosted partitions, whether led or followed."""
        self._leaders: dict[tuple[str, int], Partition] = {}
        self._leaders_by_id: dict[tuple[bytes, int], Partition] = {}
        self._replicated: dict[tuple[str, int], Partition] = {}
        """The led partitions that have other replicas."""
        self._offline: dict[tuple[str, int], str] = {}
        self.lost_epochs = LostEpochs()
        """Partitions whose log has a newer leader epoch than the cluster image."""
        self.traffic: dict[str, TopicTraffic] = {}
        """Maps each topic that has or had a partition on this broker to its traffic counters."""
        self.traffic_of_deleted = TopicTraffic()
        """The summed traffic of deleted topics."""
        self._opening: dict[tuple[str, int], WantedLog] = {}
        turn = host.slices.pauses(0.0).here
        self._changes = ImageChanges(self._look_at, self._on_late_changes, host.tasks, turn)
        self._hosted = LogOpener(logs, host.tasks, self._is_wanted, self._on_opened)
        self._group_commit = GroupCommit(host.tasks)
        self._waiting: list[tuple[str | None, asyncio.Future[None]]] = []
        self._subscribers: list[OnOpened] = []
        self._waiting_followers: dict[int, dict[DelayedFetch, None]] = {}
        self.news_pace = NewsPace()
        self._doubted: set[tuple[str, int]] = set()
        """Logs that may have lost their ends in a power failure. An entry is removed when the partition gets a role,
        which decides whether the log must be restarted empty.
        """
        self._fetching = make_fetching(self.on_truncated)
        self.may_lead = may_lead
        self.is_leaving = False
        """Whether this broker is about to stop."""
        self._is_closed = False
        """Whether this broker has resigned all partitions for good."""
        self._awaited: dict[int, dict[Partition, float]] = {}
        """Maps each follower's id to the partitions that the follower has not fetched yet in their new leader epoch.
        Each partition has the monotonic time, in seconds, until which the follower's fetch is expected.
        """

    def subscribe(self, on_opened: OnOpened) -> None:
        """Register `on_opened`, which is called with the topics of all logs that are opened from now on."""
        self._subscribers.append(on_opened)

    def _tell_opened(self, topics: Collection[str]) -> None:
        for on_opened in self._subscribers:
            on_opened(topics)

    def doubt_logs(self) -> None:
        """Record that the machine lost power before this startup, so that every existing log may have lost its end."""
        self._doubted.update(self._logs.partitions())

    # --- methods that request handlers call

    def follower_waits(self, broker_id: int, fetch: DelayedFetch) -> None:
        """Register a waiting fetch from another broker.

        If that broker must follow more partitions, the response is sent early, so that the broker can fetch them soon.
        """
        waiting = self._waiting_followers.setdefault(broker_id, {})
        waiting[fetch] = None
        fetch.enough.add_done_callback(lambda _: waiting.pop(fetch, None))

    def awaits(self, broker_id: int) -> bool:
        """Whether this follower still has to fetch more partitions. While that is so, its fetches must not wait
        long.
        """
        awaited = self._awaited.get(broker_id)
        while awaited:
            partition, until = next(iter(awaited.items()))
            follower = partition.followers.get(broker_id)
            if follower is not None and follower.log_end_offset is None and self._monotonic() < until:
                return True
            del awaited[partition]
        return False

    def leader(self, topic: str, index: int) -> Partition:
        """Return the partition, if this broker leads it, this broker's session with the metadata store is valid, and
        the log is online.

        Raises KafkaError UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR.
        """
        return self._checked_leader(self.led_by_name(topic, index))

    def led_partition(self, topic: str, index: int) -> Partition | None:
        """Return the partition if this broker leads it according to the cluster image, even if its session may have
        expired; for internal bookkeeping, not for responses to clients.
        """
        return self._leaders.get((topic, index))

    def leader_by_id(self, topic_id: bytes, index: int) -> Partition:
        """Return the partition of the topic with this id, as `leader` does. Raises UNKNOWN_TOPIC_ID if no topic has the
        id (T9), and the errors of `leader`.
        """
        return self._checked_leader(self.led_by_id(topic_id, index))

    def _checked_leader(self, partition: Partition) -> Partition:
        """Return `partition` unless another broker may already lead it. Raises KafkaError, which clients retry:
        NOT_LEADER_OR_FOLLOWER if this broker's session may have expired, KAFKA_STORAGE_ERROR if the log has failed,
        because a leader with a failed log gives up the leadership. The offsets and epochs here may then be old.
        """
        if self.may_lead is not None and not self.may_lead():
            raise in_doubt()
        if partition.log.is_offline:  # a log that is paused for a move to another directory is still the leader's log
            raise partition.log.state.offline_error()
        return partition

    def led_by_name(self, topic: str, index: int) -> Partition:
        """Return the partition, if this broker leads it, without the check of the session; for appends, because
        `Partition.append` makes that check.
        """
        partition = self._leaders.get((topic, index))
        if partition is None:
            raise self._why_not(self._image.topic(topic), index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return partition

    def followed(self, topic: str | bytes, index: int) -> Partition | None:
        """Return the partition of a topic, given by name or id, if this broker follows it, receives responses from its
        leader, and has its log online; else None (KIP-392).
        """
        found = self._image.topic(topic) if isinstance(topic, str) else self._image.topic_by_id(topic)
        partition = None if found is None else self._hosts.get((found.name, index))
        if partition is None or partition.leads or partition.log.is_offline or not self._fetching.hears(partition):
            return None
        return partition

    def led_by_id(self, topic_id: bytes, index: int) -> Partition:
        """Return the partition with this topic id, if this broker leads it, without the check of the session. Use this
        method for appends, and for followers: the Fetch response to a follower is valid in the leader epoch of the
        request, even if another broker leads by now.
        """
        partition = self._leaders_by_id.get((topic_id, index))
        if partition is None:
            raise self._why_not(self._image.topic_by_id(topic_id), index, ErrorCode.UNKNOWN_TOPIC_ID)
        return partition

    def _why_not(self, topic: Topic | None, index: int, unknown_topic: ErrorCode) -> KafkaError:
        if topic is None:
            return KafkaError(unknown_topic)
        if index not in topic.partitions:
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic.name} has no partition {index}")
        if (topic.name, index) in self._offline:
            reason = self._offline[topic.name, index]
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic.name}-{index} is offline: {reason}")
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def partitions(self) -> Iterable[Partition]:
        """Return all hosted partitions, led or followed."""
        return self._hosts.values()

    def hosted(self, topic: str, index: int) -> Partition | None:
        """Return the partition if its log is open on this broker, whichever broker leads it; else None."""
        return self._hosts.get((topic, index))

    def replica(self, topic: str, index: int) -> Partition:
        """Return the partition, led or followed, for readers of its log. Raises KafkaError UNKNOWN_TOPIC_OR_PARTITION,
        NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR.
        """
        partition = self._hosts.get((topic, index))
        if partition is None:
            raise self._why_not(self._image.topic(topic), index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return partition

    def led_with_followers(self) -> Iterable[Partition]:
        """Return the partitions that this broker leads and other brokers follow."""
        return self._replicated.values()

    def led(self) -> Iterable[Partition]:
        """Return the partitions that this broker leads."""
        return self._leaders.values()

    def log_end(self, topic: str, index: int) -> tuple[int, int]:
        """Return the leader epoch of a log's last batch (-1 for an empty log) and the log end offset, whichever broker
        leads.

        Raises KafkaError KAFKA_STORAGE_ERROR if the log is offline; LEADER_NOT_AVAILABLE while the log is being opened
        or truncated.
        """
        key = (topic, index)
        if key in self._offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self._offline[key])
        partition = self._hosts.get(key)
        log = self._logs.get(topic, index) if partition is None else partition.log
        if log is not None and log.is_offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{log.name} is offline")
        if partition is None or partition.log.state.is_truncating:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)
        return partition.log.latest_epoch, partition.log.log_end_offset

    def led_offline(self) -> Iterator[tuple[Topic, int, PartitionState]]:
        """Yield topic, partition and state of the partitions that the cluster image assigns this broker to lead
        although their log could not be opened, or has failed.
        """
        failed = [key for key in self._logs.upkeep.failed() if key in self._leaders]
        for key in (*self._offline, *failed):
            name, index = key
            topic = self._image.topic(name)
            state = None if topic is None else topic.partitions.get(index)
            if topic is not None and state is not None and isinstance(self._role_in(state), Lead):
                yield topic, index, state

    def offline_and_not_counted_on(self) -> Iterator[tuple[str, int]]:
        """Yield topic and partition of the offline logs whose partition another broker leads while this broker is not
        in the ISR.
        """
        failed = [key for key in self._logs.upkeep.failed() if key in self._hosts]
        for name, index in (*self._offline, *failed):
            topic = self._image.topic(name)
            state = None if topic is None else topic.partitions.get(index)
            role = Stop() if state is None else self._role_in(state)
            if isinstance(role, Follow) and role.has_leader and not role.is_in_sync:
                yield name, index

    def offline_and_never_made(self) -> Iterator[tuple[str, int]]:
        """Yield topic and partition of the hosted logs that could not be created, for example because the disk was
        full. A log that could not be created never had records, so it may be created even if this broker leads or is in
        the ISR.
        """
        for key in self._offline:
            state = self._image.partition(*key)
            if state is not None and self._logs.is_unmade(key) and isinstance(self._role_in(state), Lead | Follow):
                yield key

    def may_begin_again(self, name: str, index: int) -> Led | None:
        """Return the partition with its leader, if the offline log may be reopened in this leader epoch
        (`Replica.may_begin_again`); else None. The caller must first get the leader's confirmation that it still leads.
        A log that was not opened since the broker started, or since the last failed attempt, may be reopened, because
        no leader knows its end.
        """
        state, partition = self._image.partition(name, index), self._hosts.get((name, index))
        if state is None or not (partition is None or partition.may_begin_again(state.leader_epoch)):
            return None
        return Led(name, index, state.leader, state.leader_epoch)

    def fetch_no_failed(self) -> None:
        """Stop fetching for logs whose disk failed. A fetch for an offline log would report its old log end to the
        leader, although no record can be written any more. The leader would then propose the replica for the ISR,
        although reopening the log may discard records below the reported log end.
        """
        for key in self._logs.upkeep.failed():
            if (partition := self._hosts.get(key)) is not None:
                self._fetching.forget(partition)

    def open_again(self, name: str, index: int) -> None:
        """Try to reopen or create an offline log. The replica then fetches from the end of its synced records on."""
        key, topic = (name, index), self._image.topics[name]
        partition = self._hosts.get(key)
        high_watermark = 0 if partition is None else partition.high_watermark
        wanted = WantedLog(name, index, topic.topic_id, self._config_of(name))
        if key in self._opening or self._hosted.is_pending(key):
            return
        if not self._logs.is_unmade(key) and not self._logs.begin_return(wanted, high_watermark):
            return
        reason = self._offline.get(key, "its disk failed")
        self._forget(name, index)
        self._offline[key] = reason
        self._opening[key] = wanted
        self._hosted.open(wanted)

    def all_are_in_sync(self, partition: Partition) -> bool:
        """Whether every replica is in the ISR, including replicas that a reassignment adds, as far as this broker
        knows.
        """
        if self.may_lead is not None and not self.may_lead():
            return False  # use the ISR known to the leader, because the cluster image may be out of date
        topic = self._image.topic(partition.topic)
        if topic is None or topic.topic_id != partition.topic_id:
            return False
        state = topic.partitions.get(partition.index)
        if state is None or not set(state.replicas) <= set(state.isr):
            return False
        # The controller may have accepted an ISR that the cluster image does not show yet.
        is_led = self._leaders.get((partition.topic, partition.index)) is partition
        return not is_led or set(state.replicas) <= set(partition.isr)

    def high_watermarks(self) -> dict[tuple[str, int], int]:
        """Return the high watermarks for replication-offset-checkpoint."""
        return {key: partition.high_watermark for key, partition in self._hosts.items()}

    @property
    def offline(self) -> int:
        """The number of logs that could not be opened or have failed since."""
        return len(self._offline) + sum(key in self._hosts for key in self._logs.upkeep.failed())

    @property
    def is_opening(self) -> bool:
        """Whether the cluster image has assigned partitions to this broker whose logs are neither open nor known to be
        offline.
        """
        return self._is_opening(None)

    async def until_opened(self, topic: str | None = None) -> None:
        """Wait until every assigned partition of `topic`, by default of all topics, is open or offline, and the
        subscribers have been called.
        """
        if not self._is_opening(topic):
            return
        entry = (topic, asyncio.get_running_loop().create_future())
        self._waiting.append(entry)
        try:
            await entry[1]
        finally:
            self._waiting.remove(entry)

    def _is_opening(self, topic: str | None) -> bool:
        if self._changes.includes(topic):
            return True
        return bool(self._opening) if topic is None else any(name == topic for name, _ in self._opening)

    # --- changes of the cluster image

    def on_image(self, old: ClusterImage, new: ClusterImage) -> None:
        """Apply a new cluster image: open, lead, follow, reconfigure and delete partitions."""
        self._image = new
        changes = new.topic_changes_since(old)
        for topic in changes.removed:
            for index in topic.partitions:
                self._changes.note((topic.name, index), is_gone=True)
        for topic in changes.changed:
            before = old.topics.get(topic.name)
            known = before.partitions if before is not None and before.topic_id == topic.topic_id else {}
            for index, state in topic.partitions.items():
                if known.get(index) is not state:  # skip the unchanged partitions of the topic
                    self._changes.note((topic.name, index))
        self._changes.begin()
        if new.topic_configs is not old.topic_configs:
            self._reconfigure(old, new)

    async def on_registered(self, broker_epoch: int) -> None:
        """Resign the partitions that were assigned before this new registration, until the controller elects a leader
        again.

        Subscribers are called with the topics of these partitions. Returns when all partitions are updated.
        """
        self._broker_epoch = broker_epoch
        for key in self._leaders:
            self._changes.note(key)
        topics = {name for name, _ in self._leaders}
        self._changes.begin()
        self._tell_opened(topics)
        await self.until_settled()

    async def until_settled(self) -> None:
        """Wait until all partitions have the role that the cluster image gives them; logs may still be opening."""
        await self._changes.until_done()

    def _look_at(self, key: tuple[str, int], is_gone: bool) -> None:
        """Apply the cluster image to one partition. `is_gone` means that the hosted partition belongs to a deleted
        topic.
        """
        if is_gone and self._forget(*key):
            self._hosted.delete(key)
        name, index = key
        topic = self._image.topic(name)
        state = None if topic is None else topic.partitions.get(index)
        if topic is not None and state is not None:
            self._take_role(topic, index, self._role_in(state))

    def _on_late_changes(self, topics: Collection[str]) -> None:
        self._tell_opened(topics)
        self._tell_who_waits()

    def leave(self) -> None:
        """Prepare to stop. From now on, this broker does not fetch partitions for which it is out of sync: if it caught
        up, the leader of such a partition would propose it for the ISR.
        """
        self.is_leaving = True
        for key, partition in self._hosts.items():
            state = self._image.partition(*key)
            role = Stop() if state is None else self._role_in(state)
            if isinstance(role, Follow):
                self._follow_role(partition, role)

    def _role_in(self, state: PartitionState) -> Role:
        return role_of(state, self._broker_id, self._broker_epoch)

    def _take_role(self, topic: Topic, index: int, role: Role) -> None:
        key = (topic.name, index)
        if isinstance(role, Wait):
            return
        if isinstance(role, Stop):
            if self._forget(*key) or self._is_left_over(topic, index):
                self._hosted.delete(key)
            return
        partition = self._hosts.get(key)
        if partition is not None:
            self._follow_role(partition, role)
        elif key not in self._opening:
            self._open(topic, index, role)

    def _is_left_over(self, topic: Topic, index: int) -> bool:
        """Whether this broker still has a log of a partition that was reassigned to other brokers while this broker was
        down.
        """
        key = (topic.name, index)
        return not self._hosted.is_pending(key) and self._logs.topic_id(*key) == topic.topic_id

    def _open(self, topic: Topic, index: int, role: Lead | Follow) -> None:
        key = (topic.name, index)
        if key in self._offline and isinstance(role, Follow) and not role.is_in_sync:
            # This replica may start with an empty log and fetch all records, because a replica outside the ISR is not
            # needed for acknowledged records.
            self._logs.begin_anew(*key)
        wanted = WantedLog(topic.name, index, topic.topic_id, self._config_of(topic.name))
        # While the log of a deleted topic is being removed, the log of a new topic with the same name must wait.
        found = None if self._hosted.is_pending(key) else self._logs.find(wanted)
        if found is not None:
            self._adopt(topic, index, role, found)
        else:
            self._opening[key] = wanted
            self._hosted.open(wanted)

    def _follow_role(self, partition: Partition, role: Lead | Follow) -> None:
        """Let this broker lead or follow the partition, according to `role`. While the log is being truncated, or the
        partition needs a higher leader epoch, this broker neither leads nor follows the partition. The same is true
        after `close`.
        """
        if self._is_closed:
            return
        key = (partition.topic, partition.index)
        role = self.lost_epochs.allowed_role(partition, role)
        if isinstance(role, Follow):
            is_news = (partition.leader, partition.leader_epoch) != (role.leader, role.leader_epoch)
            if is_news:
                self._lead_no_longer(key, partition)
                partition.follow(role.leader, role.leader_epoch)
            if self.is_leaving and not role.is_in_sync:
                self._fetching.forget(partition)
            elif is_news and role.has_leader and self._must_restart_log(partition, role):
                self._fetching.restart_log(partition)
            elif is_news:
                self._fetching.follow(partition)
            return
        self._doubted.discard(key)
        self._fetching.forget(partition)
        if partition.log.state.is_truncating:
            return  # the change continues in `on_truncated`
        partition.lead(
            role.leader_epoch,
            role.isr,
            role.replicas,
            adding=role.adding,
            partition_epoch=role.partition_epoch,
            now=self._monotonic(),
        )
        self._leaders[key] = partition
        self._leaders_by_id[partition.topic_id, partition.index] = partition
        if partition.followers:
            self._replicated[key] = partition
        else:
            self._replicated.pop(key, None)
        for broker_id, follower in partition.followers.items():
            if follower.log_end_offset is None:
                self._awaited.setdefault(broker_id, {})[partition] = self._monotonic() + AWAITED_SECONDS
            for fetch in self._waiting_followers.get(broker_id, ()):
                fetch.hurry()

    def _lead_no_longer(self, key: tuple[str, int], partition: Partition) -> None:
        self._leaders.pop(key, None)
        self._leaders_by_id.pop((partition.topic_id, partition.index), None)
        self._replicated.pop(key, None)

    def _must_restart_log(self, partition: Partition, role: Follow) -> bool:
        """Whether a log that lost its end in a power failure must be restarted empty, now that it follows a leader.

        In a compacted log, the lost end may have contained markers or tombstones for records that are still in the log.
        The other replicas may have removed these markers and tombstones by compaction, because this replica had them
        while it was in sync (S56). Other replicas keep each marker and tombstone for at least `delete.retention.ms`; if
        that time is long, this replica had the record on disk before it was removed elsewhere.
        """
        key = (partition.topic, partition.index)
        if key not in self._doubted:
            return False
        log = partition.log
        is_short = log.config.delete_retention_ms < WRITTEN_BACK_MS
        was_compacted = log.config.is_compacted or log.state.cleaner_checkpoint is not None
        must_restart = is_short and was_compacted and not role.is_in_sync and not log.is_offline
        if not must_restart:
            self._doubted.discard(key)
        return must_restart

    def on_truncated(self, partition: Partition) -> None:
        """Continue after a truncation. During the truncation, this broker may have been elected, or the partition may
        have been deleted.
        """
        self._hosted.on_truncated()
        key = (partition.topic, partition.index)
        if self._hosts.get(key) is not partition:
            return
        self._doubted.discard(key)  # only a restart truncates a log in `_doubted`
        state = self._image.partition(*key)
        role = Stop() if state is None else self._role_in(state)
        if isinstance(role, Lead):
            self._follow_role(partition, role)
            self._tell_opened({partition.topic})
        elif self.is_leaving and not (isinstance(role, Follow) and role.is_in_sync):
            self._fetching.forget(partition)  # `leave` tells why
        else:
            self._fetching.follow(partition)

    def on_log_moved(self, partition: Partition, log: PartitionLog | None) -> None:
        """Continue with `log`, which has replaced the partition's log; None if the partition keeps its log."""
        if log is not None:
            log.update_config(self._config_of(partition.topic))
            partition.replace_log(log)
        partition.on_log_resumed()
        self._hosted.on_truncated()
        if self._hosts.get((partition.topic, partition.index)) is partition and not partition.leads:
            self._fetching.follow(partition)

    def wanted_log(self, partition: Partition) -> WantedLog:
        """Return the names, ids and present settings with which the log of a hosted partition must exist."""
        return WantedLog(partition.topic, partition.index, partition.topic_id, self._config_of(partition.topic))

    def _is_wanted(self, wanted: WantedLog) -> bool:
        return self._opening.get(wanted.key) is wanted

    def _on_opened(self, opened: Opened) -> None:
        topics = set()
        for wanted, log in opened:
            self._changes.look_now(wanted.key)  # apply a queued change first: it may withdraw the assignment
            if not self._is_wanted(wanted):
                continue  # skip it: the partition is no longer assigned to this broker
            del self._opening[wanted.key]
            topic = self._image.topics[wanted.topic]
            role = self._role_in(topic.partitions[wanted.partition])
            if isinstance(role, Lead | Follow):
                self._adopt(topic, wanted.partition, role, log)
                topics.add(wanted.topic)
        self._tell_opened(topics)
        self._tell_who_waits()

    def _tell_who_waits(self) -> None:
        for name, opened_all in tuple(self._waiting):
            if not opened_all.done() and not self._is_opening(name):
                opened_all.set_result(None)

    def _adopt(self, topic: Topic, index: int, role: Lead | Follow, log: PartitionLog | KafkaError) -> None:
        key = (topic.name, index)
        if isinstance(log, KafkaError):
            cause = log.__cause__
            home = os.path.dirname(getattr(cause, "filename", None) or "")
            is_news = cause is None or DISK_TROUBLES.note_failure(home, "open a log", cause)
            if is_news and self._offline.get(key) != str(log):
                logger.error("partition is offline", extra={"partition": f"{topic.name}-{index}", "reason": log})
            self._offline[key] = str(log)
            return
        log.update_config(self._config_of(topic.name))  # an existing log was opened with default settings
        noted = self._logs.high_watermarks().get(key, 0)
        partition = Partition(
            topic.name, topic.topic_id, index, log,
            broker_id=self._broker_id, high_watermark=noted, may_lead=self.may_lead,
            request_sync=self._group_commit.request,
        )  # fmt: skip
        partition.traffic = self.traffic.setdefault(topic.name, TopicTraffic())
        self._hosts[key] = partition
        if self._offline.pop(key, None) is not None:
            logger.info(
                "partition is online again", extra={"partition": log.name, "log_end_offset": log.log_end_offset}
            )
        self._follow_role(partition, role)

    def _config_of(self, topic: str) -> LogConfig:
        return self._log_config(self._image.config_of_topic(topic))

    def _forget(self, topic: str, index: int) -> bool:
        """Stop hosting the partition on this broker. Returns whether the partition has, or will have, a log on this
        broker.
        """
        partition = self._hosts.pop((topic, index), None)
        self.lost_epochs.forget(topic, index)
        if partition is not None:
            self._lead_no_longer((topic, index), partition)
            partition.resign()
            partition.traffic.fold(partition.log.producer_state.counters)
            self._fetching.forget(partition)
        if self._image.topic(topic) is None:
            # The first removed partition of a deleted topic adds the counts of the entire topic to
            # `traffic_of_deleted`; the following partitions add only the traffic that was counted since.
            for counted in (self.traffic.pop(topic, None), None if partition is None else partition.traffic):
                if counted is not None:
                    counted.move_to(self.traffic_of_deleted)
        is_opening = self._opening.pop((topic, index), None) is not None
        is_offline = self._offline.pop((topic, index), None) is not None
        return is_opening or is_offline or partition is not None

    def _reconfigure(self, old: ClusterImage, new: ClusterImage) -> None:
        for name in {**old.topic_configs, **new.topic_configs}:
            overrides = new.config_of_topic(name)
            topic = new.topic(name)
            if topic is None or overrides == old.config_of_topic(name):
                continue
            config = self._log_config(overrides)
            for index in topic.partitions:
                partition = self._hosts.get((name, index))
                if partition is not None:
                    partition.update_config(config)

    def reconfigure_all(self) -> None:
        """Apply changed broker settings, which topics inherit."""
        for (name, _), partition in self._hosts.items():
            partition.update_config(self._config_of(name))

    def close(self) -> None:
        """Resign all partitions for good, and complete all waiting requests; the log manager closes the logs. From now
        on, requests get NOT_LEADER_OR_FOLLOWER, because other brokers may lead already.

        A later cluster image must not let a partition lead again: the partition has forgotten a proposed ISR, which the
        controller may still grant, so it would acknowledge records that a replica of this ISR does not have.
        """
        self._is_closed = True
        self._leaders.clear()
        self._leaders_by_id.clear()
        self._replicated.clear()
        for partition in self._hosts.values():
            partition.resign()

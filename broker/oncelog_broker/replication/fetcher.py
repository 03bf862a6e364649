"""The follower's fetch loops: one loop for each leader, with one outstanding Fetch request.

Records are appended directly from the response buffer, partition by partition; other tasks run between two partitions.
A truncation waits for the disk, so it runs in a worker thread; the partition is not fetched during the truncation.
After an error, only the affected partition stops, and is retried after a back-off.

Invariant: a log is truncated only after its leader has responded, to a Fetch request or to a `LeaderCheck`, in the
leader epoch in which this broker follows.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from oncelog_broker.metadata.model.image import ImageView
from oncelog_broker.replication.fetch_plan import Asked, FetchLimits, FetchPlan, Key
from oncelog_broker.replication.fetch_response import (
    RestartAt,
    TruncateTo,
    append_after_restart,
    cut,
    is_still_at,
    position_of,
    take,
)
from oncelog_broker.replication.group_commit import sync_all
from oncelog_broker.replication.leader_check import AsksLeaders, Led
from oncelog_broker.replication.partition import Partition
from oncelog_broker.replication.peers import Peers, PeerUnavailable, Purpose
from oncelog_broker.replication.throttle import ReplicationQuota
from oncelog_broker.runtime.disk_troubles import DISK_TROUBLES, is_known_disk_error
from oncelog_broker.runtime.host import Host
from oncelog_broker.runtime.tasks import in_thread
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.fetch import FetchResponse

logger = logging.getLogger(__name__)

REQUEST_SECONDS: Final = 30.0
"""Seconds within which a response must arrive, in addition to the time that the leader may wait for records (Kafka's
request.timeout.ms).
"""
RETRIABLE: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Errors that are expected after an election, until both brokers know the newest leader; they are not logged."""
MAX_HOLD_SECONDS: Final = 1.0
"""Maximum seconds until a throttled partition is checked again, because the rate limit may have changed."""
RESTART_SECONDS: Final = 1.0
"""Seconds between two attempts to get a leader's confirmation that it still leads. A log is restarted empty only after
this confirmation.
"""
SESSION_LOST: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


class Fetchers:
    """The fetch loops of this broker. `Replicas` calls methods of this class when a partition must be followed, or must
    not be followed any more.
    """

    def __init__(
        self,
        broker_id: int,
        peers: Peers,
        metadata: ImageView,
        limits: Callable[[], FetchLimits],
        host: Host,
        on_truncated: Callable[[Partition], None],
        note_log_starts: Callable[[], None],
        leaders: AsksLeaders,
        quota: ReplicationQuota | None = None,
    ) -> None:
        """`on_truncated` is called after the truncation of a log, so that `Replicas` lets this broker lead or follow
        the partition again.
        """
        self._broker_id = broker_id
        self._peers = peers
        self._metadata = metadata
        self._limits = limits
        self._host = host
        self._tasks = host.tasks
        self._on_truncated = on_truncated
        self._note_log_starts = note_log_starts
        self._leaders = leaders
        self._quota = quota or ReplicationQuota()
        self._of: dict[int, BrokerFetcher] = {}
        """Maps the broker id of each leader to the fetcher for this leader."""
        self._followed: dict[Partition, BrokerFetcher] = {}
        self._to_restart: dict[Partition, Led] = {}
        """Partitions whose logs restart empty when their leaders have responded."""
        self._restarted: dict[Partition, RestartAt] = {}
        """Partitions whose logs restart, and get the first batch of a response then."""
        self._restarting: asyncio.Task[None] | None = None

    def follow(self, partition: Partition) -> None:
        """Fetch the partition from its leader, in its present leader epoch; stop fetching if it has no leader."""
        restarted = self._restarted.get(partition)
        self.forget(partition)
        if partition.leads or partition.leader < 0 or partition.log.state.is_truncating or partition.log.is_offline:
            return
        fetcher = self._of.get(partition.leader)
        if fetcher is None:
            fetcher = self._of[partition.leader] = BrokerFetcher(
                partition.leader, self._broker_id, self._peers, self._metadata, self._limits(), self._host,
                self._truncate, self._note_log_starts, self._quota,
            )  # fmt: skip
            self._tasks.supervise(f"fetch from broker {partition.leader}", fetcher.run)
        failure = None if restarted is None else _failure_after_restart(partition, restarted)
        fetcher.add(partition)
        self._followed[partition] = fetcher
        if failure is not None:
            fetcher.failed_after_restart(partition, failure)

    def restart_log(self, partition: Partition) -> None:
        """Restart the partition's log empty as soon as its leader has confirmed that it leads."""
        self.forget(partition)
        self._to_restart[partition] = Led(partition.topic, partition.index, partition.leader, partition.leader_epoch)
        if self._restarting is None or self._restarting.done():
            self._restarting = self._tasks.supervise("restart logs", self._restart_logs)

    async def _restart_logs(self) -> None:
        """Restart each log whose leader confirms that it leads; until then, the log remains unchanged."""
        while self._to_restart:
            confirmed = await self._leaders.confirmed(list(self._to_restart.values()))
            for partition, led in list(self._to_restart.items()):
                if led in confirmed and not partition.log.is_offline:
                    self._truncate(partition, RestartAt(partition.log.log_start_offset))
            if self._to_restart:
                await asyncio.sleep(RESTART_SECONDS)

    def hears(self, partition: Partition) -> bool:
        """Whether this broker fetches the partition and its leader has responded recently."""
        fetcher = self._followed.get(partition)
        return fetcher is not None and fetcher.hears(partition)

    def forget(self, partition: Partition) -> None:
        """Stop fetching the partition."""
        self._to_restart.pop(partition, None)
        self._restarted.pop(partition, None)
        fetcher = self._followed.pop(partition, None)
        if fetcher is not None:
            fetcher.remove(partition)

    def _truncate(self, partition: Partition, wanted: TruncateTo | RestartAt) -> None:
        partition.log.state.is_truncating = True
        self.forget(partition)
        if isinstance(wanted, RestartAt) and wanted.answer is not None:
            self._restarted[partition] = wanted
        self._tasks.spawn(f"truncate {partition.log.name}", self._cut(partition, wanted))

    async def _cut(self, partition: Partition, wanted: TruncateTo | RestartAt) -> None:
        log = partition.log
        before = log.log_end_offset
        try:
            await in_thread(partial(cut, partition, wanted))
        except KafkaError as error:
            logger.error("not truncated", extra={"partition": log.name, "reason": error})
        except Exception:
            logger.exception("not truncated", extra={"partition": log.name})
            await asyncio.sleep(self._limits().max_rest_seconds)  # wait before another attempt for this partition
        finally:
            log.state.is_truncating = False
        if not log.is_offline:
            _report(partition, before)
            partition.on_truncated()
        self._on_truncated(partition)


def _failure_after_restart(partition: Partition, restarted: RestartAt) -> KafkaError | None:
    """Append the batch for which the log has restarted. Returns the error if the append fails."""
    try:
        append_after_restart(partition, restarted)
    except KafkaError as error:
        return error
    except Exception as error:
        logger.exception("not fetched", extra={"partition": partition.log.name})
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, repr(error))
    return None


def _report(partition: Partition, before: int) -> None:
    end = partition.log.log_end_offset
    logger.info("truncated", extra={"partition": partition.log.name, "from": before, "to": end})
    if end < partition.high_watermark:
        logger.error(
            "replicated records were truncated: the elected leader did not have them (unclean election)",
            extra={"partition": partition.log.name, "high_watermark": partition.high_watermark, "to": end},
        )


class BrokerFetcher:
    """The fetch loop for one leader, the broker `source`."""

    def __init__(
        self,
        source: int,
        broker_id: int,
        peers: Peers,
        metadata: ImageView,
        limits: FetchLimits,
        host: Host,
        truncate: Callable[[Partition, TruncateTo | RestartAt], None],
        note_log_starts: Callable[[], None],
        quota: ReplicationQuota,
    ) -> None:
        self._source = source
        self._broker_id = broker_id
        self._peers = peers
        self._metadata = metadata
        self._limits = limits
        self._clock = host.clock
        self._slices = host.slices
        self._truncate = truncate
        self._note_log_starts = note_log_starts
        self._quota = quota
        self._plan = FetchPlan(limits)
        self._partitions: dict[Key, Partition] = {}
        self._shortened: set[Key] = set()
        """Partitions whose log start offset has moved, but is not in the checkpoint on disk yet."""
        self._durable_starts: deque[Key] = deque()
        """Partitions whose durable start offset may have risen since the last request. Other threads append to it."""
        self._behind: dict[Key, Partition] = {}
        """Partitions that may lack committed records; the replication quota applies only to these partitions."""
        self._unsynced: dict[Key, Partition] = {}
        """Partitions with group commit whose last records may not be on the disk yet."""
        self._has_work = asyncio.Event()
        self._failures = 0
        self._heard_at = -limits.lag_seconds
        """Monotonic seconds when the leader's last response arrived."""

    def add(self, partition: Partition) -> None:
        """Start to fetch the partition in its present leader epoch."""
        key = partition.topic_id, partition.index
        self._partitions[key] = self._behind[key] = self._unsynced[key] = partition
        partition.log.state.on_durable_start = partial(self._durable_starts.append, key)
        if partition.log.state.durable_start_offset < partition.log.log_start_offset:
            self._shortened.add(key)
        self._plan.ask_for(key, position_of(partition))
        self._has_work.set()

    def remove(self, partition: Partition) -> None:
        """Stop fetching the partition; an outstanding response is ignored."""
        key = partition.topic_id, partition.index
        if self._partitions.get(key) is partition:
            del self._partitions[key]
            partition.log.state.on_durable_start = None
            self._behind.pop(key, None)
            self._unsynced.pop(key, None)
            self._plan.leave_out(key)

    def hears(self, partition: Partition) -> bool:
        """Whether the partition is being fetched and its leader has responded recently."""
        key = partition.topic_id, partition.index
        return (
            self._partitions.get(key) is partition
            and self._plan.is_fetched(key)
            and self._clock.monotonic() - self._heard_at < self._limits.lag_seconds
        )

    async def run(self) -> None:
        """Run the fetch loop until the task is cancelled."""
        while True:
            await self._report_durable_starts()
            await self._sync_records()  # directly before the request, so that no partition is added in between
            now = self._clock.monotonic()
            self._hold_back_throttled(now)
            me = self._metadata.image.brokers.get(self._broker_id)
            request = self._plan.next_request(self._broker_id, -1 if me is None else me.epoch, now)
            if request is None:
                await self._rest()
                continue
            try:
                response = await self._peers.send(
                    self._source,
                    request,
                    purpose=Purpose.FETCH,
                    timeout=self._limits.max_wait_seconds + REQUEST_SECONDS,
                )
                await self._take_all(response)
            except PeerUnavailable as error:
                self._plan.on_lost()
                await self._back_off(error)
            except Exception:
                logger.exception("fetch failed", extra={"leader": self._source})
                self._plan.on_lost()
                await self._back_off(None)

    async def _sync_records(self) -> None:
        """Sync the records of the followed partitions with group commit. This sync must come before the next Fetch
        request, because the leader acknowledges all records below the request's fetch offset. A log needs only one sync
        for all records of a response.
        """
        while self._unsynced:
            unsynced, self._unsynced = self._unsynced, {}
            try:
                failed = await sync_all(unsynced)
            except BaseException:
                self._unsynced = {**unsynced, **self._unsynced}  # the fetch loop is restarted, and syncs them
                raise
            for key, partition in failed:
                if self._partitions.get(key) is partition:
                    self._plan.leave_out(key)  # no log line, because the log has already logged why it is offline

    def _hold_back_throttled(self, now: float) -> None:
        """Skip throttled partitions while the quota is exceeded. `now` must also be the time of the next request,
        because otherwise the back-off of a skipped partition could end before that request.
        """
        if not self._behind or not self._quota.is_exceeded(now):
            return
        until = now + min(self._quota.seconds_left(now), MAX_HOLD_SECONDS)
        for key, partition in self._behind.items():
            if partition.is_throttled_as_follower and key in self._plan:
                self._plan.hold_back(key, position_of(partition), until)

    def _count(self, partition: Partition, asked: Asked) -> None:
        """Charge the fetched records to the replication quota, unless the replica had already caught up before this
        response.
        """
        answer = asked.answer
        if partition.is_throttled_as_follower and asked.key in self._behind and answer.records:
            self._quota.record(len(answer.records), self._clock.monotonic())
        if partition.log.log_end_offset >= answer.high_watermark:
            self._behind.pop(asked.key, None)
        else:
            self._behind[asked.key] = partition

    async def _rest(self) -> None:
        """Wait until some partition can be fetched."""
        self._has_work.clear()
        until = self._plan.next_end_of_a_rest()
        try:
            async with asyncio.timeout(None if until is None else max(0.0, until - self._clock.monotonic())):
                await self._has_work.wait()
        except TimeoutError:
            pass

    async def _back_off(self, reason: PeerUnavailable | None) -> None:
        self._failures += 1
        if self._failures == 1 and reason is not None:
            logger.warning("cannot fetch", extra={"leader": self._source, "reason": reason})
        seconds = self._limits.max_rest_seconds / 2 ** max(0, 6 - self._failures)
        await asyncio.sleep(seconds)

    async def _take_all(self, response: FetchResponse) -> None:
        if response.error_code:
            self._plan.on_lost()
            if response.error_code not in SESSION_LOST:
                await self._back_off(None)
            return
        self._failures = 0
        self._heard_at = self._clock.monotonic()
        pauses = self._slices.pauses()
        for asked in self._plan.on_response(response):
            self._take(asked)
            await pauses.here()
        await self._note_what_was_deleted()

    async def _note_what_was_deleted(self) -> None:
        """Write the log start offsets to disk that changed with the last response. The next request reports them to the
        leader (`_report_durable_starts`).
        """
        if not self._shortened:
            return
        self._shortened.clear()
        try:
            await in_thread(self._note_log_starts)
        except OSError as error:  # a failed write is retried periodically; until then the leader's DeleteRecords waits
            if DISK_TROUBLES.note_failure(os.path.dirname(error.filename or ""), "write down log starts", error):
                logger.error("log start offsets could not be written to the checkpoint", extra={"reason": error})

    async def _report_durable_starts(self) -> None:
        """Let the next request report each log start offset that has reached the disk, by whatever write: that of
        `_note_what_was_deleted`, the periodic checkpoint, or a sync of the directory.

        A log start is reported only when it is on disk, because the leader completes a DeleteRecords request when all
        replicas have reported their log start; after that, no replica may return the deleted records again, even after
        a crash. It must be reported without news from the leader, because the leader lets a replica join the ISR only
        if the replica has deleted the same records.
        """
        pauses = self._slices.pauses()
        while self._durable_starts:
            key = self._durable_starts.popleft()
            partition = self._partitions.get(key)
            if partition is not None:
                self._plan.update_position(key, position_of(partition))
            await pauses.here()

    def _take(self, asked: Asked) -> None:
        partition = self._partitions.get(asked.key)
        if partition is None:
            return
        if not is_still_at(partition, asked.position):
            self._plan.ask_again(asked.key, position_of(partition))
            return
        before = partition.log.log_start_offset
        try:
            wanted = take(partition, asked.position, asked.answer)
        except KafkaError as error:
            self._failed(partition, error)
            return
        except Exception:
            logger.exception("not fetched", extra={"partition": partition.log.name})
            self._plan.rest(asked.key, position_of(partition), self._clock.monotonic())
            return
        self._plan.went_well(asked.key)
        if partition.waits_for_disk:
            self._unsynced[asked.key] = partition
        self._count(partition, asked)
        if partition.log.state.durable_start_offset < partition.log.log_start_offset != before:
            self._shortened.add(asked.key)
        if wanted is not None:
            self._truncate(partition, wanted)
        else:
            self._plan.ask_for(asked.key, position_of(partition))

    def failed_after_restart(self, partition: Partition, error: KafkaError) -> None:
        """Fetch the partition again only after the longest back-off, because the batch for which its log has restarted
        could not be appended. The next attempt restarts the log twice, and forgets how long the last back-off was.
        """
        self._failed(partition, error)
        key = partition.topic_id, partition.index
        if key in self._plan:
            until = self._clock.monotonic() + self._limits.max_rest_seconds
            self._plan.hold_back(key, position_of(partition), until)

    def _failed(self, partition: Partition, error: KafkaError) -> None:
        key = partition.topic_id, partition.index
        if partition.log.is_offline:
            self._plan.leave_out(key)  # no log line, because the error is already logged
            return
        # the log has already logged a known disk error
        if error.code not in RETRIABLE and not is_known_disk_error(error.__cause__):
            logger.warning("not fetched", extra={"partition": partition.log.name, "reason": error})
        self._plan.rest(key, position_of(partition), self._clock.monotonic())

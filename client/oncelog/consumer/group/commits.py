"""Committed offsets of a group: OffsetCommit, OffsetFetch and auto-commit."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from oncelog.cluster import TopicPartition
from oncelog.config import ConsumerConfig
from oncelog.consumer.group.coordinator_connection import CoordinatorConnection
from oncelog.consumer.group.membership import Generation, Membership, MemberState, Reaction
from oncelog.consumer.group.subscription import NO_GENERATION, by_topic
from oncelog.consumer.positions import PartitionPosition, Positions
from oncelog.errors import (
    ClientClosed,
    CommitFailed,
    ErrorCode,
    KafkaError,
    PartialFailure,
    RequestTimedOut,
    error_for,
)
from oncelog.group_offsets import OffsetAndMetadata
from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.offset_commit import OffsetCommitRequest
from oncelog_protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

logger = logging.getLogger(__name__)

NO_OFFSET: Final = -1
UNANSWERED: Final = error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE)
"""The error of a partition that a response does not mention; the error is retriable."""
STALE: Final = (ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)
NO_TOPIC: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class Asked(NamedTuple):
    """The state of the member when a commit was requested. The commit belongs to the generation of that moment, even if
    the request is sent later (S88).

    With a cooperative assignor, members keep partitions and continue to read them in the next generation. `held`
    contains the position objects of the member's partitions at that moment; if a partition was revoked and assigned
    again, it has a different position object. `held` is empty with an eager strategy, where every generation starts
    with all partitions revoked.
    """

    generation: Generation
    held: Mapping[TopicPartition, PartitionPosition] = MappingProxyType({})


CommitTopic = OffsetCommitRequest.OffsetCommitRequestTopic
FetchGroup = OffsetFetchRequest.OffsetFetchRequestGroup


class Commits:
    """Commits and fetches offsets for a consumer with a group id; if partitions are assigned by hand, the consumer is
    not a member.

    Commits run one after another in the order requested, each with all its retries, so that a retried older commit
    never overwrites a newer commit. An automatic commit is not retried while a manual commit waits. Each commit has an
    `Asked`, which describes the member at the time of the request: its generation and, under a cooperative assignor,
    its partitions. Partitions that may have moved since the request are not committed. The caller of
    `commit_automatically` passes the `Asked` of its request.
    """

    def __init__(
        self,
        membership: Membership,
        connection: CoordinatorConnection,
        config: ConsumerConfig,
        positions: Positions,
        *,
        is_cooperative: bool = False,
        on_stale: Callable[[], None] | None = None,
    ) -> None:
        """In the consumer protocol, members send their epoch when they fetch offsets. `on_stale` is called if the
        coordinator responds that the epoch is outdated; the next heartbeat returns the present epoch.
        """
        self._membership = membership
        self._on_stale = on_stale
        self._positions = positions
        self._is_cooperative = is_cooperative
        self._connection = connection
        self._config = config
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._make_way = asyncio.Event()
        self.number = 0
        """Number of manual commits so far."""
        self.on_committed: Callable[[Offsets], None] | None = None
        """A callback for offsets that the coordinator has stored; None if there is no callback."""

    def asked(self) -> Asked:
        """Return the member's present generation and partitions, for a commit that is requested now."""
        held = {place.topic_partition: place for place in self._positions} if self._is_cooperative else {}
        return Asked(self._membership.generation, held)

    async def commit(self, offsets: Offsets, timeout_s: float) -> None:
        """Commit for the application, with retries, after the commits requested earlier.

        Waits for a missing topic, because the coordinator may not know a new topic yet. Raises CommitFailed if this
        consumer is no longer a member of the generation that reads these partitions; with a cooperative strategy, the
        partitions that it still owns are committed before the error is raised. Raises RequestTimedOut after
        `timeout_s`, PartialFailure if some partitions were refused, otherwise KafkaError.
        """
        asked = self.asked()
        self.number += 1
        self._waiting += 1
        self._make_way.set()
        try:
            await self._store(offsets, timeout_s, asked)
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._make_way.clear()

    async def commit_automatically(
        self, offsets: Offsets, timeout_s: float, asked: Asked, *, before: int | None = None
    ) -> frozenset[TopicPartition]:
        """Commit, with retries, in the generation that the member had at the moment `asked`. Returns the partitions
        that were not committed. A partition is not committed if its topic does not exist or if another member may own
        it now. With `before`, an earlier value of `number`, no partition is committed if the application has requested
        a commit since then.
        """
        return await self._store(offsets, timeout_s, asked, waits_for_topics=False, before=before)

    async def _store(
        self,
        offsets: Offsets,
        timeout_s: float,
        asked: Asked,
        *,
        waits_for_topics: bool = True,
        before: int | None = None,
    ) -> frozenset[TopicPartition]:
        remaining = dict(offsets)
        without_topic: set[TopicPartition] = set()
        given_up: set[TopicPartition] = set()
        cause: KafkaError | None = None
        failures = 0
        try:
            async with asyncio.timeout(timeout_s), self._turn:
                while remaining:
                    await self._back_off(failures, makes_way=before is not None)
                    failures += 1
                    if before not in (None, self.number):
                        return frozenset(remaining).union(without_topic, given_up)
                    given_up.update(self._given_up(remaining, asked))
                    remaining = {at: told for at, told in remaining.items() if at not in given_up}
                    if not remaining:
                        break
                    try:
                        errors = await self._commit_once(remaining)
                    except ClientClosed:
                        raise
                    except KafkaError as error:
                        if not error.retriable:
                            raise
                        cause = error
                        continue
                    if self.on_committed is not None:
                        self.on_committed({at: told for at, told in remaining.items() if at not in errors})
                    if not waits_for_topics:
                        without_topic.update(at for at, error in errors.items() if error.code is NO_TOPIC)
                    remaining = {at: remaining[at] for at in errors if at not in without_topic}
                    cause = next(iter(errors.values()), None)
        except TimeoutError:
            raise RequestTimedOut(
                ErrorCode.REQUEST_TIMED_OUT,
                f"group {self._config.group_id}: offsets not committed within {timeout_s:g} s"
                + (f": {cause.message}" if cause else ""),
            ) from cause
        if given_up:
            raise CommitFailed(
                ErrorCode.ILLEGAL_GENERATION,
                f"group {self._config.group_id}: a commit of generation {asked.generation.generation_id} is not stored"
                f" for {', '.join(map(str, sorted(given_up)))}: the group has rebalanced, and other members may "
                "read them;"
                " poll, and continue with the partitions assigned then",
            )
        return frozenset(without_topic)

    def _given_up(self, offsets: Offsets, asked: Asked) -> list[TopicPartition]:
        """Return the partitions that may belong to other members since the commit was requested."""
        if self._membership.generation == asked.generation:
            return []
        return [at for at in offsets if (place := asked.held.get(at)) is None or not self._positions.owns(place)]

    async def _back_off(self, failures: int, *, makes_way: bool) -> None:
        if not (failures and makes_way):
            await self._connection.backoff(failures)
            return
        waits = [asyncio.ensure_future(self._connection.backoff(failures))]
        waits.append(asyncio.ensure_future(self._made_way()))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _made_way(self) -> None:
        await self._make_way.wait()

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets; partitions without a committed offset are omitted. Raises KafkaError."""
        wanted = list(partitions)
        cause: KafkaError | None = None
        failures = 0
        try:
            async with asyncio.timeout(timeout_s):
                while wanted:
                    await self._connection.backoff(failures)
                    failures += 1
                    try:
                        return await self._fetch_once(wanted)
                    except ClientClosed:
                        raise
                    except KafkaError as error:
                        if not (error.retriable or self._is_stale(error)):
                            raise
                        cause = error
        except TimeoutError:
            raise RequestTimedOut(
                ErrorCode.REQUEST_TIMED_OUT,
                f"group {self._config.group_id}: committed offsets not fetched within {timeout_s:g} s"
                + (f": {cause.message}" if cause else ""),
            ) from cause
        return {}

    def _is_stale(self, error: KafkaError) -> bool:
        """Return whether a response to a member of the consumer protocol says that the member's epoch is over. The
        member retries, because it must start at the committed offset.
        """
        is_stale = self._on_stale is not None and error.code in STALE
        if is_stale and self._on_stale is not None:
            self._on_stale()
        return is_stale

    async def _commit_once(self, offsets: Offsets) -> dict[TopicPartition, KafkaError]:
        """Send one OffsetCommit request. Returns retriable errors by partition. Partitions missing from the response
        count as not committed; unexpected partitions are ignored. Raises KafkaError for errors that are not retriable.
        """
        membership = self._membership
        is_outside = membership.generation.generation_id == NO_GENERATION and membership.state is not MemberState.LEFT
        if is_outside or membership.is_lost or membership.state is MemberState.COMPLETING:
            raise CommitFailed(
                ErrorCode.REBALANCE_IN_PROGRESS,
                f"group {self._config.group_id} rebalances: its partitions may belong to other members by now; "
                "poll first",
            )
        sent = membership.generation
        response = await self._connection.send(commit_request(self._config, sent, offsets))
        again: dict[TopicPartition, KafkaError] = dict.fromkeys(offsets, UNANSWERED)
        refused: dict[TopicPartition, KafkaError] = {}
        for topic in response.topics:
            for answer in topic.partitions:
                code = ErrorCode.of(answer.error_code)
                partition = TopicPartition(topic.name, answer.partition_index)
                if again.pop(partition, None) is None or code is ErrorCode.NONE:
                    continue
                reaction = membership.react(ApiKey.OFFSET_COMMIT, code, sent)
                error = error_for(answer.error_code)
                if reaction is Reaction.FIND_COORDINATOR:
                    self._connection.lost(code.name)
                    again[partition] = error
                elif reaction is Reaction.RETRY:
                    again[partition] = error
                    self._is_stale(error)
                elif reaction is Reaction.FAIL:
                    refused[partition] = type(error)(code, f"{partition}: {error.message}")
                elif reaction is Reaction.FENCE:
                    raise error
                else:
                    raise CommitFailed(code, f"group {self._config.group_id}: {error.message} Poll to rejoin.")
        if refused:
            raise PartialFailure(refused, {})
        return again

    async def _fetch_once(self, partitions: list[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        names_epoch = self._on_stale is not None and self._membership.state is MemberState.STABLE
        generation = self._membership.generation if names_epoch else None
        response = await self._connection.send(fetch_request(self._config, partitions, generation))
        code = ErrorCode.of(response.error_code or (response.groups[0].error_code if response.groups else 0))
        if code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            self._connection.lost(code.name)
        if code is not ErrorCode.NONE:
            raise error_for(code)
        return read_committed_offsets(response)


def commit_request(config: ConsumerConfig, generation: Generation, offsets: Offsets) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=config.group_id or "",
        generation_id_or_member_epoch=generation.generation_id,
        member_id=generation.member_id,
        group_instance_id=config.group_instance_id,
        topics=[
            CommitTopic(
                name=topic,
                partitions=[
                    CommitTopic.OffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=offsets[TopicPartition(topic, index)].offset,
                        committed_leader_epoch=offsets[TopicPartition(topic, index)].leader_epoch,
                        committed_metadata=offsets[TopicPartition(topic, index)].metadata,
                    )
                    for index in indexes
                ],
            )
            for topic, indexes in by_topic(offsets)
        ],
    )


def fetch_request(
    config: ConsumerConfig, partitions: Iterable[TopicPartition], generation: Generation | None = None
) -> OffsetFetchRequest:
    """Return the OffsetFetch request. The request waits for offsets of pending transactions, whatever the isolation
    level (as in the Java client), because starting before these offsets could repeat work that the transaction commits
    (KIP-447).
    """
    wanted = by_topic(partitions)
    return OffsetFetchRequest(
        group_id=config.group_id or "",
        topics=[OffsetFetchRequest.OffsetFetchRequestTopic(name=name, partition_indexes=part) for name, part in wanted],
        groups=[
            FetchGroup(
                group_id=config.group_id or "",
                member_id=None if generation is None else generation.member_id,
                member_epoch=NO_GENERATION if generation is None else generation.generation_id,
                topics=[
                    FetchGroup.OffsetFetchRequestTopics(name=name, partition_indexes=part) for name, part in wanted
                ],
            )
        ],
        require_stable=True,
    )


def read_committed_offsets(response: OffsetFetchResponse) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the offsets in the response. Raises KafkaError for the first partition that has an error."""
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    for topic in response.groups[0].topics if response.groups else response.topics:
        for answer in topic.partitions:
            partition = TopicPartition(topic.name, answer.partition_index)
            if answer.error_code:
                error = error_for(answer.error_code)
                raise type(error)(error.code, f"{partition}: {error.message}")
            if answer.committed_offset != NO_OFFSET:
                found[partition] = OffsetAndMetadata(
                    answer.committed_offset, answer.metadata or "", answer.committed_leader_epoch
                )
    return found


class AutoCommit:
    """Commits offsets automatically: when auto.commit.interval.ms has passed, the next poll commits the records that
    earlier polls have returned.

    `consumed` returns the positions after all returned records; `attend` makes the next `poll` handle membership and
    commits. A position that is already committed, perhaps by the application, is not committed again.
    """

    def __init__(
        self, commits: Commits, config: ConsumerConfig, *, consumed: Callable[[], Offsets], attend: Callable[[], None]
    ) -> None:
        self._commits = commits
        self._config = config
        self._consumed = consumed
        self._attend = attend
        self._timer: asyncio.TimerHandle | None = None
        self._is_due = False
        self._running: asyncio.Task[None] | None = None
        self._stored: dict[TopicPartition, OffsetAndMetadata] = {}

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget the committed offsets of these partitions, because other members may have changed the offsets."""
        for partition in partitions:
            self._stored.pop(partition, None)

    def committed(self, consumed: Offsets) -> None:
        """Record that the application has committed these positions, so that they are not committed again
        automatically.
        """
        self._stored.update(consumed)

    def poll(self) -> None:
        """Start a commit if the interval has passed; the records of the previous poll count as processed."""
        if not self._config.enable_auto_commit:
            return
        if self._is_due and self._running is None:
            self._is_due = False
            offsets = self._news()
            if offsets:
                timeout_s = self._config.default_api_timeout_ms / 1000
                commit = self._commit(offsets, timeout_s, self._commits.asked(), before=self._commits.number)
                self._running = asyncio.ensure_future(commit)
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._config.auto_commit_interval_ms / 1000, self._due)

    async def flush(self, timeout_s: float) -> None:
        """Commit now and wait for the result, before partitions are revoked. A failure is logged, and the new owner
        reads the records again.
        """
        if not self._config.enable_auto_commit:
            return
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        if self._running is not None:
            await asyncio.wait([self._running], timeout=timeout_s)
        offsets = self._news()
        if offsets:
            await self._commit(offsets, max(0.0, deadline - loop.time()), self._commits.asked(), before=None)

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    def _news(self) -> Offsets:
        stored = self._stored
        return {partition: offset for partition, offset in self._consumed().items() if stored.get(partition) != offset}

    def _due(self) -> None:
        self._timer = None
        self._is_due = True
        self._attend()

    async def _commit(self, offsets: Offsets, timeout_s: float, asked: Asked, *, before: int | None) -> None:
        try:
            # Do not wait for missing topics: while the commit waited for a deleted topic, the application could not
            # poll, and the group would wait for this member.
            left_out = await self._commits.commit_automatically(offsets, timeout_s, asked, before=before)
            self._stored.update({at: offset for at, offset in offsets.items() if at not in left_out})
        except KafkaError as error:
            logger.warning("group %s: automatic commit failed: %s", self._config.group_id, error)
        finally:
            if asyncio.current_task() is self._running:
                self._running = None

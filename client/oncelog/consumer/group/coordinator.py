"""The consumer's group coordinator client: rebalances, driven by poll.

Each poll calls `advance`, which handles all pending steps in this order and then lets the poll continue:

    the group rebalances  ->  commit, on_revoked (or on_lost)  ->  join, in the background
    joined                ->  commit and on_revoked for removed partitions, then on_assigned for added partitions

With an eager strategy, all partitions are revoked before joining. With cooperative strategies, a member revokes
partitions after joining, and only the partitions that the new assignment takes away. The member then rejoins, so that
other members can get these partitions. Callbacks thus run inside poll only; heartbeats and the wait for other members
run between polls.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from oncelog.cluster import TopicPartition
from oncelog.config import ConsumerConfig
from oncelog.consumer.group.assignors import assignors_for
from oncelog.consumer.group.commits import AutoCommit, Commits
from oncelog.consumer.group.coordinator_connection import CoordinatorConnection
from oncelog.consumer.group.heartbeat import Heartbeat
from oncelog.consumer.group.holdings import Holdings
from oncelog.consumer.group.interest import Interest, RebalanceListener
from oncelog.consumer.group.joining import Having, Joined, Joining
from oncelog.consumer.group.membership import NO_MEMBER_ID, Generation, Membership, MemberState
from oncelog.consumer.group.subscription import NO_GENERATION
from oncelog.consumer.positions import Positions
from oncelog.errors import ErrorCode, KafkaError, error_for
from oncelog.group_offsets import ConsumerGroupMetadata, OffsetAndMetadata
from oncelog.metadata.metadata import Metadata
from oncelog_protocol.messages.leave_group import LeaveGroupRequest

logger = logging.getLogger(__name__)

REASON_BYTES = 255
"""Maximum bytes of a reason, because some brokers refuse longer reasons (KIP-800)."""

CLOSED, UNSUBSCRIBED, POLL_TOO_LATE = "the consumer is closed", "the consumer unsubscribed", "no poll in time"


@dataclass(frozen=True, slots=True)
class _Handover:
    """A new assignment while it is passed to the application; if a callback is cancelled, the next poll continues with
    the steps that are not completed.
    """

    generation: Generation
    assigned: tuple[TopicPartition, ...]
    revoked: tuple[TopicPartition, ...]
    added: tuple[TopicPartition, ...]


class GroupCoordinator:
    """Drives the membership of a consumer in the classic protocol. The member calls `attend` to make the next `poll`
    handle membership changes; `progress` returns a value that changes whenever the application takes records, and None
    during a poll.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        positions: Positions,
        metadata: Metadata,
        *,
        attend: Callable[[], None],
        progress: Callable[[], object],
    ) -> None:
        assert config.group_id is not None
        self._config = config
        self._positions = positions
        self._metadata = metadata
        self._attend = attend
        assignors = assignors_for(config.partition_assignment_strategy)
        self._is_cooperative = all(assignor.is_cooperative for assignor in assignors)
        self._membership = Membership()
        self._connection = CoordinatorConnection(config.group_id, metadata, config)
        self.commits = Commits(
            self._membership, self._connection, config, positions, is_cooperative=self._is_cooperative
        )
        self.auto_commit = AutoCommit(self.commits, config, consumed=positions.consumed, attend=attend)
        self._holdings = Holdings(config, positions, self.commits, self.auto_commit)
        self._joining = Joining(
            self._membership, self._connection, metadata, config, assignors=assignors, having=self._having
        )
        self._heartbeat = Heartbeat(
            self._membership,
            self._connection,
            config,
            progress=progress,
            poll_is_late=self._drop_out,
            changed=attend,
        )
        self._interest = Interest()
        self._listener = RebalanceListener()
        self._topics: frozenset[str] = frozenset()
        self._joined_with: frozenset[str] = frozenset()
        self._assigned: tuple[TopicPartition, ...] = ()
        self._assigned_in = NO_GENERATION
        self._join_task: asyncio.Task[Joined | None] | None = None
        self._handover: _Handover | None = None
        self._missing_timer: asyncio.TimerHandle | None = None
        metadata.in_use.append(lambda: self._interest.names.union(self._joining.watched or ()))

    # The next methods are called when the application subscribes or assigns, and when the metadata change.

    @property
    def is_subscribed(self) -> bool:
        return bool(self._interest)

    @property
    def subscription(self) -> frozenset[str]:
        """The names of the subscribed topics; for a pattern, the topics that match now."""
        return self._interest.topics(self._metadata.cluster) if self._interest else frozenset()

    @property
    def group_metadata(self) -> ConsumerGroupMetadata:
        """The member id and generation in which the present partitions were assigned. A member that was expelled or has
        left sends its last generation. A commit without a generation would count as a commit from outside the group,
        and the broker does not check such commits (S46, S64).
        """
        config, generation = self._config, self._membership.last_generation
        return ConsumerGroupMetadata(config.group_id or "", *generation, config.group_instance_id)

    def subscribe(self, interest: Interest, listener: RebalanceListener | None) -> None:
        """Subscribe to topics, from the next poll on."""
        self._interest = interest
        self._listener = listener or RebalanceListener()
        self._metadata.follow_all(interest.pattern is not None)
        self._membership.enter()
        self._metadata.request_refresh()
        self.metadata_changed()
        self._attend()

    def assigned_by_hand(self) -> None:
        """Record that the application assigns partitions itself."""
        self._membership.assign_by_hand()

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None, timeout_s: float) -> None:
        """Commit these offsets (None: the positions) for the application. Raises the errors of `Commits.commit`."""
        await self._holdings.commit(offsets, timeout_s)

    def metadata_changed(self) -> None:
        """Rejoin if a pattern matches new topics, or partitions have changed."""
        if not self._interest:
            return
        topics = self._interest.topics(self._metadata.cluster)
        if topics != self._topics:
            self._topics = topics
            self._rejoin("the subscription has changed")
        elif self._joining.sees_change(self._metadata.cluster):
            self._rejoin("the topics of the group have changed")
        self._look_for_missing_topics()

    # rebalances

    async def advance(self) -> None:
        """Handle all pending membership changes before records are returned. Raises KafkaError, and exceptions of
        callbacks.
        """
        self.auto_commit.poll()
        if not self._interest:
            return
        while True:
            if self._membership.state is MemberState.FENCED:
                raise error_for(ErrorCode.FENCED_INSTANCE_ID)
            if self._join_task is not None:
                if not self._join_task.done():
                    return
                self._joined()
            if self._handover is not None:
                await self._hand_over(self._handover)
            if not self._membership.needs_join:
                return
            if not await self._prepare():
                continue
            self._join_task = asyncio.ensure_future(self._join())
            self._join_task.add_done_callback(lambda _: self._attend())

    async def _join(self) -> Joined | None:
        if self._interest.pattern is not None:
            try:
                await self._metadata.refresh()
            except KafkaError as error:
                if not error.retriable:
                    raise
            self._topics = self._interest.topics(self._metadata.cluster)
        self._heartbeat.start()
        return await self._joining.join()

    def _joined(self) -> None:
        task, self._join_task = self._join_task, None
        assert task is not None
        joined = task.result()
        if joined is None or joined.generation != self._membership.generation:
            return  # The generation that was just joined is already over.
        # A change of topics or of the subscription during the join could not cause a rejoin, so check for such changes
        # now.
        if self._joined_with != self._topics:
            self._rejoin("the subscription has changed")
        self.metadata_changed()
        owned = self._positions.assignment
        self._assigned, self._assigned_in = joined.assigned, joined.generation.generation_id
        self._handover = _Handover(
            joined.generation,
            joined.assigned,
            revoked=tuple(sorted(owned.difference(joined.assigned))),
            added=tuple(sorted(set(joined.assigned).difference(owned))),
        )

    async def _prepare(self) -> bool:
        """Revoke partitions before sending JoinGroup. Returns whether to join: False if another task has left the group
        or closed the consumer meanwhile, or if this member is fenced.
        """
        owned = self._positions.assignment
        if self._membership.is_lost:
            logger.warning("group %s: lost %d partitions", self._config.group_id, len(owned))
            self._handover = None
            await self._holdings.give_up(owned, self._listener.on_lost, is_committing=False)
            self._membership.partitions_given_up()
        elif not self._is_cooperative:
            await self._holdings.give_up(owned, self._listener.on_revoked)
        else:
            unwanted = {partition for partition in owned if partition.topic not in self._topics}
            await self._holdings.give_up(unwanted, self._listener.on_revoked)
        return self._membership.needs_join

    async def _hand_over(self, handover: _Handover) -> None:
        """Pass a new assignment to the application."""
        # Pass only the partitions that are not revoked yet, so that a callback that has failed is not called again.
        await self._holdings.give_up(
            self._positions.assignment.intersection(handover.revoked), self._listener.on_revoked
        )
        if self._membership.is_lost or self._handover is not handover:
            return
        self._holdings.take(handover.assigned, handover.added)
        if handover.revoked:
            self._rejoin("partitions were given up that others wait for")
        try:
            await self._listener.on_assigned(handover.added)
        except asyncio.CancelledError:
            raise  # keep the assignment pending, so that the next poll calls on_assigned again
        except BaseException:
            self._handover = None
            raise
        self._handover = None

    # leaving

    async def unsubscribe(self) -> None:
        """Commit, revoke all partitions, and leave the group. Static members remain known to the coordinator
        (KIP-345)."""
        try:
            await self._leave(UNSUBSCRIBED, self._config.request_timeout_ms / 1000)
        finally:
            self._interest = Interest()
            self._metadata.follow_all(False)

    async def close(self, timeout_s: float) -> None:
        """Unsubscribe within `timeout_s`, not counting callbacks, and stop. Raises exceptions of callbacks."""
        try:
            await self._leave(CLOSED, timeout_s)
        finally:
            if self._missing_timer is not None:
                self._missing_timer.cancel()
            await self.auto_commit.close()
            await self._heartbeat.stop()
            await self._connection.close()

    async def _leave(self, reason: str, timeout_s: float) -> None:
        deadline = asyncio.get_running_loop().time() + timeout_s
        membership, owned = self._membership, self._positions.assignment
        try:
            await self._stop_joining()
            if not self._interest:
                # the application has assigned the partitions itself, so there is no membership to end
                await self.auto_commit.flush(timeout_s)
            elif membership.is_lost or membership.state is MemberState.FENCED:
                await self._holdings.give_up(owned, self._listener.on_lost, is_committing=False)
            else:
                await self.auto_commit.flush(timeout_s)
                await self._holdings.give_up(owned, self._listener.on_revoked, is_committing=False)
        except asyncio.CancelledError:
            deadline = float("-inf")  # send LeaveGroup, but do not wait for the response
            raise
        finally:
            generation, was_fenced = membership.generation, membership.state is MemberState.FENCED
            membership.leave()
            self._handover = None
            self._topics = frozenset()
            self._assigned, self._assigned_in = (), NO_GENERATION
            await self._stop_joining()  # a poll during a callback may have started these tasks again
            await self._heartbeat.stop()
            if not was_fenced:
                left_s = deadline - asyncio.get_running_loop().time()
                await self._send_leave(generation, reason, max(0.0, left_s))

    async def _stop_joining(self) -> None:
        if self._join_task is not None:
            task, self._join_task = self._join_task, None
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self._membership.give_up_joining()

    async def _send_leave(self, generation: Generation, reason: str, timeout_s: float) -> None:
        config = self._config
        if generation.member_id == NO_MEMBER_ID or config.group_instance_id is not None:
            return
        member = LeaveGroupRequest.MemberIdentity(member_id=generation.member_id, reason=reason[:REASON_BYTES])
        request = LeaveGroupRequest(group_id=config.group_id or "", member_id=generation.member_id, members=[member])
        try:
            async with asyncio.timeout(timeout_s):
                await self._connection.send(request)
        except (KafkaError, TimeoutError) as error:
            # If LeaveGroup is lost, the coordinator learns that the member has left only when its session times out.
            # The rebalance is then late, but no record is lost.
            logger.info("group %s: the request to leave the group failed: %r", config.group_id, error)

    async def _drop_out(self) -> None:
        """Leave the group because the application does not poll, so that other members get the partitions."""
        logger.warning(
            "group %s: no poll for more than max_poll_interval_ms=%d: leaving the group until the next one",
            *(self._config.group_id, self._config.max_poll_interval_ms),
        )
        generation = self._membership.generation
        self._membership.drop_out()
        self._attend()
        await self._send_leave(generation, POLL_TOO_LATE, self._config.session_timeout_ms / 1000)

    # inside

    def _look_for_missing_topics(self) -> None:
        """Refresh the metadata sooner than usual while subscribed topics do not exist yet."""
        wanted = self._topics.union(self._joining.watched or ())
        topics = self._metadata.cluster.topics
        if self._missing_timer is None and any(name not in topics or not topics[name].partitions for name in wanted):
            delay_s = self._config.heartbeat_interval_ms / 1000
            self._missing_timer = asyncio.get_running_loop().call_later(delay_s, self._missing_due)

    def _missing_due(self) -> None:
        self._missing_timer = None
        self._metadata.request_refresh()

    def _rejoin(self, reason: str) -> None:
        self._membership.rejoin(reason)
        if self._membership.needs_join:
            logger.info("group %s: joining again: %s", self._config.group_id, reason)
            self._attend()

    def _having(self) -> Having:
        self._joined_with = self._topics
        owned = tuple(sorted(self._positions.assignment)) if self._is_cooperative else ()
        return Having(tuple(sorted(self._topics)), owned, self._assigned, self._assigned_in)

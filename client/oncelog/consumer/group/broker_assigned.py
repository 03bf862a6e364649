"""A group member whose partitions the broker assigns (KIP-848), driven by poll.

One task sends heartbeats: the heartbeats join the group, report the owned partitions, and receive the target
assignment. Each poll calls `advance`, which reconciles the owned partitions with the target, because callbacks of the
application run only inside poll:

    partitions to revoke  ->  commit, call on_revoked, drop the partitions, and send a heartbeat immediately
    partitions to add     ->  add the partitions, call on_assigned, and send a heartbeat immediately

Members do not wait for each other, and continue to read the partitions that they keep. If the coordinator fences or
removes a member, the member loses its partitions (on_lost), and then joins again with the same member id.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Mapping

from oncelog.cluster import TopicPartition
from oncelog.config import ConsumerConfig
from oncelog.consumer.group.commits import AutoCommit, Commits
from oncelog.consumer.group.coordinator_connection import CoordinatorConnection
from oncelog.consumer.group.epoch_heartbeat import EpochHeartbeat, IdPartition, Said
from oncelog.consumer.group.heartbeat import PollWatch, report_end
from oncelog.consumer.group.holdings import Holdings
from oncelog.consumer.group.interest import Interest, RebalanceListener
from oncelog.consumer.group.membership import NO_MEMBER_ID, Generation, Membership, MemberState, Reaction
from oncelog.consumer.positions import Positions
from oncelog.errors import ClientClosed, ErrorCode, KafkaError, error_for
from oncelog.group_offsets import ConsumerGroupMetadata, OffsetAndMetadata
from oncelog.metadata.metadata import Metadata
from oncelog_protocol.api import ApiKey
from oncelog_protocol.uuids import ZERO_UUID, uuid_to_string

logger = logging.getLogger(__name__)

HINTS = {
    ErrorCode.UNRELEASED_INSTANCE_ID: "another consumer with this group_instance_id is in the group; if it has died,"
    " this one can join when its session has ended",
    ErrorCode.UNSUPPORTED_VERSION: "the broker does not serve group_protocol='consumer': Kafka does from 4.0 on",
}
"""Error code -> advice for the user, for errors that end the membership in the group."""


class BrokerAssignedMember:
    """A member whose partitions the broker assigns.

    The member calls `attend` to make the next `poll` call `advance`, which handles membership changes. `progress`
    returns a value that changes whenever the application takes records, and None during a poll; a value that stays
    equal for max.poll.interval.ms means that the application is stuck.
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
        self._progress = progress
        self._membership = Membership()
        self._member_id = _new_member_id()
        self._connection = CoordinatorConnection(config.group_id, metadata, config)
        self.commits = Commits(
            self._membership, self._connection, config, positions, is_cooperative=True, on_stale=self._beat_now
        )
        self.auto_commit = AutoCommit(self.commits, config, consumed=positions.consumed, attend=attend)
        self._holdings = Holdings(config, positions, self.commits, self.auto_commit)
        self._watch = PollWatch(config.max_poll_interval_ms / 1000)
        self._interest = Interest()
        self._listener = RebalanceListener()
        self._heartbeat = EpochHeartbeat(config)
        self._wanted: frozenset[IdPartition] | None = None
        """The target assignment from the coordinator; None if no target has arrived since the last join."""
        self._announced: tuple[TopicPartition, ...] | None = None
        """Added partitions for which on_assigned has not been called yet."""
        self._error: KafkaError | None = None
        """The error that the next poll raises."""
        self._task: asyncio.Task[None] | None = None
        self._is_due = asyncio.Event()
        metadata.in_use.append(lambda: self._interest.names)

    # methods that the application calls

    @property
    def is_subscribed(self) -> bool:
        return bool(self._interest)

    @property
    def subscription(self) -> frozenset[str]:
        """The names of the subscribed topics; for a pattern, the topics that match now."""
        return self._interest.topics(self._metadata.cluster) if self._interest else frozenset()

    @property
    def group_metadata(self) -> ConsumerGroupMetadata:
        """The group metadata for commits in transactions.

        After the member was fenced or has left, the metadata contain its last epoch. A commit without an epoch would
        count as a commit from outside the group, and the broker does not check such commits (S46, S64).
        """
        config, generation = self._config, self._membership.last_generation
        return ConsumerGroupMetadata(config.group_id or "", *generation, config.group_instance_id)

    def subscribe(self, interest: Interest, listener: RebalanceListener | None) -> None:
        """Subscribe to topics, from the next poll on. The broker evaluates a pattern, in the syntax of RE2."""
        self._interest = interest
        self._listener = listener or RebalanceListener()
        self._metadata.follow_all(interest.pattern is not None)
        self._membership.enter()
        self._metadata.request_refresh()
        self._beat_now()
        self._attend()

    def assigned_by_hand(self) -> None:
        """Record that the application assigns partitions itself."""
        self._membership.assign_by_hand()

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None, timeout_s: float) -> None:
        """Commit these offsets; without offsets, commit the positions. Raises the errors of `Commits.commit`."""
        await self._holdings.commit(offsets, timeout_s)

    def metadata_changed(self) -> None:
        """Reconcile the assignment after new metadata, because the new metadata may contain the names of topic ids in
        the target assignment.
        """
        if self._wanted is not None and self._interest:
            self._attend()

    # rebalances

    async def advance(self) -> None:
        """Handle all pending membership changes before records are returned. Raises KafkaError, and exceptions of
        callbacks.
        """
        self.auto_commit.poll()
        if not self._interest:
            return
        membership = self._membership
        if membership.state is MemberState.FENCED:
            raise error_for(ErrorCode.FENCED_INSTANCE_ID)
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        if membership.is_lost:
            await self._lose()
        if membership.state is MemberState.UNJOINED and not membership.is_lost:
            membership.prepare()
            if membership.generation.member_id == NO_MEMBER_ID and membership.last_generation.member_id:
                self._member_id = _new_member_id()
            self._heartbeat.begin_anew()
            self._wanted = None
            self._start()
            self._beat_now()
        await self._reconcile()

    async def _lose(self) -> None:
        owned = self._positions.assignment
        logger.warning("group %s: lost %d partitions", self._config.group_id, len(owned))
        self._wanted = self._announced = None
        await self._holdings.give_up(owned, self._listener.on_lost, is_committing=False)
        self._membership.partitions_given_up()

    async def _reconcile(self) -> None:
        """Revoke partitions, then add new partitions; repeat both if the target assignment has changed meanwhile."""
        while self._membership.state is MemberState.STABLE and not self._membership.is_lost:
            wanted = self._named()
            owned = self._positions.assignment
            revoked = owned.difference(wanted) if wanted is not None else ()
            if revoked:
                await self._holdings.give_up(revoked, self._listener.on_revoked)
                self._beat_now()
                continue
            if wanted is not None and (wanted - owned or self._announced is None):
                added = tuple(sorted(wanted - owned))
                self._holdings.take(wanted, added)
                self._announced = (*(self._announced or ()), *added)
                self._beat_now()
            if not self._has_news():
                return
            await self._announce()

    def _has_news(self) -> bool:
        return self._announced is not None and self._announced != ()

    async def _announce(self) -> None:
        """Call on_assigned for added partitions; if the callback is cancelled, the next poll calls it again."""
        added = self._announced or ()
        try:
            await self._listener.on_assigned(added)
        except asyncio.CancelledError:
            raise
        except BaseException:
            self._announced = ()
            raise
        self._announced = (self._announced or ())[len(added) :]

    def _named(self) -> frozenset[TopicPartition] | None:
        """Return the target assignment by topic name. Partitions whose topic name is unknown are skipped until the
        metadata contain the name.
        """
        if self._wanted is None:
            return None
        names = {topic.topic_id: name for name, topic in self._metadata.cluster.topics.items()}
        named = frozenset(
            TopicPartition(names[topic_id], index) for topic_id, index in self._wanted if topic_id in names
        )
        if len(named) < len(self._wanted):
            self._metadata.request_refresh()
        return named

    # heartbeats

    def _start(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._run())
            self._task.add_done_callback(report_end)

    async def _stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _beat_now(self) -> None:
        """Send a heartbeat immediately."""
        self._is_due.set()

    async def _run(self) -> None:
        loop, failures = asyncio.get_running_loop(), 0
        while True:
            if failures:
                await self._connection.backoff(failures)
            else:
                await self._until_due()
            self._is_due.clear()
            progress = self._progress()
            self._watch.look(loop.time() if progress is None else progress, loop.time())
            if self._membership.state not in (MemberState.PREPARING, MemberState.STABLE):
                failures = 0
                continue
            try:
                if self._watch.is_late(loop.time()):
                    await self._drop_out()
                else:
                    failures = 0 if await self._beat() else failures + 1
            except ClientClosed:
                raise
            except Exception:  # catch every error, because the group removes a member whose heartbeats stop
                logger.exception("group %s: a heartbeat failed, and is sent again", self._config.group_id)
                self._heartbeat.failed()
                failures += 1

    async def _until_due(self) -> None:
        # Wake up at the deadline of the next poll too, so that a late poll is noticed even if heartbeats are rare.
        wait_s = min(self._heartbeat.interval_s, self._config.max_poll_interval_ms / 2000)
        try:
            async with asyncio.timeout(wait_s):
                await self._is_due.wait()
        except TimeoutError:
            pass

    async def _beat(self) -> bool:
        """Send a heartbeat. Return False if the heartbeat must be repeated soon."""
        membership, heartbeat = self._membership, self._heartbeat
        sent, state, said = membership.generation, membership.state, self._said()
        request = heartbeat.request(self._member_id, said)
        try:
            response = await self._connection.send(request)
        except ClientClosed:
            raise
        except KafkaError as error:
            heartbeat.failed()
            if error.code is ErrorCode.UNSUPPORTED_VERSION:
                self._fail(error.code, error.message)
                return True
            logger.info("group %s: heartbeat failed: %s", self._config.group_id, error)
            return False
        if membership.generation != sent or membership.state is not state:
            return True  # ignore the response: the member has left or was fenced during the request
        code = ErrorCode.of(response.error_code)
        if code is not ErrorCode.NONE:
            return self._refused(code, response.error_message, sent)
        wanted = heartbeat.answered(response, said)
        generation = Generation(response.member_epoch, self._member_id)
        if state is MemberState.PREPARING:
            membership.complete(generation)
            membership.settle()
            self._announced = None
        elif generation != sent:
            membership.go_on(generation)
        if wanted is not None:
            self._wanted = wanted
            self._attend()
        if heartbeat.is_news(self._said()):
            self._beat_now()
        return True

    def _refused(self, code: ErrorCode, message: str | None, sent: Generation) -> bool:
        """Handle an error in a heartbeat response. Return False if the heartbeat must be repeated soon."""
        membership = self._membership
        logger.info("group %s: heartbeat answered with %s: %s", self._config.group_id, code.name, message)
        self._heartbeat.failed()
        reaction = membership.react(ApiKey.CONSUMER_GROUP_HEARTBEAT, code, sent)
        if reaction is Reaction.FIND_COORDINATOR:
            self._connection.lost(code.name)
        if reaction in (Reaction.FIND_COORDINATOR, Reaction.RETRY):
            return False
        if membership.state is MemberState.PREPARING:
            membership.give_up_joining()
        if reaction in (Reaction.FAIL, Reaction.FENCE):
            self._fail(code, message)
        self._attend()
        return True

    def _fail(self, code: ErrorCode, message: str | None) -> None:
        """Make the next poll raise the error; the poll after that joins the group again."""
        if self._membership.state is MemberState.PREPARING:
            self._membership.give_up_joining()
        hint = HINTS.get(code)
        text = f"group {self._config.group_id}: {message or code.meaning}"
        error = error_for(code)
        self._error = type(error)(code, text if hint is None else f"{text} ({hint})")
        self._attend()

    def _said(self) -> Said:
        topics = self._metadata.cluster.topics
        ids = {
            (topics[topic].topic_id, index)
            for topic, index in self._positions.assignment
            if topic in topics and topics[topic].topic_id != ZERO_UUID
        }
        pattern = self._interest.pattern
        names = tuple(sorted(self._interest.names))
        return Said(names, None if pattern is None else pattern.pattern, frozenset(ids))

    # leaving

    async def unsubscribe(self) -> None:
        """Commit, revoke all partitions, and leave the group. A static member may come back to its partitions."""
        try:
            await self._leave(self._config.request_timeout_ms / 1000)
        finally:
            self._interest = Interest()
            self._metadata.follow_all(False)

    async def close(self, timeout_s: float) -> None:
        """Unsubscribe and stop, within `timeout_s` except for callbacks. Raises exceptions of callbacks."""
        try:
            await self._leave(timeout_s)
        finally:
            await self.auto_commit.close()
            await self._stop()
            await self._connection.close()

    async def _leave(self, timeout_s: float) -> None:
        deadline = asyncio.get_running_loop().time() + timeout_s
        membership, owned = self._membership, self._positions.assignment
        try:
            if not self._interest:
                # the application has assigned the partitions itself, so there is no membership to end
                await self.auto_commit.flush(timeout_s)
            elif membership.is_lost or membership.state is MemberState.FENCED:
                await self._holdings.give_up(owned, self._listener.on_lost, is_committing=False)
            else:
                await self.auto_commit.flush(timeout_s)
                await self._holdings.give_up(owned, self._listener.on_revoked, is_committing=False)
        except asyncio.CancelledError:
            deadline = float("-inf")  # send the request, but do not wait for the response
            raise
        finally:
            is_known = membership.state in (MemberState.PREPARING, MemberState.STABLE)
            membership.leave()
            self._wanted = self._announced = None
            await self._stop()
            if is_known:
                left_s = deadline - asyncio.get_running_loop().time()
                await self._send_leave(max(0.0, left_s))
            self._heartbeat.begin_anew()

    async def _send_leave(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._connection.send(self._heartbeat.leaving(self._member_id))
        except (KafkaError, TimeoutError) as error:
            # If this heartbeat is lost, the coordinator learns that the member has left only when its session times
            # out. The rebalance is then late, but no record is lost.
            logger.info("group %s: the request to leave the group failed: %r", self._config.group_id, error)

    async def _drop_out(self) -> None:
        """Leave the group because the application does not poll, so that other members get the partitions."""
        logger.warning(
            "group %s: no poll for more than max_poll_interval_ms=%d: leaving the group until the next one",
            *(self._config.group_id, self._config.max_poll_interval_ms),
        )
        self._membership.drop_out()
        self._attend()
        await self._send_leave(self._config.request_timeout_ms / 1000)


def _new_member_id() -> str:
    """Create a member id: a member generates its id itself, and keeps it as long as it lives."""
    return uuid_to_string(uuid.uuid4().bytes)

"""A member of a group whose partitions the broker assigns (KIP-848), as poll drives it.

One task sends heartbeats: it joins, says what the member owns, and hears what it is to own. `advance` is called by each
poll and brings the one to the other, as callbacks of the application run inside poll and nowhere else:

    some of what is owned is to go  ->  commit, on_revoked, give up, and say so in a heartbeat at once
    more is to come                 ->  take it, on_assigned, and say so

The others do not wait for this member, nor it for them: what it keeps it reads on. What it was thrown out with is lost
(on_lost), and it joins again with the same member id.
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
"""What to do about errors that end a member."""


class BrokerAssignedMember:
    """`attend` asks poll to look in; `progress` see PollWatch, None while a poll is under way."""

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
        """What the coordinator wants us to have; None: it has not said since we joined."""
        self._announced: tuple[TopicPartition, ...] | None = None
        """What has come and the application has not heard of yet."""
        self._error: KafkaError | None = None
        """For the next poll."""
        self._task: asyncio.Task[None] | None = None
        self._is_due = asyncio.Event()
        metadata.in_use.append(lambda: self._interest.names)

    # what the application wants

    @property
    def is_subscribed(self) -> bool:
        return bool(self._interest)

    @property
    def group_metadata(self) -> ConsumerGroupMetadata:
        """As whom we read what we have. A member that was thrown out, or has left, names the epoch that it had: with
        none it would count as a consumer outside of the group, whose offsets nobody checks (S46, S64)."""
        config, generation = self._config, self._membership.last_generation
        return ConsumerGroupMetadata(config.group_id or "", *generation, config.group_instance_id)

    def subscribe(self, interest: Interest, listener: RebalanceListener | None) -> None:
        """From the next poll on. A pattern is looked up by the broker, in RE2's syntax."""
        self._interest = interest
        self._listener = listener or RebalanceListener()
        self._metadata.follow_all(interest.pattern is not None)
        self._membership.enter()
        self._metadata.request_refresh()
        self._beat_now()
        self._attend()

    def assigned_by_hand(self) -> None:
        """The application says itself what it reads."""
        self._membership.assign_by_hand()

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None, timeout_s: float) -> None:
        """What the application asks for: these offsets, or how far it is. Raises as `Commits.commit`."""
        await self._holdings.commit(offsets, timeout_s)

    def metadata_changed(self) -> None:
        """Names of topics may be known now that were not."""
        if self._wanted is not None and self._interest:
            self._attend()

    # rebalances

    async def advance(self) -> None:
        """Do what is due before records are handed out. Raises KafkaError, and what callbacks raise."""
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
        """Give up what is to go, then take what has come; again if that has changed meanwhile."""
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
        """Tell the application what has come; again, with the next poll, if the callback is cancelled."""
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
        """What the coordinator wants us to have, as far as the names of the topics are known; the others are asked for,
        and what we own stays."""
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
        """There is something to say, or to ask for."""
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
            except Exception:  # whatever it is: a member without heartbeats is thrown out of its group
                logger.exception("group %s: a heartbeat failed, and is sent again", self._config.group_id)
                self._heartbeat.failed()
                failures += 1

    async def _until_due(self) -> None:
        # Late polls have to be noticed in time even where heartbeats are rare.
        wait_s = min(self._heartbeat.interval_s, self._config.max_poll_interval_ms / 2000)
        try:
            async with asyncio.timeout(wait_s):
                await self._is_due.wait()
        except TimeoutError:
            pass

    async def _beat(self) -> bool:
        """False where it is to be tried again soon."""
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
            return True  # it has left, or was dropped, meanwhile
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
        """The answer is an error. False where the heartbeat is to be tried again soon."""
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
        """For the application: the next poll raises it, and the one after that joins again."""
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
        """Commit, give everything up, leave. A static member may come back to its partitions."""
        try:
            await self._leave(self._config.request_timeout_ms / 1000)
        finally:
            self._interest = Interest()
            self._metadata.follow_all(False)

    async def close(self, timeout_s: float) -> None:
        """As `unsubscribe`, within `timeout_s` but for callbacks, and stop. Raises what callbacks raise."""
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
                await self.auto_commit.flush(timeout_s)  # assigned by hand
            elif membership.is_lost or membership.state is MemberState.FENCED:
                await self._holdings.give_up(owned, self._listener.on_lost, is_committing=False)
            else:
                await self.auto_commit.flush(timeout_s)
                await self._holdings.give_up(owned, self._listener.on_revoked, is_committing=False)
        except asyncio.CancelledError:
            deadline = float("-inf")  # tell the coordinator, but do not wait for its answer
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
            # Then the others wait for our session to end: longer, and nothing worse.
            logger.info("group %s: leaving without being heard: %r", self._config.group_id, error)

    async def _drop_out(self) -> None:
        """The application does not poll: let others have the partitions."""
        logger.warning(
            "group %s: no poll for more than max_poll_interval_ms=%d: leaving the group until the next one",
            *(self._config.group_id, self._config.max_poll_interval_ms),
        )
        self._membership.drop_out()
        self._attend()
        await self._send_leave(self._config.request_timeout_ms / 1000)


def _new_member_id() -> str:
    """A member makes its id itself, and keeps it while it lives."""
    return uuid_to_string(uuid.uuid4().bytes)

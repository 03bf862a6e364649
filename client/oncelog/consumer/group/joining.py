"""Joins a group and waits for the assignment; this part of a rebalance runs in the background while the application
works.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from oncelog.cluster import Cluster, TopicPartition
from oncelog.config import ConsumerConfig
from oncelog.connection.transport import BrokerConnection
from oncelog.consumer.group.assignors.assignor import Assignor, Topics
from oncelog.consumer.group.coordinator_connection import CoordinatorConnection
from oncelog.consumer.group.membership import Generation, Membership, MemberState, Reaction
from oncelog.consumer.group.subscription import (
    NO_GENERATION,
    Member,
    Subscription,
    decode_assignment,
    encode_assignment,
)
from oncelog.errors import ErrorCode, InvalidTopic, KafkaError, error_for
from oncelog.metadata.metadata import Metadata
from oncelog.names import check_partition, is_topic_name
from oncelog_protocol.api import ApiKey
from oncelog_protocol.consumer_protocol import CONSUMER_PROTOCOL
from oncelog_protocol.errors import MalformedMessage
from oncelog_protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from oncelog_protocol.messages.sync_group import SyncGroupRequest

logger = logging.getLogger(__name__)

JOIN_SLACK_S = 5.0
"""Seconds to wait for the response to JoinGroup, in addition to the rebalance timeout."""

SyncAssignment = SyncGroupRequest.SyncGroupRequestAssignment


class Joined(NamedTuple):
    """The result of joining: the partitions assigned in a generation."""

    generation: Generation
    assigned: tuple[TopicPartition, ...]


class Having(NamedTuple):
    """The data that a member sends in JoinGroup: its topics, the partitions that it has not revoked, and its last
    assignment.
    """

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...]
    assigned: tuple[TopicPartition, ...]
    generation_id: int


class Joining:
    """Joins the group, computes assignments if this member is the leader, and sends SyncGroup. `having` returns the
    data that a member sends; it is called before each JoinGroup.

    On the group's leader, `watched` has the partition counts of all topics of the group. Only the leader watches these
    counts; a change makes the leader rejoin.
    """

    def __init__(
        self,
        membership: Membership,
        connection: CoordinatorConnection,
        metadata: Metadata,
        config: ConsumerConfig,
        *,
        assignors: Sequence[Assignor],
        having: Callable[[], Having],
    ) -> None:
        self._membership = membership
        self._connection = connection
        self._metadata = metadata
        self._config = config
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self._having = having
        self.watched: dict[str, int] | None = None
        self._raised = 0

    async def join(self) -> Joined | None:
        """Repeat JoinGroup until this member has an assignment. Returns None if the previous generation is lost: the
        application must learn of the loss before the member joins again.

        Raises KafkaErrors that are not retriable.
        """
        failures = self._raised
        await self._connection.backoff(failures)
        may_hurry = True
        while not self._is_lost():  # the topics may have changed while the member waited
            if self._membership.state is MemberState.FENCED:
                raise error_for(ErrorCode.FENCED_INSTANCE_ID)
            self._membership.prepare()
            outcome: Joined | Reaction = Reaction.FIND_COORDINATOR
            try:
                async with self._connection.for_joining() as connection:
                    outcome = await self._attempt(connection)
            except KafkaError as error:
                if not error.retriable:
                    self._raised += 1  # count the error that is raised: the next poll joins again, after the backoff
                    raise
                logger.info("group %s: joining again after %s", self._config.group_id, error)
            finally:
                if not isinstance(outcome, Joined):
                    self._membership.give_up_joining()
            if isinstance(outcome, Joined):
                self._raised = 0
                return outcome
            if outcome is Reaction.TAKE_MEMBER_ID and may_hurry:
                may_hurry = False  # a response that only assigns a member id is not a failure
            elif not self._is_lost():
                failures += 1
                await self._connection.backoff(failures)
        return None

    def _is_lost(self) -> bool:
        """Return whether the generation is lost, which may happen during any wait."""
        return self._membership.is_lost

    async def _attempt(self, connection: BrokerConnection) -> Joined | Reaction:
        config, sent = self._config, self._membership.generation
        request = self._join_request(sent)
        timeout_s = config.max_poll_interval_ms / 1000 + JOIN_SLACK_S
        response = await self._connection.hold(connection, request, timeout_s)
        if self._membership.state is not MemberState.PREPARING:
            return Reaction.REJOIN  # the member's generation ended during the request
        code = ErrorCode.of(response.error_code)
        if code is not ErrorCode.NONE:
            return self._failed(ApiKey.JOIN_GROUP, code, sent, response)
        generation = Generation(response.generation_id, response.member_id)
        if generation.generation_id == NO_GENERATION:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"group {config.group_id}: joined without a generation")
        self._membership.complete(generation)
        return await self._sync(connection, response, generation)

    async def _sync(
        self, connection: BrokerConnection, response: JoinGroupResponse, generation: Generation
    ) -> Joined | Reaction:
        config = self._config
        assignments: list[SyncAssignment] = []
        is_leader = response.leader == response.member_id
        self.watched = None
        if is_leader:
            assignments = await self._lead(response)
        sync = SyncGroupRequest(
            group_id=config.group_id or "",
            generation_id=generation.generation_id,
            member_id=generation.member_id,
            group_instance_id=config.group_instance_id,
            protocol_type=CONSUMER_PROTOCOL,
            protocol_name=response.protocol_name,
            assignments=assignments,
        )
        # Unlike JoinGroup, SyncGroup waits only for the leader's assignment, so request_timeout_ms is enough, as in
        # Kafka. A coordinator whose machine lost its power never closes the connection, and no heartbeat detects the
        # loss.
        answer = await connection.send(sync)
        if self._membership.state is not MemberState.COMPLETING:
            return Reaction.REJOIN
        code = ErrorCode.of(answer.error_code)
        if code is not ErrorCode.NONE:
            return self._failed(ApiKey.SYNC_GROUP, code, generation)
        try:
            assigned = tuple(check_partition(partition) for partition in decode_assignment(answer.assignment))
        except (MalformedMessage, InvalidTopic, ValueError) as error:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"group {config.group_id}: the assignment cannot be read: {error}"
            ) from error
        self._membership.settle()
        logger.info(
            "group %s: generation %d, %s: %s%s",
            *(config.group_id, generation.generation_id, response.protocol_name),
            *(", ".join(map(str, assigned)) or "nothing", ", as leader" if is_leader else ""),
        )
        return Joined(generation, assigned)

    def _failed(
        self, api_key: ApiKey, code: ErrorCode, sent: Generation, response: JoinGroupResponse | None = None
    ) -> Reaction:
        reaction = self._membership.react(api_key, code, sent)
        logger.info("group %s: %s answered with %s", self._config.group_id, api_key.message_name, code.name)
        if reaction is Reaction.TAKE_MEMBER_ID and response is not None:
            self._membership.take_member_id(response.member_id)
        elif reaction is Reaction.FIND_COORDINATOR:
            self._connection.lost(code.name)
        elif reaction in (Reaction.FAIL, Reaction.FENCE):
            raise error_for(code)
        return reaction

    def _join_request(self, sent: Generation) -> JoinGroupRequest:
        config, having = self._config, self._having()
        return JoinGroupRequest(
            group_id=config.group_id or "",
            session_timeout_ms=config.session_timeout_ms,
            rebalance_timeout_ms=config.max_poll_interval_ms,
            member_id=sent.member_id,
            group_instance_id=config.group_instance_id,
            protocol_type=CONSUMER_PROTOCOL,
            protocols=[
                JoinGroupRequest.JoinGroupRequestProtocol(
                    name=assignor.name,
                    metadata=Subscription(
                        topics=having.topics,
                        owned=having.owned,
                        generation_id=having.generation_id,
                        rack=config.client_rack or None,
                        user_data=assignor.user_data(having.assigned, having.generation_id),
                    ).encode(),
                )
                for assignor in self._assignors.values()
            ],
        )

    async def _lead(self, response: JoinGroupResponse) -> list[SyncAssignment]:
        """Return the assignments of all members; empty if the coordinator keeps the previous assignments (KIP-814)."""
        members = [
            Member(told.member_id, self._subscription(told.member_id, told.metadata), told.group_instance_id)
            for told in response.members
        ]
        # Skip invalid topic names, because one member's invalid subscription must not stop the other members.
        wanted = sorted({name for member in members for name in member.subscription.topics if is_topic_name(name)})
        with self._metadata.waiting_for(wanted):
            if any(topic not in self._metadata.cluster.topics for topic in wanted):
                await self._metadata.refresh()
        topics = topics_of(self._metadata.cluster, wanted)
        self.watched = {topic: len(topics.get(topic, ())) for topic in wanted}
        if response.skip_assignment:
            return []
        assignor = self._assignors.get(response.protocol_name or "")
        if assignor is None:
            raise error_for(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"{response.protocol_name!r} is not among this consumer's strategies",
            )
        return [
            SyncAssignment(member_id=member_id, assignment=encode_assignment(partitions))
            for member_id, partitions in assignor.assign(topics, members).items()
        ]

    def _subscription(self, member_id: str, metadata: bytes) -> Subscription:
        """Return the subscription of a member; a member with an unreadable subscription gets nothing, and the others
        are unaffected.
        """
        try:
            return Subscription.decode(metadata)
        except MalformedMessage as error:
            logger.warning("group %s: member %s: %s", self._config.group_id, member_id, error)
            return Subscription()

    def sees_change(self, cluster: Cluster) -> bool:
        """Return whether the group's topics have changed since this member computed the assignment."""
        if self.watched is None:
            return False
        topics = topics_of(cluster, self.watched)
        return any(len(topics.get(topic, ())) != count for topic, count in self.watched.items())


def topics_of(cluster: Cluster, names: Iterable[str]) -> Topics:
    """Return the existing topics with the racks of their replicas, in the form that assignors need."""
    topics: dict[str, list[frozenset[str]]] = {}
    for name in names:
        known = cluster.topics.get(name)
        if known is None or not known.partitions:
            continue
        racks = {node_id: broker.rack for node_id, broker in cluster.brokers.items()}
        topics[name] = [
            frozenset(rack for node_id in partition.replicas if (rack := racks.get(node_id)) is not None)
            for _, partition in sorted(known.partitions.items())
        ]
    return topics

"""Code that ShareFetch and ShareAcknowledge share: the sender, the share session, and acknowledgements by partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from oncelog_broker.coordinator.group.share.heartbeat import check_member_id
from oncelog_broker.coordinator.share.share_key import ShareKey
from oncelog_broker.metadata.membership import feature_levels
from oncelog_broker.runtime.answers import Answer, all_of, then
from oncelog_broker.runtime.steps import Steps
from oncelog_broker.security.authorizer.rules import Rule
from oncelog_broker.server.request.context import level_in_force
from oncelog_broker.server.shares.services import ShareContext
from oncelog_broker.sharing.acknowledgement import AckBatch, check_count
from oncelog_broker.sharing.share_sessions import SharedTopicPartition, ShareSession
from oncelog_protocol.errors import ErrorCode, KafkaError


class AskedPartition(Protocol):
    """A partition of a ShareFetch or ShareAcknowledge request."""

    partition_index: int
    acknowledgement_batches: Sequence[Any]


class ShareRules(NamedTuple):
    """The authorization rules of ShareFetch or ShareAcknowledge."""

    group: Rule
    topic: Rule


class Asker(NamedTuple):
    """The group and the member that sends the request."""

    group_id: str
    member_id: str


def check_asker(group_id: str | None, member_id: str | None, rules: ShareRules, context: ShareContext) -> Asker:
    """Return the sender; raises KafkaError UNSUPPORTED_VERSION, INVALID_REQUEST or GROUP_AUTHORIZATION_FAILED."""
    if level_in_force(context) < feature_levels.SHARE_GROUPS:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "a broker of the cluster does not support share groups yet")
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "GroupId can't be empty.")
    check_member_id(member_id)
    context.require(rules.group, group_id)
    return Asker(group_id, member_id or "")


def end_with_connection(context: ShareContext) -> None:
    """Close the share sessions of this connection when it ends."""
    connection, share_partitions = context.connection, context.services.share_partitions
    connection.at_end["share sessions"] = lambda: share_partitions.lose_connection(connection)


def find_session(asker: Asker, epoch: int, context: ShareContext) -> ShareSession:
    """Return the share session of a request that does not open one. Raises KafkaError SHARE_SESSION_NOT_FOUND or
    INVALID_SHARE_SESSION_EPOCH.
    """
    session = context.services.share_partitions.sessions.next(*asker, epoch, context.connection)
    end_with_connection(context)
    return session


def close_session(session: ShareSession, context: ShareContext) -> None:
    """Close the share session and release the member's acquired records."""
    context.services.share_partitions.sessions.close(session)
    context.services.share_partitions.release(session)


Outcomes = Mapping[SharedTopicPartition, KafkaError | None]


def acknowledge(
    topics: Iterable[Any], asker: Asker, rules: ShareRules, context: ShareContext, *, renews: bool
) -> Answer[Outcomes]:
    """Apply the acknowledgements in the topics of a request. Returns an answer that completes when all changes are
    stored: the outcome for each partition with acknowledgements.
    """
    begun: Answer[dict[SharedTopicPartition, Answer[KafkaError | None]]] = context.services.slices.run(
        _acknowledge_each(topics, asker, rules, context, renews=renews), must_finish=True
    )
    return then(begun, _when_kept)


def _when_kept(answers: dict[SharedTopicPartition, Answer[KafkaError | None]]) -> Answer[Outcomes]:
    partitions = list(answers)
    return then(all_of(list(answers.values())), lambda errors: dict(zip(partitions, errors, strict=True)))


def _acknowledge_each(
    topics: Iterable[Any], asker: Asker, rules: ShareRules, context: ShareContext, *, renews: bool
) -> Steps[dict[SharedTopicPartition, Answer[KafkaError | None]]]:
    answers: dict[SharedTopicPartition, Answer[KafkaError | None]] = {}
    for topic in topics:
        for partition in topic.partitions:
            if partition.acknowledgement_batches:
                where = SharedTopicPartition(topic.topic_id, partition.partition_index)
                answers[where] = _acknowledge(
                    where, partition.acknowledgement_batches, asker, rules, context, renews=renews
                )
                yield None
    return answers


def _acknowledge(
    where: SharedTopicPartition,
    asked: Sequence[Any],
    asker: Asker,
    rules: ShareRules,
    context: ShareContext,
    *,
    renews: bool,
) -> Answer[KafkaError | None]:
    try:
        check_count(asked)
        check_may_read(where.topic_id, rules, context)
        context.services.replicas.leader_by_id(*where)
    except KafkaError as error:
        return error.as_value()
    hosted = context.services.share_partitions.loaded(ShareKey(asker.group_id, *where))
    if hosted is None:
        return KafkaError(ErrorCode.INVALID_RECORD_STATE, "the records were acquired from another leader")
    batches = [AckBatch(batch.first_offset, batch.last_offset, batch.acknowledge_types) for batch in asked]
    return hosted.acknowledge(asker.member_id, batches, renews=renews)


def check_may_read(topic_id: bytes, rules: ShareRules, context: ShareContext) -> None:
    """Raises KafkaError TOPIC_AUTHORIZATION_FAILED if the sender may not read the topic, unless the topic id is
    unknown.
    """
    topic = context.services.image.topic_by_id(topic_id)
    if topic is not None:
        context.require(rules.topic, topic.name)


def by_topic(partitions: Iterable[tuple[SharedTopicPartition, Any]]) -> dict[bytes, list[Any]]:
    """Group the values of partitions by topic id, in the order in which the topics first appear."""
    topics: dict[bytes, list[Any]] = {}
    for where, thing in partitions:
        topics.setdefault(where.topic_id, []).append(thing)
    return topics

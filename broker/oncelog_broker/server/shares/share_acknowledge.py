"""ShareAcknowledge (79), v1-2: acknowledge records that a ShareFetch has acquired (KIP-932).

Behaviour: for each partition, either all batches of the request are acknowledged, or none. The response is sent when
the share coordinators have stored the change. A session epoch of -1 closes the session afterwards, and releases the
records that the member still has. Versions: v2 can renew acquisition locks (KIP-1222).
"""

from __future__ import annotations

from typing import Final

from oncelog_broker.runtime.answers import Answer, then
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.request.leader_hints import LeaderHints
from oncelog_broker.server.shares.acknowledgements import (
    Asker,
    Outcomes,
    ShareRules,
    acknowledge,
    by_topic,
    check_asker,
    close_session,
    find_session,
)
from oncelog_broker.server.shares.services import ShareContext
from oncelog_broker.sharing.share_sessions import SharedTopicPartition
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from oncelog_protocol.messages.share_fetch import CLOSE_SESSION, OPEN_SESSION

Topic = ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse
Partition = Topic.PartitionData

RULES: Final = ShareRules(rules.SHARE_ACKNOWLEDGE_GROUP, rules.SHARE_ACKNOWLEDGE)


def handle(request: ShareAcknowledgeRequest, context: ShareContext) -> Answer[ShareAcknowledgeResponse]:
    epoch = request.share_session_epoch
    try:
        asker = check_asker(request.group_id, request.member_id, RULES, context)
        if epoch == OPEN_SESSION:
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH, "a share session must be opened with ShareFetch")
        session = find_session(asker, epoch, context)
    except KafkaError as error:
        return ShareAcknowledgeResponse(error_code=error.code, error_message=error.message, responses=[])
    outcomes = acknowledge(request.topics, asker, RULES, context, renews=request.is_renew_ack)

    def answer(outcomes: Outcomes) -> ShareAcknowledgeResponse:
        if epoch == CLOSE_SESSION:
            close_session(session, context)
        return _response(outcomes, asker, context)

    return then(outcomes, answer)


def _response(outcomes: Outcomes, asker: Asker, context: ShareContext) -> ShareAcknowledgeResponse:
    hints = LeaderHints(context)
    partitions = [(where, _partition(where, error, hints)) for where, error in outcomes.items()]
    lock_seconds = context.services.share_partitions.settings_of(asker.group_id).lock_seconds
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=int(lock_seconds * 1000),
        responses=[Topic(topic_id=topic_id, partitions=found) for topic_id, found in by_topic(partitions).items()],
        node_endpoints=[ShareAcknowledgeResponse.NodeEndpoint(**endpoint._asdict()) for endpoint in hints.endpoints()],
    )


def _partition(where: SharedTopicPartition, error: KafkaError | None, hints: LeaderHints) -> Partition:
    answer = Partition(partition_index=where.partition, current_leader=Partition.LeaderIdAndEpoch())
    if error is not None:
        answer.error_code, answer.error_message = error.code, error.message
        if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            hint = hints.of("", where.topic_id, where.partition, by_id=True)
            if hint is not None:
                answer.current_leader = Partition.LeaderIdAndEpoch(**hint._asdict())
    return answer

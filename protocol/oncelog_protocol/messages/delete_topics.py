"""DeleteTopics (20): delete topics. Served by the controller."""

from __future__ import annotations

from oncelog_protocol.schema import ZERO_UUID, Request, array, int16, int32, message, string, struct, uuid


@message(api_key=20, versions="1-6", flexible="4+")
class DeleteTopicsRequest(Request["DeleteTopicsResponse"]):
    """Delete topics by name, from v6 also by id.

    v4: flexible.
    v5: the client understands THROTTLING_QUOTA_EXCEEDED (KIP-599).
    v6: `topics` replaces `topic_names` (KIP-516).
    """

    topics: list[DeleteTopicState] = array("6+", default_factory=list)
    topic_names: list[str] = array("0-5", of=string(), default_factory=list)
    timeout_ms: int = int32()

    @struct
    class DeleteTopicState:
        """Name or id: exactly one of them."""

        name: str | None = string("6+", nullable="6+", default=None)
        topic_id: bytes = uuid("6+")


@message(api_key=20, versions="1-6", flexible="4+")
class DeleteTopicsResponse:
    """One result per topic.

    v1: throttle_time_ms.
    v2: on a quota violation the answer comes first, the throttling after.
    v3: TOPIC_DELETION_DISABLED possible, INVALID_REQUEST before.
    v4: flexible.
    v5: error_message; THROTTLING_QUOTA_EXCEEDED possible (KIP-599).
    v6: topic_id; name is None where the id is not known, or not to be seen by the caller.

    Errors of a topic: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, TOPIC_DELETION_DISABLED, NOT_CONTROLLER,
    REQUEST_TIMED_OUT, TOPIC_AUTHORIZATION_FAILED, INVALID_REQUEST, THROTTLING_QUOTA_EXCEEDED.
    """

    throttle_time_ms: int = int32("1+", default=0)
    responses: list[DeletableTopicResult] = array()

    @struct
    class DeletableTopicResult:
        name: str | None = string(nullable="6+")
        topic_id: bytes = uuid("6+", default=ZERO_UUID)
        error_code: int = int16()
        error_message: str | None = string("5+", nullable="5+", default=None)

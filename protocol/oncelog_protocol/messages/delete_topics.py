"""DeleteTopics (20): deletes topics. The controller serves this request."""

from __future__ import annotations

from oncelog_protocol.schema import ZERO_UUID, Request, array, int16, int32, message, string, struct, uuid


@message(api_key=20, versions="1-6", flexible="4+")
class DeleteTopicsRequest(Request["DeleteTopicsResponse"]):
    """Delete topics by name; from v6 on also by id.

    v4: flexible.
    v5: the client understands THROTTLING_QUOTA_EXCEEDED (KIP-599).
    v6: `topics` replaces `topic_names` (KIP-516).
    """

    topics: list[DeleteTopicState] = array("6+", default_factory=list)
    topic_names: list[str] = array("0-5", of=string(), default_factory=list)
    timeout_ms: int = int32()

    @struct
    class DeleteTopicState:
        """A topic, given either by name or by id."""

        name: str | None = string("6+", nullable="6+", default=None)
        topic_id: bytes = uuid("6+")


@message(api_key=20, versions="1-6", flexible="4+")
class DeleteTopicsResponse:
    """The response has one result per topic.

    v1: throttle_time_ms.
    v2: on a quota violation, the broker responds before it throttles the client.
    v3: TOPIC_DELETION_DISABLED replaces INVALID_REQUEST.
    v4: flexible.
    v5: error_message; THROTTLING_QUOTA_EXCEEDED is possible (KIP-599).
    v6: topic_id; name is None if the id is unknown or the caller may not see the topic.

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

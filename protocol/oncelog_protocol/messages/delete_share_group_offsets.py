"""DeleteShareGroupOffsets (92): deletes the state that a share group has for topics; the group must have no members
(KIP-932).
"""

from __future__ import annotations

from oncelog_protocol.schema import Request, array, int16, int32, message, string, struct, uuid


@message(api_key=92, versions="0", flexible="0+")
class DeleteShareGroupOffsetsRequest(Request["DeleteShareGroupOffsetsResponse"]):
    """Delete the state of all partitions of these topics."""

    group_id: str = string()
    topics: list[DeleteShareGroupOffsetsRequestTopic] = array()

    @struct
    class DeleteShareGroupOffsetsRequestTopic:
        topic_name: str = string()


@message(api_key=92, versions="0", flexible="0+")
class DeleteShareGroupOffsetsResponse:
    """The error or success for the entire group, and for each topic.

    Errors: GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED, NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE,
    COORDINATOR_LOAD_IN_PROGRESS, GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST.
    """

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    error_message: str | None = string(nullable="0+", default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic] = array()

    @struct
    class DeleteShareGroupOffsetsResponseTopic:
        topic_name: str = string()
        topic_id: bytes = uuid()
        error_code: int = int16(default=0)
        error_message: str | None = string(nullable="0+", default=None)

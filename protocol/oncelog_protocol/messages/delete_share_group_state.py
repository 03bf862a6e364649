"""DeleteShareGroupState (86): a group coordinator requests the deletion of the state of share partitions (KIP-932)."""

from __future__ import annotations

from oncelog_protocol.schema import Request, array, int16, int32, message, string, struct, uuid


@message(api_key=86, versions="0", flexible="0+")
class DeleteShareGroupStateRequest(Request["DeleteShareGroupStateResponse"]):
    """Delete the state of share partitions."""

    group_id: str = string()
    topics: list[DeleteStateData] = array()

    @struct
    class DeleteStateData:
        topic_id: bytes = uuid()
        partitions: list[PartitionData] = array()

        @struct
        class PartitionData:
            partition: int = int32()


@message(api_key=86, versions="0", flexible="0+")
class DeleteShareGroupStateResponse:
    """The error code for each share partition; the code is NONE also if the share partition had no state.

    Errors: NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, INVALID_REQUEST.
    """

    results: list[DeleteStateResult] = array()

    @struct
    class DeleteStateResult:
        topic_id: bytes = uuid()
        partitions: list[PartitionResult] = array()

        @struct
        class PartitionResult:
            partition: int = int32()
            error_code: int = int16(default=0)
            error_message: str | None = string(nullable="0+", default=None)

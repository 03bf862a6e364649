"""InitializeShareGroupState (83): a group coordinator initialises the state of share partitions (KIP-932)."""

from __future__ import annotations

from oncelog_protocol.schema import Request, array, int16, int32, int64, message, string, struct, uuid


@message(api_key=83, versions="0", flexible="0+")
class InitializeShareGroupStateRequest(Request["InitializeShareGroupStateResponse"]):
    """Initialise or reset the state of share partitions, with a new state epoch. A start offset of -1 means that the
    group's share.auto.offset.reset decides when the partition's leader first uses the state.
    """

    group_id: str = string()
    topics: list[InitializeStateData] = array()

    @struct
    class InitializeStateData:
        topic_id: bytes = uuid()
        partitions: list[PartitionData] = array()

        @struct
        class PartitionData:
            partition: int = int32()
            state_epoch: int = int32()
            start_offset: int = int64()


@message(api_key=83, versions="0", flexible="0+")
class InitializeShareGroupStateResponse:
    """The error or success for each share partition.

    Errors: NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, FENCED_STATE_EPOCH,
    INVALID_REQUEST.
    """

    results: list[InitializeStateResult] = array()

    @struct
    class InitializeStateResult:
        topic_id: bytes = uuid()
        partitions: list[PartitionResult] = array()

        @struct
        class PartitionResult:
            partition: int = int32()
            error_code: int = int16(default=0)
            error_message: str | None = string(nullable="0+", default=None)

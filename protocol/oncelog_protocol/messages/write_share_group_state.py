"""WriteShareGroupState (85): the leader of a partition writes changes to the state of a share partition (KIP-932)."""

from __future__ import annotations

from oncelog_protocol.schema import Request, array, int8, int16, int32, int64, message, string, struct, uuid


@message(api_key=85, versions="0-1", flexible="0+")
class WriteShareGroupStateRequest(Request["WriteShareGroupStateResponse"]):
    """Write the start offset, and the batches of records whose state has changed.

    v1: delivery_complete_count (KIP-1226).
    """

    group_id: str = string()
    topics: list[WriteStateData] = array()

    @struct
    class WriteStateData:
        topic_id: bytes = uuid()
        partitions: list[PartitionData] = array()

        @struct
        class PartitionData:
            partition: int = int32()
            state_epoch: int = int32()
            leader_epoch: int = int32()
            start_offset: int = int64()  # the new start offset; -1 means that it is unchanged
            delivery_complete_count: int = int32("1+", default=-1)
            state_batches: list[StateBatch] = array()

            @struct
            class StateBatch:
                first_offset: int = int64()
                last_offset: int = int64()
                delivery_state: int = int8()  # state of the batch's records: 0 available, 2 acknowledged, 4 archived
                delivery_count: int = int16()


@message(api_key=85, versions="0-1", flexible="0+")
class WriteShareGroupStateResponse:
    """The error or success of the write for each share partition.

    Errors: NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, GROUP_ID_NOT_FOUND,
    UNKNOWN_TOPIC_OR_PARTITION, FENCED_STATE_EPOCH, FENCED_LEADER_EPOCH, INVALID_REQUEST (also if the state was not
    initialised).
    """

    results: list[WriteStateResult] = array()

    @struct
    class WriteStateResult:
        topic_id: bytes = uuid()
        partitions: list[PartitionResult] = array()

        @struct
        class PartitionResult:
            partition: int = int32()
            error_code: int = int16(default=0)
            error_message: str | None = string(nullable="0+", default=None)

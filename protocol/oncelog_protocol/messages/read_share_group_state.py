"""ReadShareGroupState (84): the leader of a partition loads the state of a share partition (KIP-932)."""

from __future__ import annotations

from oncelog_protocol.schema import Request, array, int8, int16, int32, int64, message, string, struct, uuid


@message(api_key=84, versions="0", flexible="0+")
class ReadShareGroupStateRequest(Request["ReadShareGroupStateResponse"]):
    """Read the state of share partitions. The coordinator stores the sender's leader epoch if it is newer, and then
    refuses writes of older leaders.
    """

    group_id: str = string()
    topics: list[ReadStateData] = array()

    @struct
    class ReadStateData:
        topic_id: bytes = uuid()
        partitions: list[PartitionData] = array()

        @struct
        class PartitionData:
            partition: int = int32()
            leader_epoch: int = int32()


@message(api_key=84, versions="0", flexible="0+")
class ReadShareGroupStateResponse:
    """The stored state of each share partition.

    Errors: NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, GROUP_ID_NOT_FOUND,
    UNKNOWN_TOPIC_OR_PARTITION, FENCED_LEADER_EPOCH, INVALID_REQUEST (also if the state was not initialised).
    """

    results: list[ReadStateResult] = array()

    @struct
    class ReadStateResult:
        topic_id: bytes = uuid()
        partitions: list[PartitionResult] = array()

        @struct
        class PartitionResult:
            partition: int = int32()
            error_code: int = int16(default=0)
            error_message: str | None = string(nullable="0+", default=None)
            state_epoch: int = int32(default=0)
            start_offset: int = int64(default=0)  # offset below which all records are done; -1 if not set yet
            state_batches: list[StateBatch] = array(default_factory=list)

            @struct
            class StateBatch:
                first_offset: int = int64()
                last_offset: int = int64()
                delivery_state: int = int8()  # state of the batch's records: 0 available, 2 acknowledged, 4 archived
                delivery_count: int = int16()

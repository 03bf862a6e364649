"""ReadShareGroupStateSummary (87): reads the progress of share partitions, without the states of records (KIP-932)."""

from __future__ import annotations

from oncelog_protocol.schema import Request, array, int16, int32, int64, message, string, struct, uuid


@message(api_key=87, versions="0-1", flexible="0+")
class ReadShareGroupStateSummaryRequest(Request["ReadShareGroupStateSummaryResponse"]):
    """Read the start offsets of share partitions. The request has the same fields in v0 and v1."""

    group_id: str = string()
    topics: list[ReadStateSummaryData] = array()

    @struct
    class ReadStateSummaryData:
        topic_id: bytes = uuid()
        partitions: list[PartitionData] = array()

        @struct
        class PartitionData:
            partition: int = int32()
            leader_epoch: int = int32()  # leader epoch of the sender; -1 disables the check


@message(api_key=87, versions="0-1", flexible="0+")
class ReadShareGroupStateSummaryResponse:
    """The summary of each share partition.

    v1: delivery_complete_count (KIP-1226).

    Errors: NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, GROUP_ID_NOT_FOUND,
    UNKNOWN_TOPIC_OR_PARTITION, FENCED_LEADER_EPOCH, INVALID_REQUEST.
    """

    results: list[ReadStateSummaryResult] = array()

    @struct
    class ReadStateSummaryResult:
        topic_id: bytes = uuid()
        partitions: list[PartitionResult] = array()

        @struct
        class PartitionResult:
            partition: int = int32()
            error_code: int = int16(default=0)
            error_message: str | None = string(nullable="0+", default=None)
            state_epoch: int = int32(default=0)
            leader_epoch: int = int32(default=0)
            # all records below this offset are acknowledged or archived; -1 if not set or no state
            start_offset: int = int64(default=0)
            # number of records from the start offset on that are acknowledged or archived; -1: unknown
            delivery_complete_count: int = int32("1+", default=-1)

"""OffsetFetch (9): returns the committed offsets of groups."""

from __future__ import annotations

from oncelog_protocol.schema import (
    ZERO_UUID,
    Request,
    array,
    boolean,
    int16,
    int32,
    int64,
    message,
    string,
    struct,
    uuid,
)


@message(api_key=9, versions="1-10", flexible="6+")
class OffsetFetchRequest(Request["OffsetFetchResponse"]):
    """Fetch committed offsets of one group; from v8 on, of several groups.

    v2: topics may be None, for all topics.
    v6: flexible.
    v7: require_stable: if an open transaction has a pending offset, the response has an error instead of the older
    offset (KIP-447, S37).
    v8: groups replace group_id and topics (KIP-709).
    v9: member_id and member_epoch (KIP-848).
    v10: topic ids replace names (KIP-848).
    """

    group_id: str = string("0-7", default="")
    topics: list[OffsetFetchRequestTopic] | None = array("0-7", nullable="2-7", default_factory=list)  # None: all
    groups: list[OffsetFetchRequestGroup] = array("8+", default_factory=list)
    require_stable: bool = boolean("7+", default=False)

    @struct
    class OffsetFetchRequestTopic:
        name: str = string("0-7")
        partition_indexes: list[int] = array("0-7", of=int32())

    @struct
    class OffsetFetchRequestGroup:
        group_id: str = string("8+")
        member_id: str | None = string("9+", nullable="9+", default=None)
        member_epoch: int = int32("9+", default=-1)  # epoch of the member; -1 disables the check
        topics: list[OffsetFetchRequestTopics] | None = array("8+", nullable="8+")  # None: all

        @struct
        class OffsetFetchRequestTopics:
            name: str = string("8-9", default="")
            topic_id: bytes = uuid("10+", default=ZERO_UUID)
            partition_indexes: list[int] = array("8+", of=int32())


@message(api_key=9, versions="1-10", flexible="6+")
class OffsetFetchResponse:
    """The committed offset of each partition; -1 means that the group has not committed an offset, which is not an
    error.

    v2: an error of the entire group.
    v3: throttle_time_ms.
    v4: on a quota violation, the broker responds before it throttles the client.
    v5: committed_leader_epoch (KIP-320).
    v6: flexible.
    v7: UNSTABLE_OFFSET_COMMIT is possible (KIP-447).
    v8: groups replace topics (KIP-709).
    v9: STALE_MEMBER_EPOCH and UNKNOWN_MEMBER_ID are possible (KIP-848).
    v10: topic ids replace names; UNKNOWN_TOPIC_ID is possible.

    Errors: COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, GROUP_ID_NOT_FOUND,
    UNSTABLE_OFFSET_COMMIT, UNKNOWN_TOPIC_OR_PARTITION, GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED.
    """

    throttle_time_ms: int = int32("3+", default=0)
    topics: list[OffsetFetchResponseTopic] = array("0-7", default_factory=list)
    error_code: int = int16("2-7", default=0)
    groups: list[OffsetFetchResponseGroup] = array("8+", default_factory=list)

    @struct
    class OffsetFetchResponseTopic:
        name: str = string("0-7")
        partitions: list[OffsetFetchResponsePartition] = array("0-7")

        @struct
        class OffsetFetchResponsePartition:
            partition_index: int = int32("0-7")
            committed_offset: int = int64("0-7")
            committed_leader_epoch: int = int32("5-7", default=-1)
            metadata: str | None = string("0-7", nullable="0-7")
            error_code: int = int16("0-7")

    @struct
    class OffsetFetchResponseGroup:
        group_id: str = string("8+")
        topics: list[OffsetFetchResponseTopics] = array("8+")
        error_code: int = int16("8+", default=0)

        @struct
        class OffsetFetchResponseTopics:
            name: str = string("8-9", default="")
            topic_id: bytes = uuid("10+", default=ZERO_UUID)
            partitions: list[OffsetFetchResponsePartitions] = array("8+")

            @struct
            class OffsetFetchResponsePartitions:
                partition_index: int = int32("8+")
                committed_offset: int = int64("8+")
                committed_leader_epoch: int = int32("8+", default=-1)
                metadata: str | None = string("8+", nullable="8+")
                error_code: int = int16("8+")

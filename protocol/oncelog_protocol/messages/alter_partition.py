"""AlterPartition (56): a leader requests a new ISR from the controller (KIP-497). Only brokers send this request."""

from __future__ import annotations

from oncelog_protocol.schema import (
    OWN_TAGS,
    ZERO_UUID,
    Request,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    message,
    string,
    struct,
    uuid,
)


@message(api_key=56, versions="0-3", flexible="0+")
class AlterPartitionRequest(Request["AlterPartitionResponse"]):
    """The leader's proposed ISR for each partition, with the partition's leader epoch and partition epoch as the leader
    knows them.

    v1: recovery after an unclean election (KIP-704).
    v2: topics by id (KIP-841).
    v3: the broker epoch of each replica, as its fetches reported it (KIP-903).
    """

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    topics: list[TopicData] = array()

    @struct
    class TopicData:
        topic_name: str = string("0-1", default="")
        topic_id: bytes = uuid("2+", default=ZERO_UUID)
        partitions: list[PartitionData] = array()

        @struct
        class PartitionData:
            partition_index: int = int32()
            leader_epoch: int = int32()
            new_isr: list[int] = array("0-2", of=int32(), default_factory=list)
            new_isr_with_epochs: list[BrokerState] = array("3+", default_factory=list)
            # 1 means that the leader is recovering from an unclean election
            leader_recovery_state: int = int8("1+", default=0)
            partition_epoch: int = int32()  # version of the partition state (ISR, leader) that the proposal changes
            # oncelog's own field: the leader is the only in-sync replica and its log is lost or unreadable: elect no
            # leader
            is_log_offline: bool = boolean("2+", default=False, tag=OWN_TAGS)
            # oncelog's own field: the request proposes no ISR. Instead the sender requests a leader epoch above this
            # epoch, which is the last epoch of the sender's log. For a controller that does not know this field, the
            # ISR in the request is unchanged
            log_epoch: int = int32("2+", default=-1, tag=OWN_TAGS + 1)

            @struct
            class BrokerState:
                broker_id: int = int32("3+")
                # broker epoch of the replica; -1 means that it is unknown and not compared
                broker_epoch: int = int64("3+", default=-1)


@message(api_key=56, versions="0-3", flexible="0+")
class AlterPartitionResponse:
    """The new state of each partition, or the error that prevented the change.

    Top-level errors: NOT_CONTROLLER, STALE_BROKER_EPOCH, CLUSTER_AUTHORIZATION_FAILED, and REQUEST_TIMED_OUT, after
    which the changes made so far are unknown. Errors of a partition: UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION,
    FENCED_LEADER_EPOCH, INVALID_UPDATE_VERSION, INVALID_REQUEST, INELIGIBLE_REPLICA, NEW_LEADER_ELECTED (the change is
    made, and another broker leads now), NOT_CONTROLLER (the epochs in the request are newer than those of this
    controller).
    """

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    topics: list[TopicData] = array()

    @struct
    class TopicData:
        topic_name: str = string("0-1", default="")
        topic_id: bytes = uuid("2+", default=ZERO_UUID)
        partitions: list[PartitionData] = array()

        @struct
        class PartitionData:
            partition_index: int = int32()
            error_code: int = int16()
            leader_id: int = int32()
            leader_epoch: int = int32()
            isr: list[int] = array(of=int32())
            leader_recovery_state: int = int8("1+", default=0)
            partition_epoch: int = int32()

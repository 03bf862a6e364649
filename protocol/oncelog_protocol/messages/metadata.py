"""Metadata (3): describes brokers, topics, partitions and their leaders."""

from __future__ import annotations

from oncelog_protocol.authorized_operations import AUTHORIZED_OPERATIONS_OMITTED
from oncelog_protocol.schema import ZERO_UUID, Request, array, boolean, int16, int32, message, string, struct, uuid


@message(api_key=3, versions="0-13", flexible="9+")
class MetadataRequest(Request["MetadataResponse"]):
    """Describe some topics, or all topics.

    v0: an empty list means all topics; from v1 on, None means all and an empty list none (T10).
    v4: allow_auto_topic_creation (before v4, the broker creates topics whenever its configuration allows).
    v8: the request can ask for the operations that the caller may perform (KIP-430).
    v9: flexible.
    v10: the topic_id field; but v10 and v11 must not request topics by id or with a null name (T9).
    v11: the cluster's operations moved to DescribeCluster (KIP-700).
    v12: topics may be requested by id, with name None (KIP-516).
    v13: the client understands an error of the entire response (KIP-1102).
    """

    topics: list[MetadataRequestTopic] | None = array(nullable="1+")
    allow_auto_topic_creation: bool = boolean("4+", default=True)
    include_cluster_authorized_operations: bool = boolean("8-10", default=False)
    include_topic_authorized_operations: bool = boolean("8+", default=False)

    @struct
    class MetadataRequestTopic:
        topic_id: bytes = uuid("10+", default=ZERO_UUID)
        name: str | None = string(nullable="10+")


@message(api_key=3, versions="0-13", flexible="9+")
class MetadataResponse:
    """The brokers, topics, partitions and leaders that the responding broker knows.

    v1: rack, controller_id, is_internal.
    v2: cluster_id.
    v3: throttle_time_ms.
    v5: offline_replicas (KIP-112).
    v6: on a quota violation, the broker responds before it throttles the client.
    v7: leader_epoch (KIP-320).
    v8: authorized operations (KIP-430).
    v9: flexible.
    v10: topic_id.
    v11: cluster_authorized_operations is removed.
    v12: name is None if a topic requested by id is unknown.
    v13: error_code: REBOOTSTRAP_REQUIRED makes the client restart from its bootstrap servers (KIP-1102).

    Errors of a topic: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, INVALID_TOPIC_EXCEPTION,
    TOPIC_AUTHORIZATION_FAILED, LEADER_NOT_AVAILABLE (the topic was just created). Errors of a partition:
    LEADER_NOT_AVAILABLE, LISTENER_NOT_FOUND.
    """

    throttle_time_ms: int = int32("3+", default=0)
    brokers: list[MetadataResponseBroker] = array()
    cluster_id: str | None = string("2+", nullable="2+", default=None)
    controller_id: int = int32("1+", default=-1)  # node id of the controller; -1 if no controller is known
    topics: list[MetadataResponseTopic] = array()
    cluster_authorized_operations: int = int32("8-10", default=AUTHORIZED_OPERATIONS_OMITTED)
    error_code: int = int16("13+", default=0)

    @struct
    class MetadataResponseBroker:
        node_id: int = int32()
        host: str = string()
        port: int = int32()
        rack: str | None = string("1+", nullable="1+", default=None)

    @struct
    class MetadataResponseTopic:
        error_code: int = int16()
        name: str | None = string(nullable="12+")
        topic_id: bytes = uuid("10+", default=ZERO_UUID)
        is_internal: bool = boolean("1+", default=False)
        partitions: list[MetadataResponsePartition] = array()
        topic_authorized_operations: int = int32("8+", default=AUTHORIZED_OPERATIONS_OMITTED)

        @struct
        class MetadataResponsePartition:
            error_code: int = int16()
            partition_index: int = int32()
            leader_id: int = int32()  # node id of the leader; -1 if the partition has no leader
            leader_epoch: int = int32("7+", default=-1)
            replica_nodes: list[int] = array(of=int32())
            isr_nodes: list[int] = array(of=int32())  # the replicas that are offline, a subset of replica_nodes
            offline_replicas: list[int] = array("5+", of=int32(), default_factory=list)

"""Defines a test case for each row of the table of authorizations: a request, in every served version, and the response
that a client without the right must get.

A request is created from its declaration: each array gets one element, and each field that names a resource gets the
name from `Names`. A case lists the values in which its request differs, and the expected response.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, NamedTuple

from oncelog_broker.security.authorizer import rules
from oncelog_broker.security.authorizer.rules import Rule
from oncelog_broker.server.served import SERVED
from oncelog_protocol.acls import AclOperation, AclPermission, PatternType, ResourceType
from oncelog_protocol.api import request_type
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.describe_configs import ResourceType as ConfigResource
from oncelog_protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.record import Record
from oncelog_protocol.schema import fields_of

BATCH = bytes(build_batch([Record(0, 0, None, b"v", [])]))
TRANSACTIONAL_BATCH = bytes(
    build_batch([Record(0, 0, None, b"v", [])], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
)
ALLOWED_GROUP = "allowed-group"
ALLOWED_TRANSACTION = "allowed-txn"
"""A transactional id, or a group, on which the sender has all rights, so that the broker continues with the next
authorization check of the request.
"""

ZERO_OF = {"boolean": False, "string": "", "bytes": b"", "records": BATCH, "uuid": bytes(16), "float64": 0.0}


class Names(NamedTuple):
    """The names of the resources in a request."""

    topic: str
    topic_id: bytes
    group: str
    transaction: str


SECRET = Names("secret", b"", "secret-group", "secret-txn")
ABSENT = Names("absent", b"absent".rjust(16), "absent-group", "absent-txn")
"""Names of resources that do not exist; a client without rights must get the same response as for existing
resources.
"""
Answer = Any
Expectation = Callable[[Answer], object]


@dataclass(frozen=True)
class Case:
    """A test case for one rule. With `is_like_absent`, a client without the right gets the same response as for a
    missing resource. `extra` maps the names of request fields to values that differ from the generated ones.
    """

    rule: Rule
    expected: Expectation
    low: int = 0
    high: int = 99
    extra: Mapping[str, Any] = field(default_factory=dict)
    is_like_absent: bool = True

    @property
    def versions(self) -> range:
        served = SERVED[self.rule.api].versions
        return range(max(served.low, self.low), min(served.high, self.high) + 1)

    @property
    def name(self) -> str:
        rule = self.rule
        return f"{rule.api.message_name}-{rule.operation.shown}-{rule.resource.shown}-{rule.when}"

    def request(self, version: int, names: Names) -> Any:
        """Return the request for these resource names. Values in `extra` that are callable are called with `names`."""
        named = {
            "name": names.topic,
            "topic": names.topic,
            "topic_name": names.topic,
            "topic_id": names.topic_id,
            "topics": [names.topic],
            "topic_names": [names.topic],
            "group_id": names.group,
            "groups_names": [names.group],
            "groups": [names.group],
            "transactional_id": names.transaction,
            "v3_and_below_transactional_id": names.transaction,
            "transactional_ids": [names.transaction],
            **{name: value(names) if callable(value) else value for name, value in self.extra.items()},
        }
        return made(request_type(self.rule.api), version, named)


def made(cls: type, version: int, named: Mapping[str, Any]) -> Any:
    """Create a request, or a part of one, of the class `cls`, with the given values by field name and default values
    for all other fields.
    """
    values = {}
    for each in fields_of(cls):
        if version not in each.versions:
            if not each.has_default:
                values[each.name] = [] if each.type_name == "array" else ZERO_OF.get(each.type_name, 0)
        elif each.type_name == "array" and each.element is not None and each.element.struct is not None:
            given = named.get(each.name, ...)
            values[each.name] = given if given is None or given == [] else [made(each.element.struct, version, named)]
        elif each.name in named:
            values[each.name] = named[each.name]
        elif each.type_name == "struct":
            if version not in each.nullable and each.struct is not None:
                values[each.name] = made(each.struct, version, named)
        elif each.type_name == "array":
            assert each.element is not None
            values[each.name] = [ZERO_OF.get(each.element.type_name, 0)]
        elif not each.has_default:
            values[each.name] = ZERO_OF.get(each.type_name, 0)
    return cls(**values)


def codes(answer: Any) -> set[ErrorCode]:
    """Return all error codes that occur anywhere in a response."""
    return {ErrorCode.of(value) for name, value in _all_fields(answer) if name.endswith("error_code")}


def _all_fields(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, list):
        for element in value:
            yield from _all_fields(element)
    elif is_dataclass(value):
        for each in fields(value):
            inner = getattr(value, each.name)
            yield each.name, inner
            yield from _all_fields(inner)


def only(*allowed: ErrorCode) -> Expectation:
    """Return a check that the response has exactly these error codes, apart from NONE; the handlers' own tests check
    the
    positions of the codes.
    """
    return lambda answer: codes(answer) - {ErrorCode.NONE} == set(allowed) or codes(answer)


def _refused(rule: Rule, **how: Any) -> Case:
    return Case(rule, only(rule.refused), **how)


def _nothing_in(where: str) -> Expectation:
    """Return a check that the response's field of this name is an empty list, and that the response has no error."""
    return lambda answer: (codes(answer) <= {ErrorCode.NONE} and getattr(answer, where) == []) or answer


ACL = {
    "resource_type_filter": ResourceType.ANY,
    "pattern_type_filter": PatternType.ANY,
    "operation": AclOperation.READ,
    "permission_type": AclPermission.ALLOW,
    "resource_type": ResourceType.TOPIC,
    "resource_name": "secret",
    "principal": "User:mallory",
    "host": "*",
}
OF_TOPIC: Mapping[str, Any] = {
    "resource_type": ConfigResource.TOPIC,
    "resource_name": lambda names: names.topic,
    "configuration_keys": [],
}
OF_GROUP: Mapping[str, Any] = {
    "resource_type": ConfigResource.GROUP,
    "resource_name": lambda names: names.group,
    "configuration_keys": [],
}
JOINING_CONSUMER: Mapping[str, Any] = {
    "member_id": "member",
    "member_epoch": 0,
    "rebalance_timeout_ms": 60_000,
    "subscribed_topic_names": lambda names: [names.topic],
    "topic_partitions": [],
}
MEMBER_UUID = "AAAAAAAAAAAAAAAAAAAAAQ"
JOINING_SHARE: Mapping[str, Any] = {
    "member_id": MEMBER_UUID,
    "member_epoch": 0,
    "rack_id": None,
    "subscribed_topic_names": lambda names: [names.topic],
}
JOINING_STREAMS: Mapping[str, Any] = {
    "member_id": MEMBER_UUID,
    "member_epoch": 0,
    "rebalance_timeout_ms": 60_000,
    "topology": lambda names: topology(names.topic),
    "process_id": "process",
    "active_tasks": [],
    "standby_tasks": [],
    "warmup_tasks": [],
}
SHARE_SESSION: Mapping[str, Any] = {
    "member_id": MEMBER_UUID,
    "share_session_epoch": 0,
    "max_records": 1,
    "batch_size": 1,
    "acknowledgement_batches": [],
    "forgotten_topics_data": [],
}
OF_BROKER = {"resource_type": ConfigResource.BROKER, "resource_name": "1", "configuration_keys": []}
IN_ALLOWED_GROUP = {"group_id": ALLOWED_GROUP, "transactional_id": ALLOWED_TRANSACTION}
BY_TOPIC_ID = {"name": None, "topic_names": []}


def _no_operations(of: str) -> Expectation:
    return lambda answer: getattr(answer, of) == 0 or answer


def _v0_without_error(answer: Any) -> object:
    return codes(answer) == {rules.ELECT_LEADERS.refused} or answer


def _find(key_type: int, **names: Any) -> Mapping[str, Any]:
    return {"key_type": key_type, **names}


def topology(source_topic: str) -> StreamsGroupHeartbeatRequest.Topology:
    """Return the topology of a Kafka Streams application that only reads this topic."""
    subtopology = StreamsGroupHeartbeatRequest.Topology.Subtopology(
        subtopology_id="0",
        source_topics=[source_topic],
        source_topic_regex=[],
        state_changelog_topics=[],
        repartition_sink_topics=[],
        repartition_source_topics=[],
        copartition_groups=[],
    )
    return StreamsGroupHeartbeatRequest.Topology(epoch=0, subtopologies=[subtopology])


CASES = (
    _refused(rules.PRODUCE, high=12, extra={"acks": 1, "timeout_ms": 1000, "transactional_id": None}),
    _refused(rules.PRODUCE, low=13, extra={"acks": 1, "transactional_id": None}, is_like_absent=False),
    _refused(rules.PRODUCE_TRANSACTION, high=12, extra={"acks": -1, "records": TRANSACTIONAL_BATCH}),
    _refused(rules.FETCH, high=12, extra={"replica_id": -1, "session_epoch": -1}),
    _refused(rules.FETCH, low=13, extra={"session_epoch": -1, "replica_state": None}, is_like_absent=False),
    Case(rules.FETCH_AS_FOLLOWER, _nothing_in("responses"), high=6, extra={"replica_id": 2}),
    _refused(rules.FETCH_AS_FOLLOWER, low=7, high=14, extra={"replica_id": 2}),
    _refused(rules.LIST_OFFSETS, extra={"replica_id": -1}),
    _refused(
        rules.METADATA,
        low=1,
        high=11,
        extra={"topic_id": bytes(16), "allow_auto_topic_creation": True},
    ),
    _refused(rules.METADATA, low=12, extra={"name": None}, is_like_absent=False),
    Case(rules.METADATA_OF_ALL, _nothing_in("topics"), low=1, extra={"topics": None}),
    Case(rules.METADATA_OF_ALL, _nothing_in("topics"), high=0, extra={"topics": []}),
    Case(
        rules.METADATA_CREATE,
        only(ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        low=4,
        high=11,
        extra={"name": "to-look-at", "topic_id": bytes(16), "allow_auto_topic_creation": True},
    ),
    Case(
        rules.METADATA_CLUSTER,
        _no_operations("cluster_authorized_operations"),
        low=8,
        high=10,
        extra={"topics": [], "include_cluster_authorized_operations": True},
    ),
    _refused(rules.CONTROLLED_SHUTDOWN, extra={"broker_id": 1}),
    _refused(rules.OFFSET_COMMIT_GROUP, high=9, extra={"generation_id_or_member_epoch": -1}),
    _refused(rules.OFFSET_COMMIT_GROUP, low=10),
    _refused(rules.OFFSET_COMMIT, high=9, extra={**IN_ALLOWED_GROUP, "generation_id_or_member_epoch": -1}),
    _refused(
        rules.OFFSET_COMMIT,
        low=10,
        extra={**IN_ALLOWED_GROUP, "generation_id_or_member_epoch": -1},
        is_like_absent=False,
    ),
    _refused(rules.OFFSET_FETCH_GROUP),
    _refused(rules.OFFSET_FETCH, high=9, extra={**IN_ALLOWED_GROUP}),
    _refused(rules.OFFSET_FETCH, low=10, extra={**IN_ALLOWED_GROUP}, is_like_absent=False),
    Case(
        rules.OFFSET_FETCH_ALL,
        lambda answer: (codes(answer) <= {ErrorCode.NONE} and answer.groups[0].topics == []) or answer,
        low=8,
        extra={"topics": None, **IN_ALLOWED_GROUP},
    ),
    Case(rules.OFFSET_FETCH_ALL, _nothing_in("topics"), low=2, high=7, extra={"topics": None, **IN_ALLOWED_GROUP}),
    _refused(rules.FIND_GROUP, extra={"key": SECRET.group, "coordinator_keys": lambda names: [names.group]}),
    _refused(
        rules.FIND_TRANSACTION,
        low=1,
        extra={
            "key_type": 1,
            "key": lambda names: names.transaction,
            "coordinator_keys": lambda names: [names.transaction],
        },
    ),
    _refused(rules.FIND_SHARE_GROUP, low=6, extra={"key_type": 2, "coordinator_keys": ["g:t:0"]}),
    _refused(rules.JOIN_GROUP, extra={"session_timeout_ms": 10_000, "protocol_type": "consumer"}),
    _refused(rules.HEARTBEAT),
    _refused(rules.CONSUMER_HEARTBEAT, extra=JOINING_CONSUMER),
    _refused(rules.CONSUMER_TOPICS, extra={**JOINING_CONSUMER, "group_id": ALLOWED_GROUP}),
    _refused(rules.DESCRIBE_CONSUMER_GROUP, extra={"group_ids": lambda names: [names.group]}),
    _refused(rules.SHARE_HEARTBEAT, extra=JOINING_SHARE),
    _refused(rules.SHARE_TOPICS, extra={**JOINING_SHARE, "group_id": ALLOWED_GROUP}),
    _refused(rules.DESCRIBE_SHARE_GROUP, extra={"group_ids": lambda names: [names.group]}),
    _refused(rules.SHARE_FETCH_GROUP, extra=SHARE_SESSION),
    _refused(rules.SHARE_FETCH, extra={**SHARE_SESSION, "group_id": ALLOWED_GROUP}, is_like_absent=False),
    _refused(rules.SHARE_ACKNOWLEDGE_GROUP, extra={**SHARE_SESSION, "share_session_epoch": 1}),
    _refused(rules.STREAMS_HEARTBEAT, extra=JOINING_STREAMS),
    _refused(rules.STREAMS_TOPICS, extra={**JOINING_STREAMS, "group_id": ALLOWED_GROUP}),
    _refused(rules.DESCRIBE_STREAMS_GROUP, extra={"group_ids": lambda names: [names.group]}),
    _refused(rules.INITIALIZE_SHARE_STATE),
    _refused(rules.READ_SHARE_STATE),
    _refused(rules.WRITE_SHARE_STATE),
    _refused(rules.DELETE_SHARE_STATE),
    _refused(rules.SUMMARISE_SHARE_STATE),
    _refused(rules.DESCRIBE_SHARE_OFFSETS_GROUP),
    _refused(rules.ALTER_SHARE_OFFSETS_GROUP),
    _refused(rules.ALTER_SHARE_OFFSETS, extra={"group_id": ALLOWED_GROUP}),
    _refused(rules.DELETE_SHARE_OFFSETS_GROUP),
    _refused(rules.LEAVE_GROUP),
    _refused(rules.SYNC_GROUP, extra={"protocol_type": "consumer", "protocol_name": "range"}),
    _refused(rules.DESCRIBE_GROUPS),
    Case(
        rules.LIST_GROUPS,
        lambda answer: {group.group_id for group in answer.groups} == {ALLOWED_GROUP} or answer,
        extra={"states_filter": [], "types_filter": []},
    ),
    _refused(
        rules.CREATE_TOPIC, extra={"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    ),
    _refused(rules.DELETE_TOPIC, high=5),
    _refused(rules.DELETE_TOPIC, low=6, extra={"topic_id": bytes(16)}),
    Case(
        rules.DELETE_BY_ID,
        lambda answer: (
            [(one.name, one.error_code) for one in answer.responses] == [(None, rules.DELETE_BY_ID.refused)] or answer
        ),
        low=6,
        extra={"name": None},
        is_like_absent=False,
    ),
    _refused(rules.DELETE_RECORDS),
    _refused(rules.INIT_FOR_ANY_TOPIC, extra={"transactional_id": None, "producer_id": -1, "producer_epoch": -1}),
    _refused(rules.INIT_TRANSACTION, extra={"producer_id": -1, "producer_epoch": -1}),
    _refused(
        rules.INIT_TWO_PHASE_COMMIT,
        low=6,
        extra={
            "transactional_id": ALLOWED_TRANSACTION,
            "producer_id": -1,
            "producer_epoch": -1,
            "enable2_pc": True,
            "keep_prepared_txn": False,
        },
        is_like_absent=False,
    ),
    _refused(rules.OFFSET_FOR_LEADER_EPOCH),
    _refused(rules.ADD_PARTITIONS, extra={"verify_only": False}),
    _refused(
        rules.ADD_PARTITIONS_TOPIC,
        extra={
            "v3_and_below_transactional_id": ALLOWED_TRANSACTION,
            "transactional_id": ALLOWED_TRANSACTION,
            "verify_only": False,
        },
    ),
    _refused(rules.VERIFY_PARTITIONS, low=4, extra={"verify_only": True}),
    _refused(rules.ADD_OFFSETS),
    _refused(rules.ADD_OFFSETS_GROUP, extra={"transactional_id": ALLOWED_TRANSACTION}),
    _refused(rules.END_TXN),
    _refused(rules.WRITE_MARKERS),
    _refused(rules.TXN_OFFSET_COMMIT_ID, extra={"generation_id": -1}),
    _refused(rules.TXN_OFFSET_COMMIT_GROUP, extra={"generation_id": -1, "transactional_id": ALLOWED_TRANSACTION}),
    _refused(rules.TXN_OFFSET_COMMIT, extra={**IN_ALLOWED_GROUP, "generation_id": -1}),
    _refused(rules.DESCRIBE_ACLS, extra=ACL),
    _refused(rules.CREATE_ACLS, extra=ACL),
    _refused(rules.DELETE_ACLS, extra=ACL),
    _refused(rules.DESCRIBE_CONFIGS_OF_TOPIC, extra=OF_TOPIC),
    _refused(rules.DESCRIBE_CONFIGS_OF_CLUSTER, extra=OF_BROKER),
    _refused(rules.DESCRIBE_CONFIGS_OF_GROUP, extra=OF_GROUP),
    _refused(rules.ALTER_CONFIGS_OF_GROUP, extra={**OF_GROUP, "configs": []}),
    _refused(rules.CHANGE_CONFIGS_OF_GROUP, extra={**OF_GROUP, "configs": []}),
    _refused(rules.ALTER_CONFIGS_OF_TOPIC, extra={**OF_TOPIC, "configs": []}),
    _refused(rules.ALTER_CONFIGS_OF_CLUSTER, extra={**OF_BROKER, "configs": []}),
    _refused(rules.CHANGE_CONFIGS_OF_TOPIC, extra={**OF_TOPIC, "configs": []}),
    _refused(rules.CHANGE_CONFIGS_OF_CLUSTER, extra={**OF_BROKER, "configs": []}),
    _refused(rules.ALTER_REPLICA_LOG_DIRS),
    Case(rules.DESCRIBE_LOG_DIRS, _nothing_in("results"), high=2),
    _refused(rules.DESCRIBE_LOG_DIRS, low=3),
    _refused(rules.CREATE_PARTITIONS, extra={"count": 2, "assignments": None}),
    _refused(rules.DELETE_GROUP),
    _refused(rules.ELECT_LEADERS),
    _refused(rules.REASSIGN, extra={"replicas": [1]}),
    _refused(rules.LIST_REASSIGNMENTS),
    _refused(rules.OFFSET_DELETE_GROUP),
    _refused(rules.OFFSET_DELETE, extra={"group_id": ALLOWED_GROUP}),
    _refused(rules.DESCRIBE_QUOTAS, extra={"components": []}),
    _refused(rules.ALTER_QUOTAS, extra={"entity_type": "user", "entity_name": "mallory", "ops": []}),
    _refused(rules.UPDATE_FEATURES),
    _refused(rules.ENVELOPE, extra={"request_data": bytes(20)}),
    _refused(rules.DESCRIBE_SCRAM, extra={"users": []}),
    _refused(rules.ALTER_SCRAM, extra={"name": "mallory"}),
    _refused(rules.ALTER_PARTITION),
    Case(
        rules.DESCRIBE_CLUSTER,
        _no_operations("cluster_authorized_operations"),
        extra={"include_cluster_authorized_operations": True, "endpoint_type": 1},
    ),
    _refused(rules.LIST_CONFIG_RESOURCES),
    _refused(rules.DESCRIBE_PRODUCERS),
    _refused(rules.DESCRIBE_TRANSACTION),
    Case(
        rules.LIST_TRANSACTIONS,
        _nothing_in("transaction_states"),
        extra={"state_filters": [], "producer_id_filters": [], "duration_filter": -1, "transactional_id_pattern": None},
    ),
    _refused(rules.TOPIC_PARTITIONS, extra={"response_partition_limit": 100, "cursor": None}),
    Case(
        rules.TOPIC_PARTITIONS_OF_ALL,
        _nothing_in("topics"),
        extra={"topics": [], "response_partition_limit": 100, "cursor": None},
    ),
)
"""One case for each rule that can refuse a request. If either of two rules may allow a request, the request of such a
case is also refused by the other rule.
"""

ASKED_FOR_BY_OTHERS = {
    rules.METADATA_CREATE_ANY: rules.METADATA_CREATE,
    rules.LIST_ALL_GROUPS: rules.LIST_GROUPS,
    rules.CREATE_ANY_TOPIC: rules.CREATE_TOPIC,
    rules.STREAMS_CREATE_ANY_TOPIC: rules.STREAMS_CREATE_TOPIC,
    rules.INIT_PRODUCER_ID: rules.INIT_FOR_ANY_TOPIC,
    rules.EPOCH_OF_ALL: rules.OFFSET_FOR_LEADER_EPOCH,
    rules.ADD_PARTITIONS_FOR_OTHERS: rules.ADD_PARTITIONS,
    rules.WRITE_MARKERS_AS_ADMIN: rules.WRITE_MARKERS,
}
"""Maps an authorization rule that has no case of its own to the rule that the broker checks next if the first rule does
not allow the request.
"""

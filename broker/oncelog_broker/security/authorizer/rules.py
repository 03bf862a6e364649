"""The operations that each API requires, in one table (S6). Handlers check the rows of this table; tests and
docs/authorizations.md list them.

A row is one check: may the principal do this operation on that resource? The rules are those of Apache Kafka 3.9,
`KafkaApis`. A client without the Describe right on a resource gets the same response whether the resource exists or
not.
"""

from __future__ import annotations

from typing import Final

from oncelog_protocol.acls import AclOperation, ResourceType
from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.light_classes import NamedTuple

READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.CREATE,
    AclOperation.DELETE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
)
CLUSTER_ACTION, IDEMPOTENT_WRITE = AclOperation.CLUSTER_ACTION, AclOperation.IDEMPOTENT_WRITE
DESCRIBE_CONFIGS, ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
REFUSAL: Final = {
    TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
"""Maps a resource type to the error code of a denial."""


class Rule(NamedTuple):
    """One authorization check of one API."""

    api: ApiKey
    operation: AclOperation
    resource: ResourceType
    when: str
    """The requests, or parts of a request, to which the check applies, as text."""
    answer: str
    """The response to a denial, as text; empty if the handler then checks another rule, which may allow the request."""
    refused: ErrorCode
    is_told: bool
    """Whether a denial is written to the audit log. False if the rule only filters a list, or if another rule may still
    allow the request.
    """
    kind: int
    """A number that is equal for all rules with the same operation and resource type."""


def kind_of(operation: AclOperation, resource: ResourceType) -> int:
    return resource << 8 | operation


RULES: Final[list[Rule]] = []
"""All rules, in the order of the API keys."""


def _rule(
    api: ApiKey,
    operation: AclOperation,
    resource: ResourceType,
    when: str,
    answer: str | None = None,
    *,
    refused: ErrorCode | None = None,
    is_told: bool = True,
) -> Rule:
    code = refused or REFUSAL[resource]
    rule = Rule(
        api,
        operation,
        resource,
        when,
        code.name if answer is None else answer,
        code,
        is_told,
        kind_of(operation, resource),
    )
    RULES.append(rule)
    return rule


LEFT_OUT: Final = "left out"
NO_BITS: Final = "authorized operations are 0"

PRODUCE_TRANSACTION = _rule(
    ApiKey.PRODUCE, WRITE, TRANSACTIONAL_ID, "transactional records", "every partition: {refused}"
)
PRODUCE = _rule(ApiKey.PRODUCE, WRITE, TOPIC, "each topic")
FETCH = _rule(ApiKey.FETCH, READ, TOPIC, "each topic, for a consumer")
FETCH_AS_FOLLOWER = _rule(ApiKey.FETCH, CLUSTER_ACTION, CLUSTER, "for a follower", "the whole: {refused}")
LIST_OFFSETS = _rule(ApiKey.LIST_OFFSETS, DESCRIBE, TOPIC, "each topic")
METADATA = _rule(ApiKey.METADATA, DESCRIBE, TOPIC, "each topic that is named")
METADATA_OF_ALL = _rule(
    ApiKey.METADATA, DESCRIBE, TOPIC, "each topic, where all are asked for", LEFT_OUT, is_told=False
)
METADATA_CREATE_ANY = _rule(
    ApiKey.METADATA, CREATE, CLUSTER, "topics that would be created", "asks for the next", is_told=False
)
METADATA_CREATE = _rule(ApiKey.METADATA, CREATE, TOPIC, "each topic that would be created")
METADATA_CLUSTER = _rule(ApiKey.METADATA, DESCRIBE, CLUSTER, "authorized operations of the cluster (v8-10)", NO_BITS)
CONTROLLED_SHUTDOWN = _rule(ApiKey.CONTROLLED_SHUTDOWN, CLUSTER_ACTION, CLUSTER, "always")
OFFSET_COMMIT_GROUP = _rule(ApiKey.OFFSET_COMMIT, READ, GROUP, "the group", "every partition: {refused}")
OFFSET_COMMIT = _rule(ApiKey.OFFSET_COMMIT, READ, TOPIC, "each topic")
OFFSET_FETCH_GROUP = _rule(ApiKey.OFFSET_FETCH, DESCRIBE, GROUP, "each group")
OFFSET_FETCH = _rule(ApiKey.OFFSET_FETCH, DESCRIBE, TOPIC, "each topic that is named")
OFFSET_FETCH_ALL = _rule(
    ApiKey.OFFSET_FETCH, DESCRIBE, TOPIC, "each topic, where all are asked for", LEFT_OUT, is_told=False
)
FIND_GROUP = _rule(ApiKey.FIND_COORDINATOR, DESCRIBE, GROUP, "each group")
FIND_TRANSACTION = _rule(ApiKey.FIND_COORDINATOR, DESCRIBE, TRANSACTIONAL_ID, "each transactional id")
FIND_SHARE_GROUP = _rule(ApiKey.FIND_COORDINATOR, CLUSTER_ACTION, CLUSTER, "keys of share groups (v6)")
JOIN_GROUP = _rule(ApiKey.JOIN_GROUP, READ, GROUP, "the group")
HEARTBEAT = _rule(ApiKey.HEARTBEAT, READ, GROUP, "the group")
LEAVE_GROUP = _rule(ApiKey.LEAVE_GROUP, READ, GROUP, "the group")
SYNC_GROUP = _rule(ApiKey.SYNC_GROUP, READ, GROUP, "the group")
DESCRIBE_GROUPS = _rule(ApiKey.DESCRIBE_GROUPS, DESCRIBE, GROUP, "each group")
LIST_ALL_GROUPS = _rule(ApiKey.LIST_GROUPS, DESCRIBE, CLUSTER, "all groups", "asks for the next", is_told=False)
LIST_GROUPS = _rule(ApiKey.LIST_GROUPS, DESCRIBE, GROUP, "each group", LEFT_OUT, is_told=False)
CREATE_ANY_TOPIC = _rule(
    ApiKey.CREATE_TOPICS, CREATE, CLUSTER, "topics of any name", "asks for the next", is_told=False
)
CREATE_TOPIC = _rule(ApiKey.CREATE_TOPICS, CREATE, TOPIC, "each topic")
CREATED_CONFIGS = _rule(
    ApiKey.CREATE_TOPICS,
    DESCRIBE_CONFIGS,
    TOPIC,
    "settings in the answer (v5)",
    "not shown, topic_config_error_code {refused}",
    is_told=False,
)
DELETE_TOPIC = _rule(ApiKey.DELETE_TOPICS, DELETE, TOPIC, "each topic")
DELETE_BY_ID = _rule(ApiKey.DELETE_TOPICS, DESCRIBE, TOPIC, "each topic named by its id (v6)", "{refused}, no name")
DELETE_RECORDS = _rule(ApiKey.DELETE_RECORDS, DELETE, TOPIC, "each topic")
INIT_PRODUCER_ID = _rule(ApiKey.INIT_PRODUCER_ID, IDEMPOTENT_WRITE, CLUSTER, "without a transactional id",
                         "asks for the next", is_told=False)  # fmt: skip
INIT_FOR_ANY_TOPIC = _rule(
    ApiKey.INIT_PRODUCER_ID,
    WRITE,
    TOPIC,
    "any topic, without a transactional id (KIP-679)",
    refused=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
)
INIT_TRANSACTION = _rule(ApiKey.INIT_PRODUCER_ID, WRITE, TRANSACTIONAL_ID, "with a transactional id")
INIT_TWO_PHASE_COMMIT = _rule(
    ApiKey.INIT_PRODUCER_ID,
    AclOperation.TWO_PHASE_COMMIT,
    TRANSACTIONAL_ID,
    "transactions without a timeout (v6), in addition to WRITE",
)
EPOCH_OF_ALL = _rule(
    ApiKey.OFFSET_FOR_LEADER_EPOCH, CLUSTER_ACTION, CLUSTER, "all topics", "asks for the next", is_told=False
)
OFFSET_FOR_LEADER_EPOCH = _rule(ApiKey.OFFSET_FOR_LEADER_EPOCH, DESCRIBE, TOPIC, "each topic")
VERIFY_PARTITIONS = _rule(
    ApiKey.ADD_PARTITIONS_TO_TXN, CLUSTER_ACTION, CLUSTER, "only to verify (v4 and up)", "the whole: {refused}"
)
ADD_PARTITIONS_FOR_OTHERS = _rule(
    ApiKey.ADD_PARTITIONS_TO_TXN, CLUSTER_ACTION, CLUSTER, "to add (v4 and up)", "asks for the next", is_told=False
)
ADD_PARTITIONS = _rule(
    ApiKey.ADD_PARTITIONS_TO_TXN, WRITE, TRANSACTIONAL_ID, "the transactional id", "every partition: {refused}"
)
ADD_PARTITIONS_TOPIC = _rule(
    ApiKey.ADD_PARTITIONS_TO_TXN,
    WRITE,
    TOPIC,
    "each topic",
    "{refused}, the other results OPERATION_NOT_ATTEMPTED",
)
ADD_OFFSETS = _rule(ApiKey.ADD_OFFSETS_TO_TXN, WRITE, TRANSACTIONAL_ID, "the transactional id")
ADD_OFFSETS_GROUP = _rule(ApiKey.ADD_OFFSETS_TO_TXN, READ, GROUP, "the group")
END_TXN = _rule(ApiKey.END_TXN, WRITE, TRANSACTIONAL_ID, "the transactional id")
WRITE_MARKERS_AS_ADMIN = _rule(ApiKey.WRITE_TXN_MARKERS, ALTER, CLUSTER, "always", "asks for the next", is_told=False)
WRITE_MARKERS = _rule(ApiKey.WRITE_TXN_MARKERS, CLUSTER_ACTION, CLUSTER, "always", "every partition: {refused}")
TXN_OFFSET_COMMIT_ID = _rule(
    ApiKey.TXN_OFFSET_COMMIT, WRITE, TRANSACTIONAL_ID, "the transactional id", "every partition: {refused}"
)
TXN_OFFSET_COMMIT_GROUP = _rule(ApiKey.TXN_OFFSET_COMMIT, READ, GROUP, "the group", "every partition: {refused}")
TXN_OFFSET_COMMIT = _rule(ApiKey.TXN_OFFSET_COMMIT, READ, TOPIC, "each topic")
DESCRIBE_ACLS = _rule(ApiKey.DESCRIBE_ACLS, DESCRIBE, CLUSTER, "always")
CREATE_ACLS = _rule(ApiKey.CREATE_ACLS, ALTER, CLUSTER, "always", "every ACL: {refused}")
DELETE_ACLS = _rule(ApiKey.DELETE_ACLS, ALTER, CLUSTER, "always", "every filter: {refused}")
DESCRIBE_CONFIGS_OF_CLUSTER = _rule(ApiKey.DESCRIBE_CONFIGS, DESCRIBE_CONFIGS, CLUSTER, "each broker")
DESCRIBE_CONFIGS_OF_TOPIC = _rule(ApiKey.DESCRIBE_CONFIGS, DESCRIBE_CONFIGS, TOPIC, "each topic")
DESCRIBE_CONFIGS_OF_GROUP = _rule(ApiKey.DESCRIBE_CONFIGS, DESCRIBE_CONFIGS, GROUP, "each group")
ALTER_CONFIGS_OF_CLUSTER = _rule(ApiKey.ALTER_CONFIGS, ALTER_CONFIGS, CLUSTER, "each broker")
ALTER_CONFIGS_OF_TOPIC = _rule(ApiKey.ALTER_CONFIGS, ALTER_CONFIGS, TOPIC, "each topic")
ALTER_CONFIGS_OF_GROUP = _rule(ApiKey.ALTER_CONFIGS, ALTER_CONFIGS, GROUP, "each group")
ALTER_REPLICA_LOG_DIRS = _rule(ApiKey.ALTER_REPLICA_LOG_DIRS, ALTER, CLUSTER, "always", "every partition: {refused}")
DESCRIBE_LOG_DIRS = _rule(ApiKey.DESCRIBE_LOG_DIRS, DESCRIBE, CLUSTER, "always", "the whole: {refused}")
CREATE_PARTITIONS = _rule(ApiKey.CREATE_PARTITIONS, ALTER, TOPIC, "each topic")
DELETE_GROUP = _rule(ApiKey.DELETE_GROUPS, DELETE, GROUP, "each group")
ELECT_LEADERS = _rule(ApiKey.ELECT_LEADERS, ALTER, CLUSTER, "always", "the whole (v0: every partition): {refused}")
CHANGE_CONFIGS_OF_CLUSTER = _rule(ApiKey.INCREMENTAL_ALTER_CONFIGS, ALTER_CONFIGS, CLUSTER, "each broker")
CHANGE_CONFIGS_OF_TOPIC = _rule(ApiKey.INCREMENTAL_ALTER_CONFIGS, ALTER_CONFIGS, TOPIC, "each topic")
CHANGE_CONFIGS_OF_GROUP = _rule(ApiKey.INCREMENTAL_ALTER_CONFIGS, ALTER_CONFIGS, GROUP, "each group")
REASSIGN = _rule(ApiKey.ALTER_PARTITION_REASSIGNMENTS, ALTER, CLUSTER, "always", "the whole: {refused}")
LIST_REASSIGNMENTS = _rule(ApiKey.LIST_PARTITION_REASSIGNMENTS, DESCRIBE, CLUSTER, "always", "the whole: {refused}")
OFFSET_DELETE_GROUP = _rule(ApiKey.OFFSET_DELETE, DELETE, GROUP, "the group", "the whole: {refused}")
OFFSET_DELETE = _rule(ApiKey.OFFSET_DELETE, READ, TOPIC, "each topic")
DESCRIBE_QUOTAS = _rule(ApiKey.DESCRIBE_CLIENT_QUOTAS, DESCRIBE_CONFIGS, CLUSTER, "always")
ALTER_QUOTAS = _rule(ApiKey.ALTER_CLIENT_QUOTAS, ALTER_CONFIGS, CLUSTER, "always", "every entry: {refused}")
DESCRIBE_SCRAM = _rule(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, DESCRIBE, CLUSTER, "always", "the whole: {refused}")
ALTER_SCRAM = _rule(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, ALTER, CLUSTER, "always", "every user: {refused}")
ALTER_PARTITION = _rule(ApiKey.ALTER_PARTITION, CLUSTER_ACTION, CLUSTER, "always")
UPDATE_FEATURES = _rule(ApiKey.UPDATE_FEATURES, ALTER, CLUSTER, "always", "the whole: {refused}")
ENVELOPE = _rule(ApiKey.ENVELOPE, CLUSTER_ACTION, CLUSTER, "always", "the whole: {refused}")
DESCRIBE_CLUSTER = _rule(ApiKey.DESCRIBE_CLUSTER, DESCRIBE, CLUSTER, "authorized operations of the cluster", NO_BITS)
DESCRIBE_PRODUCERS = _rule(ApiKey.DESCRIBE_PRODUCERS, READ, TOPIC, "each topic")
DESCRIBE_TRANSACTION = _rule(ApiKey.DESCRIBE_TRANSACTIONS, DESCRIBE, TRANSACTIONAL_ID, "each transactional id")
TOPIC_OF_TRANSACTION = _rule(
    ApiKey.DESCRIBE_TRANSACTIONS, DESCRIBE, TOPIC, "each topic in the transaction", LEFT_OUT, is_told=False
)
LIST_TRANSACTIONS = _rule(
    ApiKey.LIST_TRANSACTIONS, DESCRIBE, TRANSACTIONAL_ID, "each transactional id", LEFT_OUT, is_told=False
)
CONSUMER_HEARTBEAT = _rule(ApiKey.CONSUMER_GROUP_HEARTBEAT, READ, GROUP, "the group")
CONSUMER_TOPICS = _rule(
    ApiKey.CONSUMER_GROUP_HEARTBEAT, DESCRIBE, TOPIC, "each topic that is named", "the whole: {refused}"
)
CONSUMER_MATCHED_TOPICS = _rule(
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    DESCRIBE,
    TOPIC,
    "each topic that the regular expression matches",
    LEFT_OUT,
    is_told=False,
)
DESCRIBE_CONSUMER_GROUP = _rule(ApiKey.CONSUMER_GROUP_DESCRIBE, DESCRIBE, GROUP, "each group")
TOPIC_OF_CONSUMER_GROUP = _rule(
    ApiKey.CONSUMER_GROUP_DESCRIBE, DESCRIBE, TOPIC, "each topic that is assigned", "the group: {refused}"
)
LIST_CONFIG_RESOURCES = _rule(ApiKey.LIST_CONFIG_RESOURCES, DESCRIBE_CONFIGS, CLUSTER, "always", "the whole: {refused}")
TOPIC_PARTITIONS = _rule(ApiKey.DESCRIBE_TOPIC_PARTITIONS, DESCRIBE, TOPIC, "each topic that is named")
TOPIC_PARTITIONS_OF_ALL = _rule(
    ApiKey.DESCRIBE_TOPIC_PARTITIONS, DESCRIBE, TOPIC, "each topic, where none is named", LEFT_OUT, is_told=False
)
SHARE_HEARTBEAT = _rule(ApiKey.SHARE_GROUP_HEARTBEAT, READ, GROUP, "the group")
SHARE_TOPICS = _rule(ApiKey.SHARE_GROUP_HEARTBEAT, DESCRIBE, TOPIC, "each topic that is named", "the whole: {refused}")
DESCRIBE_SHARE_GROUP = _rule(ApiKey.SHARE_GROUP_DESCRIBE, DESCRIBE, GROUP, "each group")
TOPIC_OF_SHARE_GROUP = _rule(
    ApiKey.SHARE_GROUP_DESCRIBE, DESCRIBE, TOPIC, "each topic that is assigned", "the group: {refused}"
)
SHARE_FETCH_GROUP = _rule(ApiKey.SHARE_FETCH, READ, GROUP, "the group")
SHARE_FETCH = _rule(ApiKey.SHARE_FETCH, READ, TOPIC, "each topic")
SHARE_ACKNOWLEDGE_GROUP = _rule(ApiKey.SHARE_ACKNOWLEDGE, READ, GROUP, "the group")
SHARE_ACKNOWLEDGE = _rule(ApiKey.SHARE_ACKNOWLEDGE, READ, TOPIC, "each topic")
INITIALIZE_SHARE_STATE = _rule(ApiKey.INITIALIZE_SHARE_GROUP_STATE, CLUSTER_ACTION, CLUSTER, "from brokers alone")
READ_SHARE_STATE = _rule(ApiKey.READ_SHARE_GROUP_STATE, CLUSTER_ACTION, CLUSTER, "from brokers alone")
WRITE_SHARE_STATE = _rule(ApiKey.WRITE_SHARE_GROUP_STATE, CLUSTER_ACTION, CLUSTER, "from brokers alone")
DELETE_SHARE_STATE = _rule(ApiKey.DELETE_SHARE_GROUP_STATE, CLUSTER_ACTION, CLUSTER, "from brokers alone")
SUMMARISE_SHARE_STATE = _rule(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, CLUSTER_ACTION, CLUSTER, "from brokers alone")
STREAMS_HEARTBEAT = _rule(ApiKey.STREAMS_GROUP_HEARTBEAT, READ, GROUP, "the group")
STREAMS_TOPICS = _rule(
    ApiKey.STREAMS_GROUP_HEARTBEAT, DESCRIBE, TOPIC, "each topic of the topology", "the whole: {refused}"
)
STREAMS_CREATE_ANY_TOPIC = _rule(
    ApiKey.STREAMS_GROUP_HEARTBEAT, CREATE, CLUSTER, "missing internal topics", "asks for the next", is_told=False
)
STREAMS_CREATE_TOPIC = _rule(
    ApiKey.STREAMS_GROUP_HEARTBEAT,
    CREATE,
    TOPIC,
    "each missing internal topic",
    "none is created; the status MISSING_INTERNAL_TOPICS names the topic",
)
DESCRIBE_STREAMS_GROUP = _rule(ApiKey.STREAMS_GROUP_DESCRIBE, DESCRIBE, GROUP, "each group")
TOPIC_OF_STREAMS_GROUP = _rule(
    ApiKey.STREAMS_GROUP_DESCRIBE, DESCRIBE, TOPIC, "each topic of the topology", "the group: {refused}"
)
DESCRIBE_SHARE_OFFSETS_GROUP = _rule(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, DESCRIBE, GROUP, "each group")
DESCRIBE_SHARE_OFFSETS = _rule(
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, DESCRIBE, TOPIC, "each topic; left out where none is named"
)
ALTER_SHARE_OFFSETS_GROUP = _rule(ApiKey.ALTER_SHARE_GROUP_OFFSETS, READ, GROUP, "the group")
ALTER_SHARE_OFFSETS = _rule(ApiKey.ALTER_SHARE_GROUP_OFFSETS, READ, TOPIC, "each topic")
DELETE_SHARE_OFFSETS_GROUP = _rule(ApiKey.DELETE_SHARE_GROUP_OFFSETS, DELETE, GROUP, "the group")
DELETE_SHARE_OFFSETS = _rule(ApiKey.DELETE_SHARE_GROUP_OFFSETS, READ, TOPIC, "each topic")

WITHOUT_RULE: Final = {
    ApiKey.API_VERSIONS: "sent before authentication",
    ApiKey.SASL_HANDSHAKE: "sent before authentication",
    ApiKey.SASL_AUTHENTICATE: "sent to authenticate",
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: "every client may ask which metrics to push, as in Kafka",
    ApiKey.PUSH_TELEMETRY: "every client may push the metrics that it was asked for, as in Kafka",
}
"""APIs that need no authorization, each with the reason. In addition, Metadata and DescribeCluster list the brokers for
every client, without a check.
"""


def shown_answer(rule: Rule) -> str:
    """Return the response to a denial, as text."""
    return rule.answer.format(refused=rule.refused.name)

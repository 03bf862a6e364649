"""The paths of the metadata nodes, as in Kafka 3.x in ZooKeeper mode. The contents of the nodes are in
`payloads.py`."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote

from oncelog_broker.runtime.addresses import plain_address
from oncelog_protocol.acls import RESOURCE_TYPES, PatternType, ResourcePattern
from oncelog_protocol.light_classes import NamedTuple
from oncelog_protocol.quotas import DEFAULT, Name, QuotaEntity

BROKERS = "/brokers"
BROKER_IDS = "/brokers/ids"
TOPICS = "/brokers/topics"
"""A node whose version counts the created topics, so that a `multi` can check that no topic was created meanwhile. The
version of the topic's own node cannot be used, because a re-created topic begins with version 0 again.
"""
CONFIG = "/config"
TOPIC_CONFIGS = "/config/topics"
BROKER_CONFIGS = "/config/brokers"
USER_CONFIGS = "/config/users"
"""The settings of users: SCRAM credentials and quotas. Below a user's node, `clients` has the quotas of pairs of that
user and a client id.
"""
CLIENT_CONFIGS = "/config/clients"
"""The quotas of client ids."""
IP_CONFIGS = "/config/ips"
"""The quotas of addresses."""
GROUP_CONFIGS = "/config/groups"
"""The settings of groups. Kafka has no such node: it supports group settings only without ZooKeeper."""
CLIENT_METRICS_CONFIGS = "/config/client-metrics"
"""The subscriptions of client metrics (KIP-714). Kafka has no such node: it supports them only without ZooKeeper."""
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
ADMIN = "/admin"
DELETE_TOPICS = "/admin/delete_topics"
CLUSTER = "/cluster"
CLUSTER_ID = "/cluster/id"
LATEST_PRODUCER_ID_BLOCK = "/latest_producer_id_block"
LITERAL_ACLS = "/kafka-acl"
EXTENDED_ACLS = "/kafka-acl-extended"
PREFIXED_ACLS = "/kafka-acl-extended/prefixed"
"""Below this node and LITERAL_ACLS there is a node for each type of resource (`Topic`), and below the type a node for
each resource name. The broker watches these nodes, so it does not need or write Kafka's notification nodes below
`/kafka-acl-changes`.
"""

ONCELOG = "/oncelog"
"""The parent of nodes that Kafka does not have."""
INCARNATIONS = "/oncelog/incarnations"
SECRETS = "/oncelog/secrets"
LOGIN_KEY = "/oncelog/secrets/login_key"
PROPOSED_CLUSTER_ID = "/oncelog/proposed_cluster_id"
"""The cluster id that the first broker of a new cluster proposes, until the cluster is founded."""
STORE_ID = "/oncelog/store_id"
"""A random id of the store: if the store is created again for the same cluster, its id differs."""
FOUNDING = "/oncelog/founding"
"""This node exists while a broker founds the cluster in several writes."""

PERSISTENT = (
    BROKERS,
    BROKER_IDS,
    TOPICS,
    CONFIG,
    TOPIC_CONFIGS,
    BROKER_CONFIGS,
    USER_CONFIGS,
    CLUSTER,
    ONCELOG,
    INCARNATIONS,
)
"""Nodes that must exist before any other node is written; parents come first."""

DEFAULT_BROKER = "<default>"
"""The entity name of the settings that apply to every broker."""


def broker_id(broker: int) -> str:
    return f"{BROKER_IDS}/{broker}"


def incarnation(broker: int) -> str:
    """Return the path of a broker's incarnation node. The version of the node counts the broker's registrations. A
    `multi` (atomic write) can check that version. The version of the registration node is useless for such a check,
    because it is 0 after each registration.
    """
    return f"{INCARNATIONS}/{broker}"


def deletion(topic_name: str) -> str:
    """Return the path of the node that exists while a topic is deleted in several writes."""
    return f"{DELETE_TOPICS}/{topic_name}"


def topic(name: str) -> str:
    return f"{TOPICS}/{name}"


def partitions(topic_name: str) -> str:
    return f"{TOPICS}/{topic_name}/partitions"


def partition(topic_name: str, partition_id: int) -> str:
    return f"{TOPICS}/{topic_name}/partitions/{partition_id}"


def partition_state(topic_name: str, partition_id: int) -> str:
    return f"{TOPICS}/{topic_name}/partitions/{partition_id}/state"


def topic_config(name: str) -> str:
    return f"{TOPIC_CONFIGS}/{name}"


def broker_config(broker: int | None) -> str:
    """Return the path of a broker's settings; None means the settings for every broker."""
    return f"{BROKER_CONFIGS}/{DEFAULT_BROKER if broker is None else broker}"


def acls(pattern: ResourcePattern) -> str:
    return f"{acls_of_type(pattern)}/{pattern.name}"


def acls_of_type(pattern: ResourcePattern) -> str:
    """Return the path of the parent node of all patterns with the same resource type and pattern type."""
    return f"{_ACL_ROOTS[pattern.pattern]}/{pattern.type.shown}"


_ACL_ROOTS: Final = {PatternType.LITERAL: LITERAL_ACLS, PatternType.PREFIXED: PREFIXED_ACLS}
_ACLS_OF_TYPE: Final = {
    f"{root}/{kind.shown}": (kind, pattern) for pattern, root in _ACL_ROOTS.items() for kind in RESOURCE_TYPES
}
ACLS_BY_TYPE: Final = tuple(_ACLS_OF_TYPE)
"""The paths that `acls_of_type` returns: one for each resource type and pattern type."""
FIXED: Final = (
    *PERSISTENT,
    CLIENT_CONFIGS,
    IP_CONFIGS,
    GROUP_CONFIGS,
    CLIENT_METRICS_CONFIGS,
    CONTROLLER_EPOCH,
    ADMIN,
    DELETE_TOPICS,
    CLUSTER_ID,
    STORE_ID,
    LATEST_PRODUCER_ID_BLOCK,
    LITERAL_ACLS,
    EXTENDED_ACLS,
    PREFIXED_ACLS,
    *ACLS_BY_TYPE,
    SECRETS,
    LOGIN_KEY,
)
"""All permanent nodes whose paths are equal in every cluster, including nodes that are created only when needed."""


def parse_acl_path(path: str) -> ResourcePattern | None:
    """Return the pattern whose ACLs are in the node at `path`; None if that node is not for ACLs."""
    parent, _, name = path.rpartition("/")
    kind = _ACLS_OF_TYPE.get(parent)
    return None if kind is None or not name else ResourcePattern(kind[0], name, kind[1])


def user_config(user: str | None) -> str:
    """Return the path of a user's settings; None means the settings for every user."""
    return f"{USER_CONFIGS}/{DEFAULT_BROKER if user is None else sanitized(user)}"


def group_config(group_id: str) -> str:
    return f"{GROUP_CONFIGS}/{sanitized(group_id)}"


def client_metrics_config(name: str) -> str:
    """Return the path of a subscription of client metrics."""
    return f"{CLIENT_METRICS_CONFIGS}/{sanitized(name)}"


def sanitized(name: str) -> str:
    """Escape a name for use in a path, as Kafka does. Names that are not legal for a node ("." and "..") are escaped,
    too, and Kafka reads them correctly.
    """
    return name.replace(".", "%2E") if name in (".", "..") else quote(name, safe="").replace("~", "%7E")


def unsanitized(node: str) -> str:
    return unquote(node)


def clients_of_user(user: Name) -> str:
    """Return the path of the parent of the nodes for pairs of this user and a client id."""
    return f"{USER_CONFIGS}/{_node(user)}/clients"


def quotas(entity: QuotaEntity) -> str:
    """Return the path of the settings of an entity."""
    if entity.ip is not None:
        return f"{IP_CONFIGS}/{_node(entity.ip)}"
    if entity.user is None:
        return f"{CLIENT_CONFIGS}/{_node(entity.client_id)}"
    if entity.client_id is None:
        return f"{USER_CONFIGS}/{_node(entity.user)}"
    return f"{clients_of_user(entity.user)}/{_node(entity.client_id)}"


def parse_quota_path(path: str) -> QuotaEntity | None:
    """Return the entity whose quotas are in the node at `path`; None if that node is not for quotas. Nodes of users are
    excluded, because a user's quotas are among the user's settings. All spellings of an address are the same entity
    (`address_nodes`).
    """
    parts = path.split("/")[1:]
    if len(parts) == 3 and path.startswith(f"{CLIENT_CONFIGS}/"):
        return QuotaEntity(client_id=_name(parts[2]))
    if len(parts) == 3 and path.startswith(f"{IP_CONFIGS}/"):
        name = _name(parts[2])
        return QuotaEntity(ip=plain_address(name) or name if isinstance(name, str) else name)
    if len(parts) == 5 and path.startswith(f"{USER_CONFIGS}/") and parts[3] == "clients":
        return QuotaEntity(_name(parts[2]), _name(parts[4]))
    return None


def _node(name: Name) -> str:
    return sanitized(name) if isinstance(name, str) else DEFAULT_BROKER


def _name(node: str) -> Name:
    return DEFAULT if node == DEFAULT_BROKER else unsanitized(node)


class TopicPath(NamedTuple):
    """The owner of a path below `TOPICS`: an entire topic, or the state of one partition."""

    topic: str
    partition: int | None


def parse_topic_path(path: str) -> TopicPath | None:
    """Return the topic (and partition, for a state node) to which `path` belongs; None if `path` is not below
    `TOPICS`.
    """
    if not path.startswith(TOPICS + "/"):
        return None
    names = path[len(TOPICS) + 1 :].split("/")
    if len(names) == 4 and names[1] == "partitions" and names[2].isdecimal() and names[3] == "state":
        return TopicPath(names[0], int(names[2]))
    return TopicPath(names[0], None)

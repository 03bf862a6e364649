"""The broker's configuration keys that have an effect in oncelog. The names are Kafka's. The defaults are Kafka's, too,
unless the documentation of a key says otherwise. `BROKER_KEYS` also includes the keys of `topic_defaults` (inherited by
topics), `zookeeper_keys`, `leadership_keys`, `security_keys`, `authorizer_keys`, `group_keys`, `share_keys`,
`streams_keys`, `transaction_keys` and `http_keys`. Most of the defaults that differ from Kafka's are limits where Kafka
has no limit, so that no client can exhaust memory or file descriptors.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final

from oncelog_broker.config import (
    authorizer_keys,
    group_keys,
    http_keys,
    leadership_keys,
    quota_keys,
    security_keys,
    share_keys,
    streams_keys,
    throttle_keys,
    topic_defaults,
    transaction_keys,
    zookeeper_keys,
)
from oncelog_broker.config.declared import (
    ConfigKey,
    ConfigType,
    Importance,
    UpdateMode,
    at_least,
    between,
    not_empty,
    one_of,
)

BOOLEAN, STRING, SHORT, INT, LONG, DOUBLE, LIST = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.SHORT,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.DOUBLE,
    ConfigType.LIST,
)
HIGH, LOW = Importance.HIGH, Importance.LOW

# --- Identity and addresses

NODE_ID = ConfigKey[int](
    "node.id", INT, 1, "The id of this broker, unique in the cluster. Kafka has no default.", at_least(0), HIGH
)
BROKER_ID = ConfigKey[int | None](
    "broker.id", INT, None, "Older name of node.id. If both are set, node.id takes precedence.", at_least(0), HIGH
)
RACK = ConfigKey[str | None](
    "broker.rack",
    STRING,
    None,
    "The rack of this broker. Replicas of new partitions are spread over racks, if every broker has a rack (KIP-36).",
    not_empty(),
    LOW,
)
LISTENERS = ConfigKey[tuple[str, ...]](
    "listeners",
    LIST,
    ("PLAINTEXT://127.0.0.1:9092",),
    "Addresses to listen on: NAME://host:port. An empty host or 0.0.0.0 means every interface, port 0 means "
    "any free port. Kafka's default is every interface; ours is loopback, because the default listener has no "
    "authentication.",
    not_empty(),
    HIGH,
)
ADVERTISED_LISTENERS = ConfigKey[tuple[str, ...] | None](
    "advertised.listeners",
    LIST,
    None,
    "Addresses that clients connect to, by listener name. If not set, the addresses of listeners, with the "
    "name of this host instead of 'every interface'. Port 0 means the port that was bound.",
    not_empty(),
    HIGH,
)
LISTENER_SECURITY_PROTOCOL_MAP = ConfigKey[tuple[str, ...]](
    "listener.security.protocol.map",
    LIST,
    ("PLAINTEXT:PLAINTEXT", "SSL:SSL", "SASL_PLAINTEXT:SASL_PLAINTEXT", "SASL_SSL:SASL_SSL"),
    "NAME:PROTOCOL for each listener name: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.",
    not_empty(),
    LOW,
)
INTER_BROKER_LISTENER_NAME = ConfigKey[str | None](
    "inter.broker.listener.name",
    STRING,
    None,
    "The listener that the other brokers connect to. If not set, the listener PLAINTEXT, or the first listener "
    "if there is no PLAINTEXT. If this key is set, other listeners refuse requests that only brokers may send "
    "(such as WriteTxnMarkers).",
)

# --- Connections and requests

SOCKET_REQUEST_MAX_BYTES = ConfigKey[int](
    "socket.request.max.bytes",
    INT,
    100 * 1024**2,
    "The largest size of a request, in bytes. A larger request closes the connection.",
    at_least(1),
    HIGH,
)
SOCKET_SEND_BUFFER_BYTES = ConfigKey[int](
    "socket.send.buffer.bytes",
    INT,
    -1,
    "SO_SNDBUF of client connections; -1: chosen and adapted by the system. Kafka's default is 102400.",
    at_least(-1),
    HIGH,
)
SOCKET_RECEIVE_BUFFER_BYTES = ConfigKey[int](
    "socket.receive.buffer.bytes",
    INT,
    -1,
    "SO_RCVBUF of client connections; -1: chosen and adapted by the system. Kafka's default is 102400.",
    at_least(-1),
    HIGH,
)
QUEUED_MAX_REQUESTS = ConfigKey[int](
    "queued.max.requests",
    INT,
    500,
    "The number of concurrent requests that take more than one step (such as creating a topic). Further "
    "requests wait, and their connections are not read meanwhile.",
    at_least(1),
    HIGH,
)
QUEUED_MAX_REQUEST_BYTES = ConfigKey[int](
    "queued.max.request.bytes",
    LONG,
    256 * 1024**2,
    "While received requests have more than this many bytes, the broker reads from no connection except one, "
    "whose request may be completed (back-pressure). -1 means no limit, which is Kafka's default.",
    at_least(-1),
)
QUEUED_MAX_RESPONSE_BYTES = ConfigKey[int](
    "queued.max.response.bytes",
    LONG,
    128 * 1024**2,
    "While unread responses have more than this many bytes on the heap, further requests wait, and clients "
    "that do not read are disconnected. -1 means no limit. Only a small part of the records in responses is on "
    "the heap. Not a key of Kafka's.",
    at_least(-1),
)
MAX_CONNECTIONS = ConfigKey[int](
    "max.connections",
    INT,
    10_000,
    "The largest number of concurrent connections. Kafka's default is no limit.",
    at_least(0),
)
MAX_CONNECTIONS_PER_IP = ConfigKey[int](
    "max.connections.per.ip",
    INT,
    1_000,
    "The largest number of concurrent connections from one address. Kafka's default is no limit.",
    at_least(0),
)
CONNECTIONS_MAX_IDLE_MS = ConfigKey[int](
    "connections.max.idle.ms", LONG, 600_000, "The broker closes a connection that has sent no request for this time."
)
FETCH_MAX_BYTES = ConfigKey[int](
    "fetch.max.bytes",
    INT,
    55 * 1024**2,
    "The largest number of bytes of records in one Fetch response, whatever the client requests.",
    at_least(1024),
)
MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS = ConfigKey[int](
    "max.incremental.fetch.session.cache.slots",
    INT,
    1_000,
    "The largest number of incremental fetch sessions in the cache.",
    at_least(0),
)

# --- Topics

NUM_PARTITIONS = ConfigKey[int](
    "num.partitions", INT, 1, "Partitions of a topic created without a number of partitions.", at_least(1)
)
DEFAULT_REPLICATION_FACTOR = ConfigKey[int](
    "default.replication.factor",
    INT,
    1,
    "Replication factor of a topic created without a replication factor.",
    at_least(1),
)
AUTO_CREATE_TOPICS_ENABLE = ConfigKey[bool](
    "auto.create.topics.enable",
    BOOLEAN,
    True,
    "Whether a Metadata request for a missing topic creates the topic.",
    importance=HIGH,
)
DELETE_TOPIC_ENABLE = ConfigKey[bool](
    "delete.topic.enable",
    BOOLEAN,
    True,
    "Whether DeleteTopics requests delete topics. If false, they are refused.",
    importance=HIGH,
)

# --- Consumer groups

OFFSETS_TOPIC_NUM_PARTITIONS = ConfigKey[int](
    "offsets.topic.num.partitions",
    INT,
    50,
    "The number of partitions of __consumer_offsets, used when the topic is created.",
    at_least(1),
    HIGH,
)
OFFSETS_TOPIC_REPLICATION_FACTOR = ConfigKey[int](
    "offsets.topic.replication.factor",
    SHORT,
    3,
    "Replication factor of __consumer_offsets. The topic is created when that many brokers are alive. Without "
    "ZooKeeper, the factor is 1.",
    at_least(1),
    HIGH,
)
OFFSETS_TOPIC_SEGMENT_BYTES = ConfigKey[int](
    "offsets.topic.segment.bytes",
    INT,
    100 * 1024**2,
    "Segment size of __consumer_offsets, used when the topic is created. Small segments are compacted early.",
    at_least(1),
    HIGH,
)
OFFSETS_COMMIT_TIMEOUT_MS = ConfigKey[int](
    "offsets.commit.timeout.ms",
    INT,
    5_000,
    "How long a group coordinator waits until the in-sync replicas have its record. Then it responds with "
    "COORDINATOR_NOT_AVAILABLE.",
    at_least(1),
    HIGH,
)
OFFSETS_TOPIC_COMPRESSION_CODEC = ConfigKey[int](
    "offsets.topic.compression.codec",
    INT,
    0,
    "The compression of batches of __consumer_offsets: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
    between(0, 4),
    HIGH,
)
OFFSET_METADATA_MAX_BYTES = ConfigKey[int](
    "offset.metadata.max.bytes",
    INT,
    4096,
    "The largest size of the metadata of a committed offset, in bytes.",
    at_least(0),
)
OFFSETS_RETENTION_MINUTES = ConfigKey[int](
    "offsets.retention.minutes",
    INT,
    7 * 24 * 60,
    "Committed offsets expire this long after their group became empty. Offsets of a group that never had "
    "members, or of a topic that the group's members no longer subscribe to, expire this long after the last "
    "commit (KIP-211).",
    at_least(1),
    HIGH,
)
OFFSETS_RETENTION_CHECK_INTERVAL_MS = ConfigKey[int](
    "offsets.retention.check.interval.ms",
    LONG,
    600_000,
    "How often committed offsets are checked for expiry.",
    at_least(1),
)
GROUP_INITIAL_REBALANCE_DELAY_MS = ConfigKey[int](
    "group.initial.rebalance.delay.ms",
    INT,
    0,
    "How long an empty group waits for more members before its first rebalance. Kafka's default is 3000; ours "
    "is 0, so that a single consumer starts immediately. Raise the value if many consumers of a group start "
    "together.",
    at_least(0),
)
GROUP_MIN_SESSION_TIMEOUT_MS = ConfigKey[int](
    "group.min.session.timeout.ms", INT, 6_000, "The shortest session timeout that a member may request.", at_least(0)
)
GROUP_MAX_SESSION_TIMEOUT_MS = ConfigKey[int](
    "group.max.session.timeout.ms",
    INT,
    1_800_000,
    "The longest session timeout that a member may request.",
    at_least(0),
)
GROUP_MAX_SIZE = ConfigKey[int](
    "group.max.size",
    INT,
    1_000,
    "The largest number of members of a group. Kafka's default is no limit.",
    at_least(1),
)
GROUP_MEMBER_METADATA_MAX_BYTES = ConfigKey[int](
    "group.member.metadata.max.bytes",
    INT,
    1024 * 1024,
    "The largest number of bytes of metadata in one member's JoinGroup: its protocols with subscribed topics, "
    "owned partitions and user data. A larger request is refused with MESSAGE_TOO_LARGE. Kafka has no limit.",
    at_least(1024),
)
GROUP_METADATA_MAX_BYTES = ConfigKey[int](
    "group.metadata.max.bytes",
    INT,
    16 * 1024 * 1024,
    "The largest number of bytes of metadata of all members of one group. A member that would exceed the limit "
    "is refused with GROUP_MAX_SIZE_REACHED.",
    at_least(1024),
)
GROUP_COORDINATOR_METADATA_MAX_BYTES = ConfigKey[int](
    "group.coordinator.metadata.max.bytes",
    LONG,
    128 * 1024 * 1024,
    "The largest number of bytes of metadata of all groups of one broker. A member that would exceed the limit "
    "is refused with COORDINATOR_NOT_AVAILABLE, which clients retry.",
    at_least(1024),
)

# --- The log

LOG_DIR = ConfigKey[tuple[str, ...]](
    "log.dir",
    LIST,
    ("data",),
    "The data directory, if log.dirs is not set. Kafka's default is /tmp/kafka-logs.",
    not_empty(),
    HIGH,
)
LOG_DIRS = ConfigKey[tuple[str, ...] | None](
    "log.dirs", LIST, None, "The data directories; not set: log.dir.", not_empty(), HIGH
)
START_ACCEPT = ConfigKey[tuple[str, ...]](
    "start.accept",
    LIST,
    (),
    "Differences between the data directories and the metadata store that a start accepts: kind:digest, as in "
    "the error message of the refused start. An entry accepts one particular difference and no later "
    "difference, so an old entry does no harm. Not a key of Kafka's.",
    importance=LOW,
)
LOG_RETENTION_CHECK_INTERVAL_MS = ConfigKey[int](
    "log.retention.check.interval.ms", LONG, 300_000, "How often segments are checked for deletion.", at_least(1)
)
LOG_CLEANER_ENABLE = ConfigKey[bool](
    "log.cleaner.enable", BOOLEAN, True, "Whether topics with cleanup.policy=compact are compacted."
)
LOG_CLEANER_BACKOFF_MS = ConfigKey[int](
    "log.cleaner.backoff.ms",
    LONG,
    15_000,
    "How long the cleaner waits when no log needs compaction.",
    at_least(1),
    update_mode=UpdateMode.CLUSTER_WIDE,
)
LOG_CLEANER_IO_MAX_BYTES_PER_SECOND = ConfigKey[float](
    "log.cleaner.io.max.bytes.per.second",
    DOUBLE,
    sys.float_info.max,
    "The largest number of bytes that the cleaner reads and writes per second, averaged over the compaction of a log.",
    at_least(1),
    update_mode=UpdateMode.CLUSTER_WIDE,
)
LOG_CLEANER_DEDUPE_BUFFER_SIZE = ConfigKey[int](
    "log.cleaner.dedupe.buffer.size",
    LONG,
    128 * 1024**2,
    "The largest size of the offset map of a compaction, in bytes. A log with more keys than fit into the map "
    "(216 bytes per key; in Kafka 24) is compacted in several rounds.",
    at_least(1),
    update_mode=UpdateMode.CLUSTER_WIDE,
)
LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS = ConfigKey[int](
    "log.flush.offset.checkpoint.interval.ms",
    INT,
    60_000,
    "How often the recovery points are checkpointed.",
    at_least(0),
    HIGH,
)
LOG_FLUSH_START_OFFSET_CHECKPOINT_INTERVAL_MS = ConfigKey[int](
    "log.flush.start.offset.checkpoint.interval.ms",
    INT,
    60_000,
    "How often the log start offsets are checkpointed.",
    at_least(0),
    HIGH,
)
REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS = ConfigKey[int](
    "replica.high.watermark.checkpoint.interval.ms",
    LONG,
    5_000,
    "How often the high watermarks are checkpointed.",
    importance=HIGH,
)

# --- Replication

REPLICA_LAG_TIME_MAX_MS = ConfigKey[int](
    "replica.lag.time.max.ms",
    LONG,
    30_000,
    "A follower that has not caught up with its leader for this long is removed from the in-sync replicas (ISR "
    "shrink).",
    at_least(1),
    HIGH,
)
RACK_AWARE_SELECTORS: Final = (
    "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "RackAwareReplicaSelector",
)
REPLICA_SELECTOR_CLASS = ConfigKey[str | None](
    "replica.selector.class",
    STRING,
    None,
    "Selects the replica that consumers read from. RackAwareReplicaSelector directs a consumer with "
    "client.rack to a replica in that rack, which may be a follower (KIP-392). If not set, consumers read from "
    "the leader.",
    one_of(*RACK_AWARE_SELECTORS),
)
REPLICA_FETCH_MAX_BYTES = ConfigKey[int](
    "replica.fetch.max.bytes",
    INT,
    1_048_576,
    "The largest number of bytes of one partition that a follower requests in one Fetch. The first batch of a "
    "response may be larger.",
    at_least(0),
)
REPLICA_FETCH_RESPONSE_MAX_BYTES = ConfigKey[int](
    "replica.fetch.response.max.bytes",
    INT,
    10_485_760,
    "The largest number of bytes that a follower requests in one Fetch, over all partitions of one leader.",
    at_least(0),
)
REPLICA_FETCH_MIN_BYTES = ConfigKey[int](
    "replica.fetch.min.bytes",
    INT,
    1,
    "The number of bytes that a leader waits for before it responds to a follower.",
    importance=HIGH,
)
REPLICA_FETCH_WAIT_MAX_MS = ConfigKey[int](
    "replica.fetch.wait.max.ms",
    INT,
    500,
    "The longest time that a leader waits for replica.fetch.min.bytes. Must be less than replica.lag.time.max.ms.",
    importance=HIGH,
)
REPLICA_FETCH_BACKOFF_MS = ConfigKey[int](
    "replica.fetch.backoff.ms",
    INT,
    1000,
    "The longest back-off of a follower after repeated errors.",
    at_least(0),
)

# --- Producers

PRODUCER_ID_EXPIRATION_MS = ConfigKey[int](
    "producer.id.expiration.ms",
    INT,
    86_400_000,
    "A partition expires a producer id that has written nothing to it for this long, unless it has an open "
    "transaction.",
    at_least(1),
    LOW,
    UpdateMode.CLUSTER_WIDE,
)
PRODUCER_ID_EXPIRATION_CHECK_INTERVAL_MS = ConfigKey[int](
    "producer.id.expiration.check.interval.ms",
    INT,
    600_000,
    "How often producer ids are checked for expiry.",
    at_least(1),
    LOW,
)
IDEMPOTENCE_DUPLICATE_CLASSIFICATION = ConfigKey[str](
    "idempotence.duplicate.classification",
    STRING,
    "strict",
    "The response to a batch that is already in the log, but is not among its producer's last five batches. "
    "strict: DUPLICATE_SEQUENCE_NUMBER, which clients treat as success. kafka: OUT_OF_ORDER_SEQUENCE_NUMBER, "
    "as for a gap; producers then request a new epoch and send the records again.",
    one_of("strict", "kafka"),
    LOW,
)
IDEMPOTENCE_UNKNOWN_PRODUCER = ConfigKey[str](
    "idempotence.unknown.producer",
    STRING,
    "accept",
    "The response to a batch of an unknown producer id whose sequence number is not 0. accept: the batch is "
    "appended. legacy-2.0: UNKNOWN_PRODUCER_ID, as in Kafka 2.0, for testing clients.",
    one_of("accept", "legacy-2.0"),
    LOW,
)

MESSAGE_MAX_DECOMPRESSED_BYTES = ConfigKey[int](
    "message.max.decompressed.bytes",
    INT,
    64 * 1024**2,
    "The largest number of bytes of a decompressed batch, if the broker must decompress the batch: for a "
    "compacted topic, for record.validation=full, or to find an offset by timestamp. A larger batch is refused "
    "(MESSAGE_TOO_LARGE) or, if it is already in the log, not decompressed.",
    at_least(1024 * 1024),
    LOW,
)

# --- Transactions

TRANSACTION_MAX_TIMEOUT_MS = ConfigKey[int](
    "transaction.max.timeout.ms",
    INT,
    900_000,
    "The longest transaction.timeout.ms that a producer may request.",
    at_least(1),
    HIGH,
)
TRANSACTIONAL_ID_EXPIRATION_MS = ConfigKey[int](
    "transactional.id.expiration.ms",
    INT,
    604_800_000,
    "A transactional id without an open transaction expires after it was idle for this time.",
    at_least(1),
    HIGH,
)
TRANSACTION_STATE_LOG_NUM_PARTITIONS = ConfigKey[int](
    "transaction.state.log.num.partitions",
    INT,
    50,
    "The number of partitions of __transaction_state, used when the topic is created.",
    at_least(1),
    HIGH,
)
TRANSACTION_STATE_LOG_REPLICATION_FACTOR = ConfigKey[int](
    "transaction.state.log.replication.factor",
    SHORT,
    3,
    "Replication factor of __transaction_state. The topic is created when that many brokers are alive. Without "
    "ZooKeeper, the factor is 1.",
    at_least(1),
    HIGH,
)
TRANSACTION_STATE_LOG_MIN_ISR = ConfigKey[int](
    "transaction.state.log.min.isr",
    INT,
    2,
    "min.insync.replicas of the topic __transaction_state, used when the topic is created. A value above the "
    "topic's replication factor is lowered to that factor.",
    at_least(1),
    HIGH,
)
TRANSACTION_STATE_LOG_SEGMENT_BYTES = ConfigKey[int](
    "transaction.state.log.segment.bytes",
    INT,
    100 * 1024**2,
    "Segment size of __transaction_state, used when the topic is created. Small segments are compacted early.",
    at_least(1),
    HIGH,
)
TRANSACTION_ABORT_TIMED_OUT_CLEANUP_INTERVAL_MS = ConfigKey[int](
    "transaction.abort.timed.out.transaction.cleanup.interval.ms",
    INT,
    10_000,
    "How often the coordinator checks open transactions for their timeout.",
    at_least(1),
    LOW,
)
TRANSACTION_REMOVE_EXPIRED_CLEANUP_INTERVAL_MS = ConfigKey[int](
    "transaction.remove.expired.transaction.cleanup.interval.ms",
    INT,
    3_600_000,
    "How often the coordinator checks transactional ids for transactional.id.expiration.ms.",
    at_least(1),
    LOW,
)
TRANSACTION_PARTITION_VERIFICATION_ENABLE = ConfigKey[bool](
    "transaction.partition.verification.enable",
    BOOLEAN,
    True,
    "Whether a leader verifies with the coordinator that a partition belongs to a transaction before it "
    "appends the transaction's records (KIP-890). Without verification, a late Produce request can block the "
    "last stable offset permanently (a hanging transaction).",
    importance=LOW,
)
TRANSACTION_TWO_PHASE_COMMIT_ENABLE = ConfigKey[bool](
    "transaction.two.phase.commit.enable",
    BOOLEAN,
    False,
    "Whether producers with the right TWO_PHASE_COMMIT may have transactions without a timeout, and whether a "
    "new producer with the same transactional id may keep and end an open transaction (KIP-939). Set the key "
    "on all brokers, after all brokers have a release that supports it. Readers with read_committed wait until "
    "the application or an operator ends such a transaction: `oncelog txns list` shows them.",
    importance=LOW,
)

KEY_MODULES: Final = (
    topic_defaults,
    zookeeper_keys,
    leadership_keys,
    throttle_keys,
    quota_keys,
    security_keys,
    authorizer_keys,
    group_keys,
    share_keys,
    streams_keys,
    transaction_keys,
    http_keys,
)
BROKER_KEYS: Final[Mapping[str, ConfigKey[Any]]] = {
    key.name: key
    for module in KEY_MODULES
    for key in (*vars(module).values(), *globals().values())
    if isinstance(key, ConfigKey)
}
"""Every key that is declared in this module and in KEY_MODULES, by name."""

BROKER_SYNONYMS: Final[Mapping[str, tuple[ConfigKey[Any], ...]]] = {
    "node.id": (BROKER_ID,),
    "log.dirs": (LOG_DIR,),
    "advertised.listeners": (LISTENERS,),
}
"""Maps the name of a key to its fallback keys: if the key is not set, the first fallback key that is set determines the
value.
"""

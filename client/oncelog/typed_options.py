"""The keyword arguments of Producer, Consumer, ShareConsumer and Admin, for type checkers and editors.

Generated from config.py by `make reference`, and not to be edited. A program that passes options on can name their
type: `def opened(**options: Unpack[ConsumerOptions]) -> Consumer`.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any, TypedDict

from oncelog.config import (
    Acks,
    CompressionType,
    ConsumerInterceptors,
    GroupProtocol,
    Isolation,
    OffsetReset,
    Partitioner,
    ProducerInterceptors,
    RecoveryStrategy,
    SaslMechanism,
    SecurityProtocol,
    ShareAcknowledgementMode,
    ShareAcquireMode,
    Token,
    TokenProvider,
)

if TYPE_CHECKING:
    from oncelog.tracing import Tracing  # needs OpenTelemetry


class ClientOptions(TypedDict, total=False):
    """The options common to producer, consumer and admin."""

    client_id: str
    request_timeout_ms: int
    """Milliseconds to wait for a response before the connection counts as dead."""
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    metadata_max_age_ms: int
    metadata_recovery_strategy: RecoveryStrategy
    """What to do when no known broker can be reached: with "rebootstrap" the client uses the bootstrap servers again
    (KIP-899); with "none" it keeps trying the known brokers.
    """
    socket_connection_setup_timeout_ms: int
    security_protocol: SecurityProtocol
    ssl_context: ssl.SSLContext | None
    """A TLS context that is used instead of the other ssl_ keys."""
    ssl_check_hostname: bool
    ssl_cafile: str | None
    """PEM file of the trusted authorities; by default the authorities that the system trusts."""
    ssl_certfile: str | None
    """PEM file of the client certificate, with the chain to an authority; the same file may contain the key."""
    ssl_keyfile: str | None
    ssl_password: str | None
    """The password of the key, if it is encrypted."""
    sasl_mechanism: SaslMechanism | None
    sasl_plain_username: str | None
    """The user name for PLAIN and SCRAM."""
    sasl_plain_password: str | None
    sasl_oauth_token_provider: Token | TokenProvider | None
    """For OAUTHBEARER: a function that returns a token or an awaitable of a token, or an object whose method `token`
    returns a token. The function is called in a thread.
    """
    sasl_kerberos_service_name: str
    """For GSSAPI: the first part of the brokers' principals, SERVICE/HOST. GSSAPI needs the extra `gssapi`."""


class ProducerOptions(ClientOptions, total=False):
    """The options of a producer."""

    acks: Acks
    """When a record counts as acknowledged. "all" (or -1): every in-sync replica has the record. 1: the leader has the
    record. 0: the record is sent, and its offset stays unknown.
    """
    linger_ms: int
    """Milliseconds that a batch waits for more records. With 0, the records of one iteration of the event loop are sent
    together.
    """
    batch_size: int
    """Maximum bytes of a batch before compression. A larger record gets a batch of its own."""
    compression_type: CompressionType
    buffer_memory: int
    """Maximum bytes of all unacknowledged batches; while the limit is reached, `send` waits (up to max_block_ms)."""
    max_block_ms: int
    max_request_size: int
    max_in_flight_requests_per_connection: int
    """Maximum number of requests in flight on each connection. Without idempotence, a value above 1 may reorder records
    if a batch is retried after the next batch has succeeded.
    """
    retries: int
    delivery_timeout_ms: int
    """Milliseconds from `send` to success or failure, including all retries."""
    metadata_max_idle_ms: int
    """Milliseconds without a send after which a topic is dropped from the metadata until its next record; without this
    limit, metadata requests could re-create a topic after its deletion.
    """
    partitioner_ignore_keys: bool
    partitioner: Partitioner | None
    """A function that chooses the partition of each record that is sent without a partition. The arguments of the
    function are
    the key (bytes or None), all partitions of the topic, and the partitions that have a leader. None means Java's
    choice, the murmur2 hash of the key.
    """
    interceptors: ProducerInterceptors
    """Objects whose methods are called when records are sent and acknowledged."""
    enable_idempotence: bool | None
    """Idempotence: brokers recognise retries, so each record is in the log once and in order, during the life of this
    producer (S29). Idempotence requires acks="all", retries above 0 and at most 5 requests in flight. None, the
    default, enables idempotence if the other settings allow it (S14).
    """
    transactional_id: str | None
    """Enables transactions; a new producer with the same id fences the previous one."""
    transaction_timeout_ms: int
    """Milliseconds after which the coordinator aborts an open transaction; the broker's transaction.max.timeout.ms is
    the limit.
    """
    two_phase_commit: bool
    """If True, transactions have no timeout, and `start` does not abort an open transaction, so that
    `Producer.complete_transaction` can end it (KIP-939). The broker needs transaction.two.phase.commit.enable, and the
    user needs the operations Write and
    TwoPhaseCommit on the transactional id.
    """
    tracing: Tracing | bool | None
    """OpenTelemetry: True, or an `oncelog.tracing.Tracing`, creates spans of sends and transactions, and W3C trace
    context in record headers. Tracing needs the extra `otel`.
    """


class ConsumerOptions(ClientOptions, total=False):
    """The options of a consumer."""

    fetch_min_bytes: int
    fetch_max_wait_ms: int
    fetch_max_bytes: int
    """Maximum bytes of one Fetch response. A first batch above the limit is still returned, so that it can be read."""
    max_partition_fetch_bytes: int
    max_poll_records: int
    auto_offset_reset: OffsetReset
    isolation_level: Isolation
    """"read_committed" returns only records that do not belong to open or aborted transactions."""
    max_decompressed_bytes: int
    """Maximum bytes of one batch after decompression. A larger batch raises CorruptRecords, and the position stays
    before it. Kafka has no such key. Without this limit, a malicious batch of a few kilobytes could fill the memory.
    """
    check_crcs: bool
    default_api_timeout_ms: int
    allow_auto_create_topics: bool
    client_rack: str
    """The consumer's rack. The broker names a replica in this rack as the replica to fetch from (KIP-392), and
    assignors prefer partitions with such a replica.
    """
    group_id: str | None
    """The consumer group. The members of the group share the partitions of the topics that they subscribe to. Only a
    consumer with a group can commit offsets.
    """
    group_instance_id: str | None
    """The id of a static member (KIP-345), which keeps its partitions if it restarts within session.timeout.ms."""
    group_protocol: GroupProtocol
    """"classic": a member assigns the partitions. "consumer": the broker assigns the partitions, and members change
    their partitions independently (KIP-848, Kafka 4.0). With "consumer", the session timeout, the heartbeat interval
    and the assignors are settings of the broker.
    """
    group_remote_assignor: str | None
    """With group_protocol="consumer", the broker's assignor that this member requests: "uniform" or "range"."""
    partition_assignment_strategy: list[Any] | tuple[Any, ...]
    """Assignors in order of preference, by name or as objects of the application. If all assignors are cooperative,
    members continue reading while the group rebalances. The default lists both kinds of assignors, so that a group can
    later change to cooperative assignors by a rolling restart (as in Java).
    """
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    """Milliseconds without a poll after which a member leaves the group. A rebalance waits for the same time for
    members to rejoin.
    """
    interceptors: ConsumerInterceptors
    """Objects whose methods are called when records are returned and offsets committed."""
    exclude_internal_topics: bool
    """If True, a pattern does not match internal topics such as __consumer_offsets."""
    tracing: Tracing | bool | None
    """OpenTelemetry: True, or an `oncelog.tracing.Tracing`, creates spans of polls and of the work within
    `Consumer.processing`. Tracing needs the extra `otel`.
    """


class ShareConsumerOptions(ClientOptions, total=False):
    """The options of a consumer of a share group."""

    group_id: str
    """The share group. The group id is required."""
    share_acknowledgement_mode: ShareAcknowledgementMode
    """"implicit": the next poll accepts the records of the previous poll. "explicit": the application acknowledges each
    record with accept, release or reject.
    """
    share_acquire_mode: ShareAcquireMode
    """"batch_optimized": the broker acquires entire batches for the consumer, so a poll may return more than
    max_poll_records.
    "record_limit": a poll returns at most max_poll_records.
    """
    max_poll_records: int
    """Maximum number of records that a broker returns for one request."""
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    """Milliseconds that a broker waits for records. Acknowledgements are delayed by at most this time too."""
    fetch_max_bytes: int
    max_decompressed_bytes: int
    """Maximum bytes of one batch after decompression. The consumer rejects all records of a larger batch."""
    check_crcs: bool
    default_api_timeout_ms: int
    client_rack: str


class AdminOptions(ClientOptions, total=False):
    """`default_api_timeout_ms` bounds each call with all its retries."""

    default_api_timeout_ms: int

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
    """The wait for a response before the connection counts as dead."""
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    metadata_max_age_ms: int
    metadata_recovery_strategy: RecoveryStrategy
    """What to do when no known broker can be reached: "rebootstrap" uses the bootstrap servers again (KIP-899), "none"
    keeps trying the known brokers."""
    socket_connection_setup_timeout_ms: int
    security_protocol: SecurityProtocol
    ssl_context: ssl.SSLContext | None
    """Used instead of the other ssl_ keys."""
    ssl_check_hostname: bool
    ssl_cafile: str | None
    """PEM file of the trusted authorities; by default those of the system."""
    ssl_certfile: str | None
    """PEM file of the client certificate, with the chain to an authority; the key may be in the same file."""
    ssl_keyfile: str | None
    ssl_password: str | None
    """The password of the key, if it is encrypted."""
    sasl_mechanism: SaslMechanism | None
    sasl_plain_username: str | None
    """For PLAIN and SCRAM."""
    sasl_plain_password: str | None
    sasl_oauth_token_provider: Token | TokenProvider | None
    """For OAUTHBEARER: a function that returns a token, or an awaitable of one, or an object with such a `token`
    method. Called in a thread."""
    sasl_kerberos_service_name: str
    """For GSSAPI: the first part of the brokers' principals, SERVICE/HOST. Needs the extra `gssapi`."""


class ProducerOptions(ClientOptions, total=False):
    """The options of a producer."""

    acks: Acks
    """"all" (or -1): acknowledged when every in-sync replica has the record; 1: when the leader has it; 0: when sent,
    without an offset."""
    linger_ms: int
    """How long a batch waits for more records. 0 sends the records of one iteration of the event loop at once."""
    batch_size: int
    """Bytes before compression. A larger record gets a batch of its own."""
    compression_type: CompressionType
    buffer_memory: int
    """Bytes of all unacknowledged batches; beyond them `send` waits (max_block_ms at most)."""
    max_block_ms: int
    max_request_size: int
    max_in_flight_requests_per_connection: int
    """Without idempotence, more than 1 may reorder records when a batch fails and the next succeeds."""
    retries: int
    delivery_timeout_ms: int
    """From `send` to success or failure, including all retries."""
    metadata_max_idle_ms: int
    """A topic without sends for this long is dropped from the metadata until its next record: further requests would
    re-create it after its deletion."""
    partitioner_ignore_keys: bool
    partitioner: Partitioner | None
    """A function of the key (bytes or None), all partitions of the topic and those that have a leader, that returns the
    partition of each record for which none is named. None: Java's choice, by the murmur2 hash of the key."""
    interceptors: ProducerInterceptors
    """Objects whose methods are called when records are sent and acknowledged."""
    enable_idempotence: bool | None
    """Idempotence: retries are recognised, so each record is in the log once and in order, while this producer lives
    (S29). Requires acks="all", retries above 0 and at most 5 requests in flight; None: on if these allow it, so on by
    default (S14)."""
    transactional_id: str | None
    """Enables transactions; a new producer with the same id fences the previous one."""
    transaction_timeout_ms: int
    """The coordinator aborts a transaction that is open for longer; limited by transaction.max.timeout.ms of the
    broker."""
    two_phase_commit: bool
    """Transactions have no timeout, and `start` keeps an open one, for `Producer.complete_transaction` (KIP-939). The
    broker needs transaction.two.phase.commit.enable, the user the operations Write and TwoPhaseCommit on the
    transactional id."""
    tracing: Tracing | bool | None
    """OpenTelemetry: True, or an `oncelog.tracing.Tracing`, for spans of sends and transactions, and W3C trace context
    in record headers. Needs the extra `otel`."""


class ConsumerOptions(ClientOptions, total=False):
    """The options of a consumer."""

    fetch_min_bytes: int
    fetch_max_wait_ms: int
    fetch_max_bytes: int
    """Bytes of one Fetch response. A larger first batch is still returned, so that it can be read."""
    max_partition_fetch_bytes: int
    max_poll_records: int
    auto_offset_reset: OffsetReset
    isolation_level: Isolation
    """"read_committed" returns only records outside open and aborted transactions."""
    max_decompressed_bytes: int
    """Limit of one batch after decompression. A larger batch raises CorruptRecords, and the position stays before it.
    Kafka has no such key: without it, a malicious batch of a few kilobytes could fill the memory."""
    check_crcs: bool
    default_api_timeout_ms: int
    allow_auto_create_topics: bool
    client_rack: str
    """The consumer's rack. The broker names a replica in this rack to fetch from (KIP-392), and assignors prefer it."""
    group_id: str | None
    """The consumer group. Its members share the topics of `subscribe`; offsets can be committed only with a group."""
    group_instance_id: str | None
    """A static member (KIP-345): it keeps its partitions if it comes back within session.timeout.ms."""
    group_protocol: GroupProtocol
    """"consumer": the broker assigns the partitions, and members move one by one (KIP-848, Kafka 4.0). The broker has
    the session timeout, the heartbeat interval and the assignors then."""
    group_remote_assignor: str | None
    """The broker's assignor that this member wants, with group_protocol="consumer": "uniform" or "range"."""
    partition_assignment_strategy: list[Any] | tuple[Any, ...]
    """Assignors in order of preference, by name or as objects of the application. If all are cooperative, members go on
    reading while the group rebalances. The default allows a later change to cooperative assignors (as in Java)."""
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    """A member that does not poll for this long leaves the group. A rebalance waits this long for members to rejoin."""
    interceptors: ConsumerInterceptors
    """Objects whose methods are called when records are returned and offsets committed."""
    exclude_internal_topics: bool
    """A pattern does not match topics like __consumer_offsets."""
    tracing: Tracing | bool | None
    """OpenTelemetry: True, or a `oncelog.tracing.Tracing`, for spans of polls, and of the work within
    `Consumer.processing`. It needs the extra `otel`."""


class ShareConsumerOptions(ClientOptions, total=False):
    """The options of a consumer of a share group."""

    group_id: str
    """The share group. It must be given."""
    share_acknowledgement_mode: ShareAcknowledgementMode
    """"implicit": the next poll accepts the records of the last one. "explicit": the application says of each record
    what is to become of it."""
    share_acquire_mode: ShareAcquireMode
    """"batch_optimized": whole batches are acquired, so that a poll may exceed max_poll_records. "record_limit": never
    more than max_poll_records."""
    max_poll_records: int
    """The most records that a broker gives for one request."""
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    """How long a broker waits for records. Acknowledgements to it wait as long at most."""
    fetch_max_bytes: int
    max_decompressed_bytes: int
    """Limit of one batch after decompression. The records of a larger batch are rejected."""
    check_crcs: bool
    default_api_timeout_ms: int
    client_rack: str


class AdminOptions(ClientOptions, total=False):
    """`default_api_timeout_ms` bounds each call with all its retries."""

    default_api_timeout_ms: int

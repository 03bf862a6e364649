"""The keyword arguments of Producer, Consumer and Admin, for type checkers and editors.

Generated from config.py by `make reference`, and not to be edited. A program that passes options on can name their
type: `def opened(**options: Unpack[ConsumerOptions]) -> Consumer`.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any, TypedDict

from oncelog.config import (
    Acks,
    CompressionType,
    GroupProtocol,
    Isolation,
    OffsetReset,
    RecoveryStrategy,
    SaslMechanism,
    SecurityProtocol,
    Token,
    TokenProvider,
)

if TYPE_CHECKING:
    from oncelog.tracing import Tracing  # needs OpenTelemetry


class ClientOptions(TypedDict, total=False):
    """What producer, consumer and admin have in common."""

    client_id: str
    request_timeout_ms: int
    """How long to wait for the answer to a request before the connection counts as dead."""
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    metadata_max_age_ms: int
    metadata_recovery_strategy: RecoveryStrategy
    """Where none of the brokers that we know of can be reached: "rebootstrap" begins anew with the bootstrap servers
    (KIP-899), "none" goes on trying those that we know."""
    socket_connection_setup_timeout_ms: int
    security_protocol: SecurityProtocol
    ssl_context: ssl.SSLContext | None
    """In place of what the other ssl_ keys say."""
    ssl_check_hostname: bool
    ssl_cafile: str | None
    """PEM: the authorities that are trusted; without it those of the system."""
    ssl_certfile: str | None
    """PEM: what we show, with the chain to an authority; the key may be in the same file."""
    ssl_keyfile: str | None
    ssl_password: str | None
    """Of the key, if it is encrypted."""
    sasl_mechanism: SaslMechanism | None
    sasl_plain_username: str | None
    """For PLAIN and for SCRAM."""
    sasl_plain_password: str | None
    sasl_oauth_token_provider: Token | TokenProvider | None
    """For OAUTHBEARER: a function that returns a token, or an awaitable of one, or an object with such a `token`. It is
    called in a thread."""


class ProducerOptions(ClientOptions, total=False):
    """How records are gathered into batches, sent and acknowledged."""

    acks: Acks
    """"all" (or -1): every in-sync replica has it; 1: the leader has it; 0: it was sent, and no offset is known."""
    linger_ms: int
    """How long a batch waits for more records. 0 sends at once what gathers within one turn of the event loop."""
    batch_size: int
    """Bytes before compression. A larger record travels in a batch of its own."""
    compression_type: CompressionType
    buffer_memory: int
    """Bytes of all batches not yet acknowledged; `send` waits (max_block_ms at most) when they are used up."""
    max_block_ms: int
    max_request_size: int
    max_in_flight_requests_per_connection: int
    """Without idempotence and with more than 1, records may change places when a batch fails and the next does not."""
    retries: int
    delivery_timeout_ms: int
    """From `send` to success or failure, with all retries."""
    metadata_max_idle_ms: int
    """A topic to which nothing is sent for so long is forgotten until the next record for it: to go on asking for it
    would have it made again after somebody has deleted it."""
    partitioner_ignore_keys: bool
    enable_idempotence: bool | None
    """Whether the broker can tell a retry from a new record: each record is in the log once, and in order, as long as
    this producer lives (S29). It needs acks="all", retries above 0 and at most 5 requests in flight; None means: where
    these allow it, so by default it is on (S14)."""
    transactional_id: str | None
    """With it, records are sent in transactions; who starts with the same one takes over from whoever had it."""
    transaction_timeout_ms: int
    """After this time the coordinator aborts an open transaction by itself; transaction.max.timeout.ms of the broker
    bounds it."""
    tracing: Tracing | bool | None
    """OpenTelemetry: True, or a `oncelog.tracing.Tracing`, for spans of what is sent and of transactions, and W3C trace
    context in the headers of records. It needs the extra `otel`."""


class ConsumerOptions(ClientOptions, total=False):
    """What is fetched at once, and from where a partition without a position starts."""

    fetch_min_bytes: int
    fetch_max_wait_ms: int
    fetch_max_bytes: int
    """Bytes of one Fetch answer. A first batch that is larger is sent all the same, or nobody could read it."""
    max_partition_fetch_bytes: int
    max_poll_records: int
    auto_offset_reset: OffsetReset
    isolation_level: Isolation
    """"read_committed" returns only what is not in an open or aborted transaction."""
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
    """A static member (KIP-345): it keeps its partitions when it comes back within session.timeout.ms."""
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
    exclude_internal_topics: bool
    """A pattern does not match topics like __consumer_offsets."""
    tracing: Tracing | bool | None
    """OpenTelemetry: True, or a `oncelog.tracing.Tracing`, for spans of polls, and of what is done within
    `Consumer.processing`. It needs the extra `otel`."""


class AdminOptions(ClientOptions, total=False):
    """`default_api_timeout_ms` bounds each call with all its retries."""

    default_api_timeout_ms: int

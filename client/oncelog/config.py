"""Kafka's client configuration: its keys with underscores and its defaults; the constructors of clients refuse invalid
combinations.

`ProducerConfig(bootstrap_servers="host:9092", acks="all").validate()`. Kafka's keys that would have no effect in this
client are omitted.
Times are in milliseconds, sizes in bytes.

The fields below are the only declaration of an option. `validate` checks values against the declared types and bounds.
The typed keywords of the clients (typed_options.py) and docs/reference are generated from the fields (`make
reference`).
"""

from __future__ import annotations

import difflib
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import Field, dataclass, field, fields
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple, Protocol, TypeVar, get_args, get_type_hints

from oncelog.address import Address
from oncelog.errors import ConfigError
from oncelog.interceptors import ConsumerInterceptor, ProducerInterceptor
from oncelog.names import why_not_a_string
from oncelog.type_checks import fits, words
from oncelog_protocol.records.columns import MAX_DECOMPRESSED_BYTES

if TYPE_CHECKING:
    from oncelog.tracing import Tracing

C = TypeVar("C", bound="ClientConfig")

MAX_INT32: Final = 2**31 - 1
MAX_REQUEST_BYTES: Final = 100 * 1024 * 1024
"""Largest request in bytes: the default of a broker's socket.request.max.bytes."""
DEFAULT_PORT: Final = 9092
MAX_IDEMPOTENT_IN_FLIGHT: Final = 5
"""Largest number of requests in flight with idempotence. For each partition, a broker remembers the last five batches
of a producer, and recognises only retries of these batches as duplicates (S8, S14).
"""

Acks = Literal["all", "-1", "0", "1", -1, 0, 1]
CompressionType = Literal["none", "gzip", "snappy", "lz4", "zstd"]
SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"]
RecoveryStrategy = Literal["rebootstrap", "none"]
OffsetReset = Literal["earliest", "latest", "none"]
Isolation = Literal["read_uncommitted", "read_committed"]
GroupProtocol = Literal["classic", "consumer"]
ShareAcknowledgementMode = Literal["implicit", "explicit"]
ShareAcquireMode = Literal["batch_optimized", "record_limit"]

ACKS: Final = {"all": -1, -1: -1, "-1": -1, 0: 0, "0": 0, 1: 1, "1": 1}
OAUTHBEARER: Final = "OAUTHBEARER"
GSSAPI: Final = "GSSAPI"
REBOOTSTRAP: Final = "rebootstrap"
SASL_MECHANISMS: Final = get_args(SaslMechanism)
COMPRESSION_TYPES: Final = get_args(CompressionType)
SECURITY_PROTOCOLS: Final = get_args(SecurityProtocol)
RECOVERY_STRATEGIES: Final = get_args(RecoveryStrategy)
OFFSET_RESETS: Final = get_args(OffsetReset)
ISOLATION_LEVELS: Final = get_args(Isolation)
SHARE_ACKNOWLEDGEMENT_MODES: Final = get_args(ShareAcknowledgementMode)
SHARE_ACQUIRE_MODES: Final = get_args(ShareAcquireMode)

Partitioner = Callable[[bytes | None, list[int], list[int]], int]
"""Returns the partition of a record; the arguments are its key as bytes, all partitions of the topic, and the
partitions that have a leader.
"""
ProducerInterceptors = Iterable[ProducerInterceptor]
ConsumerInterceptors = Iterable[ConsumerInterceptor]
Token = Callable[[], str | Awaitable[str]]
"""Returns an OAUTHBEARER token."""


class TokenProvider(Protocol):
    """An object with a method that returns an OAUTHBEARER token."""

    def token(self) -> str | Awaitable[str]: ...


class Bounds(NamedTuple):
    """The range of valid values of an integer option: from low to high, both included."""

    low: int
    high: int = MAX_INT32


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """The options common to producer, consumer and admin."""

    BOUNDS: ClassVar[dict[str, Bounds]] = {
        "request_timeout_ms": Bounds(1),
        "reconnect_backoff_ms": Bounds(0),
        "reconnect_backoff_max_ms": Bounds(0),
        "retry_backoff_ms": Bounds(0),
        "retry_backoff_max_ms": Bounds(0),
        "metadata_max_age_ms": Bounds(1),
        "socket_connection_setup_timeout_ms": Bounds(1),
        "default_api_timeout_ms": Bounds(1),
    }
    NAMES: ClassVar[tuple[str, ...]] = ("client_id",)
    """The keys of options whose values are sent to brokers as strings; the values must be encodable as UTF-8."""

    bootstrap_servers: str | Iterable[str]
    """One "host:port", or several separated by commas or in a list. The client learns all other brokers from any one of
    these.
    """
    client_id: str = "oncelog"
    request_timeout_ms: int = 30_000
    """Milliseconds to wait for a response before the connection counts as dead."""
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    metadata_max_age_ms: int = 300_000
    metadata_recovery_strategy: RecoveryStrategy = REBOOTSTRAP
    """What to do when no known broker can be reached: with "rebootstrap" the client uses the bootstrap servers again
    (KIP-899); with "none" it keeps trying the known brokers.
    """
    socket_connection_setup_timeout_ms: int = 10_000
    security_protocol: SecurityProtocol = "PLAINTEXT"
    ssl_context: ssl.SSLContext | None = None
    """A TLS context that is used instead of the other ssl_ keys."""
    ssl_check_hostname: bool = True
    ssl_cafile: str | None = None
    """PEM file of the trusted authorities; by default the authorities that the system trusts."""
    ssl_certfile: str | None = None
    """PEM file of the client certificate, with the chain to an authority; the same file may contain the key."""
    ssl_keyfile: str | None = None
    ssl_password: str | None = field(default=None, repr=False)
    """The password of the key, if it is encrypted."""
    sasl_mechanism: SaslMechanism | None = None
    sasl_plain_username: str | None = None
    """The user name for PLAIN and SCRAM."""
    sasl_plain_password: str | None = field(default=None, repr=False)
    sasl_oauth_token_provider: Token | TokenProvider | None = field(default=None, repr=False)
    """For OAUTHBEARER: a function that returns a token or an awaitable of a token, or an object whose method `token`
    returns a token. The function is called in a thread.
    """
    sasl_kerberos_service_name: str = "kafka"
    """For GSSAPI: the first part of the brokers' principals, SERVICE/HOST. GSSAPI needs the extra `gssapi`."""

    def validate(self: C) -> C:
        """Check the values and return the config itself. Raises ConfigError, which names the key, the value and the
        allowed values.
        """
        cls: Any = type(self)  # mypy considers the class of a frozen dataclass unhashable
        types = declared_types(cls)
        for option in fields(self):
            if option.name in self.BOUNDS:
                _check_bounds(option.name, getattr(self, option.name), self.BOUNDS[option.name])
            else:
                _check_type(option, getattr(self, option.name), types[option.name])
        self.bootstrap_addresses()
        for key in self.NAMES:
            _check_name(key, getattr(self, key))
        _check_choice("metadata_recovery_strategy", self.metadata_recovery_strategy, RECOVERY_STRATEGIES)
        _check_order(self, "reconnect_backoff_ms", "reconnect_backoff_max_ms")
        _check_order(self, "retry_backoff_ms", "retry_backoff_max_ms")
        _check_security(self)
        return self

    def bootstrap_addresses(self) -> list[Address]:
        servers = self.bootstrap_servers
        texts = servers.split(",") if isinstance(servers, str) else list(servers)
        addresses = [_address(text.strip()) for text in texts if text.strip()]
        if not addresses:
            raise ConfigError(f"bootstrap_servers={servers!r}: at least one host:port is needed")
        return addresses


DEFAULT_TRANSACTION_TIMEOUT_MS: Final = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig(ClientConfig):
    """The options of a producer."""

    BOUNDS: ClassVar[dict[str, Bounds]] = {
        **ClientConfig.BOUNDS,
        "linger_ms": Bounds(0),
        "batch_size": Bounds(0, MAX_REQUEST_BYTES),
        "buffer_memory": Bounds(1, 2**63 - 1),
        "max_block_ms": Bounds(0),
        "max_request_size": Bounds(1, MAX_REQUEST_BYTES),
        "max_in_flight_requests_per_connection": Bounds(1),
        "retries": Bounds(0),
        "delivery_timeout_ms": Bounds(0),
        "transaction_timeout_ms": Bounds(1),
        "metadata_max_idle_ms": Bounds(5_000),
    }
    NAMES: ClassVar[tuple[str, ...]] = (*ClientConfig.NAMES, "transactional_id")

    acks: Acks = "all"
    """When a record counts as acknowledged. "all" (or -1): every in-sync replica has the record. 1: the leader has the
    record. 0: the record is sent, and its offset stays unknown.
    """
    linger_ms: int = 5
    """Milliseconds that a batch waits for more records. With 0, the records of one iteration of the event loop are sent
    together.
    """
    batch_size: int = 16_384
    """Maximum bytes of a batch before compression. A larger record gets a batch of its own."""
    compression_type: CompressionType = "none"
    buffer_memory: int = 33_554_432
    """Maximum bytes of all unacknowledged batches; while the limit is reached, `send` waits (up to max_block_ms)."""
    max_block_ms: int = 60_000
    max_request_size: int = 1_048_576
    max_in_flight_requests_per_connection: int = 5
    """Maximum number of requests in flight on each connection. Without idempotence, a value above 1 may reorder records
    if a batch is retried after the next batch has succeeded.
    """
    retries: int = MAX_INT32
    delivery_timeout_ms: int = 120_000
    """Milliseconds from `send` to success or failure, including all retries."""
    metadata_max_idle_ms: int = 300_000
    """Milliseconds without a send after which a topic is dropped from the metadata until its next record; without this
    limit, metadata requests could re-create a topic after its deletion.
    """
    partitioner_ignore_keys: bool = False
    partitioner: Partitioner | None = None
    """A function that chooses the partition of each record that is sent without a partition. The arguments of the
    function are
    the key (bytes or None), all partitions of the topic, and the partitions that have a leader. None means Java's
    choice, the murmur2 hash of the key.
    """
    interceptors: ProducerInterceptors = ()
    """Objects whose methods are called when records are sent and acknowledged."""
    enable_idempotence: bool | None = None
    """Idempotence: brokers recognise retries, so each record is in the log once and in order, during the life of this
    producer (S29). Idempotence requires acks="all", retries above 0 and at most 5 requests in flight. None, the
    default, enables idempotence if the other settings allow it (S14).
    """
    transactional_id: str | None = None
    """Enables transactions; a new producer with the same id fences the previous one."""
    transaction_timeout_ms: int = DEFAULT_TRANSACTION_TIMEOUT_MS
    """Milliseconds after which the coordinator aborts an open transaction; the broker's transaction.max.timeout.ms is
    the limit.
    """
    two_phase_commit: bool = False
    """If True, transactions have no timeout, and `start` does not abort an open transaction, so that
    `Producer.complete_transaction` can end it (KIP-939). The broker needs transaction.two.phase.commit.enable, and the
    user needs the operations Write and
    TwoPhaseCommit on the transactional id.
    """
    tracing: Tracing | bool | None = None
    """OpenTelemetry: True, or an `oncelog.tracing.Tracing`, creates spans of sends and transactions, and W3C trace
    context in record headers. Tracing needs the extra `otel`.
    """

    def validate(self) -> ProducerConfig:
        super(ProducerConfig, self).validate()
        _check_choice("acks", self.acks, ("all", -1, 0, 1), ACKS)
        _check_choice("compression_type", self.compression_type, COMPRESSION_TYPES)
        if self.partitioner is not None and not callable(self.partitioner):
            raise ConfigError("partitioner: must be a function of the key, all partitions and the available ones")
        _check_interceptors(self.interceptors, ProducerInterceptor)
        least = self.linger_ms + self.request_timeout_ms
        if self.delivery_timeout_ms < least:
            raise ConfigError(
                f"delivery_timeout_ms={self.delivery_timeout_ms}: must be at least linger_ms + request_timeout_ms,"
                f" which is {least}"
            )
        self._validate_idempotence()
        return self

    def _validate_idempotence(self) -> None:
        if self.transactional_id is not None:
            if not self.transactional_id:
                raise ConfigError(f"transactional_id={self.transactional_id!r}: must not be empty")
            if self.enable_idempotence is False:
                raise ConfigError("enable_idempotence=False: transactions (transactional_id) need idempotence")
        elif self.two_phase_commit:
            raise ConfigError("two_phase_commit=True: needs a transactional_id")
        if self.two_phase_commit and self.transaction_timeout_ms != DEFAULT_TRANSACTION_TIMEOUT_MS:
            raise ConfigError(
                f"transaction_timeout_ms={self.transaction_timeout_ms}: with two_phase_commit=True transactions have no"
                " timeout"
            )
        obstacle = self._obstacle_to_idempotence()
        if obstacle and (self.enable_idempotence or self.transactional_id is not None):
            needed = "transactions need it" if self.transactional_id is not None else "idempotence needs it"
            raise ConfigError(f"{obstacle}, as {needed}")

    def _obstacle_to_idempotence(self) -> str | None:
        """Return the setting that prevents idempotence (S14); None if idempotence is possible."""
        in_flight = self.max_in_flight_requests_per_connection
        if self.required_acks != ACKS["all"]:
            return f"acks={self.acks!r}: must be 'all'"
        if self.retries == 0:
            return "retries=0: must be above 0"
        if in_flight > MAX_IDEMPOTENT_IN_FLIGHT:
            return f"max_in_flight_requests_per_connection={in_flight}: must be at most {MAX_IDEMPOTENT_IN_FLIGHT}"
        return None

    @property
    def is_idempotent(self) -> bool:
        """Whether records carry a producer id and sequence numbers."""
        return self.enable_idempotence is not False and self._obstacle_to_idempotence() is None

    @property
    def required_acks(self) -> int:
        """The value of acks in requests: -1, 0 or 1."""
        return ACKS[self.acks]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig(ClientConfig):
    """The options of a consumer."""

    BOUNDS: ClassVar[dict[str, Bounds]] = {
        **ClientConfig.BOUNDS,
        "fetch_min_bytes": Bounds(0),
        "fetch_max_wait_ms": Bounds(0),
        "fetch_max_bytes": Bounds(0),
        "max_partition_fetch_bytes": Bounds(0),
        "max_poll_records": Bounds(1),
        "auto_commit_interval_ms": Bounds(1),
        "session_timeout_ms": Bounds(1),
        "heartbeat_interval_ms": Bounds(1),
        "max_poll_interval_ms": Bounds(1),
        "max_decompressed_bytes": Bounds(1),
    }
    NAMES: ClassVar[tuple[str, ...]] = (
        *ClientConfig.NAMES,
        "group_id",
        "group_instance_id",
        "group_remote_assignor",
        "client_rack",
    )

    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 52_428_800
    """Maximum bytes of one Fetch response. A first batch above the limit is still returned, so that it can be read."""
    max_partition_fetch_bytes: int = 1_048_576
    max_poll_records: int = 500
    auto_offset_reset: OffsetReset = "latest"
    isolation_level: Isolation = "read_uncommitted"
    """"read_committed" returns only records that do not belong to open or aborted transactions."""
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES
    """Maximum bytes of one batch after decompression. A larger batch raises CorruptRecords, and the position stays
    before it. Kafka has no such key. Without this limit, a malicious batch of a few kilobytes could fill the memory.
    """
    check_crcs: bool = True
    default_api_timeout_ms: int = 60_000
    allow_auto_create_topics: bool = True
    client_rack: str = ""
    """The consumer's rack. The broker names a replica in this rack as the replica to fetch from (KIP-392), and
    assignors prefer partitions with such a replica.
    """

    group_id: str | None = None
    """The consumer group. The members of the group share the partitions of the topics that they subscribe to. Only a
    consumer with a group can commit offsets.
    """
    group_instance_id: str | None = None
    """The id of a static member (KIP-345), which keeps its partitions if it restarts within session.timeout.ms."""
    group_protocol: GroupProtocol = "classic"
    """"classic": a member assigns the partitions. "consumer": the broker assigns the partitions, and members change
    their partitions independently (KIP-848, Kafka 4.0). With "consumer", the session timeout, the heartbeat interval
    and the assignors are settings of the broker.
    """
    group_remote_assignor: str | None = None
    """With group_protocol="consumer", the broker's assignor that this member requests: "uniform" or "range"."""
    partition_assignment_strategy: list[Any] | tuple[Any, ...] = ("range", "cooperative-sticky")
    """Assignors in order of preference, by name or as objects of the application. If all assignors are cooperative,
    members continue reading while the group rebalances. The default lists both kinds of assignors, so that a group can
    later change to cooperative assignors by a rolling restart (as in Java).
    """
    enable_auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    """Milliseconds without a poll after which a member leaves the group. A rebalance waits for the same time for
    members to rejoin.
    """
    interceptors: ConsumerInterceptors = ()
    """Objects whose methods are called when records are returned and offsets committed."""
    exclude_internal_topics: bool = True
    """If True, a pattern does not match internal topics such as __consumer_offsets."""
    tracing: Tracing | bool | None = None
    """OpenTelemetry: True, or an `oncelog.tracing.Tracing`, creates spans of polls and of the work within
    `Consumer.processing`. Tracing needs the extra `otel`.
    """

    def validate(self) -> ConsumerConfig:
        super(ConsumerConfig, self).validate()
        self._validate_group()
        _check_choice("auto_offset_reset", self.auto_offset_reset, OFFSET_RESETS)
        _check_choice("isolation_level", self.isolation_level, ISOLATION_LEVELS)
        _check_interceptors(self.interceptors, ConsumerInterceptor)
        if self.fetch_max_wait_ms >= self.request_timeout_ms:
            raise ConfigError(
                f"fetch_max_wait_ms={self.fetch_max_wait_ms}: must be below request_timeout_ms,"
                f" which is {self.request_timeout_ms}, or a fetch that waits for data counts as a dead connection"
            )
        return self

    def _validate_group(self) -> None:
        if self.group_id is not None and not self.group_id:
            raise ConfigError("group_id='': must not be empty; without a group, leave it out")
        if self.group_instance_id is not None and not (self.group_id and self.group_instance_id):
            raise ConfigError(f"group_instance_id={self.group_instance_id!r}: must not be empty, and needs a group_id")
        if self.group_remote_assignor is not None and self.group_protocol != "consumer":
            raise ConfigError("group_remote_assignor: needs group_protocol='consumer'")
        if not self.partition_assignment_strategy:
            raise ConfigError(
                f"partition_assignment_strategy={self.partition_assignment_strategy!r}: must not be empty"
            )
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ConfigError(
                f"heartbeat_interval_ms={self.heartbeat_interval_ms}: must be below session_timeout_ms,"
                f" which is {self.session_timeout_ms}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareConsumerConfig(ClientConfig):
    """The options of a consumer of a share group."""

    BOUNDS: ClassVar[dict[str, Bounds]] = {
        **ClientConfig.BOUNDS,
        "fetch_min_bytes": Bounds(0),
        "fetch_max_wait_ms": Bounds(0),
        "fetch_max_bytes": Bounds(0),
        "max_poll_records": Bounds(1),
        "max_decompressed_bytes": Bounds(1),
    }
    NAMES: ClassVar[tuple[str, ...]] = (*ClientConfig.NAMES, "group_id", "client_rack")

    group_id: str = ""
    """The share group. The group id is required."""
    share_acknowledgement_mode: ShareAcknowledgementMode = "implicit"
    """"implicit": the next poll accepts the records of the previous poll. "explicit": the application acknowledges each
    record with accept, release or reject.
    """
    share_acquire_mode: ShareAcquireMode = "batch_optimized"
    """"batch_optimized": the broker acquires entire batches for the consumer, so a poll may return more than
    max_poll_records.
    "record_limit": a poll returns at most max_poll_records.
    """
    max_poll_records: int = 500
    """Maximum number of records that a broker returns for one request."""
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    """Milliseconds that a broker waits for records. Acknowledgements are delayed by at most this time too."""
    fetch_max_bytes: int = 52_428_800
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES
    """Maximum bytes of one batch after decompression. The consumer rejects all records of a larger batch."""
    check_crcs: bool = True
    default_api_timeout_ms: int = 60_000
    client_rack: str = ""

    def validate(self) -> ShareConsumerConfig:
        super(ShareConsumerConfig, self).validate()
        if not self.group_id:
            raise ConfigError("group_id='': a share consumer needs a group")
        _check_choice("share_acknowledgement_mode", self.share_acknowledgement_mode, SHARE_ACKNOWLEDGEMENT_MODES)
        _check_choice("share_acquire_mode", self.share_acquire_mode, SHARE_ACQUIRE_MODES)
        if self.fetch_max_wait_ms >= self.request_timeout_ms:
            raise ConfigError(
                f"fetch_max_wait_ms={self.fetch_max_wait_ms}: must be below request_timeout_ms,"
                f" which is {self.request_timeout_ms}"
            )
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminConfig(ClientConfig):
    """`default_api_timeout_ms` bounds each call with all its retries."""

    default_api_timeout_ms: int = 60_000


@cache
def declared_types(cls: Any) -> dict[str, Any]:
    """Return option -> declared type for the options of `cls`, a ClientConfig. Tracing needs OpenTelemetry, so the type
    of the option `tracing` is declared as any object here; `tracing.wanted` checks the value.
    """
    types = get_type_hints(cls, localns={"Tracing": object})
    return {option.name: types[option.name] for option in fields(cls)}


def load(cls: type[C], bootstrap_servers: str | Iterable[str], options: Mapping[str, Any]) -> C:
    """Create a validated config from `options`. Raises ConfigError; for an unknown key, the message names the most
    similar known key.
    """
    known = [field.name for field in fields(cls)]
    for key in options:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            raise ConfigError(f"unknown key {key!r}" + (f": did you mean {near[0]!r}?" if near else ""))
    return cls(bootstrap_servers=bootstrap_servers, **options).validate()


def _address(text: str) -> Address:
    """Parse "host:port", "[v6]:port" or a host alone."""
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(DEFAULT_PORT)
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise ConfigError(
            f"bootstrap_servers has {text!r}: an IPv6 address must be in brackets, [{text}]:{DEFAULT_PORT}"
        )
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ConfigError(f"bootstrap_servers has {text!r}: must be host:port with a port from 1 to 65535")
    return Address(host.strip("[]"), int(port))


def _check_bounds(key: str, value: Any, bounds: Bounds) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not bounds.low <= value <= bounds.high:
        raise ConfigError(f"{key}={value!r}: must be an integer from {bounds.low} to {bounds.high}")


def _check_choice(key: str, value: Any, shown: Iterable[Any], allowed: Iterable[Any] | None = None) -> None:
    if isinstance(value, bool) or value not in (shown if allowed is None else allowed):
        raise ConfigError(f"{key}={value!r}: must be one of {', '.join(str(choice) for choice in shown)}")


def _check_name(key: str, value: Any) -> None:
    why_not = None if value is None else why_not_a_string(value)
    if why_not is not None:
        raise ConfigError(f"{key}={value!r:.100}: {why_not}")


def _check_type(option: Field[Any], value: object, declared: Any) -> None:
    if not fits(value, declared):
        # an option with repr=False is a secret, which an error message must not show
        shown = f"{option.name}={value!r:.100}" if option.repr else option.name
        raise ConfigError(f"{shown}: must be {words(declared)}, not {type(value).__name__}")


def _check_interceptors(given: Iterable[object], base: type) -> None:
    for each in given:
        if not isinstance(each, base):
            raise ConfigError(f"interceptors: must be objects of a subclass of {base.__name__}, not {each!r:.100}")


def _check_security(config: ClientConfig) -> None:
    _check_choice("security_protocol", config.security_protocol, SECURITY_PROTOCOLS)
    if not config.security_protocol.startswith("SASL_"):
        return
    _check_choice("sasl_mechanism", config.sasl_mechanism, SASL_MECHANISMS)
    if config.sasl_mechanism == OAUTHBEARER:
        provider = config.sasl_oauth_token_provider
        if not callable(getattr(provider, "token", provider)):
            raise ConfigError("sasl_oauth_token_provider: OAUTHBEARER needs a function that returns a token")
        return
    if config.sasl_mechanism == GSSAPI:
        return
    for key in ("sasl_plain_username", "sasl_plain_password"):
        value = getattr(config, key)
        if not isinstance(value, str) or not value:
            raise ConfigError(f"{key}: {config.sasl_mechanism} needs it")


def _check_order(config: ClientConfig, low_key: str, high_key: str) -> None:
    low, high = getattr(config, low_key), getattr(config, high_key)
    if low > high:
        raise ConfigError(f"{low_key}={low}: must be at most {high_key}, which is {high}")

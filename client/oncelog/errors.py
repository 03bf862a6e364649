"""The client's exceptions, classified by what the caller can do about them.

    KafkaError                    carries `code` (an ErrorCode) and `message`
    ├── RetriableError            the same call may succeed later; the client itself retries until its timeout
    │   ├── StaleMetadata         ... after a metadata refresh: the leader has moved, or the topic does not exist yet
    │   ├── ConnectionFailed      ... on a new connection: connecting failed, or the connection broke before the
    response │   └── RequestTimedOut       no response in time; it is unknown whether the request took effect │
    ├── DeliveryTimeout   a record was not acknowledged within delivery.timeout.ms │       └── EndNotKnown       a
    commit or abort takes longer than max.block.ms: call again to continue waiting ├── FatalError                this
    client cannot continue │   ├── AuthenticationFailed │   ├── UnsupportedVersion    broker and client have no version
    of an API in common │   ├── ProducerFenced        another producer has fenced this one │   ├── FencedInstance
    another consumer uses the group.instance.id │   └── ClientClosed          the client was closed before or during the
    call ├── AbortableError            the transaction can only be aborted; then the next transaction may begin ├──
    AuthorizationFailed ├── OffsetOutOfRange          the position is outside the log, and auto.offset.reset is "none" │
    └── LogTruncationError    ... because the log was truncated below the position
    ├── MessageTooLarge           a record is larger than the client or the topic accepts
    ├── CommitFailed              offsets were not stored, because the group has rebalanced
    ├── OutOfOrderSequence        an earlier batch is missing in the log, so this batch was not appended
    │   └── OutcomeUnknown        ... but an earlier attempt may still arrive, so the batch is not sent again
    ├── InvalidTransactionState   the call is not allowed in this state of the transaction
    ├── CorruptRecords            a fetched batch failed its checks
    ├── BufferExhausted           no room in buffer.memory within max.block.ms
    ├── TopicAlreadyExists
    ├── InvalidTopic
    ├── PartialFailure            some items of an Admin call failed; `errors` and `results` contain the outcomes
    └── ConfigError               (also a ValueError) a configuration key has a value that is not allowed

Only errors that callers distinguish have classes; other codes are RetriableError or plain KafkaError.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from oncelog_protocol.errors import ErrorCode, KafkaError

NAMED_ITEMS: Final = 5
"""Maximum number of items with a common reason that a PartialFailure names."""

__all__ = [
    "AbortableError",
    "AuthenticationFailed",
    "AuthorizationFailed",
    "BufferExhausted",
    "ClientClosed",
    "CommitFailed",
    "ConfigError",
    "ConnectionFailed",
    "CorruptRecords",
    "DeliveryTimeout",
    "EndNotKnown",
    "ErrorCode",
    "FatalError",
    "FencedInstance",
    "InvalidTopic",
    "InvalidTransactionState",
    "KafkaError",
    "LogTruncationError",
    "MessageTooLarge",
    "OffsetOutOfRange",
    "OutOfOrderSequence",
    "OutcomeUnknown",
    "PartialFailure",
    "ProducerFenced",
    "RequestTimedOut",
    "RetriableError",
    "StaleMetadata",
    "TopicAlreadyExists",
    "UnsupportedVersion",
    "error_for",
]


class RetriableError(KafkaError):
    """An error after which the same call may succeed later."""


class StaleMetadata(RetriableError):
    """The broker that received the request is not the leader or coordinator."""


class ConnectionFailed(RetriableError):
    """No connection could be opened, or the connection broke before the response."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.NETWORK_EXCEPTION, message)


class RequestTimedOut(RetriableError):
    """No response arrived in time. The request may have taken effect nevertheless."""


class DeliveryTimeout(RequestTimedOut):
    """A record was not acknowledged within delivery.timeout.ms; it may be in the log."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message)


class EndNotKnown(RequestTimedOut):
    """The commit or abort of a transaction is still running. Repeat the call to wait for its result; the producer
    refuses other calls until then (S44).
    """

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message)


class FatalError(KafkaError):
    """An error after which the client (producer or consumer) cannot continue."""


class AuthenticationFailed(FatalError):
    """The broker rejects the client's credentials, or the client rejects the broker's certificate."""

    @property
    def retriable(self) -> bool:
        return False


class UnsupportedVersion(FatalError):
    """Broker and client have no version of an API in common."""


class ProducerFenced(FatalError):
    """A newer producer with the same transactional id has fenced this one."""


class FencedInstance(FatalError):
    """Another consumer with the same group.instance.id has replaced this one."""


class ClientClosed(FatalError):
    """The client was closed before or during the call."""

    def __init__(self, message: str) -> None:
        # use -1, Kafka's code for exceptions that brokers never send
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, message)

    def __str__(self) -> str:
        return self.message  # the client raises this error; no broker sends it


class AbortableError(KafkaError):
    """The transaction can no longer be committed. Abort it; then the next transaction may begin (KIP-588, KIP-890)."""


class OutOfOrderSequence(KafkaError):
    """The broker's log lacks an earlier batch of this producer, or it no longer knows the producer (S9, S28)."""


class OutcomeUnknown(OutOfOrderSequence):
    """An attempt to send this batch got no response, and the producer session of the batch has ended since; sending the
    batch again could write it twice. The batch may be in the log (S27).
    """

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, message)


class InvalidTransactionState(KafkaError):
    """The call is not allowed in this state of the transaction, and nothing has changed (S45)."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_TXN_STATE, message)

    def __str__(self) -> str:
        return self.message  # the message has no error code, because no broker has sent one


class AuthorizationFailed(KafkaError):
    """The client is authenticated, but not authorized for the operation."""


class CommitFailed(KafkaError):
    """The group has rebalanced: the offsets are not committed, and other members may read these records again."""


class OffsetOutOfRange(KafkaError):
    """The position lies outside the log, and auto.offset.reset is "none"."""


class LogTruncationError(OffsetOutOfRange):
    """Records read up to `offset` are no longer in the log of `partition`, and auto.offset.reset is "none" (KIP-320;
    Kafka's LogTruncationException). From `divergent_offset` on, the log differs from the records that were read; None
    means that this offset is unknown. A seek to `divergent_offset` skips no record of the log and repeats none.
    """

    def __init__(self, message: str, partition: tuple[str, int], offset: int, divergent_offset: int | None) -> None:
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        self.partition = partition
        self.offset = offset
        self.divergent_offset = divergent_offset

    def __str__(self) -> str:
        return self.message


class MessageTooLarge(KafkaError):
    """A record is larger than the client (max.request.size) or the topic (max.message.bytes) accepts."""


class RejectedWithBatch(KafkaError):
    """Another record of the batch was invalid, and a batch is appended entirely or not at all. The producer may send
    this record again (KIP-467).
    """

    def __init__(self, cause: KafkaError) -> None:
        super().__init__(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"not appended, since another record of its batch was refused: {cause.message}",
        )


class CorruptRecords(KafkaError):
    """A fetched batch failed its CRC or cannot be decoded."""


class BufferExhausted(KafkaError):
    """buffer.memory had no room for the record within max.block.ms."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message)


class TopicAlreadyExists(KafkaError):
    """A topic with this name exists already."""


class InvalidTopic(KafkaError):
    """The topic name is not legal."""


class PartialFailure(KafkaError):
    """Some items of an Admin call failed: `errors` has an error for each failed item, `results` the results of the
    other items.

    The message has each reason once, with the items that have this reason.
    """

    def __init__(self, errors: Mapping[Any, KafkaError], results: Mapping[Any, Any]) -> None:
        first = next(iter(errors.values()))
        self.errors = errors
        self.results = results
        super().__init__(first.code, "; ".join(message for _, message in self.reasons()))

    def reasons(self) -> list[tuple[ErrorCode, str]]:
        """Return each distinct reason: its error code, and a message that names at most NAMED_ITEMS of the items."""
        sharing: dict[tuple[ErrorCode, str], list[tuple[str, str]]] = {}
        for item, error in self.errors.items():
            name = str(item)
            why = error.message.removeprefix(f"{name}: ").replace(f"'{name}'", "'...'")
            sharing.setdefault((error.code, why), []).append((name, error.message))
        return [(code, _shared(why, those)) for (code, why), those in sharing.items()]


def _shared(why: str, items: list[tuple[str, str]]) -> str:
    """Return the message of a single item, or the reason that several items share."""
    if len(items) == 1:
        return items[0][1]
    names = [name for name, _ in items]
    more = f" and {len(names) - NAMED_ITEMS} more" if len(names) > NAMED_ITEMS else ""
    return f"{', '.join(names[:NAMED_ITEMS])}{more}: {why} ({len(names)} items)"


class ConfigError(KafkaError, ValueError):
    """A configuration key has an invalid value. The message names the key, the value and the allowed values."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_CONFIG, message)


CLASSES: Final[Mapping[ErrorCode, type[KafkaError]]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: StaleMetadata,
    ErrorCode.LEADER_NOT_AVAILABLE: StaleMetadata,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: StaleMetadata,
    ErrorCode.REPLICA_NOT_AVAILABLE: StaleMetadata,
    ErrorCode.NOT_CONTROLLER: StaleMetadata,
    ErrorCode.KAFKA_STORAGE_ERROR: StaleMetadata,
    ErrorCode.LISTENER_NOT_FOUND: StaleMetadata,
    ErrorCode.FENCED_LEADER_EPOCH: StaleMetadata,
    ErrorCode.UNKNOWN_LEADER_EPOCH: StaleMetadata,
    ErrorCode.UNKNOWN_TOPIC_ID: StaleMetadata,
    ErrorCode.INCONSISTENT_TOPIC_ID: StaleMetadata,
    ErrorCode.REQUEST_TIMED_OUT: RequestTimedOut,
    ErrorCode.SASL_AUTHENTICATION_FAILED: AuthenticationFailed,
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: AuthenticationFailed,
    ErrorCode.ILLEGAL_SASL_STATE: AuthenticationFailed,
    ErrorCode.UNSUPPORTED_VERSION: UnsupportedVersion,
    ErrorCode.PRODUCER_FENCED: ProducerFenced,
    # In a Produce response, this code is abortable, because it may only mean that the coordinator has aborted a
    # timed-out transaction (KIP-588). Transaction requests handle its other meaning, fencing.
    ErrorCode.INVALID_PRODUCER_EPOCH: AbortableError,
    ErrorCode.TRANSACTION_ABORTABLE: AbortableError,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: OutOfOrderSequence,
    ErrorCode.UNKNOWN_PRODUCER_ID: OutOfOrderSequence,
    ErrorCode.FENCED_INSTANCE_ID: FencedInstance,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: AuthorizationFailed,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: AuthorizationFailed,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: AuthorizationFailed,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: AuthorizationFailed,
    ErrorCode.OFFSET_OUT_OF_RANGE: OffsetOutOfRange,
    ErrorCode.MESSAGE_TOO_LARGE: MessageTooLarge,
    ErrorCode.RECORD_LIST_TOO_LARGE: MessageTooLarge,
    ErrorCode.TOPIC_ALREADY_EXISTS: TopicAlreadyExists,
    ErrorCode.INVALID_TOPIC_EXCEPTION: InvalidTopic,
}


def error_for(code: int, message: str | None = None) -> KafkaError:
    """Return the exception for an error code of a response; `message` is the message of the broker, if it sent one.

    The function raises nothing; the caller decides whether to raise, retry or pass on the error.
    """
    error_code = ErrorCode.of(code)
    if error_code != code:
        message = f"unknown error code {code}" + (f": {message}" if message else "")
    return CLASSES.get(error_code, RetriableError if error_code.retriable else KafkaError)(error_code, message)


def fatal(error: KafkaError) -> FatalError:
    """Return a FatalError with the same code and message, for a client that cannot continue after this error."""
    if isinstance(error, FatalError):
        return error
    ended = FatalError(error.code, error.message)
    ended.__cause__ = error
    return ended

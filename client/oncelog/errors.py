"""What can go wrong, by what can be done about it.

    KafkaError                    carries `code` (an ErrorCode) and `message`
    ├── RetriableError            the same call may succeed later; the client itself retries until its timeout
    │   ├── StaleMetadata         ... after the metadata was refreshed: the leader has moved, the topic is not there yet
    │   ├── ConnectionFailed      ... on a new connection: none could be made, or it broke before the answer
    │   └── RequestTimedOut       no answer in time; whether it took effect is not known
    │       ├── DeliveryTimeout   a record was not acknowledged within delivery.timeout.ms
    │       └── EndNotKnown       a commit or abort goes on for longer than max.block.ms: the same call waits on
    ├── FatalError                this client cannot go on
    │   ├── AuthenticationFailed
    │   ├── UnsupportedVersion    broker and client have no version of an API in common
    │   ├── ProducerFenced        another producer has taken over
    │   ├── FencedInstance        another consumer has taken over the group.instance.id
    │   └── ClientClosed          the client was closed before, or while, this was under way
    ├── AbortableError            the transaction cannot be committed: abort it, then the next one may begin
    ├── AuthorizationFailed
    ├── OffsetOutOfRange          and auto.offset.reset is "none"
    │   └── LogTruncationError    ... because what was read before it is not in the log any more
    ├── MessageTooLarge
    ├── CommitFailed              offsets were not stored: the group has rebalanced since they were read
    ├── OutOfOrderSequence        an earlier batch is missing in the log: this one was not appended
    │   └── OutcomeUnknown        ... as far as is known: an older try of it may still arrive, so it is not sent again
    ├── InvalidTransactionState   a call that the state of the producer's transaction does not allow
    ├── CorruptRecords            a fetched batch failed its checks
    ├── BufferExhausted           no room in buffer.memory within max.block.ms
    ├── TopicAlreadyExists
    ├── InvalidTopic
    ├── PartialFailure            some items of an Admin call failed; `errors` and `results` say which
    └── ConfigError               (also a ValueError) a configuration key has a value that is not allowed

Classes exist for what callers tell apart; the other codes come as RetriableError or plain KafkaError.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from oncelog_protocol.errors import ErrorCode, KafkaError

NAMED_ITEMS: Final = 5
"""Of those that share a reason, in the message of a PartialFailure."""

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
    """The same call may succeed later."""


class StaleMetadata(RetriableError):
    """The broker asked is not, or no longer, the right one."""


class ConnectionFailed(RetriableError):
    """No connection, or it broke (or carried garbage) before the answer was there."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.NETWORK_EXCEPTION, message)


class RequestTimedOut(RetriableError):
    """No answer in time. What was asked for may have happened all the same."""


class DeliveryTimeout(RequestTimedOut):
    """A record was not acknowledged within delivery.timeout.ms; it may or may not be in the log."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message)


class EndNotKnown(RequestTimedOut):
    """The commit or abort of a transaction goes on; calling again waits for it, nothing else goes before (S44)."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message)


class FatalError(KafkaError):
    """This client cannot go on."""


class AuthenticationFailed(FatalError):
    """The broker does not accept who we say we are, or we do not accept the broker."""

    @property
    def retriable(self) -> bool:
        return False


class UnsupportedVersion(FatalError):
    """Broker and client have no version of an API in common."""


class ProducerFenced(FatalError):
    """A newer producer has taken this one's place."""


class FencedInstance(FatalError):
    """Another consumer with the same group.instance.id has taken this one's place."""


class ClientClosed(FatalError):
    """The client was closed before, or while, this was under way."""

    def __init__(self, message: str) -> None:
        # KAFKA: exceptions that never cross the wire have no code of their own, and -1 stands for them.
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, message)

    def __str__(self) -> str:
        return self.message  # no server was asked


class AbortableError(KafkaError):
    """The transaction cannot be committed any more: abort it, then the next one may begin (KIP-588, KIP-890)."""


class OutOfOrderSequence(KafkaError):
    """The broker misses an earlier batch of this producer, or no longer knows the producer (S9, S28)."""


class OutcomeUnknown(OutOfOrderSequence):
    """A try of this batch was never answered, and the session that it belongs to had to end: to send it again could
    write it twice. It may or may not be in the log (S27)."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, message)


class InvalidTransactionState(KafkaError):
    """What was called does not fit the state of the producer's transaction; nothing has changed (S45)."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_TXN_STATE, message)

    def __str__(self) -> str:
        return self.message  # no server was asked


class AuthorizationFailed(KafkaError):
    """We are known, but may not do this."""


class CommitFailed(KafkaError):
    """The group has rebalanced since: the offsets are not stored, and others may read these records again."""


class OffsetOutOfRange(KafkaError):
    """The position lies outside the log, and auto.offset.reset is "none"."""


class LogTruncationError(OffsetOutOfRange):
    """What was read up to `offset` is no longer what the log of `partition` holds, and auto.offset.reset is "none"
    (KIP-320; Kafka's LogTruncationException). The log has something else from `divergent_offset` on; None: from where
    is not known. To seek there loses nothing that the log has, and reads nothing twice."""

    def __init__(self, message: str, partition: tuple[str, int], offset: int, divergent_offset: int | None) -> None:
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        self.partition = partition
        self.offset = offset
        self.divergent_offset = divergent_offset

    def __str__(self) -> str:
        return self.message


class MessageTooLarge(KafkaError):
    """A record exceeds what the client (max.request.size) or the topic (max.message.bytes) accepts."""


class RejectedWithBatch(KafkaError):
    """Another record of the batch is at fault, and a batch is appended as a whole or not at all. Nothing is known
    against this record: it may be sent again (KIP-467)."""

    def __init__(self, cause: KafkaError) -> None:
        super().__init__(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"not appended, since another record of its batch was refused: {cause.message}",
        )


class CorruptRecords(KafkaError):
    """A fetched batch failed its CRC or cannot be decoded."""


class BufferExhausted(KafkaError):
    """No room in buffer.memory within max.block.ms."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message)


class TopicAlreadyExists(KafkaError):
    """A topic with this name exists already."""


class InvalidTopic(KafkaError):
    """Not a legal topic name."""


class PartialFailure(KafkaError):
    """Some items of an Admin call failed: `errors` has an error for each of them, `results` the rest.

    The message has each reason once, with the items that share it.
    """

    def __init__(self, errors: Mapping[Any, KafkaError], results: Mapping[Any, Any]) -> None:
        first = next(iter(errors.values()))
        self.errors = errors
        self.results = results
        super().__init__(first.code, "; ".join(message for _, message in self.reasons()))

    def reasons(self) -> list[tuple[ErrorCode, str]]:
        """Each reason once: its code, and a message that names the items, the first of them where they are many."""
        sharing: dict[tuple[ErrorCode, str], list[tuple[str, str]]] = {}
        for item, error in self.errors.items():
            name = str(item)
            why = error.message.removeprefix(f"{name}: ").replace(f"'{name}'", "'...'")
            sharing.setdefault((error.code, why), []).append((name, error.message))
        return [(code, _shared(why, those)) for (code, why), those in sharing.items()]


def _shared(why: str, items: list[tuple[str, str]]) -> str:
    """The message of one item, or the reason that several share."""
    if len(items) == 1:
        return items[0][1]
    names = [name for name, _ in items]
    more = f" and {len(names) - NAMED_ITEMS} more" if len(names) > NAMED_ITEMS else ""
    return f"{', '.join(names[:NAMED_ITEMS])}{more}: {why} ({len(names)} items)"


class ConfigError(KafkaError, ValueError):
    """A configuration key has a value that is not allowed. The message names key, value and what is allowed."""

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
    # Of a write it may only mean that the coordinator has aborted a transaction that took too long (KIP-588); where it
    # means more, the transaction requests say so.
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
    """The exception for an error code of a response; `message` is the broker's own, where it sent one.

    Raises nothing: the caller decides whether to raise, retry or hand it on.
    """
    error_code = ErrorCode.of(code)
    if error_code != code:
        message = f"unknown error code {code}" + (f": {message}" if message else "")
    return CLASSES.get(error_code, RetriableError if error_code.retriable else KafkaError)(error_code, message)


def fatal(error: KafkaError) -> FatalError:
    """The same error, for a client that cannot go on after it: whoever asks what is to be done asks for FatalError."""
    if isinstance(error, FatalError):
        return error
    ended = FatalError(error.code, error.message)
    ended.__cause__ = error
    return ended

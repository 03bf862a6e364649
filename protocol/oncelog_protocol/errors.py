"""Kafka's error table: code, name, whether a retry may help, and meaning.

`ErrorCode.NOT_COORDINATOR` is an int and is sent unchanged. `KafkaError(ErrorCode.X, "why")` is the only exception that
carries an error code from where the error is detected to where the response is written. The counterpart in Kafka is the
enum `Errors`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final, Self


class ErrorCode(IntEnum):
    """An error code (int16 in responses)."""

    retriable: bool
    meaning: str

    def __new__(cls, code: int, retriable: bool, meaning: str) -> ErrorCode:
        member = int.__new__(cls, code)
        member._value_ = code
        member.retriable = retriable
        member.meaning = meaning
        return member

    UNKNOWN_SERVER_ERROR = -1, False, "The server experienced an unexpected error."
    NONE = 0, False, ""
    OFFSET_OUT_OF_RANGE = 1, False, "The offset is outside the range that the partition holds."
    CORRUPT_MESSAGE = 2, True, "The record batch failed its CRC, exceeds the valid size or is otherwise corrupt."
    UNKNOWN_TOPIC_OR_PARTITION = 3, True, "This broker does not host this topic-partition."
    INVALID_FETCH_SIZE = 4, False, "The requested fetch size is invalid."
    LEADER_NOT_AVAILABLE = 5, True, "There is no leader for this topic-partition: an election is in progress."
    NOT_LEADER_OR_FOLLOWER = 6, True, "This broker is not the leader, or not a replica, of this topic-partition."
    REQUEST_TIMED_OUT = 7, True, "The request timed out."
    BROKER_NOT_AVAILABLE = 8, False, "The broker is not available."
    REPLICA_NOT_AVAILABLE = 9, True, "The replica is not available for the topic-partition."
    MESSAGE_TOO_LARGE = 10, False, "The batch is larger than the maximum that the topic accepts."
    STALE_CONTROLLER_EPOCH = 11, False, "The controller has moved to another broker."
    OFFSET_METADATA_TOO_LARGE = 12, False, "The metadata of the offset commit is too large."
    NETWORK_EXCEPTION = 13, True, "The server disconnected before a response was received."
    COORDINATOR_LOAD_IN_PROGRESS = 14, True, "The coordinator is loading and cannot answer yet."
    COORDINATOR_NOT_AVAILABLE = 15, True, "The coordinator is not available."
    NOT_COORDINATOR = 16, True, "This is not the correct coordinator."
    INVALID_TOPIC_EXCEPTION = 17, False, "The topic name is not valid."
    RECORD_LIST_TOO_LARGE = 18, False, "The request has record batches larger than the segment size."
    NOT_ENOUGH_REPLICAS = 19, True, "There are fewer in-sync replicas than required: nothing was written."
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, True, "Written, but to fewer in-sync replicas than required."
    INVALID_REQUIRED_ACKS = 21, False, "acks must be -1, 0 or 1."
    ILLEGAL_GENERATION = 22, False, "The group generation is not the current one."
    INCONSISTENT_GROUP_PROTOCOL = 23, False, "The member's protocols do not fit those of the group."
    INVALID_GROUP_ID = 24, False, "The group id is not valid."
    UNKNOWN_MEMBER_ID = 25, False, "The coordinator does not know this member."
    INVALID_SESSION_TIMEOUT = 26, False, "The session timeout is outside the broker's limits."
    REBALANCE_IN_PROGRESS = 27, False, "The group is rebalancing: a rejoin is needed."
    INVALID_COMMIT_OFFSET_SIZE = 28, False, "The offset commit is too large."
    TOPIC_AUTHORIZATION_FAILED = 29, False, "Topic authorization failed."
    GROUP_AUTHORIZATION_FAILED = 30, False, "Group authorization failed."
    CLUSTER_AUTHORIZATION_FAILED = 31, False, "Cluster authorization failed."
    INVALID_TIMESTAMP = 32, False, "The timestamp of the record is out of the accepted range."
    UNSUPPORTED_SASL_MECHANISM = 33, False, "The broker does not support this SASL mechanism."
    ILLEGAL_SASL_STATE = 34, False, "The request is not valid in the current SASL state."
    UNSUPPORTED_VERSION = 35, False, "The version of the API is not supported."
    TOPIC_ALREADY_EXISTS = 36, False, "A topic with this name exists already."
    INVALID_PARTITIONS = 37, False, "The number of partitions is not valid."
    INVALID_REPLICATION_FACTOR = 38, False, "The replication factor is below 1 or above the number of brokers."
    INVALID_REPLICA_ASSIGNMENT = 39, False, "The replica assignment is not valid."
    INVALID_CONFIG = 40, False, "The configuration is not valid."
    NOT_CONTROLLER = 41, True, "This is not the controller of the cluster."
    INVALID_REQUEST = 42, False, "The request is malformed, or not fit for the version of the protocol."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, False, "The message format on the broker does not support this request."
    POLICY_VIOLATION = 44, False, "The request parameters do not satisfy the configured policy."
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, False, "The broker received a sequence number out of order."
    DUPLICATE_SEQUENCE_NUMBER = 46, False, "The broker has this sequence number already."
    INVALID_PRODUCER_EPOCH = 47, False, "The producer tried to produce with an old epoch."
    INVALID_TXN_STATE = 48, False, "The operation is not valid in the current state of the transaction."
    INVALID_PRODUCER_ID_MAPPING = 49, False, "The producer id is not the one assigned to this transactional id."
    INVALID_TRANSACTION_TIMEOUT = 50, False, "The transaction timeout exceeds transaction.max.timeout.ms."
    CONCURRENT_TRANSACTIONS = 51, True, "A previous operation of this transaction is still under way."
    TRANSACTION_COORDINATOR_FENCED = 52, False, "The transaction coordinator that sent this has been replaced."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, False, "Transactional id authorization failed."
    SECURITY_DISABLED = 54, False, "Security features are disabled."
    OPERATION_NOT_ATTEMPTED = 55, False, "Not attempted, since another part of the request failed."
    KAFKA_STORAGE_ERROR = 56, True, "Disk error when the log file was accessed."
    LOG_DIR_NOT_FOUND = 57, False, "The log directory is not found in the broker's configuration."
    SASL_AUTHENTICATION_FAILED = 58, False, "SASL authentication failed."
    UNKNOWN_PRODUCER_ID = 59, False, "The broker has no state for this producer id."
    REASSIGNMENT_IN_PROGRESS = 60, False, "A partition reassignment is in progress."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, False, "Delegation tokens are not enabled."
    DELEGATION_TOKEN_NOT_FOUND = 62, False, "The delegation token is not found."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, False, "The principal is not the owner or a renewer of the token."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, False, "Token requests are not allowed on this channel."
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, False, "Delegation token authorization failed."
    DELEGATION_TOKEN_EXPIRED = 66, False, "The delegation token has expired."
    INVALID_PRINCIPAL_TYPE = 67, False, "The principal type is not supported."
    NON_EMPTY_GROUP = 68, False, "The group is not empty."
    GROUP_ID_NOT_FOUND = 69, False, "The group id does not exist."
    FETCH_SESSION_ID_NOT_FOUND = 70, True, "The fetch session does not exist."
    INVALID_FETCH_SESSION_EPOCH = 71, True, "The fetch session epoch is not the expected one."
    LISTENER_NOT_FOUND = 72, True, "The leader has no listener like the one that this request came through."
    TOPIC_DELETION_DISABLED = 73, False, "Topic deletion is disabled (delete.topic.enable)."
    FENCED_LEADER_EPOCH = 74, True, "The leader epoch of the request is older than the broker's."
    UNKNOWN_LEADER_EPOCH = 75, True, "The leader epoch of the request is newer than the broker's."
    UNSUPPORTED_COMPRESSION_TYPE = 76, False, "The compression type does not fit this version of the API."
    STALE_BROKER_EPOCH = 77, False, "The broker epoch has changed."
    OFFSET_NOT_AVAILABLE = 78, True, "The high watermark has not caught up after a leader election."
    MEMBER_ID_REQUIRED = 79, False, "The group member needs a member id before it can join."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, True, "The preferred leader was not available."
    GROUP_MAX_SIZE_REACHED = 81, False, "The group has reached its maximum size."
    FENCED_INSTANCE_ID = 82, False, "Another member with the same group.instance.id has replaced this one."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, True, "Eligible partition leaders are not available."
    ELECTION_NOT_NEEDED = 84, True, "Leader election is not needed for the partition."
    NO_REASSIGNMENT_IN_PROGRESS = 85, False, "No partition reassignment is in progress."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, False, "The group is subscribed to the topic: its offsets cannot be deleted."
    INVALID_RECORD = 87, False, "The record failed the broker's validation."
    UNSTABLE_OFFSET_COMMIT = 88, True, "There are unstable offsets: a transaction that commits them is open."
    THROTTLING_QUOTA_EXCEEDED = 89, True, "The throttling quota has been exceeded."
    PRODUCER_FENCED = 90, False, "A newer producer with the same transactional id fences this one."
    RESOURCE_NOT_FOUND = 91, False, "The resource does not exist."
    DUPLICATE_RESOURCE = 92, False, "The resource exists already."
    UNACCEPTABLE_CREDENTIAL = 93, False, "The credential does not meet the criteria."
    INCONSISTENT_VOTER_SET = 94, False, "The voter set is inconsistent."
    INVALID_UPDATE_VERSION = 95, False, "The update version is not valid."
    FEATURE_UPDATE_FAILED = 96, False, "The finalized features could not be updated."
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, False, "The forwarded principal could not be read."
    SNAPSHOT_NOT_FOUND = 98, False, "The snapshot is not found."
    POSITION_OUT_OF_RANGE = 99, False, "The position is outside the snapshot."
    UNKNOWN_TOPIC_ID = 100, True, "This broker does not host this topic id."
    DUPLICATE_BROKER_REGISTRATION = 101, False, "This broker id is already in use."
    BROKER_ID_NOT_REGISTERED = 102, False, "The broker id is not registered."
    INCONSISTENT_TOPIC_ID = 103, True, "The log's topic id does not match the request's."
    INCONSISTENT_CLUSTER_ID = 104, False, "The cluster id does not match."
    TRANSACTIONAL_ID_NOT_FOUND = 105, False, "The transactional id is not found."
    FETCH_SESSION_TOPIC_ID_ERROR = 106, True, "The fetch session used topic ids inconsistently."
    INELIGIBLE_REPLICA = 107, False, "The new ISR has an ineligible replica."
    NEW_LEADER_ELECTED = 108, False, "AlterPartition changed the state, but the leader has changed."
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, False, "The offset has moved to tiered storage."
    FENCED_MEMBER_EPOCH = 110, False, "The member epoch is fenced: abandon all partitions and rejoin."
    UNRELEASED_INSTANCE_ID = 111, False, "The instance id is still used by another member."
    UNSUPPORTED_ASSIGNOR = 112, False, "The assignor is not supported by the group."
    STALE_MEMBER_EPOCH = 113, False, "The member epoch is stale: retry with the one of the last heartbeat."
    MISMATCHED_ENDPOINT_TYPE = 114, False, "The request came through an endpoint of the wrong type."
    UNSUPPORTED_ENDPOINT_TYPE = 115, False, "This endpoint type is not supported."
    UNKNOWN_CONTROLLER_ID = 116, False, "The controller id is not known."
    UNKNOWN_SUBSCRIPTION_ID = 117, False, "The client telemetry subscription is not known."
    TELEMETRY_TOO_LARGE = 118, False, "The client telemetry is too large."
    INVALID_REGISTRATION = 119, False, "The broker registration is not valid."
    TRANSACTION_ABORTABLE = 120, False, "An error that the client handles by aborting the transaction."
    INVALID_RECORD_STATE = 121, False, "The record state is not valid for acknowledgement."
    SHARE_SESSION_NOT_FOUND = 122, True, "The share session does not exist."
    INVALID_SHARE_SESSION_EPOCH = 123, True, "The share session epoch is not the expected one."
    FENCED_STATE_EPOCH = 124, False, "The share state epoch is fenced."
    INVALID_VOTER_KEY = 125, False, "The voter key does not match."
    DUPLICATE_VOTER = 126, False, "The voter is already part of the set."
    VOTER_NOT_FOUND = 127, False, "The voter is not part of the set."
    INVALID_REGULAR_EXPRESSION = 128, False, "The regular expression is not valid."
    REBOOTSTRAP_REQUIRED = 129, False, "Client metadata is stale: rebootstrap."
    STREAMS_INVALID_TOPOLOGY = 130, False, "The topology is not valid."
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, False, "The topology epoch is not valid."
    STREAMS_TOPOLOGY_FENCED = 132, False, "The topology epoch is outdated."
    SHARE_SESSION_LIMIT_REACHED = 133, True, "The limit of share sessions has been reached."

    @classmethod
    def of(cls, code: int) -> ErrorCode:
        """Return the entry for `code`; UNKNOWN_SERVER_ERROR for a code that a newer broker may send."""
        try:
            return cls(code)  # type: ignore[call-arg]
        except ValueError:
            return cls.UNKNOWN_SERVER_ERROR


MAX_MESSAGE_CHARS: Final = 2000
"""Maximum length of an error message, in characters. The limit is needed because error messages may quote long texts
from clients, and a string in an old response version has at most 32767 bytes.
"""


class KafkaError(Exception):
    """An error with its Kafka error code: raised where the error is detected, and sent where the response is written.

    `code` is sent in the response; `message` is sent in its error_message field (if the version has one) or logged.
    """

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        self.code = code
        self.message = (message or code.meaning)[:MAX_MESSAGE_CHARS]
        super().__init__(f"{code.name}({int(code)}): {self.message}")

    @property
    def retriable(self) -> bool:
        return self.code.retriable

    def as_value(self) -> Self:
        """Return this error without its traceback, for callers that store the error instead of raising it. The
        traceback is removed because its frames would keep their local variables alive.
        """
        self.__traceback__ = self.__context__ = None
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors may be sent to other processes (multiprocessing). Define how to pickle the error, because `args`
        # contains the text, not the arguments of the constructor.
        return _restored, (type(self), self.args, self.__dict__)


def _restored(cls: type[KafkaError], args: tuple[Any, ...], attributes: dict[str, Any]) -> KafkaError:
    error = cls.__new__(cls, *args)
    error.__dict__.update(attributes)
    return error


class MalformedMessage(ValueError):
    """The bytes are not a message of the declared format. Decoders raise no other error, whatever the bytes are."""


class TooManyElements(MalformedMessage):
    """An array has more elements than the decoder allows, or than the bytes can contain. No memory is allocated for the
    elements.
    """


class UnencodableMessage(ValueError):
    """A value does not fit the declared format, for example a string that is too long, an integer out of range, or an
    unexpected None.
    """

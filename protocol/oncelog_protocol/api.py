"""API keys, and the lookup from an API key to its message classes, which imports only the classes that are used.

The message classes of a key are `<Name>Request` and `<Name>Response` in `messages/<name in lower case>.py`. Importing
all messages takes 0.1 s or more, so each module is imported at its first use. The version of a message's header depends
on the first flexible version of its API. The first flexible versions are listed here too, so that headers need no
import of messages; tests compare the list with the declarations. The broker decides which keys and versions it serves.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cache
from importlib import import_module
from typing import Any, Final

from oncelog_protocol.versions import MAX_VERSION

NEVER: Final = MAX_VERSION + 1
"""The first flexible version of an API that has no flexible version."""


class ApiKey(IntEnum):
    """Kafka's API keys, each with its first flexible version (KIP-482)."""

    first_flexible: int

    def __new__(cls, key: int, first_flexible: int = NEVER) -> ApiKey:
        member = int.__new__(cls, key)
        member._value_ = key
        member.first_flexible = first_flexible
        return member

    PRODUCE = 0, 9
    FETCH = 1, 12
    LIST_OFFSETS = 2, 6
    METADATA = 3, 9
    CONTROLLED_SHUTDOWN = 7, 3
    OFFSET_COMMIT = 8, 8
    OFFSET_FETCH = 9, 6
    FIND_COORDINATOR = 10, 3
    JOIN_GROUP = 11, 6
    HEARTBEAT = 12, 4
    LEAVE_GROUP = 13, 4
    SYNC_GROUP = 14, 4
    DESCRIBE_GROUPS = 15, 5
    LIST_GROUPS = 16, 3
    SASL_HANDSHAKE = 17, NEVER
    API_VERSIONS = 18, 3
    CREATE_TOPICS = 19, 5
    DELETE_TOPICS = 20, 4
    DELETE_RECORDS = 21, 2
    INIT_PRODUCER_ID = 22, 2
    OFFSET_FOR_LEADER_EPOCH = 23, 4
    ADD_PARTITIONS_TO_TXN = 24, 3
    ADD_OFFSETS_TO_TXN = 25, 3
    END_TXN = 26, 3
    WRITE_TXN_MARKERS = 27, 1
    TXN_OFFSET_COMMIT = 28, 3
    DESCRIBE_ACLS = 29, 2
    CREATE_ACLS = 30, 2
    DELETE_ACLS = 31, 2
    DESCRIBE_CONFIGS = 32, 4
    ALTER_CONFIGS = 33, 2
    ALTER_REPLICA_LOG_DIRS = 34, 2
    DESCRIBE_LOG_DIRS = 35, 2
    SASL_AUTHENTICATE = 36, 2
    CREATE_PARTITIONS = 37, 2
    DELETE_GROUPS = 42, 2
    ELECT_LEADERS = 43, 2
    INCREMENTAL_ALTER_CONFIGS = 44, 1
    ALTER_PARTITION_REASSIGNMENTS = 45, 0
    LIST_PARTITION_REASSIGNMENTS = 46, 0
    OFFSET_DELETE = 47, NEVER
    DESCRIBE_CLIENT_QUOTAS = 48, 1
    ALTER_CLIENT_QUOTAS = 49, 1
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50, 0
    ALTER_USER_SCRAM_CREDENTIALS = 51, 0
    DESCRIBE_QUORUM = 55, 0
    ALTER_PARTITION = 56, 0
    UPDATE_FEATURES = 57, 0
    ENVELOPE = 58, 0
    DESCRIBE_CLUSTER = 60, 0
    DESCRIBE_PRODUCERS = 61, 0
    DESCRIBE_TRANSACTIONS = 65, 0
    LIST_TRANSACTIONS = 66, 0
    CONSUMER_GROUP_HEARTBEAT = 68, 0
    CONSUMER_GROUP_DESCRIBE = 69, 0
    GET_TELEMETRY_SUBSCRIPTIONS = 71, 0
    PUSH_TELEMETRY = 72, 0
    LIST_CONFIG_RESOURCES = 74, 0
    DESCRIBE_TOPIC_PARTITIONS = 75, 0
    SHARE_GROUP_HEARTBEAT = 76, 0
    SHARE_GROUP_DESCRIBE = 77, 0
    SHARE_FETCH = 78, 0
    SHARE_ACKNOWLEDGE = 79, 0
    INITIALIZE_SHARE_GROUP_STATE = 83, 0
    READ_SHARE_GROUP_STATE = 84, 0
    WRITE_SHARE_GROUP_STATE = 85, 0
    DELETE_SHARE_GROUP_STATE = 86, 0
    READ_SHARE_GROUP_STATE_SUMMARY = 87, 0
    STREAMS_GROUP_HEARTBEAT = 88, 0
    STREAMS_GROUP_DESCRIBE = 89, 0
    DESCRIBE_SHARE_GROUP_OFFSETS = 90, 0
    ALTER_SHARE_GROUP_OFFSETS = 91, 0
    DELETE_SHARE_GROUP_OFFSETS = 92, 0

    @property
    def message_name(self) -> str:
        """The name in Kafka's documents: "InitProducerId"."""
        return self.name.title().replace("_", "")


@cache
def request_type(key: ApiKey) -> type[Any]:
    """Return the request class of `key`. Raises ModuleNotFoundError if the messages of `key` are not declared."""
    return _message_type(key, "Request")


@cache
def response_type(key: ApiKey) -> type[Any]:
    """Return the response class of `key`; raises the errors of `request_type`."""
    return _message_type(key, "Response")


def _message_type(key: ApiKey, suffix: str) -> type[Any]:
    module = import_module(f"oncelog_protocol.messages.{key.name.lower()}")
    found: type[Any] = getattr(module, key.message_name + suffix)
    return found


def request_header_version(key: ApiKey, version: int) -> int:
    """Return the version of the RequestHeader before a body of `version`: 2 if the body is flexible, otherwise 1."""
    return 2 if version >= key.first_flexible else 1


def response_header_version(key: ApiKey, version: int) -> int:
    """Return the version of the ResponseHeader: 1 if the body is flexible, otherwise 0. ApiVersions always has version
    0 (T1).
    """
    return 1 if version >= key.first_flexible and key is not ApiKey.API_VERSIONS else 0

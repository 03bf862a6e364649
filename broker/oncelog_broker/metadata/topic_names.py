"""The rules for topic names. Kafka's counterpart is the class `Topic`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from oncelog_protocol.errors import ErrorCode, KafkaError

MAX_TOPIC_NAME_CHARS = 249
"""Maximum length of a topic name: a directory name may have 255 characters, and '-', the partition id and the suffix of
a deleted directory need the remaining characters.
"""
CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
SHARE_GROUP_STATE = "__share_group_state"
INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE})
CLUSTER_METADATA = "__cluster_metadata"
"""The name of KRaft's metadata log; a directory with that name in the data directory is never treated as a topic's
directory.
"""

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Raises KafkaError INVALID_TOPIC_EXCEPTION, with the reason, if no topic may have this name."""
    if not name:
        fault = "the empty string is not allowed"
    elif name in (".", ".."):
        fault = f"'{name}' is not allowed"
    elif len(name) > MAX_TOPIC_NAME_CHARS:
        fault = f"it has {len(name)} characters, at most {MAX_TOPIC_NAME_CHARS} are allowed"
    elif _LEGAL.fullmatch(name) is None:
        fault = f"'{name}' has characters other than ASCII letters and digits, '.', '_' and '-'"
    else:
        return
    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"The topic name is not valid: {fault}.")


def check_topic_may_be_made(name: str) -> None:
    """Raises KafkaError INVALID_TOPIC_EXCEPTION if no topic may have this name, or INVALID_REQUEST for a reserved
    name."""
    check_topic_name(name)
    if name == CLUSTER_METADATA:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")


def check_no_collision(name: str, existing: Iterable[str]) -> None:
    """Raises KafkaError INVALID_TOPIC_EXCEPTION if `name` differs from an existing topic only in '.' instead of '_' or
    vice versa: metric names cannot contain '.', so both topics would have the same metrics.
    """
    if "." not in name and "_" not in name:
        return
    unified = unified_name(name)
    for other in existing:
        if other != name and unified_name(other) == unified:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with the topic '{other}'.")


def check_may_grow(name: str) -> None:
    """Raises KafkaError INVALID_TOPIC_EXCEPTION for an internal topic of coordinators, whose number of partitions must
    not change. After a change, groups and transactional ids would be mapped to other partitions, and would lose their
    state.
    """
    if is_internal(name):
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"The number of partitions of the internal {name} cannot be changed."
        )


def is_internal(name: str) -> bool:
    return name in INTERNAL_TOPICS


def unified_name(name: str) -> str:
    """Return a form of the name that is equal for all topic names with the same metric name."""
    return name.replace(".", "_")

"""Checks names that are sent to brokers: topics, groups, transactional ids, client ids.

An invalid name is refused before it is stored, because a topic that cannot be requested would make every metadata
refresh fail, for other topics too.
"""

from __future__ import annotations

from typing import Any, Final

from oncelog.cluster import TopicPartition
from oncelog.errors import ErrorCode, InvalidTopic

MAX_TOPIC_NAME: Final = 249
"""Maximum characters of a topic name, because the name and a partition number must fit into a directory name."""
MAX_STRING_BYTES: Final = 2**15 - 1
"""Maximum bytes of a string in UTF-8, which follows from the int16 length prefix."""
MAX_PARTITION: Final = 2**31 - 1


def why_not_a_string(value: Any) -> str | None:
    """Return the reason why `value` cannot be sent as a string; None if it can be sent."""
    if not isinstance(value, str):
        return "must be a str"
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        return "cannot be said in UTF-8"
    return f"must be at most {MAX_STRING_BYTES} bytes of UTF-8" if size > MAX_STRING_BYTES else None


def is_topic_name(name: Any) -> bool:
    """Return whether a request may name the topic. The broker decides which names are legal."""
    return why_not_a_string(name) is None and 0 < len(name) <= MAX_TOPIC_NAME


def check_topic(name: Any) -> None:
    """Raise InvalidTopic for a name that cannot be sent."""
    if not is_topic_name(name):
        raise InvalidTopic(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"topic {name!r}: a topic name is a str of 1 to {MAX_TOPIC_NAME} characters, all of which UTF-8 can say",
        )


def check_partition(partition: TopicPartition) -> TopicPartition:
    """Return the partition unchanged. Raises InvalidTopic, and ValueError for an invalid partition number."""
    check_topic(partition.topic)
    if not 0 <= partition.partition <= MAX_PARTITION:
        raise ValueError(f"{partition!r}: a partition has a number from 0 to {MAX_PARTITION}")
    return partition

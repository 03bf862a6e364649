"""Names that go to brokers: of topics, groups, transactional ids, clients.

What cannot be sent is refused before it is kept: a topic that every refresh of the metadata asked for in vain would
keep all the others from being asked for.
"""

from __future__ import annotations

from typing import Any, Final

from oncelog.cluster import TopicPartition
from oncelog.errors import ErrorCode, InvalidTopic

MAX_TOPIC_NAME: Final = 249
"""Characters: the name and a partition number must fit a directory name."""
MAX_STRING_BYTES: Final = 2**15 - 1
"""Of UTF-8: what the int16 before a string can say."""
MAX_PARTITION: Final = 2**31 - 1


def why_not_a_string(value: Any) -> str | None:
    """Why `value` cannot be sent as a string; None if it can be."""
    if not isinstance(value, str):
        return "must be a str"
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        return "cannot be said in UTF-8"
    return f"must be at most {MAX_STRING_BYTES} bytes of UTF-8" if size > MAX_STRING_BYTES else None


def is_topic_name(name: Any) -> bool:
    """Whether a broker can be asked for it. Which names are legal is for the broker to say."""
    return why_not_a_string(name) is None and 0 < len(name) <= MAX_TOPIC_NAME


def check_topic(name: Any) -> None:
    """Raises InvalidTopic for what no broker can be asked for."""
    if not is_topic_name(name):
        raise InvalidTopic(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"topic {name!r}: a topic name is a str of 1 to {MAX_TOPIC_NAME} characters, all of which UTF-8 can say",
        )


def check_partition(partition: TopicPartition) -> TopicPartition:
    """Returns it. Raises InvalidTopic, ValueError for a number that no partition has."""
    check_topic(partition.topic)
    if not 0 <= partition.partition <= MAX_PARTITION:
        raise ValueError(f"{partition!r}: a partition has a number from 0 to {MAX_PARTITION}")
    return partition

"""Removes repeated names from a request: each named group, topic or partition is looked up once, and appears in the
response once.

A name in a request may take two or three bytes, but its description in the response may take thousands of bytes: all
offsets of a group, or all producers of a partition. If a repeated name does not change the response, only its first
occurrence is handled. (An API that changes something has its own rule for repeated names: for example, CreateTopics
refuses a repeated name.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable
from itertools import islice
from typing import Final, TypeVar

from oncelog_broker.runtime.steps import Steps

TOPICS_PER_STEP: Final = 500
NAMES_PER_STEP: Final = 2000
"""The number of names that are processed in one slice. A name that is a pair (such as topic and partition) takes half a
microsecond.
"""

K = TypeVar("K", bound=Hashable)


def once(named: Iterable[K]) -> list[K]:
    """Return each name once, in the order of first mention."""
    return list(dict.fromkeys(named))


def counted(named: Iterable[K]) -> Steps[Counter[K]]:
    """Count how often each name occurs."""
    found: Counter[K] = Counter()
    names = iter(named)
    while some := list(islice(names, NAMES_PER_STEP)):
        found.update(some)
        yield None
    return found


def by_topic(named: Iterable[tuple[K, Iterable[int]]]) -> Steps[dict[K, Collection[int]]]:
    """Return each partition once under its topic, in the order of first mention, however often the request names the
    topic or the partition.
    """
    found: dict[K, dict[int, None]] = {}
    for number, (topic, partitions) in enumerate(named, 1):
        found.setdefault(topic, {}).update(dict.fromkeys(partitions))
        if number % TOPICS_PER_STEP == 0:
            yield None
    return {topic: partitions.keys() for topic, partitions in found.items()}

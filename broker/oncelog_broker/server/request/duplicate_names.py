"""Removes repeated names from a request: each named group, topic or partition is looked up once, and appears in the
response once.

A name takes two or three bytes, and its description may take a thousand times as many: groups with all their offsets,
partitions with all their producers. If a repeated name does not change the response, only its first occurrence is
handled. (If it would cause a change twice, the API has a rule of its own: CreateTopics refuses a repeated name.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable
from itertools import islice
from typing import Final, TypeVar

from oncelog_broker.runtime.steps import Steps

TOPICS_PER_STEP: Final = 500
NAMES_PER_STEP: Final = 2000
"""Number of names that are processed in one slice; some names are pairs, and take half a microsecond each."""

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

"""Requests that name things: each thing is looked up, and answered, once.

To name a thing takes two bytes or three, to describe it may take a thousand times as many: groups with all their
offsets, partitions with all their producers. If a repeated name does not change the response, only its first occurrence
is handled. (Where it would be *done* twice the API has its own rule: CreateTopics refuses it.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable
from itertools import islice
from typing import Final, TypeVar

from oncelog_broker.runtime.steps import Steps

TOPICS_PER_STEP: Final = 500
NAMES_PER_STEP: Final = 2000
"""Some are pairs, and take half a microsecond each."""

K = TypeVar("K", bound=Hashable)


def once(named: Iterable[K]) -> list[K]:
    """Each thing once, in the order of first mention."""
    return list(dict.fromkeys(named))


def counted(named: Iterable[K]) -> Steps[Counter[K]]:
    """How often each thing is named."""
    found: Counter[K] = Counter()
    names = iter(named)
    while some := list(islice(names, NAMES_PER_STEP)):
        found.update(some)
        yield None
    return found


def by_topic(named: Iterable[tuple[K, Iterable[int]]]) -> Steps[dict[K, Collection[int]]]:
    """Each partition once under its topic, however often the request mentions either, in the order of first mention."""
    found: dict[K, dict[int, None]] = {}
    for number, (topic, partitions) in enumerate(named, 1):
        found.setdefault(topic, {}).update(dict.fromkeys(partitions))
        if number % TOPICS_PER_STEP == 0:
            yield None
    return {topic: partitions.keys() for topic, partitions in found.items()}

"""Divides a request about very many partitions into parts of some hundred partitions; each part is handled in one short
slice, and the response is the same as without this division.

Other requests may run between two parts and change conditions. So each part is checked independently, like a separate
request.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any, Final, Protocol, TypeVar

from oncelog_broker.runtime.steps import Steps

PARTITIONS_PER_PART: Final = 500
"""Partitions in one part, which takes some 4 ms if each partition writes a record."""

T = TypeVar("T")


class AnsweredTopic(Protocol):
    """Type of a topic in a response."""

    name: str
    partitions: list[Any]


A = TypeVar("A", bound=AnsweredTopic)


def is_long(topics: Iterable[Any], of: str = "partitions") -> bool:
    """Return whether the request has more than one part. The argument `of` is the name of the field of a topic that
    lists its partitions.
    """
    left = PARTITIONS_PER_PART
    for topic in topics:
        left -= len(getattr(topic, of)) or 1
        if left < 0:
            return True
    return False


def parts(topics: Iterable[T], of: str = "partitions") -> Iterator[list[T]]:
    """Yield the topics in order, at most PARTITIONS_PER_PART partitions at a time; a topic without partitions counts as
    one partition.
    """
    part: list[T] = []
    room = PARTITIONS_PER_PART
    for topic in topics:
        partitions = getattr(topic, of)
        start = 0
        while True:
            taken = partitions[start : start + room]
            part.append(topic if len(taken) == len(partitions) else replace(topic, **{of: taken}))  # type: ignore[type-var]
            start += len(taken)
            room -= len(taken) or 1
            if not room:
                yield part
                part, room = [], PARTITIONS_PER_PART
            if start >= len(partitions):
                break
    if part:
        yield part


def joined(answers: Iterable[Iterable[A]]) -> Steps[list[A]]:
    """Return the topics of the parts' responses in order; a topic that was divided between parts is joined again."""
    topics: list[A] = []
    for number, topic in enumerate(chain.from_iterable(answers), 1):
        if topics and _is_same(topics[-1], topic):
            topics[-1].partitions += topic.partitions
        else:
            topics.append(topic)
        if number % PARTITIONS_PER_PART == 0:
            yield None
    return topics


def _is_same(one: AnsweredTopic, other: AnsweredTopic) -> bool:
    return one.name == other.name and getattr(one, "topic_id", None) == getattr(other, "topic_id", None)

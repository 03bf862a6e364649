"""Resolves topic ids to names, for requests that name topics by id alone (T9)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

from oncelog_broker.metadata.model.image import ClusterImage


class NamedTopic(Protocol):
    """A topic in a request with a name and an id; a client sets only one of them, depending on the request version."""

    name: str
    topic_id: bytes


T = TypeVar("T", bound=NamedTopic)


def resolve_names(topics: Iterable[T], image: ClusterImage) -> tuple[list[T], list[T]]:
    """Return (the topics with known ids, with their names filled in; the topics with unknown ids)."""
    known, unknown = [], []
    for topic in topics:
        found = image.topic_by_id(topic.topic_id)
        if found is None:
            unknown.append(topic)
        else:
            topic.name = found.name
            known.append(topic)
    return known, unknown

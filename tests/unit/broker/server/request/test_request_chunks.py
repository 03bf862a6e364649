"""Requests about very many partitions are divided into chunks, whose responses are merged."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from oncelog_broker.runtime.steps import run_steps
from oncelog_broker.server.request.request_chunks import PARTITIONS_PER_PART, is_long, joined, parts


@dataclass
class Topic:
    name: str
    partitions: list[int] = field(default_factory=list)
    topic_id: bytes = b""


def sizes(*topics: Topic) -> list[list[tuple[str, int]]]:
    return [[(topic.name, len(topic.partitions)) for topic in part] for part in parts(topics)]


N = PARTITIONS_PER_PART


def test_a_short_request_is_one_part() -> None:
    assert sizes(Topic("a", [1, 2]), Topic("b", [1])) == [[("a", 2), ("b", 1)]]
    assert not is_long([Topic("a", list(range(N)))])
    assert is_long([Topic("a", list(range(N))), Topic("b", [1])])


def test_a_long_topic_is_divided() -> None:
    assert sizes(Topic("a", list(range(2 * N + 1)))) == [[("a", N)], [("a", N)], [("a", 1)]]
    assert sizes(Topic("a", list(range(N - 1))), Topic("b", [1, 2])) == [[("a", N - 1), ("b", 1)], [("b", 1)]]


def test_topics_without_partitions_count_and_none_is_lost() -> None:
    """Topics without partitions must count, too, because otherwise one chunk could contain any number of them."""
    assert sizes() == []
    assert [len(part) for part in sizes(*[Topic(f"{n}") for n in range(N + 1)])] == [N, 1]


@pytest.mark.parametrize("count", [1, N, N + 1, 3 * N])
def test_the_answers_are_those_of_the_whole(count: int) -> None:
    asked = [Topic("a", list(range(count))), Topic("b", []), Topic("c", [1, 2])]
    assert run_steps(joined(parts(asked))) == asked


def test_topics_of_one_name_and_other_ids_stay_apart() -> None:
    one, other = Topic("", [1], b"1"), Topic("", [2], b"2")
    assert run_steps(joined([[one], [other]])) == [one, other]

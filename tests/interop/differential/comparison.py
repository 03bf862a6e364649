"""Finds the differences between the transcripts of two brokers.

Elements of arrays are paired by their names, not by their positions. If the error codes of an element differ, only that
difference is reported, because the rest of the element follows from the error code.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.interop.differential.side import Step

ABSENT: Final = "absent"

NAMES: Final = (
    *("name", "topic", "topic_id", "partition_index", "partition", "index", "group_id", "transactional_id"),
    *("member_id", "producer_id", "resource_name", "api_key", "key", "node_id", "broker_id", "subtopology_id"),
)
"""The fields that may name an element of an array; the first one that an element has is used."""
ERROR_CODES: Final = ("error_code", "partition_error_code")


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between Kafka's and oncelog's response to one request. `field` is the path in the response:
    "topics.orders.partitions.0.error_code"; empty
    for the entire response.
    """

    scenario: str
    step: Step
    field: str
    kafka: Any
    ours: Any

    def __str__(self) -> str:
        where = f"{self.scenario}: {self.step.question}: {self.field}"
        return f"{where}: Kafka {_short(self.kafka)}, we {_short(self.ours)}"


def compare(scenario: str, kafka: Sequence[Step], ours: Sequence[Step]) -> Iterator[Difference]:
    """Yield all differences between two transcripts, up to the first request that differs between the two sides."""
    for one, other in zip(kafka, ours, strict=False):
        if one.question != other.question:
            yield Difference(scenario, one, "question", one.question, other.question)
            return
        for field, theirs, mine in _leaves(one.answer, other.answer, (), one.api == "Fetch"):
            yield Difference(scenario, one, ".".join(field), theirs, mine)
    if len(kafka) != len(ours):
        end = Step("", 0, "the end", None)
        yield Difference(scenario, end, "steps", len(kafka), len(ours))


def _leaves(kafka: Any, ours: Any, path: tuple[str, ...], ordered: bool) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    if kafka == ours:
        return
    if isinstance(kafka, dict) and isinstance(ours, dict):
        errors = [name for name in ERROR_CODES if kafka.get(name) != ours.get(name)]
        for name in errors or {**kafka, **ours}:
            yield from _leaves(kafka.get(name, ABSENT), ours.get(name, ABSENT), (*path, name), ordered)
    elif (pair := _named(kafka, ours)) is not None:
        if ordered and pair[0].keys() == pair[1].keys() and list(pair[0]) != list(pair[1]):
            yield (*path, "order"), list(pair[0]), list(pair[1])
        for name in {**pair[0], **pair[1]}:
            yield from _leaves(pair[0].get(name, ABSENT), pair[1].get(name, ABSENT), (*path, name), ordered)
    elif isinstance(kafka, list) and isinstance(ours, list) and len(kafka) == len(ours):
        for index, (one, other) in enumerate(zip(kafka, ours, strict=True)):
            yield from _leaves(one, other, (*path, str(index)), ordered)
    else:
        yield path, kafka, ours


def _named(kafka: Any, ours: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return the elements of two arrays of structs by name; None if the elements have no unique names."""
    if not isinstance(kafka, list) or not isinstance(ours, list):
        return None
    elements = [*kafka, *ours]
    if not elements or not all(isinstance(one, dict) for one in elements):
        return None
    name = next((name for name in NAMES if name in elements[0]), None)
    if name is None:
        return None
    by_name = tuple({str(one[name]): one for one in side} for side in (kafka, ours))
    if len(by_name[0]) != len(kafka) or len(by_name[1]) != len(ours):
        return None
    return by_name[0], by_name[1]


def _short(value: Any, limit: int = 300) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}…"

"""The declaration of a metric: name, kind, help text, labels, and the function that reads its samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from oncelog_broker.metrics.source import Source

NO_LABELS: Final[Mapping[str, str]] = {}


class Sample(NamedTuple):
    """One value of a metric, with its labels. `suffix` is appended to the metric's name; only the parts of a histogram
    have a suffix.
    """

    labels: Mapping[str, str]
    value: float
    suffix: str = ""


Samples = Iterator[Sample | None]
"""Type of the samples that a metric's function yields. The function yields None after many items without a sample, so
that other work may run.
"""
Reader = Callable[[Source], Samples]


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: its name, kind, help text, labels and reader. `name` is the full name; a counter's name ends with
    _total.
    """

    name: str
    kind: str
    help: str
    labels: tuple[str, ...]
    read: Reader

    @property
    def is_kafkas(self) -> bool:
        """Whether Kafka has a metric with this name, so that dashboards for Apache Kafka use the metric."""
        return not self.name.startswith("oncelog_")


class Families:
    """The metrics that one module declares, in order; each kind of metric has a decorator that declares it."""

    def __init__(self) -> None:
        self.declared: list[Family] = []

    def gauge(self, name: str, text: str, *labels: str) -> Callable[[Reader], Reader]:
        return self._declare(name, "gauge", text, labels)

    def counter(self, name: str, text: str, *labels: str) -> Callable[[Reader], Reader]:
        assert name.endswith("_total"), name
        return self._declare(name, "counter", text, labels)

    def histogram(self, name: str, text: str, *labels: str) -> Callable[[Reader], Reader]:
        return self._declare(name, "histogram", text, labels)

    def _declare(self, name: str, kind: str, text: str, labels: tuple[str, ...]) -> Callable[[Reader], Reader]:
        def declare(read: Reader) -> Reader:
            self.declared.append(Family(name, kind, text, labels, read))
            return read

        return declare

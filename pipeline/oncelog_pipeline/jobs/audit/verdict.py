"""The verdict of an audit, which is shown as a table of topics, a table of faults, and a sentence. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from oncelog_pipeline.jobs.audit.chains import Kind

EXAMPLES: Final = 20
"""How many faults of each kind are shown as examples; all faults are counted."""
MEANINGS: Final[Mapping[str, str]] = {
    Kind.GAP.value: "missing",
    Kind.TWICE.value: "there again",
    Kind.ZOMBIE.value: "of a producer that was over",
    Kind.HOLE.value: "offsets that are empty",
    "disorder": "out of order",
    "unnumbered": "without a number",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. An example of a fault (gap, duplicate or zombie); `who` is a producer id with its epoch, or a key.
    `place` is the offset range of the fault, and `records` the number of records that are missing, duplicated or from a
    zombie.
    """

    kind: str
    topic: str
    who: str
    place: str
    records: int


@dataclass(frozen=True, slots=True)
class Count:
    """The number of faults of one kind in one topic."""

    kind: str
    topic: str
    faults: int
    records: int


@dataclass(frozen=True, slots=True)
class Audited:
    """One topic that was audited. The audit read `records` records. `judged` of them have a sequence number and could
    be checked; these records belong to `numbering` different producers or keys. Each remark is a sentence about
    something that could not be checked.
    """

    topic: str
    records: int
    judged: int
    numbering: int
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of an audit; `by` is "producer" or "key"."""

    by: str
    topics: tuple[Audited, ...]
    counts: tuple[Count, ...] = ()
    examples: tuple[Fault, ...] = field(default=())

    @property
    def is_right(self) -> bool:
        """Return whether no fault was found and at least one record could be checked."""
        return not self.counts and all(topic.judged or not topic.records for topic in self.topics)

    def headings(self) -> tuple[str, ...]:
        return ("Topic", "Records", "Judged", f"{self.by.capitalize()}s", *_titles(self._kinds()), "Verdict")

    def rows(self) -> list[tuple[object, ...]]:
        """Return a row for each topic, with the number of affected records for each kind of fault."""
        found = {(count.topic, count.kind): count.records for count in self.counts}
        return [
            (
                topic.topic,
                topic.records,
                topic.judged,
                topic.numbering,
                *(found.get((topic.topic, kind), 0) for kind in self._kinds()),
                self._of(topic),
            )
            for topic in self.topics
        ]

    def sentences(self) -> list[str]:
        """Return the remarks that do not fit into a table."""
        said = [f"{topic.topic}: {remark}" for topic in self.topics for remark in topic.remarks]
        shown = len(self.examples)
        total = sum(count.faults for count in self.counts)
        if total > shown:
            said.append(f"{shown} of {total} faults are shown")
        return said

    def as_json(self) -> dict[str, Any]:
        return {"right": self.is_right, **asdict(self)}

    def _kinds(self) -> Sequence[str]:
        usual = (Kind.GAP.value, Kind.TWICE.value)
        others = sorted({count.kind for count in self.counts} - set(usual))
        return (*usual, *others)

    def _of(self, topic: Audited) -> str:
        if any(count.topic == topic.topic for count in self.counts):
            return "WRONG"
        if topic.records and not topic.judged:
            return "cannot be judged"
        return "right" if topic.judged else "empty"


def _titles(kinds: Iterable[str]) -> list[str]:
    return [MEANINGS[kind].capitalize() for kind in kinds]

"""The acknowledgements of one partition that are not sent yet. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Final, NamedTuple

from oncelog_protocol.messages.share_fetch import AcknowledgeType

MANY_ALIKE: Final = 50
"""At least this many neighbouring offsets with the same acknowledgement type get a batch of their own, because such a
batch states the type only once.
"""


class AckBatch(NamedTuple):
    """A range of neighbouring offsets; `types` has one type for all offsets, or one type for each."""

    first: int
    last: int
    types: tuple[AcknowledgeType, ...]


def batches_of(said: Mapping[int, AcknowledgeType]) -> list[AckBatch]:
    """Return these acknowledgements in as few batches as possible, in ascending order."""
    batches: list[AckBatch] = []
    run: list[int] = []
    for offset in sorted(said):
        if run and offset != run[-1] + 1:
            batches += [_batch(part, said) for part in _divided(run, said)]
            run = []
        run.append(offset)
    batches += [_batch(part, said) for part in _divided(run, said)]
    return batches


def _divided(offsets: Iterable[int], said: Mapping[int, AcknowledgeType]) -> Iterator[list[int]]:
    """Yield the offsets in order; a run of at least MANY_ALIKE offsets of one type becomes a group of its own."""
    mixed: list[int] = []
    for _, same in groupby(offsets, key=said.__getitem__):
        alike = list(same)
        if len(alike) < MANY_ALIKE:
            mixed += alike
            continue
        if mixed:
            yield mixed
        mixed = []
        yield alike
    if mixed:
        yield mixed


def _batch(offsets: list[int], said: Mapping[int, AcknowledgeType]) -> AckBatch:
    types = tuple(said[offset] for offset in offsets)
    return AckBatch(offsets[0], offsets[-1], types[:1] if len(set(types)) == 1 else types)


class Acknowledgements:
    """The acknowledgements of one partition that the application has made and the consumer has not sent yet. `unsaid`
    contains the offsets of delivered records that the application has not acknowledged.
    """

    __slots__ = ("_renewals", "_said", "unsaid")

    def __init__(self) -> None:
        self.unsaid: set[int] = set()
        self._said: dict[int, AcknowledgeType] = {}
        self._renewals: dict[int, AcknowledgeType] = {}

    def acquired(self, offsets: Iterable[int]) -> None:
        """Record that the application gets these records."""
        self.unsaid.update(offsets)

    def say(self, offset: int, kind: AcknowledgeType) -> None:
        """Acknowledge a record. A renewed record remains unacknowledged. Raises ValueError for a record that is already
        acknowledged.
        """
        if offset not in self.unsaid:
            raise ValueError(f"the record at offset {offset} was acknowledged already, or is not this consumer's")
        if kind is AcknowledgeType.RENEW:
            self._renewals[offset] = kind
            return
        self.unsaid.discard(offset)
        self._renewals.pop(offset, None)
        self._said[offset] = kind

    def say_of_no_records(self, offsets: Iterable[int], kind: AcknowledgeType) -> None:
        """Acknowledge offsets that are not delivered to the application: gaps, or records that cannot be read."""
        self._said.update(dict.fromkeys(offsets, kind))

    def accept_all(self) -> None:
        """Accept all delivered records that are not acknowledged."""
        for offset in list(self.unsaid):
            self.say(offset, AcknowledgeType.ACCEPT)

    def take(self) -> dict[int, AcknowledgeType]:
        """Remove and return the acknowledgements to send, without renewals, which are sent in a separate request."""
        said, self._said = self._said, {}
        return said

    def take_renewals(self) -> dict[int, AcknowledgeType]:
        renewals, self._renewals = self._renewals, {}
        return renewals

    def put_back(self, said: Mapping[int, AcknowledgeType]) -> None:
        """Put back acknowledgements whose request was not sent."""
        self._said = {**said, **self._said}

    @property
    def is_empty(self) -> bool:
        return not (self._said or self._renewals)

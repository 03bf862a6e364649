"""Decodes keys and values of records that are more than text, and searches values by an expression."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from oncelog_console.lookups.record_view import RecordView
from oncelog_console.lookups.wanted import Wanted
from oncelog_console.values.reader import ValueReader


class Found(NamedTuple):
    """The result of decoding records: the `records` that match the search expression, with their decoded texts.
    `unread`: the number of values that could not
    be decoded.
    """

    records: list[RecordView]
    unread: int


@dataclass(frozen=True, slots=True)
class Decoding:
    """How the keys and values of a topic's records are decoded. `key_characters`, `value_characters`: the number of
    characters to return of each decoded key and value.
    """

    values: ValueReader
    topic: str
    wanted: Wanted
    key_characters: int
    value_characters: int
    indents: bool = False

    @property
    def is_needed(self) -> bool:
        """Whether entire values are needed, in order to decode or search them."""
        return self.wanted.expression is not None or self.values.reads(self.topic, self.wanted.read_as)

    async def read(self, records: Sequence[RecordView]) -> Found:
        """Decode the records, and return those whose value matches the search expression, in their order. Raises
        TaskFailed.
        """
        if not self.is_needed:
            return Found(list(records), 0)
        wanted = self.wanted
        read = await self.values.read(
            self.topic,
            [record.value for record in records],
            wanted.read_as,
            expression=wanted.expression,
            characters=self.value_characters,
            indents=self.indents,
        )
        is_search = wanted.expression is not None
        matching = [
            replace(record, value_reading=each.reading)
            for record, each in zip(records, read, strict=True)
            if each.matches or not is_search
        ]
        unread = sum(each.is_unread for each in read) if is_search else 0
        keys = [record.key for record in matching]
        of_keys = await self.values.read(self.topic, keys, wanted.read_as, is_key=True, characters=self.key_characters)
        return Found(
            [replace(record, key_reading=each.reading) for record, each in zip(matching, of_keys, strict=True)], unread
        )

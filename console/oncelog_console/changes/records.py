"""Changes that produce a record, or delete records."""

from __future__ import annotations

import json
from base64 import b64decode
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self

from oncelog import TopicPartition
from oncelog.cli.group_positions import bounds_of
from oncelog.cli.json_records import format_json
from oncelog.cli.text_records import Headers, parse_header
from oncelog_console.changes.change import BadField, Change, Fields, Preview
from oncelog_console.changes.commands import oncelog, piped
from oncelog_console.link import Link
from oncelog_console.visible_text import plural

MAX_PARTITION: Final = 2**31 - 1
TEXT, BASE64, NULL = "text", "base64", "null"
KINDS: Final = {each: each for each in (TEXT, BASE64, NULL)}
END: Final = -1
"""In DeleteRecords, this offset means the high watermark."""


def _bytes(fields: Fields, name: str, what: str, kind: str) -> bytes | None:
    """Return the bytes in a form field; `kind` (text, base64 or null) says how they are written. Raises BadField."""
    text = fields.raw(name)
    if kind == NULL:
        if text:
            raise BadField(f"{what} is either null or has a text")
        return None
    if kind == TEXT:
        return text.encode(errors="surrogatepass")
    try:
        return b64decode(text.strip(), validate=True)
    except ValueError as error:
        raise BadField(f"{what} is not base64: {error}") from error


@dataclass(frozen=True, slots=True)
class ProduceRecord(Change):
    """Produces a record; `partition` None means that the record's key determines the partition."""

    section: ClassVar[str] = "topics"
    name_in_url: ClassVar[str] = "record-produce"
    has_form: ClassVar[bool] = True
    heading: ClassVar[str] = "Produce a record"
    verb: ClassVar[str] = "Produce it"
    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers = ()

    @classmethod
    def from_fields(cls, fields: Fields) -> Self:
        kind_of_value = fields.choice("value_is", "the value", KINDS)
        key = fields.raw("key")
        try:
            headers = tuple(parse_header(line) for line in fields.lines("headers"))
        except ValueError as error:
            raise BadField(str(error)) from error
        return cls(
            fields.text("topic", "the topic"),
            fields.number("partition", "the partition", 0, MAX_PARTITION),
            key.encode(errors="surrogatepass") if key else None,
            _bytes(fields, "value", "the value", kind_of_value),
            headers,
        )

    @property
    def title(self) -> str:
        return f"Produce this record to {self.topic}?"

    def command(self, bootstrap: str) -> str:
        line: dict[str, Any] = json.loads(format_json(_AsOutput(self), base64=False))
        for name in ("topic", "partition", "offset", "timestamp"):
            del line[name]
        if line["encoding"] == "utf-8":
            del line["encoding"]
        if not line["headers"]:
            del line["headers"]
        told = json.dumps(line, ensure_ascii=True)
        return piped(told, oncelog(bootstrap, "produce", self.topic, json=True, partition=self.partition))

    async def preview(self, link: Link) -> Preview:
        topic = (await (await link.admin()).describe_topics([self.topic]))[self.topic]
        if self.partition is not None and self.partition not in topic.partitions:
            raise BadField(f"{self.topic} has the partitions 0 to {len(topic.partitions) - 1}, not {self.partition}")
        where = "by its key" if self.key is not None else "any"
        size = "null, a tombstone" if self.value is None else plural(len(self.value), "byte")
        return Preview((("Partition", where if self.partition is None else str(self.partition)), ("Value", size)))

    async def apply(self, link: Link) -> str:
        async with link.new_producer() as producer:
            done = await producer.send_and_wait(
                self.topic, self.value, self.key, partition=self.partition, headers=self.headers
            )
        return f"Produced a record to {self.topic}: partition {done.partition}, offset {done.offset}."

    @property
    def back(self) -> tuple[str, dict[str, str]]:
        return "/records", {"topic": self.topic}


class _AsOutput:
    """The record as the argument of `format_json`."""

    partition, offset, timestamp_ms = 0, 0, 0

    def __init__(self, record: ProduceRecord) -> None:
        self.topic = record.topic
        self.key = record.key
        self.value = record.value
        self.headers = record.headers


@dataclass(frozen=True, slots=True)
class DeleteRecords(Change):
    """Deletes the oldest records of a partition. `before`: delete the records below this offset; None deletes all
    records.
    """

    section: ClassVar[str] = "topics"
    name_in_url: ClassVar[str] = "records-delete"
    has_form: ClassVar[bool] = True
    heading: ClassVar[str] = "Delete records"
    verb: ClassVar[str] = "Delete them"
    is_dangerous: ClassVar[bool] = True
    where: TopicPartition
    before: int | None

    @classmethod
    def from_fields(cls, fields: Fields) -> Self:
        topic = fields.text("topic", "the topic")
        partition = fields.needed_number("partition", "the partition", 0, MAX_PARTITION)
        before = fields.number("before", "the offset")
        if (before is None) is not fields.is_set("all"):
            raise BadField("either an offset is needed, or all records are to be deleted")
        return cls(TopicPartition(topic, partition), before)

    @property
    def title(self) -> str:
        what = "all records" if self.before is None else f"the records below {self.before}"
        return f"Delete {what} in partition {self.where.partition} of {self.where.topic}?"

    def command(self, bootstrap: str) -> str:
        named = f"{self.where.topic}:{self.where.partition}"
        return oncelog(bootstrap, "topics delete-records", named, before=self.before, all=self.before is None)

    async def preview(self, link: Link) -> Preview:
        bounds = (await bounds_of(await link.admin(), [self.where])).get(self.where)
        if bounds is None:
            raise BadField(f"there is no partition {self.where}")
        before = bounds.end if self.before is None else self.before
        if before > bounds.end:
            raise BadField(f"{self.where} ends at {bounds.end}")
        offsets = max(0, before - bounds.beginning)
        facts = (("First offset", f"{bounds.beginning} → {max(before, bounds.beginning)}"), ("Offsets", str(offsets)))
        return Preview(facts, "The records below are deleted on all replicas. This cannot be undone.")

    async def apply(self, link: Link) -> str:
        admin = await link.admin()
        firsts = await admin.delete_records({self.where: END if self.before is None else self.before})
        return f"Deleted records of {self.where}: its first offset is {firsts[self.where]} now."

    @property
    def back(self) -> tuple[str, dict[str, str]]:
        return "/topic", {"name": self.where.topic}

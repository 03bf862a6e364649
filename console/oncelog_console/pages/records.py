"""/records and /record: a page of records from a position on, by key, only committed ones or all; and one record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from oncelog import TopicPartition
from oncelog.cli.offsets import parse_position
from oncelog.clock import now_ms
from oncelog.cluster import NO_NODE, Topic
from oncelog_console.limits import (
    KEY_BYTES,
    MAX_HEADERS,
    MAX_PAGE_PARTITIONS,
    PAGE_RECORDS,
    RECORD_BYTES,
    VALUE_BYTES,
)
from oncelog_console.lookups import records as look_at
from oncelog_console.pages.page_request import (
    MAX_PARTITION,
    admin_of,
    known_partition,
    number_of,
    page,
    partition_in,
    place_of,
    text_of,
)
from oncelog_console.rendering import Refused, render

NEWEST: Final = f"-{PAGE_RECORDS}"
ALL, COMMITTED = "all", "committed"
MAX_KEY_CHARACTERS: Final = 4096


@dataclass(frozen=True, slots=True)
class Asked:
    """The values of the form above the records. `partition` is None for all."""

    topic: str
    partition: int | None
    at: str
    show: str
    key: str
    cursor: str | None

    @property
    def committed_only(self) -> bool:
        return self.show == COMMITTED

    @property
    def wanted(self) -> look_at.Wanted:
        return look_at.Wanted(self.committed_only, self.key.encode(errors="replace") if self.key else None)

    @property
    def query(self) -> dict[str, object]:
        """The parameters of a link to this view, without the position."""
        return {"topic": self.topic, "partition": self.partition, "show": self.show, "key": self.key or None}


def asked_by(request: Request) -> Asked:
    """Raises Refused."""
    given = request.query_params
    partition = given.get("partition") or None
    key = given.get("key", "")
    if len(key) > MAX_KEY_CHARACTERS:
        raise Refused(f"a key that is looked for has {MAX_KEY_CHARACTERS} characters at most")
    return Asked(
        text_of(given.get("topic"), "topic"),
        None if partition is None else number_of(partition, "partition", MAX_PARTITION),
        given.get("at", "").strip() or ("earliest" if key else NEWEST),
        COMMITTED if given.get("show") == COMMITTED else ALL,
        key,
        given.get("cursor") or None,
    )


def partitions_read(asked: Asked, topic: Topic) -> list[int]:
    """The chosen partition, or the first ones of all that have leaders. Raises Refused."""
    if asked.partition is None:
        led = [index for index, known in sorted(topic.partitions.items()) if known.leader != NO_NODE]
        return led[:MAX_PAGE_PARTITIONS]
    return [partition_in(topic, asked.partition).index]


@page
async def records(request: Request) -> Response:
    asked = asked_by(request)
    admin = await admin_of(request)
    topic = (await admin.describe_topics([asked.topic]))[asked.topic]
    indexes = partitions_read(asked, topic)
    problem = None
    cursor = _cursor(asked.cursor, indexes)
    if cursor is None:
        try:
            position = parse_position(asked.at, now_ms())
        except ValueError as error:
            problem, position = str(error), parse_position(NEWEST, 0)
        cursor = await look_at.starts(admin, [TopicPartition(asked.topic, index) for index in indexes], position)
    found = await look_at.page(admin, asked.topic, cursor, asked.wanted)
    return render(
        request,
        "records.html",
        asked=asked,
        topic=topic,
        page=found,
        problem=problem,
        partitions=len(topic.partitions),
        read=indexes,
        most=MAX_PAGE_PARTITIONS,
        next_cursor=_cursor_text(found.cursor) if found.has_more else None,
        key_bytes=KEY_BYTES,
        value_bytes=VALUE_BYTES,
    )


@page
async def record(request: Request) -> Response:
    where, offset = place_of(request.query_params)
    admin = await admin_of(request)
    await known_partition(admin, where)
    found = await look_at.record_at(admin, where, offset)
    return render(
        request,
        "record.html",
        where=where,
        offset=offset,
        record=found,
        headers=() if found is None else tuple(found.headers)[:MAX_HEADERS],
        more_headers=0 if found is None else max(0, len(found.headers) - MAX_HEADERS),
        most=RECORD_BYTES,
        key_bytes=KEY_BYTES,
    )


def _cursor(text: str | None, indexes: list[int]) -> dict[int, int] | None:
    """Parse `0:17,1:4` for the partitions being read. Raises Refused."""
    if text is None:
        return None
    cursor: dict[int, int] = {}
    for part in text.split(",")[:MAX_PAGE_PARTITIONS]:
        index, _, offset = part.partition(":")
        cursor[number_of(index, "cursor", MAX_PARTITION)] = number_of(offset, "cursor")
    if not set(cursor) <= set(indexes):
        raise Refused("the cursor is of other partitions")
    return cursor


def _cursor_text(cursor: dict[int, int]) -> str:
    return ",".join(f"{index}:{offset}" for index, offset in sorted(cursor.items()))

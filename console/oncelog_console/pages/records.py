"""/records, /record, /download: a page of records from a position on, records that match a search, or one record."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from oncelog import TopicPartition
from oncelog.admin import Admin
from oncelog.cli.offsets import parse_position
from oncelog.clock import now_ms
from oncelog_console import downloads
from oncelog_console.limits import KEY_BYTES, MAX_HEADERS, MAX_PAGE_PARTITIONS, RECORD_BYTES, VALUE_BYTES
from oncelog_console.lookups import records as look_at
from oncelog_console.pages.page_request import (
    admin_of,
    console_of,
    known_partition,
    page,
    place_of,
)
from oncelog_console.pages.record_search import (
    NEWEST,
    Asked,
    asked_by,
    cursor_text,
    parse_cursor,
    partitions_read,
    read_as_of,
)
from oncelog_console.rendering import Refused, render
from oncelog_console.values.reader import ReadAs
from oncelog_console.values.workers import TaskFailed

FILE_NAME: Final = re.compile(r"[^A-Za-z0-9._-]")


class Start(NamedTuple):
    """`cursor`: the start offset by partition. `problem`: why the position in the form could not be used."""

    cursor: dict[int, int]
    problem: str | None


@page
async def records(request: Request) -> Response:
    asked = asked_by(request)
    admin = await admin_of(request)
    topic = (await admin.describe_topics([asked.topic]))[asked.topic]
    indexes = partitions_read(asked, topic)
    start = await _start(admin, asked, indexes)
    problem = start.problem
    try:
        found = await look_at.page(admin, asked.topic, start.cursor, asked.wanted, console_of(request).values)
    except TaskFailed as failed:
        problem, found = str(failed), look_at.RecordPage()
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
        here=cursor_text(start.cursor),
        next_cursor=cursor_text(found.cursor) if found.has_more else None,
        key_bytes=KEY_BYTES,
        value_bytes=VALUE_BYTES,
    )


@page
async def download(request: Request) -> Response:
    """Return the records of a page with their entire values, as a file."""
    asked = asked_by(request)
    kind = downloads.KINDS.get(request.query_params.get("as", ""))
    if kind is None:
        raise Refused(f"a download is one of: {', '.join(downloads.KINDS)}")
    admin = await admin_of(request)
    topic = (await admin.describe_topics([asked.topic]))[asked.topic]
    start = await _start(admin, asked, partitions_read(asked, topic))
    if start.problem is not None:
        raise Refused(start.problem)
    values = console_of(request).values
    try:
        found = await look_at.page(admin, asked.topic, start.cursor, asked.wanted, values, is_whole=True)
    except (TaskFailed, look_at.TooLarge) as error:
        raise Refused(str(error)) from error
    content = await look_at.decoded(lambda: kind.written(asked.topic, found.records))
    name = FILE_NAME.sub("_", asked.topic)
    headers = {"Content-Disposition": f'attachment; filename="{name}.{kind.ending}"'}
    return Response(content, media_type=kind.media_type, headers=headers)


@page
async def record(request: Request) -> Response:
    where, offset = place_of(request.query_params)
    admin = await admin_of(request)
    await known_partition(admin, where)
    read_as = read_as_of(request)
    problem = None
    try:
        found = await look_at.record_at(admin, where, offset, console_of(request).values, read_as)
    except TaskFailed as failed:
        problem = str(failed)
        found = await look_at.record_at(admin, where, offset, console_of(request).values, ReadAs.BYTES)
    return render(
        request,
        "record.html",
        problem=problem,
        read_as=read_as,
        where=where,
        offset=offset,
        record=found,
        headers=() if found is None else tuple(found.headers)[:MAX_HEADERS],
        more_headers=0 if found is None else max(0, len(found.headers) - MAX_HEADERS),
        most=RECORD_BYTES,
        key_bytes=KEY_BYTES,
    )


async def _start(admin: Admin, asked: Asked, indexes: list[int]) -> Start:
    """Return where a page begins: at its cursor, at the position in the form, or at the newest records. Raises Refused
    or KafkaError.
    """
    cursor = parse_cursor(asked.cursor, indexes)
    if cursor is not None:
        return Start(cursor, None)
    problem = None
    try:
        position = parse_position(asked.at, now_ms())
    except ValueError as error:
        problem, position = str(error), parse_position(NEWEST, 0)
    partitions = [TopicPartition(asked.topic, index) for index in indexes]
    return Start(await look_at.starts(admin, partitions, position), problem)

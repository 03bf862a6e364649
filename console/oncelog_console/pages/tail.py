"""/tail: new records, as server-sent events. Each tail has its own connections to the cluster."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from oncelog.cli.running import describe
from oncelog.errors import KafkaError
from oncelog_console.console import Console
from oncelog_console.limits import KEY_BYTES, MAX_TAILS, PAGE_SECONDS, TAIL_SECONDS, VALUE_BYTES
from oncelog_console.lookups.record_view import RecordView
from oncelog_console.lookups.tailing import TailPart, tail
from oncelog_console.pages.page_request import console_of
from oncelog_console.pages.record_search import Asked, asked_by, partitions_read
from oncelog_console.rendering import Refused, moment
from oncelog_console.urls import url
from oncelog_console.values.workers import TaskFailed
from oncelog_console.visible_text import bytes_shown, read_shown, visible


async def tail_events(request: Request) -> Response:
    console = console_of(request)
    try:
        asked = asked_by(request)
        async with asyncio.timeout(PAGE_SECONDS), console.capacity.pages:
            admin = await console.link.admin()
            topic = (await admin.describe_topics([asked.topic]))[asked.topic]
            indexes = partitions_read(asked, topic)
    except Refused as refused:
        return PlainTextResponse(refused.message, refused.status)
    except KafkaError as error:
        return PlainTextResponse(describe(error, console.link.bootstrap), 503)
    except TimeoutError:
        return PlainTextResponse("no answer in time", 504)
    if console.capacity.tails >= MAX_TAILS:
        return PlainTextResponse(f"{MAX_TAILS} live tails are open, which is the limit", 503)
    return EventStream(_events(console, asked, indexes), console)


class EventStream(Response):
    """Sends the `events` until the browser disconnects, the time limit of a live tail is reached, or the user's session
    ends. The response counts as a live tail until it ends.
    """

    def __init__(self, events: AsyncGenerator[bytes], console: Console) -> None:
        super().__init__(media_type="text/event-stream", headers={"Cache-Control": "no-store"})
        del self.headers["content-length"]
        self._events = events
        self._has_begun = False
        self._console = console
        console.capacity.tails += 1

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.ensure_future(self._send(send))
        leaving = asyncio.ensure_future(_gone(receive))
        ending = asyncio.ensure_future(self._console.closed.wait())
        tasks = (sending, leaving, ending)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED, timeout=TAIL_SECONDS)
            is_over = not sending.done() and not leaving.done()
        finally:
            for task in tasks:
                task.cancel()
            sent, *_ = await asyncio.gather(*tasks, return_exceptions=True)
            self._console.capacity.tails -= 1
        if isinstance(sent, Exception):
            raise sent  # the server logs the error and closes the connection, and the browser reconnects
        # end the response properly: the browser then reconnects
        if is_over and self._has_begun:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send(self, send: Send) -> None:
        async with aclosing(self._events) as events:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            self._has_begun = True
            async for event in events:
                await send({"type": "http.response.body", "body": event, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _events(console: Console, asked: Asked, indexes: list[int]) -> AsyncGenerator[bytes]:
    yield b"retry: 3000\n\n"
    try:
        async with console.link.new_admin() as admin:
            yield _event("ready", {})
            parts = tail(admin, asked.topic, indexes, asked.wanted, console.values)
            async with aclosing(parts):
                async for part in parts:
                    yield _event("records", _as_json(asked.topic, part))
    except KafkaError as error:
        yield _event("problem", {"message": describe(error, console.link.bootstrap)})
    except TaskFailed as failed:
        yield _event("problem", {"message": str(failed)})


def _event(kind: str, data: dict[str, Any]) -> bytes:
    """Return an event with JSON data, which contains no line ends, so that no data can start another event."""
    return f"event: {kind}\ndata: {json.dumps(data)}\n\n".encode()


def _as_json(topic: str, part: TailPart) -> dict[str, Any]:
    return {"records": [_record(topic, record) for record in part.records], "left_out": part.left_out}


def _record(topic: str, record: RecordView) -> dict[str, Any]:
    value = read_shown(record.value_reading) or bytes_shown(record.value, VALUE_BYTES, size=record.value_size)
    key = read_shown(record.key_reading) or bytes_shown(record.key, KEY_BYTES, size=record.key_size)
    return {
        "partition": record.partition,
        "offset": record.offset,
        "time": moment(record.timestamp_ms),
        "fate": record.fate.value,
        "style": record.fate.name.lower(),
        "key": {"kind": key.kind, "text": key.text},
        "value": {
            "kind": "problem" if record.error else "control" if record.fate.is_control else value.kind,
            "text": record.error or ("" if record.fate.is_control else value.text),
            "cut": value.is_cut,
            "note": "" if record.value_reading is None else visible(record.value_reading.kind),
        },
        "url": url("/record", topic=topic, partition=record.partition, offset=record.offset),
    }

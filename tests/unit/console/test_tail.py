"""The event stream of a live tail, without a server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest
from starlette.types import Message

from oncelog_console.clusters import Cluster
from oncelog_console.console import Console
from oncelog_console.pages.tail import EventStream
from oncelog_console.site import site_of


def console() -> Console:
    made = site_of([Cluster("test", "broker:9092")]).places[0].open
    assert made is not None
    return made


async def never() -> Message:
    await asyncio.Event().wait()
    raise AssertionError


async def test_an_error_within_a_stream_is_reported() -> None:
    shown = console()
    sent: list[Message] = []

    async def events() -> AsyncGenerator[bytes]:
        yield b"event: ready\n\n"
        raise ZeroDivisionError("an error that nobody thought of")

    async def send(message: Message) -> None:
        sent.append(message)

    with pytest.raises(ZeroDivisionError):
        await EventStream(events(), shown)({"type": "http"}, never, send)
    assert [message.get("body") for message in sent] == [None, b"event: ready\n\n"]
    assert shown.capacity.tails == 0, "its place is free again"


async def test_a_stream_ends_in_an_orderly_way_when_its_console_is_closed() -> None:
    shown = console()
    sent: list[Message] = []
    has_begun = asyncio.Event()

    async def events() -> AsyncGenerator[bytes]:
        yield b"event: ready\n\n"
        has_begun.set()
        await asyncio.Event().wait()

    async def send(message: Message) -> None:
        sent.append(message)

    streaming = asyncio.create_task(EventStream(events(), shown)({"type": "http"}, never, send))
    await has_begun.wait()
    await shown.close()
    await asyncio.wait_for(streaming, 60)
    assert sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}
    assert shown.capacity.tails == 0

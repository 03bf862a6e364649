"""The stream of a live tail, without a server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import cast

import pytest
from starlette.types import Message

from oncelog_console.console import Console
from oncelog_console.pages.tail import EventStream


async def test_an_error_within_a_stream_is_reported() -> None:
    console = cast(Console, SimpleNamespace(tails=0))
    sent: list[Message] = []

    async def events() -> AsyncGenerator[bytes]:
        yield b"event: ready\n\n"
        raise ZeroDivisionError("an error that nobody thought of")

    async def never() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Message) -> None:
        sent.append(message)

    with pytest.raises(ZeroDivisionError):
        await EventStream(events(), console)({"type": "http"}, never, send)
    assert [message.get("body") for message in sent] == [None, b"event: ready\n\n"]
    assert console.tails == 0, "its place is free again"

"""Listening sockets."""

from __future__ import annotations

import asyncio
import errno
import socket
from contextlib import ExitStack
from typing import Any

import pytest

from oncelog_broker.runtime.accepting import ACCEPTS_AT_ONCE, ListeningSockets


class AtOnce:
    def seconds(self) -> float:
        return 0.0

    def take(self) -> None: ...


def without(monkeypatch: pytest.MonkeyPatch, *families: int) -> None:
    class Socket(socket.socket):
        def __init__(self, family: int = socket.AF_INET, *others: Any, **named: Any) -> None:
            if family in families and not others[2:]:
                raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
            super().__init__(family, *others, **named)

    monkeypatch.setattr(socket, "socket", Socket)


async def bound() -> ListeningSockets:
    return await ListeningSockets.bind("", 0, asyncio.BufferedProtocol, AtOnce(), backlog=1)


async def test_a_broker_listens_on_a_system_without_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, socket.AF_INET6)
    listening = await bound()
    assert listening.port > 0
    await listening.close()


async def test_a_system_without_addresses_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, socket.AF_INET6, socket.AF_INET)
    with pytest.raises(OSError, match="not supported"):
        await bound()


class Connected(asyncio.BufferedProtocol):
    """Counts the accepted connections."""

    count = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        type(self).count += 1
        transport.close()


async def test_a_connection_waits_few_turns_for_those_before_it() -> None:
    """A turn of the loop with requests of other clients may be long, so a new connection must not wait one turn for
    each earlier connection.
    """
    count = 3 * ACCEPTS_AT_ONCE
    listening = await ListeningSockets.bind("127.0.0.1", 0, Connected, None, backlog=count)
    with ExitStack() as clients:
        for _ in range(count):
            clients.enter_context(socket.create_connection(("127.0.0.1", listening.port)))
        await listening.start()
        turns, most = 0, 0
        while Connected.count < count:
            before = Connected.count
            await asyncio.sleep(0)
            turns, most = turns + 1, max(most, Connected.count - before)
        await listening.close()
    assert turns <= 3 * 5, f"{turns} turns for {count} connections"
    assert most <= ACCEPTS_AT_ONCE

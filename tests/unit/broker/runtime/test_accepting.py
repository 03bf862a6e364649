"""Listening at a pace."""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import Any

import pytest

from oncelog_broker.runtime.accepting import PacedListening


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


async def bound() -> PacedListening:
    return await PacedListening.bind("", 0, asyncio.BufferedProtocol, AtOnce(), backlog=1)


async def test_a_system_without_ipv6_is_listened_to(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, socket.AF_INET6)
    listening = await bound()
    assert listening.port > 0
    await listening.close()


async def test_a_system_without_addresses_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, socket.AF_INET6, socket.AF_INET)
    with pytest.raises(OSError, match="not supported"):
        await bound()

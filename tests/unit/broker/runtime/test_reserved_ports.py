"""Ports that a parent holds for processes that listen on them together."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Iterator

import pytest

from oncelog_broker.runtime.accepting import ListeningSockets
from oncelog_broker.runtime.reserved_ports import ReservedPort, reserve_port

LOOPBACK = "127.0.0.1"


@pytest.fixture
def reserved() -> Iterator[ReservedPort]:
    port = reserve_port(LOOPBACK, 0)
    yield port
    port.close()


async def listening(port: int, *, is_shared: bool) -> ListeningSockets:
    return await ListeningSockets.bind(LOOPBACK, port, asyncio.BufferedProtocol, None, 1, is_shared=is_shared)


async def test_several_sockets_listen_on_a_reserved_port(reserved: ReservedPort) -> None:
    both = [await listening(reserved.number, is_shared=True) for _ in range(2)]
    for each in both:
        await each.start()
    with socket.create_connection((LOOPBACK, reserved.number)):
        pass
    for each in both:
        await each.close()


def test_a_reserved_port_takes_no_connection(reserved: ReservedPort) -> None:
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((LOOPBACK, reserved.number))


@pytest.mark.parametrize("is_shared", [False, True])
async def test_a_port_that_anybody_listens_on_is_refused(is_shared: bool) -> None:
    other = await listening(0, is_shared=is_shared)
    with pytest.raises(OSError) as refused:
        reserve_port(LOOPBACK, other.port)
    assert refused.value.errno == errno.EADDRINUSE
    await other.close()


def test_one_number_is_reserved_at_every_interface() -> None:
    port = reserve_port("", 0)
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("0.0.0.0", port.number))
    port.close()

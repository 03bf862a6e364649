"""The time limits of the first login and of each re-authentication (KIP-368)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.virtual_time import run_virtually
from tests.support.wires import Wire, frame

from oncelog_broker.config.secret import Secret
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.security.sasl.exchange import SaslExchange
from oncelog_broker.security.sasl.plain import PlainMechanism
from oncelog_broker.server.net.login_gate import LOGIN_SECONDS, LoginGate
from oncelog_protocol.errors import KafkaError

TOKEN = b"\0alice\0a"


def gate() -> LoginGate:
    exchange = SaslExchange({"PLAIN": lambda: PlainMechanism({"alice": Secret("a")})}, {"PLAIN": 3_600_000})
    return LoginGate(exchange, ManualClock(), "SASL", 1000, 0.1)


class Connection:
    client_host = "127.0.0.1"

    def authenticated(self, principal: Any, *, may_expire: bool) -> None:
        self.principal = principal


def logged_in() -> LoginGate:
    made = gate()
    made.handshake("PLAIN", 1)
    made.authenticate(Connection(), TOKEN)  # type: ignore[arg-type]
    return made


@pytest.mark.parametrize("age", [0.0, LOGIN_SECONDS + 2, 100 * LOGIN_SECONDS])
def test_s94_a_re_authentication_has_as_long_as_the_first_login(age: float) -> None:
    async def run() -> None:
        loop, made = asyncio.get_running_loop(), logged_in()
        await asyncio.sleep(age)
        assert not made.is_late(loop.time())
        made.handshake("PLAIN", 1)
        assert not made.is_late(loop.time())
        await asyncio.sleep(LOGIN_SECONDS - 1)
        assert not made.is_late(loop.time()), "the sweep between handshake and token lets it live"
        made.authenticate(Connection(), TOKEN)  # type: ignore[arg-type]
        assert not made.is_late(loop.time() + 1000)

    run_virtually(run())


def test_s94_an_unfinished_re_authentication_is_late() -> None:
    async def run() -> None:
        loop, made = asyncio.get_running_loop(), logged_in()
        await asyncio.sleep(1000)
        made.handshake("PLAIN", 1)
        await asyncio.sleep(LOGIN_SECONDS + 1)
        assert made.is_late(loop.time())

    run_virtually(run())


def test_the_first_login_is_late_from_the_beginning_of_the_connection() -> None:
    async def run() -> None:
        loop, made = asyncio.get_running_loop(), gate()
        await asyncio.sleep(LOGIN_SECONDS - 1)
        made.handshake("PLAIN", 1)
        with pytest.raises(KafkaError):
            made.handshake("PLAIN", 1)
        await asyncio.sleep(2)
        assert made.is_late(loop.time()), "a handshake does not give more time"

    run_virtually(run())


def test_s94_a_sweep_leaves_a_connection_that_logs_in_again() -> None:
    async def run() -> None:
        loop, wire = asyncio.get_running_loop(), Wire()
        wire.connection.gate = made = logged_in()
        await asyncio.sleep(LOGIN_SECONDS + 2)
        made.handshake("PLAIN", 1)
        wire.connection.sweep(loop.time())
        assert not wire.transport.aborted
        wire.connection.gate = None
        wire.receive(frame(b"a" * 8))
        assert wire.dispatcher.frames == [b"a" * 8]

    run_virtually(run())

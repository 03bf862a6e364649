from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from tests.support.virtual_time import run_virtually

from oncelog.consumer.group.heartbeat import Heartbeat, PollWatch


def test_polls_are_late_when_nothing_changes_for_too_long() -> None:
    watch = PollWatch(max_interval_s=5)
    watch.look((1, None), now=100)
    watch.look((1, None), now=104)
    assert not watch.is_late(105)
    assert watch.is_late(105.1)
    watch.look((1, 7), now=106)  # as an iteration does for its next record
    assert not watch.is_late(111)
    watch.look((2, 7), now=111)
    assert not watch.is_late(116)


def test_s93_heartbeats_continue_after_whatever_one_raises() -> None:
    """A defect once ended the heartbeats, and the member was removed from its group."""

    class Connection:
        def __init__(self) -> None:
            self.sent = 0

        async def send(self, request: Any, timeout_s: float) -> Any:
            self.sent += 1
            if self.sent < 4:
                raise TypeError("'NoneType' object is not callable")
            return SimpleNamespace(error_code=0)

        async def backoff(self, failures: int) -> None:
            await asyncio.sleep(0.1 * failures)

    async def run() -> int:
        connection: Any = Connection()
        membership: Any = SimpleNamespace(
            sends_heartbeats=True, generation=SimpleNamespace(generation_id=1, member_id="m")
        )
        config: Any = SimpleNamespace(
            group_id="g", group_instance_id=None, max_poll_interval_ms=300_000, heartbeat_interval_ms=3_000,
            session_timeout_ms=45_000,
        )  # fmt: skip

        async def late() -> None: ...

        heartbeat = Heartbeat(
            membership, connection, config, progress=lambda: None, poll_is_late=late, changed=lambda: None
        )
        heartbeat.start()
        await asyncio.sleep(60)
        await heartbeat.stop()
        return int(connection.sent)

    assert run_virtually(run()) >= 20

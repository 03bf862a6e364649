"""Timers by the thousand, which share their wake-ups."""

from __future__ import annotations

import asyncio

import pytest

from oncelog_broker.runtime.tasks import Deadlines


async def test_one_that_raises_takes_no_other_with_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Those of a bucket are of different clients."""
    loop = asyncio.get_running_loop()
    now = loop.time()
    monkeypatch.setattr(loop, "time", lambda: now)  # all in one bucket
    deadlines, fired = Deadlines(), asyncio.Event()

    def throw() -> None:
        raise ValueError("thrown by a timer")

    deadlines.after(0.01, throw)
    deadlines.after(0.01, fired.set)
    monkeypatch.undo()
    async with asyncio.timeout(10):
        await fired.wait()
    assert "thrown by a timer" in caplog.text

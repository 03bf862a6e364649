"""Run by test_pythons.py alone: pytest does not find it by its name."""

from __future__ import annotations

import asyncio
import os


async def test_the_loop() -> None:
    assert type(asyncio.get_running_loop()).__module__.split(".")[0] == os.environ["EXPECTED_LOOP"]

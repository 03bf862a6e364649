"""pytest does not collect this file by its name; `test_pythons.py` runs it explicitly."""

from __future__ import annotations

import asyncio
import os


async def test_the_loop() -> None:
    assert type(asyncio.get_running_loop()).__module__.split(".")[0] == os.environ["EXPECTED_LOOP"]

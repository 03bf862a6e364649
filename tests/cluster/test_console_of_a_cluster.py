"""Tests the console of a cluster with a paused broker: the console reports that broker as missing, and still shows the
others.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from pathlib import Path

from replicated_cluster import BROKERS, ReplicatedCluster
from test_console import Browser, as_text, opened, patience  # noqa: F401  a fixture among them

PATIENCE_SECONDS = 100


async def until_told(browser: Browser, path: str, *texts: str, **query: str) -> str:
    """Reload the page until it has all of these texts, and return it. The page is reloaded as by a browser with
    automatic refresh.
    """
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            answer = await browser.client.get(path, params=query)
            text = as_text(answer.text)
            if answer.status_code == 200 and all(each in text for each in texts):
                return text
            browser.console.shared.forget()


async def test_replicas_that_are_out_of_sync_are_shown(chroots: Callable[[], str], tmp_path: Path) -> None:
    topic = f"seen-{uuid.uuid4().hex[:8]}"
    with ReplicatedCluster(tmp_path, chroots()) as cluster:
        await asyncio.to_thread(cluster.create_topic, topic)
        part = await asyncio.to_thread(cluster.until_led, topic)
        paused = next(each for each in BROKERS if each != part.leader)
        async with opened(cluster.addresses, settings={}) as browser:
            await until_told(browser, "/", "Brokers 3", "Out of sync 0", "All replicas are in sync")
            cluster.pause(paused)
            text = await until_told(browser, "/", f"{topic} -0 {part.leader}", f"{paused} not there 0 1 1")
            assert "Without leader 0" in text
            assert "Out of sync 1" in text
            assert "B out of sync" in await until_told(browser, "/topic", name=topic)
            cluster.go_on(paused)
            await until_told(browser, "/", "Brokers 3", "Out of sync 0", "All replicas are in sync")

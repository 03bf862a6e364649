"""Tests the console against Apache Kafka: the console is only an admin client, so its pages must be right for any Kafka
broker.
"""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from apache_kafka import NODE_ID, ApacheKafka
from conftest import RELEASES, or_skip
from foreign_clients import eventually
from hanging import UNGUARDED, hung
from raw_client import RawClient
from raw_transactions import RawTransactions, is_stable, last_stable_offset
from test_console import Browser, as_text, opened, patience, write  # noqa: F401  a fixture among them

from oncelog import Admin, NewTopic, TopicPartition
from oncelog_protocol.errors import ErrorCode


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    """Apache Kafka on which transactions can hang."""
    data = tmp_path_factory.mktemp("console") / "data"
    with or_skip(lambda: ApacheKafka(RELEASES[-1], data, UNGUARDED)) as started:
        yield started


@pytest.fixture
def group(topic: str) -> str:
    """The name of a group that no other test uses."""
    return f"{topic}-readers"


@pytest.fixture
def raw(kafka: ApacheKafka) -> Iterator[RawClient]:
    with RawClient(kafka.port) as client:
        yield client


@pytest_asyncio.fixture
async def browser(kafka: ApacheKafka) -> AsyncIterator[Browser]:
    async with opened(kafka.address) as made:
        yield made


async def created(address: str, *topics: str, partitions: int = 1) -> None:
    """Create the topic and wait until it has leaders, since Kafka responds before that."""
    async with Admin(address) as admin:
        await admin.create_topics([NewTopic(topic, partitions) for topic in topics])
        await admin.describe_topics(topics)


async def test_the_console_shows_brokers_and_topics(browser: Browser, kafka: ApacheKafka, topic: str) -> None:
    await created(kafka.address, topic, partitions=3)
    text = await browser.text("/")
    assert f"{NODE_ID} controller {kafka.address}" in text
    assert "All replicas are in sync" in text
    assert str(kafka.data) in text
    assert topic in await browser.text("/topics", q=topic)
    text = await browser.text("/topic", name=topic)
    assert "in sync" in text
    assert "min.insync.replicas" in await browser.text("/topic", name=topic, all="1")
    assert "Not found" in await browser.text("/topic", 404, name=f"{topic}-not")


async def test_the_console_shows_records_and_their_fates(
    browser: Browser, kafka: ApacheKafka, raw: RawClient, topic: str
) -> None:
    await created(kafka.address, topic)
    await write(kafka.address, topic, b"plain", key=b"rare")
    txn = RawTransactions(raw, topic)
    txn.take_over()
    for value, commits in ((b"kept", True), (b"dropped", False)):
        txn.write(topic, value=value)
        assert txn.end(commits=commits) == ErrorCode.NONE
        eventually(lambda: is_stable(raw, topic), "the marker is there")
    txn.write(topic, value=b"pending")
    everything = await browser.text("/records", topic=topic)
    fates = ["plain", "kept committed", "commit marker", "dropped aborted", "abort marker", "pending open"]
    places = [everything.index(fate) for fate in fates]
    assert places == sorted(places)
    committed = await browser.text("/records", topic=topic, show="committed")
    assert not any(each in committed for each in ("dropped", "pending", "marker"))
    assert "1 record with this key" in await browser.text("/records", topic=topic, key="rare")
    assert "plain" in await browser.text("/record", topic=topic, partition=0, offset=0)
    picture = await browser.page("/partition", topic=topic, partition=0)
    shapes = ("box data committed", "box abort", "box data open", 'text class="stable"')
    assert [shape for shape in shapes if shape not in picture] == []
    assert "last stable offset 5" in picture
    assert "open from 5" in as_text(picture)
    assert txn.end() == ErrorCode.NONE


async def test_groups_are_shown_and_moved(browser: Browser, kafka: ApacheKafka, topic: str, group: str) -> None:
    await created(kafka.address, topic)
    await write(kafka.address, topic, *(b"%d" % n for n in range(10)))
    partition = TopicPartition(topic, 0)
    async with Admin(kafka.address) as admin:
        await admin.groups.alter_offsets(group, {partition: 8})
        await browser.console.history.sample()
        assert f"{group} 2 Empty" in await browser.text("/groups", q=group)
        assert "8 10 2" in await browser.text("/group", id=group)
        page = await browser.page("/group/reset", id=group, shift="-5")
        assert (await browser.submit(page)).status_code == 303
        assert (await admin.groups.offsets(group))[partition].offset == 3
    assert "Not found" in await browser.text("/group", 404, id=f"{group}-not")


async def test_a_hanging_transaction_is_found_explained_and_aborted(
    browser: Browser, raw: RawClient, kafka: ApacheKafka, topic: str, group: str
) -> None:
    hung(raw, topic)
    async with Admin(kafka.address) as admin:
        await admin.groups.alter_offsets(group, {TopicPartition(topic, 0): 2})
    await browser.console.history.sample()
    page = await browser.page("/transactions")
    text = as_text(page)
    assert "hangs: not held" in text
    assert f"oncelog txns abort {topic}:0 --start-offset 2" in text
    assert f"{group} waits" in text
    (link,) = [html.unescape(each) for each in re.findall(r'href="(/transaction/abort[^"]+)"', page) if topic in each]
    done = await browser.submit(await browser.page(link))
    assert done.status_code == 303
    assert f"in {topic}-0: its last stable offset is 4 now" in await browser.text(done.headers["location"])
    assert last_stable_offset(raw, topic) == 4


async def test_a_coordinated_transaction_is_fenced(browser: Browser, raw: RawClient, topic: str) -> None:
    raw.create_topic(topic)
    txn = RawTransactions(raw, topic)
    txn.take_over()
    txn.write(topic)
    assert f"{topic}" in await browser.text("/transactions")
    page = await browser.page("/transaction/fence", id=topic)
    assert (await browser.submit(page)).status_code == 303
    eventually(lambda: last_stable_offset(raw, topic) == 2, "what was open is aborted")

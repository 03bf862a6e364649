"""Tests docs/migrate/, where each pair of programs has one for another client and one for oncelog's client: both do the
same with a live broker.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from broker_process import BrokerProcess
from tests.support.page_blocks import blocks

from oncelog import Admin, Consumer, NewTopic, Producer, TopicPartition
from oncelog_testing.registry import Registry

PAGES = Path(__file__).parents[3] / "docs" / "migrate"
PARTITIONS_OF_MANY = 5
TIMEOUT_SECONDS = 90


class Pair(NamedTuple):
    """A section of a page: the program for the other client, and the program for oncelog's client."""

    page: str
    title: str
    theirs: str
    ours: str


def pairs() -> list[Pair]:
    found = []
    for path in sorted(PAGES.glob("*.md")):
        if path.stem == "index":
            continue  # test_migration_path.py tests this page
        for section in path.read_text().split("\n## ")[1:]:
            programs = blocks(section)
            if programs:
                assert [program.title for program in programs] == [path.stem, "oncelog"]
                found.append(Pair(path.stem, section.partition("\n")[0], programs[0].text, programs[1].text))
    return found


@pytest.fixture(scope="module")
def registry_url(broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with Registry(broker.address, tmp_path_factory.mktemp("registry") / "log") as registry:
        yield registry.url


async def fill(address: str, topic: str) -> None:
    """Create a topic with the records a, b and c, a topic to write to, and a topic with several partitions."""
    names = {topic: 1, f"{topic}-out": 1, f"{topic}-many": PARTITIONS_OF_MANY, f"{topic}-json": 1}
    async with Admin(address) as admin:
        await admin.create_topics([NewTopic(name, count, 1) for name, count in names.items()])
    async with Producer(address) as producer:
        for value in (b"a", b"b", b"c"):
            await producer.send_and_wait(topic, value)


async def outcome(program: str, address: str, topic: str, group: str, registry_url: str) -> Any:
    """Run a program, and return the result of its `main`."""
    names: dict[str, Any] = {}
    exec(compile(program, "<page>", "exec"), names)
    main = names["main"]
    arguments = {"servers": address, "topic": topic, "group": group, "registry_url": registry_url}
    wanted = {name: arguments[name] for name in inspect.signature(main).parameters}
    async with asyncio.timeout(TIMEOUT_SECONDS):
        if inspect.iscoroutinefunction(main):
            return await main(**wanted)
        return await asyncio.to_thread(main, **wanted)


async def written(address: str, topic: str, group: str) -> tuple[int | None, list[bytes | None]]:
    """Return the group's committed offset in the topic, and the values of the committed records in the topic to which
    the program wrote.
    """
    async with Admin(address) as admin:
        groups = {each.group_id for each in await admin.groups.list()}
        offsets = await admin.groups.offsets(group) if group in groups else {}
    committed = offsets.get(TopicPartition(topic, 0))
    place = TopicPartition(f"{topic}-out", 0)
    values: list[bytes | None] = []
    async with Consumer(address, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
        consumer.assign([place])
        (end,) = (await consumer.end_offsets([place])).values()
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while await consumer.position(place) < end:
                values += [record.value for records in (await consumer.poll(1000)).values() for record in records]
    return None if committed is None else committed.offset, values


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize("pair", pairs(), ids=lambda pair: f"{pair.page}-{pair.title.replace(' ', '-')}")
async def test_both_programs_of_a_pair_do_the_same(
    broker: BrokerProcess, registry_url: str, pair: Pair, topic: str, group: str
) -> None:
    found = {}
    for name, program in (("theirs", pair.theirs), ("ours", pair.ours)):
        own_topic, own_group = f"{topic}-{name}", f"{group}-{name}"
        await fill(broker.address, own_topic)
        result = await outcome(program, broker.address, own_topic, own_group, registry_url)
        found[name] = result, await written(broker.address, own_topic, own_group)
    assert found["ours"] == found["theirs"]
    assert found["ours"][0]
    if "exactly once" in pair.title:
        assert found["ours"][1] == (3, [b"A", b"B", b"C"])


def test_each_page_has_its_programs() -> None:
    assert {pair.page for pair in pairs()} == {"aiokafka", "confluent-kafka", "kafka-python"}
    assert len(pairs()) > 15

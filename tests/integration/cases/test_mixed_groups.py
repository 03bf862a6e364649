"""Tests groups whose members use different libraries; each member is a separate process, which a test may kill or stop.

The standard output of each member is read in the order of arrival. The pipes of two members are read one after the
other, so when a partition changes hands, the lines of the two members may appear in the wrong order. Hence these tests
check only which member has read which record in the end. test_consumer_groups, where the order is certain, checks that
no two members own a partition simultaneously.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from broker_process import BrokerProcess
from group_members import Writer, until
from warm_commands import CLIENT, Child, Program

from oncelog import Admin, NewTopic, TopicPartition

PARTITIONS = 6
SESSION_MS, SHORT_SESSION_MS = 30_000, 1_500
"""Session timeouts in milliseconds. Only members that a test kills have the short timeout, because no other member may
time out on a busy machine.
"""
IMPORTS = {
    "kafka-python": ("kafka",),
    "aiokafka": ("aiokafka",),
    "confluent-kafka": ("confluent_kafka",),
    "oncelog": CLIENT,
}
PROGRAM = (str(Path(__file__).parents[1] / "programs" / "group_member_process.py"),)
LIBRARIES_OF = {
    "range": ("aiokafka", "kafka-python", "confluent-kafka"),
    "roundrobin": ("aiokafka", "kafka-python", "confluent-kafka"),
    "sticky": ("aiokafka", "kafka-python"),
    "cooperative-sticky": ("kafka-python", "confluent-kafka"),
}
PAIRS = [(strategy, library) for strategy, libraries in LIBRARIES_OF.items() for library in libraries]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {"group.min.session.timeout.ms": "300", "log.segment.bytes": "1048576"}
    process = BrokerProcess(tmp_path_factory.mktemp("mixed") / "data", settings)
    with process:
        yield process
    assert "Traceback" not in process.log.read_text()


class MemberProcess:
    """A member in its own process; `owned` and `read` are updated from its output."""

    def __init__(self, library: str) -> None:
        self.library = library
        self.owned: set[int] = set()
        self.read: list[tuple[int, int, str]] = []
        self._child: Child | None = None
        self._reading: asyncio.Task[None] | None = None

    async def start(self, *where: str) -> MemberProcess:
        self._child = Child(Program(PROGRAM, IMPORTS[self.library]), self.library, *where)
        self._reading = asyncio.ensure_future(self._follow())
        return self

    async def _follow(self) -> None:
        assert self._child is not None
        async for line in self._child.lines():
            if not line.endswith(b"\n"):
                return  # the member was killed while it wrote a line
            what, *words = line.decode().split()
            if what == "assigned":
                self.owned.update(map(int, words))
            elif what == "revoked":
                self.owned.difference_update(map(int, words))
            elif what == "read":
                assert int(words[0]) in self.owned, f"{self.library} reads {words}, but has {self.owned}"
                self.read.append((int(words[0]), int(words[1]), words[2]))

    async def kill(self) -> None:
        assert self._child is not None
        self._child.process.send_signal(signal.SIGKILL)
        await self._ended()
        self.owned.clear()

    async def stop(self) -> int:
        assert self._child is not None
        with suppress(BrokenPipeError):
            self._child.stdin.close()
        return await self._ended()

    async def _ended(self) -> int:
        assert self._child is not None
        assert self._reading is not None
        async with asyncio.timeout(60):
            await self._reading
            code = await self._child.ended()
        self._child.close()
        return code


class MixedGroup:
    def __init__(self, address: str, topic: str, strategy: str) -> None:
        self.name = f"group-{topic}"
        self._where = (address, self.name, topic, strategy)
        self.members: list[MemberProcess] = []

    async def join(self, library: str, session_ms: int = SESSION_MS) -> MemberProcess:
        member = await MemberProcess(library).start(*self._where, str(session_ms))
        self.members.append(member)
        return member

    async def shared_as(self, *sizes: int) -> None:
        """Wait until every partition has one owner, and the owners have these numbers of partitions."""

        def is_shared() -> bool:
            owned = [member.owned for member in self.members if member.owned]
            return sorted(map(len, owned)) == sorted(sizes) and len(set().union(*owned)) == PARTITIONS

        await until(is_shared, f"shared as {sizes}: {[(member.library, member.owned) for member in self.members]}")

    async def all_read(self, written: int) -> list[str]:
        """Wait until every record was read by some member; return the values, in any order."""

        def values() -> list[str]:
            return [value for member in self.members for _, _, value in member.read]

        await until(lambda: len(set(values())) >= written, f"{written} records read")
        return values()

    def assert_in_order(self) -> None:
        """Assert that each member reads each partition in increasing order of offsets; only a new owner may go back."""
        for member in self.members:
            for partition in range(PARTITIONS):
                offsets = [offset for place, offset, _ in member.read if place == partition]
                assert offsets == sorted(offsets), f"{member.library} reads {partition} as {offsets}"


@asynccontextmanager
async def mixed_group(address: str, topic: str, strategy: str) -> AsyncIterator[tuple[MixedGroup, Writer]]:
    group = MixedGroup(address, topic, strategy)
    async with Admin(address) as admin:
        await admin.create_topics([NewTopic(topic, PARTITIONS)])
        # If no offset is committed, librdkafka may read a partition that was revoked, and deliver those records when it
        # owns the partition again (docs/guides/clients.md).
        await admin.groups.alter_offsets(group.name, {TopicPartition(topic, index): 0 for index in range(PARTITIONS)})
    async with Writer(address, topic, PARTITIONS) as writer:
        try:
            yield group, writer
        finally:
            for member in group.members:
                await member.stop()


@pytest.mark.crossed("strategy", "library", "leads")
@pytest.mark.parametrize(("strategy", "library"), PAIRS, ids=[f"{strategy}-{library}" for strategy, library in PAIRS])
@pytest.mark.parametrize("leads", ["oncelog leads", "the other leads"])
async def test_two_libraries_share_the_work(address: str, topic: str, strategy: str, library: str, leads: str) -> None:
    order = ["oncelog", library] if leads == "oncelog leads" else [library, "oncelog"]
    async with mixed_group(address, topic, strategy) as (group, writer):
        writer.start()
        first = await group.join(order[0])
        await group.shared_as(6)
        second = await group.join(order[1])
        await group.shared_as(3, 3)
        seen = len(first.read), len(second.read)
        await until(lambda: len(first.read) > seen[0] and len(second.read) > seen[1], "both read")
        assert await first.stop() == 0
        first.owned.clear()
        await group.shared_as(6)
        await writer.stop()
        values = await group.all_read(writer.written)
        assert sorted(set(values), key=int) == [str(number) for number in range(writer.written)]
        group.assert_in_order()


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
async def test_a_killed_member_is_replaced(address: str, topic: str, strategy: str) -> None:
    """After a kill -9 the member's session ends, and the other members continue from its committed offsets; no record
    is skipped.
    """
    async with mixed_group(address, topic, strategy) as (group, writer):
        writer.start()
        await group.join("oncelog")
        killed = await group.join("oncelog", SHORT_SESSION_MS)
        await group.join(LIBRARIES_OF[strategy][-1])
        await group.shared_as(2, 2, 2)
        await until(lambda: len(killed.read) > 0)
        await killed.kill()
        await group.shared_as(3, 3)
        await group.join("oncelog")
        await group.shared_as(2, 2, 2)
        await writer.stop()
        await group.all_read(writer.written)
        group.assert_in_order()


async def test_all_libraries_share_one_group(address: str, topic: str) -> None:
    async with mixed_group(address, topic, "range") as (group, writer):
        writer.start()
        for library in ("oncelog", *LIBRARIES_OF["range"], "oncelog", "oncelog"):
            await group.join(library)
        await group.shared_as(1, 1, 1, 1, 1, 1)
        await writer.stop()
        await group.all_read(writer.written)
        group.assert_in_order()

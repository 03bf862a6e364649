"""Audits the log of a live broker: the log has no faults, however it is cut into ranges, and a hole in the log is
detected.
"""

from __future__ import annotations

import uuid

from oncelog import Admin, NewTopic, Producer, TopicPartition
from oncelog_pipeline.jobs.audit.chain_reading import read_chains
from oncelog_pipeline.jobs.audit.chains import NO_PRODUCER, Chain, Finding, Kind, judged
from oncelog_pipeline.source.ranges import cut


async def write(address: str, topic: str) -> int:
    """Write committed and aborted transactions, a producer that takes over another one, and records without sequence
    numbers; return the end offset.
    """
    async with Admin(address) as admin:
        await admin.create_topics([NewTopic(topic, 1)])
    transactional_id = uuid.uuid4().hex
    for _ in range(2):
        async with Producer(address, transactional_id=transactional_id) as producer:
            for commits in (True, False, True):
                producer.begin_transaction()
                for number in range(20):
                    await producer.send(topic, b"%d" % number)
                await producer.flush()
                await (producer.commit_transaction() if commits else producer.abort_transaction())
    async with Producer(address, batch_size=200) as producer:
        for number in range(100):
            await producer.send(topic, b"%d" % number)
    async with Producer(address, enable_idempotence=False) as producer:
        last = await producer.send_and_wait(topic, b"unnumbered")
    return last.offset + 1


async def chains_of(address: str, topic: str, start: int, end: int, pieces: int) -> list[Chain]:
    partition = TopicPartition(topic, 0)
    ranges = cut({partition: start}, {partition: end}, min_partitions=pieces)
    return [chain for each in ranges async for some in read_chains(address, each) for chain in some]


def findings(chains: list[Chain], *, is_whole: bool = True) -> list[Finding]:
    found = []
    for producer_id in {chain.producer_id for chain in chains}:
        of_producer = sorted((each for each in chains if each.producer_id == producer_id), key=lambda c: c.first_offset)
        found += judged(of_producer, is_whole=is_whole, is_compacted=False)
    return found


async def test_a_live_log_is_right_however_it_is_cut(address: str, topic: str) -> None:
    end = await write(address, topic)
    for pieces in (1, 7):
        chains = await chains_of(address, topic, 0, end, pieces)
        assert findings(chains) == []
        of_log = [chain for chain in chains if chain.producer_id == NO_PRODUCER]
        assert sum(chain.records for chain in of_log) == 6 * 20 + 100 + 1
        assert sum(chain.numbered for chain in of_log) == 6 * 20 + 100
    assert len(await chains_of(address, topic, 0, end, 1)) == 3, "little is kept"


async def test_missing_records_are_found(address: str, topic: str) -> None:
    """The audit counts a range that was not read as missing records."""
    end = await write(address, topic)
    parts = [await chains_of(address, topic, start, stop, 1) for start, stop in ((0, 150), (190, end))]
    assert {finding.kind for finding in findings(parts[0] + parts[1])} == {Kind.GAP, Kind.HOLE}
    assert findings(parts[1], is_whole=False) == [], "a log may begin anywhere"

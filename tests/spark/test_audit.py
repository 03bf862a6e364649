"""Tests audits of topics in Spark: correct topics are reported as correct, and each kind of fault is found and
counted.
"""

from __future__ import annotations

import asyncio
from typing import Any

from streams import PARTITIONS, create, values

from oncelog import Producer
from oncelog_pipeline.jobs.audit import by_key, by_producer
from oncelog_pipeline.jobs.audit.topics import Extent, extent
from oncelog_pipeline.jobs.audit.verdict import Audited, Verdict


def counts(verdict: Verdict) -> dict[str, int]:
    return {count.kind: count.records for count in verdict.counts}


def found(address: str, *topics: str) -> Extent:
    return asyncio.run(extent(address, topics))


async def write_values(address: str, topic: str, **options: Any) -> None:
    async with Producer(address, **options) as producer:
        for number, value in enumerate(values(500)):
            await producer.send(topic, value, partition=number % PARTITIONS)


async def write_numbers(address: str, topic: str, numbers: list[tuple[bytes | None, object]]) -> None:
    async with Producer(address) as producer:
        for key, number in numbers:
            value = f'{{"seq": {number}}}'.encode()
            await producer.send(topic, value, key, headers=[("seq", str(number).encode())])


class Whole(Extent):
    """The extent of an audit that treats the beginning of the topic as its original beginning, as if no record had been
    deleted there.
    """

    def is_whole(self, topic: str, partition: int) -> bool:
        return True


def test_an_audit_by_producer_finds_losses(spark: Any, address: str, topic: str) -> None:
    """An offset range that the audit did not read counts as missing records, and the audit does not report records
    without sequences as correct.
    """
    empty, unnumbered = f"{topic}-empty", f"{topic}-unnumbered"
    create(address, topic, empty, unnumbered)
    asyncio.run(write_values(address, topic, batch_size=300))
    asyncio.run(write_values(address, unnumbered, enable_idempotence=False))
    there = found(address, topic, empty, unnumbered)
    remark = "500 records are of producers that number nothing: not judged"
    verdict = by_producer.audit(spark, address, there, {})
    assert verdict == Verdict(
        "producer", (Audited(topic, 500, 500, 1), Audited(empty, 0, 0, 0), Audited(unnumbered, 500, 0, 0, (remark,)))
    )
    assert [row[-1] for row in verdict.rows()] == ["right", "empty", "cannot be judged"]
    assert not verdict.is_right
    of_topic = found(address, topic)
    later = {partition: end // 2 for partition, end in of_topic.latest.items()}
    verdict = by_producer.audit(spark, address, Whole(later, of_topic.latest, frozenset()), {})
    lost = counts(verdict)
    assert lost["gap"] == lost["hole"]
    assert 200 < lost["gap"] <= 250
    assert {fault.who.partition(" ")[0] for fault in verdict.examples} == {"-", "producer"}


def test_an_audit_by_key_finds_losses(spark: Any, address: str, topic: str) -> None:
    """At first the keys are correct. After further writes the keys have a gap of two, a duplicate, a wrong order and a
    value that is no number, and no key begins with 0.
    """
    create(address, topic)
    numbers = [(b"k%d" % (index % 5), 1 + index // 5) for index in range(50)]
    asyncio.run(write_numbers(address, topic, numbers))  # type: ignore[arg-type]
    there = found(address, topic)
    verdict = by_key.audit(spark, address, there, by_key.sequence_in_header("seq"), first=1)
    assert verdict == Verdict("key", (Audited(topic, 50, 50, 5),))
    faulty = [(b"k0", 13), (b"k1", 10), (b"k2", 12), (b"k2", 11), (None, '"none"')]
    asyncio.run(write_numbers(address, topic, faulty))  # type: ignore[arg-type]
    verdict = by_key.audit(spark, address, found(address, topic), by_key.sequence_in_json("$.seq"), first=0)
    assert counts(verdict) == {"gap": 2 + 5, "twice": 1, "disorder": 1, "unnumbered": 1}
    wrong = {(fault.kind, fault.who) for fault in verdict.examples if fault.kind != "gap" or fault.records == 2}
    assert wrong == {("gap", "k0"), ("twice", "k1"), ("disorder", "k2"), ("unnumbered", "(no key)")}

"""Topics audited in Spark: what is right is called right, each kind of fault is found and counted."""

from __future__ import annotations

import asyncio
from typing import Any

from streams import create, produce, values

from oncelog import Producer
from oncelog_pipeline.jobs.audit import by_key, by_producer
from oncelog_pipeline.jobs.audit.topics import Extent, extent
from oncelog_pipeline.jobs.audit.verdict import Audited, Verdict


def counts(verdict: Verdict) -> dict[str, int]:
    return {count.kind: count.records for count in verdict.counts}


def found(address: str, *topics: str) -> Extent:
    return asyncio.run(extent(address, topics))


async def write_numbers(address: str, topic: str, numbers: list[tuple[bytes | None, object]]) -> None:
    async with Producer(address) as producer:
        for key, number in numbers:
            value = f'{{"seq": {number}}}'.encode()
            await producer.send(topic, value, key, headers=[("seq", str(number).encode())])


def test_by_producer(spark: Any, address: str, topic: str) -> None:
    """A part that nobody reads is as good as one that is not there; what nobody numbers is not called right."""
    empty = f"{topic}-empty"
    create(address, topic, empty)
    produce(address, topic, values(500))
    there = found(address, topic, empty)
    verdict = by_producer.audit(spark, address, there, {})
    assert verdict == Verdict("producer", (Audited(topic, 500, 500, 1), Audited(empty, 0, 0, 0)))
    # The records before are missing, for all that is said: it is not told that the log begins later.
    lost = dict.fromkeys(there.latest, 0)
    later = {part: end // 2 for part, end in there.latest.items()}

    class Pretended(Extent):
        def is_whole(self, topic: str, partition: int) -> bool:
            return True

    verdict = by_producer.audit(spark, address, Pretended(lost | later, there.latest, frozenset()), {})
    assert set(counts(verdict)) <= {"gap", "hole"}

    async def write_unnumbered() -> None:
        async with Producer(address, enable_idempotence=False) as producer:
            await producer.send(empty, b"x")

    asyncio.run(write_unnumbered())
    verdict = by_producer.audit(spark, address, found(address, empty), {})
    assert not verdict.is_right
    assert verdict.topics[0].remarks


def test_by_key(spark: Any, address: str, topic: str) -> None:
    """In a JSON value or a header: right; then a gap of two, one twice, one out of order, one that is no number."""
    create(address, topic)
    numbers = [(b"k%d" % (index % 5), 1 + index // 5) for index in range(50)]
    asyncio.run(write_numbers(address, topic, numbers))  # type: ignore[arg-type]
    there = found(address, topic)
    for sequence in (by_key.sequence_in_json("$.seq"), by_key.sequence_in_header("seq")):
        verdict = by_key.audit(spark, address, there, sequence, first=1)
        assert verdict == Verdict("key", (Audited(topic, 50, 50, 5),))
    late = by_key.audit(spark, address, there, by_key.sequence_in_json("$.seq"), first=0)
    assert counts(late) == {"gap": 5}
    faulty = [(b"k0", 13), (b"k1", 10), (b"k2", 12), (b"k2", 11), (None, '"none"')]
    asyncio.run(write_numbers(address, topic, faulty))  # type: ignore[arg-type]
    verdict = by_key.audit(spark, address, found(address, topic), by_key.sequence_in_json("$.seq"))
    assert counts(verdict) == {"gap": 2, "twice": 1, "disorder": 1, "unnumbered": 1}
    assert {(fault.kind, fault.who) for fault in verdict.examples} == {
        ("gap", "k0"), ("twice", "k1"), ("disorder", "k2"), ("unnumbered", "(no key)"),
    }  # fmt: skip

"""Tests archiving topics to Parquet and restoring them: records are equal byte by byte, in the same partitions and
order.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from streams import committed, create

from oncelog import Admin, Producer
from oncelog_pipeline.jobs.archive.manifest import ArchiveError
from oncelog_pipeline.jobs.archive.reading import contents, restore
from oncelog_pipeline.jobs.archive.writing import archive

PARTITIONS = 3
DAY_MS = 86_400_000
NOW_MS = 1_700_000_000_000
EVERY_BYTE = bytes(range(256))
ODD: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = [
    (None, None, []),
    (b"", b"", []),
    (b"\x00\xff", None, [("h", None)]),
    (None, EVERY_BYTE, [("h", b""), ("h", b"again"), ("Zoë", EVERY_BYTE)]),
    (EVERY_BYTE, b"x" * 100_000, [("", b"an empty name")]),
]


async def fill(address: str, topic: str) -> None:
    """Fill a topic; partition 1 remains empty. Timestamps are in no order; aborted records are not archived."""
    async with Producer(address, transactional_id=f"{topic}-writer") as producer:
        for commits in (True, False, True):
            producer.begin_transaction()
            for number in range(40):
                key, value, headers = ODD[number % len(ODD)]
                timestamp = NOW_MS + (number * 7919 % 11) * DAY_MS // 3
                options: dict[str, Any] = {"timestamp_ms": timestamp, "headers": headers}
                await producer.send(topic, value, key, partition=number % 2 * 2, **options)
            await producer.flush()
            await (producer.commit_transaction() if commits else producer.abort_transaction())


def by_partition(address: str, topic: str) -> dict[int, list[tuple[Any, ...]]]:
    """Return all fields of the records except the offset, in order."""
    found: dict[int, list[tuple[Any, ...]]] = {}
    for record in committed(address, topic, PARTITIONS):
        fields = (record.key, record.value, list(record.headers), record.timestamp_ms, record.timestamp_type)
        found.setdefault(record.partition, []).append(fields)
    return found


@pytest.mark.parametrize("by_date", [pytest.param(False, marks=pytest.mark.soak), True])
def test_an_archive_is_written_and_restored(
    spark: Any, address: str, topic: str, tmp_path: Path, by_date: bool
) -> None:
    create(address, topic, partitions=PARTITIONS)
    asyncio.run(fill(address, topic))
    path, copy = str(tmp_path / "archive"), f"{topic}-again"
    (archived,) = archive(spark, address, [topic], path, by_date=by_date)
    assert (archived.partitions, archived.records) == (PARTITIONS, {"0": 40, "2": 40})
    assert bool(list(Path(path).glob(f"topic={topic}/partition=0/date=*/*.parquet"))) == by_date
    restore(spark, address, path, name=copy, configs={"retention.ms": "-1"})
    original = by_partition(address, topic)
    assert sorted(original) == [0, 2]
    assert by_partition(address, copy) == original


def test_an_incomplete_archive_is_not_restored(spark: Any, address: str, topic: str, tmp_path: Path) -> None:
    """Before any record is written, the command reports lost files, a topic in use, and a retention that would delete
    all records.
    """
    create(address, topic, partitions=PARTITIONS)
    asyncio.run(fill(address, topic))
    path = str(tmp_path / "archive")
    archive(spark, address, [topic], path)
    with pytest.raises(ArchiveError, match="exists and was written to"):
        restore(spark, address, path)
    with pytest.raises(ArchiveError, match=r"--config retention.ms=-1"):
        restore(spark, address, path, name=f"{topic}-2")
    with pytest.raises(ArchiveError, match="has no topic bills"):
        restore(spark, address, path, ["bills"])

    async def names() -> list[str]:
        async with Admin(address) as admin:
            return await admin.list_topics()

    assert f"{topic}-2" not in asyncio.run(names())
    next(Path(path).glob("topic=*/partition=2/*.parquet")).unlink()
    with pytest.raises(ArchiveError, match=f"{topic}-2: .* files are missing"):
        contents(spark, path)
    with pytest.raises(ArchiveError, match="is not an archive"):
        contents(spark, str(tmp_path))

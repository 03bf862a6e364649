"""Describes each topic of an archive, so that the topic can be created again and missing records are noticed.

- The records are in `PATH/topic=orders/partition=0/*.parquet` or, by date, `.../partition=0/date=2026-11-22/*.parquet`.
- The manifest is in `PATH/_oncelog/`, with a line of JSON for each topic. The manifest is written last, so an archive
  without this folder is incomplete.

Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

VERSION: Final = 1
FOLDER: Final = "_oncelog"
"""The folder of the manifest in an archive; readers of Parquet skip names that begin with an underscore."""
DATE: Final = "date"
COLUMNS: Final = (
    "offset bigint, timestamp timestamp, timestampType int, key binary, value binary,"
    " headers array<struct<key: string, value: binary>>"
)
"""The columns of a Parquet file of the archive. The values of `topic`, `partition` and `date` are in the names of
folders instead.
"""
NOT_RESTORED: Final = ("message.timestamp.type", "message.timestamp.before.max.ms", "message.timestamp.after.max.ms")
"""Topic configs that would make brokers replace or refuse the timestamps of restored records."""
RETENTION: Final = "retention.ms"


class ArchiveError(Exception):
    """The archive cannot be written or restored; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Archived:
    """The manifest of one topic of an archive.

    `offsets` maps each partition number, written as text, to the archived range of offsets [from, to); `records` maps
    it to the number of records in that range. `oldest_ms` is the timestamp of the oldest record in milliseconds, None
    if there is no record.
    """

    topic: str
    partitions: int
    configs: Mapping[str, str]
    offsets: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    records: Mapping[str, int] = field(default_factory=dict)
    oldest_ms: int | None = None
    by_date: bool = False

    @property
    def total(self) -> int:
        return sum(self.records.values())

    def as_json(self) -> str:
        return json.dumps({"version": VERSION, **asdict(self)}, sort_keys=True)

    def configs_to_restore(self, wanted: Mapping[str, str]) -> dict[str, str]:
        """Return the topic configs for the restored topic: `wanted`, the configs that the user has given, override the
        archived ones.
        """
        return {key: value for key, value in self.configs.items() if key not in NOT_RESTORED} | dict(wanted)


def archived_from_json(text: str) -> Archived:
    """Parse a topic's line of the manifest. Raises ArchiveError."""
    try:
        read: Any = json.loads(text)
        if read["version"] != VERSION:
            raise ArchiveError(
                f"the archive is of version {read['version']}, this is for {VERSION}: update the package"
            )
        return Archived(
            str(read["topic"]),
            int(read["partitions"]),
            dict(read["configs"]),
            {partition: (int(start), int(end)) for partition, (start, end) in read["offsets"].items()},
            {partition: int(count) for partition, count in read["records"].items()},
            read["oldest_ms"],
            bool(read["by_date"]),
        )
    except (ValueError, TypeError, KeyError) as error:
        raise ArchiveError(f"no description of an archive: {text[:100]!r}: {error!r}") from error


def check_retention(archived: Archived, retention_ms: int, now_ms: int) -> None:
    """Raise ArchiveError if the topic's retention would delete restored records immediately."""
    if retention_ms < 0 or archived.oldest_ms is None or now_ms - archived.oldest_ms <= retention_ms:
        return
    days = (now_ms - archived.oldest_ms) / 86_400_000
    raise ArchiveError(
        f"{archived.topic}: the oldest archived record is {days:.1f} days old, and {RETENTION}={retention_ms} would"
        f" delete it right after the restore: restore with --config {RETENTION}=-1"
    )


def check_counts(archived: Archived, found: Mapping[str, int], where: str) -> None:
    """Raise ArchiveError if a partition has more or fewer records than the manifest says."""
    for partition in sorted({*archived.records, *found}, key=int):
        expected, there = archived.records.get(partition, 0), found.get(partition, 0)
        if expected != there:
            raise ArchiveError(
                f"{archived.topic}-{partition}: {where} has {there} records, and should have {expected}: files are"
                " missing, or were added"
            )

"""The manifest of an archived topic is complete, and refused if a restore would lose records."""

from __future__ import annotations

import pytest

from oncelog_pipeline.jobs.archive.manifest import (
    Archived,
    ArchiveError,
    archived_from_json,
    check_counts,
    check_retention,
)

DAY_MS = 86_400_000
ORDERS = Archived(
    "orders",
    3,
    {"retention.ms": "1000", "message.timestamp.type": "LogAppendTime"},
    {"0": (5, 9), "1": (0, 0), "2": (0, 2)},
    {"0": 3, "2": 2},
    oldest_ms=10 * DAY_MS,
    by_date=True,
)


def test_a_manifest_is_written_and_read_back() -> None:
    assert archived_from_json(ORDERS.as_json()) == ORDERS
    assert ORDERS.total == 5


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"version": 1}', '{"version": 2}'])
def test_a_malformed_manifest_is_refused(text: str) -> None:
    with pytest.raises(ArchiveError):
        archived_from_json(text)


def test_timestamps_are_not_replaced_and_the_user_wins() -> None:
    assert ORDERS.configs_to_restore({}) == {"retention.ms": "1000"}
    assert ORDERS.configs_to_restore({"retention.ms": "-1", "x": "y"}) == {"retention.ms": "-1", "x": "y"}


def test_records_already_past_retention_are_not_restored() -> None:
    check_retention(ORDERS, -1, 99 * DAY_MS)
    check_retention(ORDERS, 7 * DAY_MS, 17 * DAY_MS)
    check_retention(Archived("empty", 1, {}), 1, 99 * DAY_MS)
    with pytest.raises(ArchiveError, match=r"is 7.5 days old, .* restore with --config retention.ms=-1"):
        check_retention(ORDERS, 7 * DAY_MS, int(17.5 * DAY_MS))


@pytest.mark.parametrize("found", [{"0": 3, "2": 2}, {"0": 3, "1": 0, "2": 2}])
def test_a_complete_archive_is_accepted(found: dict[str, int]) -> None:
    check_counts(ORDERS, found, "archive")


@pytest.mark.parametrize(
    ("found", "says"),
    [
        ({"0": 3}, "orders-2: archive has 0 records, and should have 2"),
        ({"0": 4, "2": 2}, "orders-0: archive has 4"),
        ({"0": 3, "2": 2, "7": 1}, "orders-7: archive has 1 records, and should have 0"),
    ],
)
def test_lost_or_added_files_are_found(found: dict[str, int], says: str) -> None:
    with pytest.raises(ArchiveError, match=says):
        check_counts(ORDERS, found, "archive")

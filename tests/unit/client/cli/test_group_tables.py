"""`oncelog groups describe` for a group with offsets that open transactions hold back."""

from __future__ import annotations

from oncelog.admin.groups import DescribedGroup, GroupMember
from oncelog.admin.hanging import (
    DescribedTransaction,
    OpenTransaction,
    PartitionEnds,
    ProducerState,
    TransactionLimits,
    explanation,
)
from oncelog.admin.pending_offsets import CONSUMER_OFFSETS, PendingOffset
from oncelog.cli import held_offsets
from oncelog.cli.group_positions import GroupPositions, PartitionRow
from oncelog.cli.group_tables import HELD_COLUMN, as_json, member_table, notes, partition_table, plain_rows, title
from oncelog.cli.held_offsets import HeldOffsets
from oncelog.cluster import TopicPartition

START_MS = 1_767_225_600_000
HERE, THERE = TopicPartition("orders", 0), TopicPartition("orders", 1)
KEPT = TopicPartition(CONSUMER_OFFSETS, 7)
READER = GroupMember("m-1", "static", "c1", "/10.0.0.1", (HERE,))
IDLE = GroupMember("m-2", None, "c2", "/10.0.0.2", ())
GROUP = DescribedGroup("billing", "Stable", "consumer", "range", (READER, IDLE), 3)
ROWS = (PartitionRow(HERE, 4, 9, READER), PartitionRow(THERE, None, 9, None))


def pending(held: DescribedTransaction | None) -> PendingOffset:
    state = ProducerState(7, 2, 0, START_MS, -1, 5)
    transaction = OpenTransaction(KEPT, state, 5, held)
    explained = explanation(KEPT, PartitionEnds(0, 5, 9), [transaction], START_MS + 10, TransactionLimits())
    return PendingOffset("billing", HERE, 6, transaction, explained)


HELD = DescribedTransaction("dead", "Ongoing", 7, 2, 60_000, START_MS, frozenset({KEPT}), 3, "app", "/10.0.0.7")


def test_groups_without_transactions_have_no_transaction_column() -> None:
    positions = GroupPositions(GROUP, ROWS, HeldOffsets())
    columns, rows = partition_table(positions)
    assert HELD_COLUMN not in columns
    assert rows == [("orders", 0, 4, 9, 5, "m-1", "c1", "/10.0.0.1"), ("orders", 1, None, 9, None, None, None, None)]
    assert member_table(positions) == (
        ("Member", "Client", "Host", "Instance", "Partitions"),
        [("m-1", "c1", "/10.0.0.1", "static", ["orders:0"]), ("m-2", "c2", "/10.0.0.2", None, None)],
    )
    assert list(notes(positions)) == []


def test_the_holder_of_an_offset_is_named() -> None:
    positions = GroupPositions(GROUP, ROWS, HeldOffsets((pending(HELD),), unstable=frozenset({HERE})))
    columns, rows = partition_table(positions)
    assert columns[-1] == HELD_COLUMN
    assert [row[-1] for row in rows] == ["dead", None]
    ends_by_ms = START_MS + 60_000 + 10_000
    assert [row[-2:] for row in plain_rows(positions)] == [("dead", ends_by_ms), (None, None), (None, None)]
    assert as_json(positions)["partitions"][0]["held_by"]["ends_by_ms"] == ends_by_ms
    lines = list(held_offsets.text(positions.held, START_MS + 10))
    assert lines[0].startswith("group 'billing': the open transaction of transactional id 'dead' holds its offsets of")
    assert any(line.startswith("  Ends         by itself at 2026-01-01T00:01:10") for line in lines)
    assert lines[-1].endswith("oncelog txns fence dead")


def test_a_holder_that_no_coordinator_knows_is_named_by_its_producer_id() -> None:
    positions = GroupPositions(GROUP, ROWS, HeldOffsets((pending(None),), unstable=frozenset({HERE})))
    assert partition_table(positions)[1][0][-1] == "producer id 7"
    lines = "\n".join(held_offsets.text(positions.held, START_MS + 10))
    assert "Hangs        no coordinator knows its producer id" in lines
    assert "To end it    oncelog txns abort __consumer_offsets:7 --start-offset 5" in lines


def test_a_held_offset_is_shown_also_without_the_right_to_see_the_holder() -> None:
    held = HeldOffsets(why_not="TOPIC_AUTHORIZATION_FAILED: no", unstable=frozenset({HERE}))
    positions = GroupPositions(GROUP, ROWS, held)
    assert [row[-1] for row in partition_table(positions)[1]] == ["an open transaction", None]
    (note,) = notes(positions)
    assert "has pending offsets of orders:0; its owner is not known: TOPIC_AUTHORIZATION_FAILED: no" in note
    assert as_json(positions)["partitions"][0]["offset_is_held"] is True


def test_a_transaction_that_ended_meanwhile_holds_nothing() -> None:
    positions = GroupPositions(GROUP, ROWS, HeldOffsets(unstable=frozenset({HERE})))
    assert HELD_COLUMN not in partition_table(positions)[0]
    assert list(notes(positions)) == []


def test_a_group_without_anything_is_one_line() -> None:
    empty = GroupPositions(DescribedGroup("g", "Empty", "", "", ()), (), HeldOffsets())
    assert list(plain_rows(empty)) == [("g", "Empty", *(None,) * 11)]
    assert {len(row) for row in plain_rows(GroupPositions(GROUP, ROWS, HeldOffsets()))} == {13}


def test_members_of_streams_groups_have_tasks() -> None:
    working = GroupMember("m-1", None, "c1", "/10.0.0.1", (HERE,), (HERE,), 4, ("0_0", "1_0"), ("1_1",))
    starting = GroupMember("m-2", None, "c2", "/10.0.0.2", (), (), 4, (), ())
    group = DescribedGroup("app", "Stable", "streams", "sticky", (working, starting), 3, "streams", 4)
    positions = GroupPositions(group, (), HeldOffsets())
    columns, rows = member_table(positions)
    assert columns[-2:] == ("Active tasks", "Standby tasks")
    assert [row[-3:] for row in rows] == [(["orders:0"], ["0_0", "1_0"], ["1_1"]), (None, None, None)]
    assert title(positions) == ("app: Stable", "streams protocol, epoch 4, assignor sticky, coordinator broker 3")
    first, second = as_json(positions)["members"]
    assert (first["active_tasks"], first["standby_tasks"]) == (["0_0", "1_0"], ["1_1"])
    assert (second["active_tasks"], second["standby_tasks"]) == ([], [])

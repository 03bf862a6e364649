"""The texts that `oncelog explain` prints."""

from dataclasses import replace

import pytest

from oncelog.admin.hanging import (
    DescribedTransaction,
    Explanation,
    Hang,
    OpenTransaction,
    PartitionEnds,
    ProducerState,
    TransactionLimits,
    explanation,
)
from oncelog.cli.explain import as_json, text
from oncelog.cli.transaction_words import remedy
from oncelog.cluster import TopicPartition

HERE = TopicPartition("orders", 0)
START_MS = 1_767_225_600_000
NOW_MS = START_MS + 12_345
HELD = DescribedTransaction("billing 1", "Ongoing", 7, 2, 60_000, START_MS, frozenset({HERE}), 3, "app", "/10.0.0.7")
ENDED = replace(HELD, state="CompleteCommit", start_time_ms=None, partitions=frozenset[TopicPartition]())
LIVE_LINES = """\
orders-0: read_committed readers see nothing from offset 5 on, for the transaction of transactional id 'billing 1'.
  Held back    4 offsets, up to the end at 9
  Open since   2026-01-01T00:00:00.000Z, 12s 345ms ago; its first record here is of 2026-01-01T00:00:01.000Z
  Producer     id 7, epoch 2
  Client       app at 10.0.0.7
  Coordinator  broker 3: Ongoing, timeout 1m
  Ends         by itself at 2026-01-01T00:01:10.000Z at the latest, in 57s 655ms: then its coordinator aborts it \
(timeouts are looked for every 10s)
  To end it    commit or abort it in its producer; or take that its transactional id, and abort: \
oncelog txns fence 'billing 1'
  After it     1 other transaction open here, from offset 8 on
"""


def explained(held: DescribedTransaction | None = HELD, *, now_ms: int = NOW_MS, partition: int = 0) -> Explanation:
    where = TopicPartition("orders", partition)
    both = [OpenTransaction(where, ProducerState(7, 2, 0, START_MS, -1, start), start, held) for start in (5, 8)]
    return explanation(where, PartitionEnds(0, 5, 9), both, now_ms, TransactionLimits(), START_MS + 1000)


def shown(*explanations: Explanation, now_ms: int = NOW_MS) -> str:
    return "\n".join(text(explanations, now_ms))


def free(partition: int) -> Explanation:
    return explanation(TopicPartition("orders", partition), PartitionEnds(0, 9, 9), [], NOW_MS, TransactionLimits())


def test_a_live_transaction_is_explained() -> None:
    assert shown(explained()) == LIVE_LINES


def test_s120_a_transaction_without_timeout_is_explained_with_its_owner() -> None:
    words = shown(explained(replace(HELD, timeout_ms=2**31 - 1), now_ms=NOW_MS + 10 * 24 * 3600 * 1000))
    assert "broker 3: Ongoing, no timeout (two-phase commit)" in words
    assert "when its owner commits or aborts it, however long that takes" in words
    assert "To end it    start its application" in words
    assert "oncelog txns commit 'billing 1', or oncelog txns fence 'billing 1'" in words


def test_e32_a_hanging_transaction_is_explained_with_the_command_that_ends_it() -> None:
    unknown = shown(explained(None))
    assert "for the transaction of producer id 7, whose transactional id is unknown." in unknown
    assert "Hangs        no coordinator knows its producer id, so no coordinator will end it" in unknown
    assert "Open since   its first record here is of 2026-01-01T00:00:01.000Z" in unknown
    assert "To end it    oncelog txns abort orders:0 --start-offset 5" in unknown
    assert "Ends " not in unknown
    ended = shown(explained(ENDED))
    assert "for its coordinator 'billing 1' is CompleteCommit and writes nothing to this partition" in ended
    assert "To end it    oncelog txns abort orders:0 --start-offset 5" in ended


def test_an_overdue_transaction_is_fenced() -> None:
    late = explained(now_ms=START_MS + 2_000_000)
    lines = shown(late, now_ms=START_MS + 2_000_000)
    assert "Hangs        it is open for longer than any timeout allows (transaction.max.timeout.ms: 15m)" in lines
    assert "Open since   2026-01-01T00:00:00.000Z, 33m 20s ago" in lines
    assert remedy(late, late.pinned_by) == "oncelog txns fence 'billing 1'"


@pytest.mark.parametrize(
    ("state", "to_end_it"),
    [
        ("PrepareAbort", "To end it    oncelog txns abort orders:0 --start-offset 5\n"),
        ("PrepareCommit", "abort it: oncelog txns abort orders:0 --start-offset 5 --force\n"),
    ],
)
def test_s40_a_transaction_whose_marker_is_refused_is_explained(state: str, to_end_it: str) -> None:
    known = explained(replace(HELD, state=state))
    pinned_by = known.pinned_by
    assert pinned_by is not None
    producer = replace(pinned_by.producer, coordinator_epoch=9000)
    fenced = replace(known, pinned_by=replace(pinned_by, producer=producer, coordinator_epoch=4), hang=Hang.FENCED)
    lines = shown(fenced)
    assert f"Hangs        its coordinator, of epoch 4, has decided ({state}) and cannot write the marker" in lines
    assert "has a marker of coordinator epoch 9000" in lines
    assert to_end_it in lines


def test_a_transaction_past_its_timeout_is_called_overdue() -> None:
    assert "at the latest, 10s ago, it is overdue" in shown(explained(), now_ms=START_MS + 80_000)


@pytest.mark.parametrize(("state", "does"), [("PrepareCommit", "commit"), ("PrepareAbort", "abort")])
def test_a_decided_transaction_needs_no_action(state: str, does: str) -> None:
    lines = shown(explained(replace(HELD, state=state)))
    assert f"Ends         at once: its coordinator is about to {does} it" in lines
    assert "To end it    nothing is to be done" in lines


def test_a_client_that_is_not_known_is_said_to_be_so() -> None:
    assert "Client       not known to its coordinator" in shown(explained(replace(HELD, client_id=None)))


def test_partitions_that_nothing_holds_back_are_one_line() -> None:
    assert shown(free(0)) == "orders-0: no record is held back up to the end, offset 9."
    assert shown(explained(), free(1), free(2)).endswith("orders: no record is held back in 2 of its partitions.")
    moving = explanation(HERE, PartitionEnds(0, 8, 9), [], NOW_MS, TransactionLimits())
    assert shown(moving).startswith("orders-0: read_committed readers see the records below offset 8 of 9. No")


def test_the_json_output_has_the_whole_explanation() -> None:
    document = as_json(explained())
    assert document["pinned_by"]["client_host"] == "/10.0.0.7"
    assert document["pinned_by"]["ends_by_ms"] == START_MS + 70_000
    assert document["pinned_by"]["hangs"] is None
    assert [each["start_offset"] for each in document["later"]] == [8]
    assert as_json(explained(None))["pinned_by"]["hangs"] == "unknown"
    assert as_json(free(0))["pinned_by"] is None

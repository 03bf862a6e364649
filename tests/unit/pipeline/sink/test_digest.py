"""The digest of rows is the same for the same rows, however they are divided, and differs for other rows."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples

from oncelog_pipeline.sink.digest import NOTHING, Digest, RowCounter, digest_of, digest_sum

FIELD = st.none() | st.binary(max_size=3)
HEADERS = st.lists(st.tuples(st.sampled_from(["a", "b"]), FIELD), max_size=2)
ROW = st.tuples(st.sampled_from(["orders", "bills"]), FIELD, FIELD, HEADERS)
Row = tuple[str, bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]


def of_row(row: Row) -> Digest:
    topic, key, value, headers = row
    return digest_of(topic, [value], [key], [headers])


@given(st.lists(ROW, max_size=8), st.randoms(use_true_random=False), st.integers(1, 4))
@examples(60)
def test_order_and_tasks_do_not_matter(rows: list[Row], rng: object, tasks: int) -> None:
    whole = digest_sum(map(of_row, rows))
    shuffled = list(rows)
    rng.shuffle(shuffled)  # type: ignore[attr-defined]
    divided = [digest_sum(map(of_row, shuffled[task::tasks])) for task in range(tasks)]
    assert digest_sum(divided) == whole
    assert whole.rows == len(rows)


@given(st.lists(ROW, min_size=1, max_size=6), ROW)
@examples(100)
def test_a_different_row_changes_the_digest(rows: list[Row], other: Row) -> None:
    changed = [*rows[:-1], other]
    assert (digest_sum(map(of_row, changed)) == digest_sum(map(of_row, rows))) == (other == rows[-1])


def test_columns_are_the_sum_of_their_rows() -> None:
    values, keys = [b"1", None, b""], [b"a", b"b", None]
    headers = [[("h", b"x")], [], [("h", None)]]
    rows = [("t", key, value, each) for key, value, each in zip(keys, values, headers, strict=True)]
    assert digest_of("t", values, keys, headers) == digest_sum(map(of_row, rows))
    assert digest_of("t", values) == digest_sum(digest_of("t", [value]) for value in values)
    assert digest_of("t", []) == NOTHING


def test_keys_that_change_places_are_other_rows() -> None:
    assert digest_of("t", [b"1", b"2"], [b"a", b"b"]) != digest_of("t", [b"1", b"2"], [b"b", b"a"])


def test_different_row_counts_change_the_digest() -> None:
    """The plain sums of the rows' CRCs would be equal, because each bit is set in half of the numbers."""
    count = 10_000

    def of_numbers(first: int) -> Digest:
        return digest_of("t", [b'{"id": %d, "v": "abc"}' % number for number in range(first, first + count)])

    assert of_numbers(count) != of_numbers(5 * count)


def test_digests_stay_what_they_are() -> None:
    """Digests are stored in the state topic, and after an update a replay is compared with the decision of an older
    release.
    """
    assert digest_of("orders", [b"value", None, b""], [b"key", b"", None]) == Digest(3, 8_855_576_955_010_669_787)
    assert digest_of("orders", [b"value"], None, [[("h", b"x"), ("h", None)]]) == Digest(1, 112_188_267_787_958_819)


async def test_a_counter_counts_both_ways_of_sending_alike() -> None:
    pytest.importorskip("pyarrow")
    from tests.support.pipeline.arrow_rows import Given, packed_rows

    one, many = RowCounter(), RowCounter()
    await one.send("t", b"1", headers=[("h", b"x")])
    await one.send("t", b"2", headers=[("h", b"y")])
    rows = [Given(b"1", headers=[("h", b"x")]), Given(b"2", headers=[("h", b"y")])]
    packed = packed_rows(rows, ["headers"])
    many.count("t", packed)
    await many.send_packed("t", 0, packed)
    assert one.digest == many.digest
    assert await many.partition_count("t") == 1

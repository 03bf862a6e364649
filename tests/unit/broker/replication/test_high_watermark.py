"""The permitted positions of the high watermark on a leader, on a follower, and after a start."""

from __future__ import annotations

import pytest

from oncelog_broker.replication.high_watermark import at_start, high_watermark_of_follower, replicated_offset


@pytest.mark.parametrize(
    ("log_end", "followers", "offset"),
    [
        (10, [], 10),
        (10, [7, 9], 7),
        (10, [12], 10),  # a follower may have more records than a newly elected leader
        (10, [10, None], None),  # one follower has not reported its log end yet
    ],
)
def test_every_replica_in_sync_has_everything_below(
    log_end: int, followers: list[int | None], offset: int | None
) -> None:
    assert replicated_offset(log_end, followers) == offset


@pytest.mark.parametrize(
    ("own", "leaders", "log_end", "expected"),
    [(5, 8, 10, 8), (5, 8, 7, 7), (5, 3, 10, 5), (5, 8, 4, 5)],
)
def test_a_follower_vouches_for_what_it_has_and_takes_nothing_back(
    own: int, leaders: int, log_end: int, expected: int
) -> None:
    assert high_watermark_of_follower(own, leaders, log_end) == expected


@pytest.mark.parametrize(("checkpointed", "expected"), [(0, 3), (5, 5), (12, 9)])
def test_the_high_watermark_lies_within_the_log_after_a_start(checkpointed: int, expected: int) -> None:
    assert at_start(checkpointed, 3, 9) == expected

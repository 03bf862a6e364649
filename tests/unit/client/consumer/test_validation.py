import pytest

from oncelog.cluster import NO_LEADER_EPOCH as NONE
from oncelog.consumer.validation import EpochEnd, Standing, divergent_offset, is_truncated, standing


@pytest.mark.parametrize(
    ("position", "agreed", "leader", "expected"),
    [
        (5, NONE, 5, Standing.READ),
        (5, NONE, 6, Standing.ASK),
        (5, 6, 6, Standing.READ),
        (5, 6, 7, Standing.ASK),
        (5, 6, 5, Standing.READ),
        (5, NONE, 4, Standing.BEHIND),
        (NONE, NONE, 6, Standing.READ),
        (5, NONE, NONE, Standing.READ),
        (0, NONE, 1, Standing.ASK),
    ],
)
def test_a_position_is_validated_against_epochs(position: int, agreed: int, leader: int, expected: Standing) -> None:
    assert standing(position, agreed, leader) is expected


@pytest.mark.parametrize(
    ("end", "truncated", "divergent"),
    [
        (EpochEnd(5, 100), False, None),
        (EpochEnd(5, 120), False, None),
        (EpochEnd(5, 99), True, 99),
        (EpochEnd(5, 0), True, 0),
        (EpochEnd(3, 80), True, 80),
        (EpochEnd(3, 120), True, None),
        (EpochEnd(-1, -1), True, None),
        (EpochEnd(-1, 50), True, None),
    ],
)
def test_the_end_of_an_epoch_validates_a_position(end: EpochEnd, truncated: bool, divergent: int | None) -> None:
    """Offset 100 was reached after a batch of leader epoch 5; each case says whether the offset is valid."""
    assert is_truncated(100, 5, end, epoch_is_read=True) is truncated
    assert divergent_offset(100, end) == divergent


@pytest.mark.parametrize(
    ("end", "truncated"),
    [
        (EpochEnd(5, 100), False),
        (EpochEnd(5, 99), True),
        (EpochEnd(3, 80), True),
        (EpochEnd(3, 100), False),
        (EpochEnd(3, 120), False),
        (EpochEnd(-1, -1), False),
    ],
)
def test_s92_only_offsets_are_compared_for_an_unread_epoch(end: EpochEnd, truncated: bool) -> None:
    """Offset 100 was committed with leader epoch 5, of which the log may have no batch."""
    assert is_truncated(100, 5, end, epoch_is_read=False) is truncated

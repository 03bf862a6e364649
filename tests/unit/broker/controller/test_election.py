import pytest

from oncelog_broker.controller.election import elect_leader, first_leader, needs_election
from oncelog_broker.metadata.payloads import PartitionState


def test_a_new_partition_is_led_by_its_first_live_replica_with_all_live_ones_in_sync():
    assert first_leader((1, 2, 3), {2, 3, 4}, controller_epoch=7) == PartitionState(2, 0, (2, 3), 7)
    assert first_leader((1, 2), {3}, 7) is None


@pytest.mark.parametrize(
    ("leader", "live", "restarted", "needed"),
    [
        (1, {1, 2}, (), False),
        (1, {2}, (), True),
        (1, {1, 2}, (1,), True),
        (1, {1, 2}, (2,), False),
        (-1, {1}, (), True),
    ],
)
def test_an_election_is_needed_when_the_leader_is_or_was_away(leader, live, restarted, needed):
    assert needs_election(PartitionState(leader, 3, (1,), 1), live, restarted) is needed


@pytest.mark.parametrize(
    ("state", "live", "elected"),
    [
        # the preferred live replica of the ISR, and a higher epoch even for the same leader
        (PartitionState(1, 3, (1, 2), 5), {1, 2}, PartitionState(1, 4, (1, 2), 6)),
        (PartitionState(1, 3, (1, 3, 2), 5), {2, 3}, PartitionState(2, 4, (3, 2), 6)),
        (PartitionState(-1, 3, (1,), 5), {1, 2}, PartitionState(1, 4, (1,), 6)),
        # nobody of the ISR lives: no leader, the ISR stays, one new epoch
        (PartitionState(1, 3, (1,), 5), {2, 3}, PartitionState(-1, 4, (1,), 6)),
        (PartitionState(-1, 4, (1,), 6), {2, 3}, PartitionState(-1, 4, (1,), 6)),
    ],
)
def test_elections(state, live, elected):
    assert elect_leader((1, 2, 3), state, live, controller_epoch=6) == elected

"""The role of a broker for a partition follows from the image."""

from __future__ import annotations

import pytest

from oncelog_broker.metadata.model.image import NO_LEADER, PartitionState
from oncelog_broker.replication.roles import Follow, Lead, Role, Stop, Wait, role_of

LED = PartitionState((1, 2, 3), (1, 2), leader=1, leader_epoch=5, partition_epoch=9, adding_replicas=(3,), written=100)


@pytest.mark.parametrize(
    ("state", "broker", "role"),
    [
        (LED, 1, Lead(5, 9, (1, 2), (1, 2, 3), (3,))),
        (LED, 2, Follow(1, 5, is_in_sync=True)),
        (LED, 3, Follow(1, 5, is_in_sync=False)),
        (LED, 4, Stop()),
        (PartitionState((1, 2)), 1, Wait()),
        (PartitionState((1, 2), (2,), NO_LEADER, 5), 1, Follow(NO_LEADER, 5, is_in_sync=False)),
    ],
)
def test_the_role_of_a_replica_follows_the_image(state: PartitionState, broker: int, role: Role) -> None:
    assert role_of(state, broker) == role


def test_a_broker_elected_before_its_registration_waits_for_another_election() -> None:
    """The broker may have returned with fewer records."""
    waiting = role_of(LED, 1, broker_epoch=101)
    assert waiting == Follow(NO_LEADER, 5, is_in_sync=True)
    assert isinstance(waiting, Follow)
    assert not waiting.has_leader
    assert isinstance(role_of(LED, 1, broker_epoch=100), Lead)

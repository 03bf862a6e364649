"""A follower discards records only after the partition leaders have confirmed their leadership, because the leaders
must have these records.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.handlers import answered, asked
from tests.support.served import LEADER, TOPIC, Served
from tests.support.storage import make_batch

from oncelog_broker.metadata.model.image import NO_LEADER
from oncelog_broker.replication.leader_check import LeaderCheck, Led
from oncelog_broker.replication.peers import PeerUnavailable
from oncelog_broker.server.records import offset_for_leader_epoch
from oncelog_protocol.api import ApiKey

ME, AWAY = 9, 7


class Wire:
    """Replaces `Peers` and calls the leader's real handler; an absent broker does not respond."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.asked: list[tuple[int, int]] = []

    async def send(self, broker_id: int, request: Any, *, purpose: Any, timeout: float) -> Any:
        self.asked.append((broker_id, request.replica_id))
        if broker_id == AWAY:
            raise PeerUnavailable(broker_id, "it is away")
        context = asked(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, replicas=self.served)
        return await answered(offset_for_leader_epoch.handle, request, context)


@pytest.fixture
def wire(tmp_path: Path) -> Wire:
    served = Served(tmp_path)
    partition = served.partitions[0]
    partition.lead(3, (LEADER,))
    partition.append(memoryview(make_batch()), required_acks=1)
    return Wire(served)


async def test_s81_only_a_leader_of_that_very_epoch_with_an_open_log_confirms(wire: Wire) -> None:
    check = LeaderCheck(ME, wire)
    leads = Led(TOPIC, 0, LEADER, 3)
    assert await check.confirmed([leads]) == {leads}
    for epoch in (2, 4):
        assert await check.confirmed([leads._replace(leader_epoch=epoch)]) == set()
    assert await check.confirmed([leads._replace(partition=5)]) == set()
    wire.served.partitions[0].log.state.fail("flush", OSError(5, "Input/output error"))
    assert await check.confirmed([leads]) == set()


async def test_s81_a_leader_that_is_away_confirms_nothing_and_delays_no_other_leader(wire: Wire) -> None:
    check = LeaderCheck(ME, wire)
    away, here = Led(TOPIC, 1, AWAY, 3), Led(TOPIC, 0, LEADER, 3)
    assert await check.confirmed([away, here]) == {here}
    assert wire.asked == [(AWAY, ME), (LEADER, ME)]
    wire.asked.clear()
    assert await check.confirmed([Led(TOPIC, 0, NO_LEADER, 4), Led(TOPIC, 0, ME, 4)]) == set()
    assert wire.asked == []

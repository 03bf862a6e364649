"""The controller asks brokers for their log ends before an election."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from oncelog_broker.controller.candidates import OFFLINE, UNKNOWN, LogEnd
from oncelog_broker.metadata.model.reader import PartitionKey
from oncelog_broker.replication.peers import Purpose
from oncelog_broker.runtime.slices import no_pause
from oncelog_broker.runtime.steps import run_steps
from oncelog_broker.server.records import offset_for_leader_epoch
from oncelog_broker.server.replicas import log_end_calls
from oncelog_broker.server.replicas.log_end_calls import LogEndCalls
from oncelog_protocol.codec import codec
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse

ENDS = {PartitionKey("orders", number): LogEnd(3, 100 + number) for number in range(3)}
BROKEN, OPENING = PartitionKey("orders", 3), PartitionKey("other", 0)
ASKED = [*ENDS, BROKEN, OPENING]
ANSWERED = {**ENDS, BROKEN: OFFLINE}
REQUESTS, RESPONSES = codec(OffsetForLeaderEpochRequest, 4), codec(OffsetForLeaderEpochResponse, 4)


class Logs:
    """The replicas of a broker that leads no partition."""

    def log_end(self, topic: str, index: int) -> tuple[int, int]:
        key = PartitionKey(topic, index)
        if key in ENDS:
            return ENDS[key]
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR if key == BROKEN else ErrorCode.LEADER_NOT_AVAILABLE)

    def leader(self, topic: str, index: int) -> Any:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)


class Peers:
    """Another broker: each request is encoded in the newest version and passed to that broker's handler."""

    def __init__(self, *, is_trusted: bool = True, knows_the_field: bool = True) -> None:
        self.requests = 0
        self.is_trusted = is_trusted
        self.knows_the_field = knows_the_field

    async def send(
        self, broker_id: int, request: OffsetForLeaderEpochRequest, *, purpose: Purpose, timeout: float
    ) -> OffsetForLeaderEpochResponse:
        self.requests += 1
        received = REQUESTS.decode(REQUESTS.encode(request))
        assert received.asks_for_log_ends
        received.asks_for_log_ends = self.knows_the_field
        context: Any = SimpleNamespace(
            may=lambda rule, name="": self.is_trusted, services=SimpleNamespace(replicas=Logs())
        )
        answer = run_steps(offset_for_leader_epoch._answer(received, context))
        return RESPONSES.decode(RESPONSES.encode(answer))


def calls(peers: Any) -> LogEndCalls:
    made = LogEndCalls(1, no_pause)
    made.begin(peers, Logs())  # type: ignore[arg-type]
    return made


async def test_s81_a_broker_says_up_to_where_its_logs_go_whoever_leads() -> None:
    peers = Peers()
    assert await calls(peers).log_ends(2, ASKED, 1.0) == ANSWERED
    assert peers.requests == 1


async def test_s81_this_broker_is_asked_without_a_request() -> None:
    peers = Peers()
    assert await calls(peers).log_ends(1, ASKED, 1.0) == ANSWERED
    assert peers.requests == 0


async def test_s81_very_many_partitions_are_asked_for_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_end_calls, "PARTITIONS_PER_REQUEST", 2)
    peers = Peers()
    assert await calls(peers).log_ends(2, ASKED, 1.0) == ANSWERED
    assert peers.requests == 3


@pytest.mark.parametrize("peers", [Peers(knows_the_field=False), Peers(is_trusted=False)], ids=["older", "no trust"])
async def test_s81_a_broker_without_this_api_has_unknown_log_ends(peers: Peers) -> None:
    assert await calls(peers).log_ends(2, ASKED, 1.0) == dict.fromkeys(ASKED, UNKNOWN)

"""Elections by an admin client: its requests to the controller, and how it handles responses."""

from typing import Any

import pytest

from oncelog import Admin, TopicPartition
from oncelog.errors import KafkaError, PartialFailure
from oncelog_protocol.elections import ElectionType
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse

Result = ElectLeadersResponse.ReplicaElectionResult


def answers(broker: Any, *rounds: tuple[int, dict[int, int]]) -> None:
    """Set the responses: for each request the error code, and the error codes by partition of topic t. The last
    response repeats.
    """
    left = list(rounds)

    def elect(_: ElectLeadersRequest) -> ElectLeadersResponse:
        code, partitions = left.pop(0) if len(left) > 1 else left[0]
        results = [Result.PartitionResult(partition_id=index, error_code=each) for index, each in partitions.items()]
        return ElectLeadersResponse(
            error_code=code, replica_election_results=[Result(topic="t", partition_result=results)]
        )

    broker.handlers[ElectLeadersRequest] = elect


async def test_elections_are_reported_and_unneeded_ones_are_no_error(fake_broker: Any) -> None:
    answers(fake_broker, (0, {0: 0, 1: ErrorCode.ELECTION_NOT_NEEDED, 2: 0}))
    async with Admin(fake_broker.address) as admin:
        asked = [TopicPartition("t", index) for index in (2, 0, 1, 0)]
        assert await admin.elect_leaders(ElectionType.UNCLEAN, asked) == [("t", 0), ("t", 2)]
        await admin.elect_leaders(timeout_ms=60_001)
    named, everything = fake_broker.requests_of(ElectLeadersRequest)
    assert (named.election_type, named.topic_partitions[0].partitions) == (1, [2, 0, 1])
    assert (everything.election_type, everything.topic_partitions, everything.timeout_ms) == (0, None, 60_001)


async def test_a_failed_election_is_raised(fake_broker: Any) -> None:
    unavailable = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    answers(fake_broker, (0, {0: 0, 1: unavailable, 2: unavailable}), (0, {1: unavailable}))
    async with Admin(fake_broker.address) as admin:
        with pytest.raises(PartialFailure) as some:
            await admin.elect_leaders()
        assert (list(some.value.results), set(some.value.errors)) == ([("t", 0)], {("t", 1), ("t", 2)})
        with pytest.raises(KafkaError) as one:
            await admin.elect_leaders(partitions=[TopicPartition("t", 1)])
        assert one.value.code is unavailable


@pytest.mark.parametrize("first", [(ErrorCode.NOT_CONTROLLER, {}), (0, {0: ErrorCode.NOT_CONTROLLER})])
async def test_a_moved_controller_is_asked(fake_broker: Any, first: tuple[int, dict[int, int]]) -> None:
    answers(fake_broker, first, (0, {0: 0}))
    async with Admin(fake_broker.address) as admin:
        assert await admin.elect_leaders() == [("t", 0)]
    assert len(fake_broker.requests_of(ElectLeadersRequest)) == 2

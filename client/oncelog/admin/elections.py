"""Requests leader elections from the controller (ElectLeaders, KIP-460)."""

from __future__ import annotations

from collections.abc import Collection

from oncelog.admin.calls import Calls
from oncelog.admin.items import Outcomes, settled, sorted_out
from oncelog.cluster import TopicPartition
from oncelog.errors import ErrorCode, KafkaError, error_for
from oncelog_protocol.elections import ElectionType
from oncelog_protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse

ALL = "the election"
"""The whole ElectLeaders request is passed to `items.each_item` as one item, so a retry repeats the request with all
partitions.
"""


async def elect_leaders(
    calls: Calls, kind: ElectionType, partitions: Collection[TopicPartition] | None, timeout_ms: int | None
) -> list[TopicPartition]:
    """See `Admin.elect_leaders`."""
    by_topic: dict[str, list[int]] = {}
    for topic, index in partitions or ():
        by_topic.setdefault(topic, []).append(index)
    wanted = ElectLeadersRequest.TopicPartitions
    request = ElectLeadersRequest(
        election_type=kind,
        topic_partitions=None
        if partitions is None
        else [wanted(topic=topic, partitions=indexes) for topic, indexes in by_topic.items()],
        timeout_ms=calls.timeout_ms(timeout_ms),
    )

    async def ask(_: list[str]) -> Outcomes[str, ElectLeadersResponse]:
        response = await calls.send_to_controller(request)
        # Before v1 the response has no top-level error code; each partition has its own error code.
        codes = {each.error_code for topic in response.replica_election_results for each in topic.partition_result}
        code = response.error_code or (ErrorCode.NOT_CONTROLLER if codes == {ErrorCode.NOT_CONTROLLER} else 0)
        return ({}, {ALL: error_for(code)}) if code else ({ALL: response}, {})

    response = (await calls.each([ALL], ask, timeout_ms))[ALL]
    results, errors = sorted_out(
        (TopicPartition(topic.topic, each.partition_id), each.error_code, each.error_message, None)
        for topic in response.replica_election_results
        for each in topic.partition_result
    )
    return sorted(settled(results, {each: error for each, error in errors.items() if _is_failure(error)}))


def _is_failure(error: KafkaError) -> bool:
    return error.code is not ErrorCode.ELECTION_NOT_NEEDED

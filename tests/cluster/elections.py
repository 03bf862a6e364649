"""Requests elections of leaders, as an operator does."""

from __future__ import annotations

from collections import Counter

from replicated_cluster import ReplicatedCluster

from oncelog_protocol.api import ApiKey
from oncelog_protocol.elections import ElectionType
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.elect_leaders import ElectLeadersRequest

NOT_NEEDED = {ErrorCode.ELECTION_NOT_NEEDED}


def elect(cluster: ReplicatedCluster, topic: str | None, kind: ElectionType = ElectionType.PREFERRED) -> dict[int, int]:
    """Request an election for all partitions of a topic, or of all topics; return the error codes by partition."""
    parts = None if topic is None else list(cluster.parts(topic))
    wanted = None if topic is None else [ElectLeadersRequest.TopicPartitions(topic=topic, partitions=parts)]
    request = ElectLeadersRequest(election_type=kind, topic_partitions=wanted, timeout_ms=10_000)

    answered = Counter[str]()

    def ask() -> dict[int, int] | None:
        controller = cluster.controller()
        answered[f"broker {controller} asked"] += 1
        answer = cluster.ask(request, ApiKey.ELECT_LEADERS, 2, controller)
        if answer.error_code:
            assert answer.error_code in (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT)
            answered[f"{ErrorCode(answer.error_code).name} by broker {controller}"] += 1
            return None
        return {each.partition_id: each.error_code for one in answer.replica_election_results
                for each in one.partition_result} or {-1: 0}  # fmt: skip

    try:
        return cluster.until(ask, "leaders are elected")  # type: ignore[return-value]
    except AssertionError as error:
        raise AssertionError(f"{error}; {dict(answered)}") from None


def until_preferred_lead(cluster: ReplicatedCluster, topic: str) -> None:
    """Wait until the first replica of each partition of the topic leads, and every live broker knows that. Without this
    wait a broker might respond to the next request (for example for a group coordinator) with the state before the
    election.
    """

    def lead() -> bool:
        return not set(elect(cluster, topic).values()) - NOT_NEEDED

    cluster.until_whole(topic)
    cluster.until(lead, f"preferred leaders lead {topic}")
    for node_id in cluster.up:
        cluster.until(
            lambda: all(part.leader == part.replicas[0] for part in cluster.parts(topic, node_id).values()),  # noqa: B023
            f"broker {node_id} knows that preferred leaders lead {topic}",
        )

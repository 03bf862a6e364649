"""Tests consumer groups whose coordinator is killed while they rebalance and commit."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from final_state import settle_and_check
from raw_transactions import committed_offset
from recording_clients import PRODUCERS, Writer
from recording_members import MEMBERS, begin_at_zero
from replicated_cluster import ReplicatedCluster

from oncelog_protocol.messages.find_coordinator import CoordinatorType
from oncelog_testing.history.events import Place
from oncelog_testing.history.recorder import History

PARTITIONS = 3
GROUPS = {
    "librdkafka": ["librdkafka"] * 3,
    "librdkafka-848": ["librdkafka-848"] * 3,
    "both protocols": ["oncelog", "librdkafka-848", "oncelog-848"],
}


INSTANCES = ("static", None, None)


@pytest.mark.parametrize("libraries", GROUPS.values(), ids=GROUPS)
@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])])
def test_c29_the_coordinator_of_a_group_is_killed(
    cluster: ReplicatedCluster, history: History, topic: str, libraries: list[str], kills: int
) -> None:
    """One member of the group is static, and one member joins while the coordinator is down. No committed offset goes
    back, no removed member's commit is accepted, and every record is read.
    """
    cluster.create_topic(topic, (1, 2, 3), (2, 3, 1), (3, 1, 2))
    places = [Place(topic, index) for index in range(PARTITIONS)]
    begin_at_zero(cluster.addresses, history, topic, places)
    members = [
        MEMBERS[library](cluster.addresses, history, f"{library}-{number}", topic, topic, instance)
        for number, (library, instance) in enumerate(zip(libraries, INSTANCES, strict=True))
    ]
    with ExitStack() as stack:
        producer = stack.enter_context(PRODUCERS[libraries[0].removesuffix("-848")](cluster.addresses, history, "anna"))
        with Writer(producer, *places) as writer:
            for member in members[:2]:
                stack.enter_context(member)
            writer.until_more(20)
            cluster.until(lambda: all(committed(cluster, place) > 0 for place in places), "the group is at work")
            for number in range(kills):
                coordinator = cluster.coordinator(topic, CoordinatorType.GROUP)
                cluster.kill(coordinator)
                if number == 0:
                    stack.enter_context(members[2])
                ask_all(cluster, history, places)
                writer.until_more(30)
                cluster.mend()
        for place in places:
            end = max(send.offset for send in history.sends if send.place == place) + 1
            cluster.until(lambda: committed(cluster, place) >= end, "the group has read everything")  # noqa: B023
    ask_all(cluster, history, places)
    settle_and_check(cluster, history, topic)
    read = {value for reading in history.readings for _, value in reading.records}
    assert read == {send.value for send in history.sends}


def committed(cluster: ReplicatedCluster, place: Place) -> int:
    """Return the committed offset of the group with the topic's name; -1 if there is none, or it is unknown now."""
    with cluster.client(cluster.coordinator(place.topic, CoordinatorType.GROUP)) as client:
        code, offset = committed_offset(client, place.topic, place.topic, partition=place.index)
    return -1 if code else offset


def ask_all(cluster: ReplicatedCluster, history: History, places: list[Place]) -> None:
    """Record the present committed offsets in the history."""
    for place in places:
        asked = history.now()
        offset = cluster.until(lambda: committed(cluster, place) + 1, "the group's offsets are known") - 1  # noqa: B023
        history.offset_read(place.topic, place, offset, asked=asked)

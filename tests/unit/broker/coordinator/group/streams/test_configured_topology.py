"""A streams topology is combined with the existing topics: numbers of tasks, missing topics, and errors."""

from __future__ import annotations

import time

from tests.support.streams_groups import WORD_COUNT, Topology, internal, subtopology, topology

from oncelog_broker.coordinator.group.streams.configured_topology import (
    MAX_TASKS,
    ConfiguredTopology,
    Problem,
    configure,
)
from oncelog_broker.coordinator.group.streams.streams_topology import check_topology, requested
from oncelog_protocol.messages.streams_group_heartbeat import StatusCode

LONG = 660
MAX_SECONDS = 0.05
"""A single pass takes a tenth of this time, and one pass for each repartition topic four times this time."""

WRONG, MISSING = StatusCode.INCORRECTLY_PARTITIONED_TOPICS, StatusCode.MISSING_INTERNAL_TOPICS


def configured(asked: Topology, **topics: int) -> ConfiguredTopology:
    check_topology(asked)
    counts = {name.replace("_", "-"): count for name, count in topics.items()}
    return configure(requested(asked), counts.get)


def wanted(found: ConfiguredTopology) -> dict[str, int]:
    return {topic.name: topic.partitions for topic in found.missing}


def test_missing_internal_topics_are_to_be_created() -> None:
    found = configured(WORD_COUNT, t=3)
    assert found.problem == Problem(MISSING, "Internal topics are missing: counts-changelog, words-repartition")
    assert not found.is_ready
    changelog, repartition = found.missing
    assert (changelog.name, changelog.partitions, changelog.replication_factor) == ("counts-changelog", 3, -1)
    assert (repartition.partitions, repartition.configs) == (3, {"cleanup.policy": "delete"})


def test_a_ready_topology() -> None:
    found = configured(WORD_COUNT, t=3, words_repartition=3, counts_changelog=3)
    assert found.is_ready and not found.missing
    assert {name: (each.tasks, each.is_stateful) for name, each in found.subtopologies.items()} == {
        "0": (3, False),
        "1": (3, True),
    }
    assert found.subtopologies["1"].sources == ("words-repartition",)


def test_missing_source_topics() -> None:
    found = configured(WORD_COUNT)
    assert found.problem == Problem(StatusCode.MISSING_SOURCE_TOPICS, "Source topics t are missing.")
    assert not found.missing, "nothing is created before the numbers of partitions are known"
    many = configured(topology(subtopology("0", "e", "d", "c", "b", "a")))
    assert many.problem is not None
    assert many.problem.detail == "Source topics a, b, c and 2 additional topics are missing."


def test_a_subtopology_has_as_many_tasks_as_its_largest_source() -> None:
    found = configured(topology(subtopology("0", "t", "u", changelogs=[internal("c")])), t=2, u=5)
    assert found.subtopologies["0"].tasks == 5
    assert wanted(found) == {"c": 5}


def test_a_repartition_topic_follows_the_sources_of_its_writers() -> None:
    chain = topology(
        subtopology("2", repartition=[internal("b")]),
        subtopology("1", repartition=[internal("a")], sinks=["b"]),
        subtopology("0", "t", sinks=["a"]),
        subtopology("3", "u", sinks=["a"]),
    )
    assert wanted(configured(chain, t=2, u=2)) == {"a": 2, "b": 2}
    fixed = topology(subtopology("0", "t", sinks=["r"]), subtopology("1", repartition=[internal("r", 7, 2)]))
    found = configured(fixed, t=2)
    assert wanted(found) == {"r": 7}
    assert found.missing[0].replication_factor == 2
    assert found.subtopologies["1"].tasks == 7


def test_copartitioned_topics_agree() -> None:
    join = topology(
        subtopology("0", "t", sinks=["r"]),
        subtopology("1", "u", repartition=[internal("r")], copartition=[((0,), (0,))]),
    )
    assert wanted(configured(join, t=2, u=6)) == {"r": 6}, "it follows the topic that it is joined with"
    sources = topology(subtopology("0", "t", "u", copartition=[((0, 1), ())]))
    assert configured(sources, t=2, u=2).is_ready
    found = configured(sources, t=2, u=3)
    assert found.problem == Problem(WRONG, "Following topics do not have the same number of partitions: [{t=2, u=3}]")
    both = topology(
        subtopology("0", "t", sinks=["a"]),
        subtopology("1", "u", sinks=["b"]),
        subtopology("2", repartition=[internal("a"), internal("b")], copartition=[((), (0, 1))]),
    )
    assert wanted(configured(both, t=2, u=5)) == {"a": 5, "b": 5}, "the larger one"


def test_repartition_topics_with_a_number_of_their_own() -> None:
    def joined(*counts: int) -> Topology:
        return topology(
            subtopology("0", "t", sinks=["a", "b"]),
            subtopology(
                "1",
                repartition=[internal("a", counts[0]), internal("b", counts[1])],
                copartition=[((), (0, 1))],
            ),
        )

    assert wanted(configured(joined(4, 0), t=2)) == {"a": 4, "b": 4}
    assert wanted(configured(joined(4, 4), t=2)) == {"a": 4, "b": 4}
    assert configured(joined(4, 5), t=2).problem == Problem(
        WRONG, "Following topics do not have the same number of partitions: [{a=4, b=5}]"
    )
    with_source = topology(
        subtopology("0", "t", sinks=["r"]),
        subtopology("1", "u", repartition=[internal("r", 4)], copartition=[((0,), (0,))]),
    )
    assert configured(with_source, t=2, u=3).problem == Problem(
        WRONG,
        "Number of partitions [4] of repartition topic [r] doesn't match number of partitions [3] of the source topic.",
    )


def test_groups_that_are_not_copartitioned_need_not_agree() -> None:
    apart = topology(
        subtopology("0", "t", sinks=["a", "b"]),
        subtopology("1", repartition=[internal("a", 2)], copartition=[((), (0,))]),
        subtopology("2", repartition=[internal("b", 3)], copartition=[((), (0,))]),
    )
    assert wanted(configured(apart, t=1)) == {"a": 2, "b": 3}


def test_existing_internal_topics_must_have_the_right_number_of_partitions() -> None:
    found = configured(WORD_COUNT, t=3, words_repartition=3, counts_changelog=2)
    assert found.problem == Problem(
        WRONG, "Existing topic counts-changelog has different number of partitions: expected 3, found 2"
    )
    assert not found.missing


def test_a_topology_may_have_so_many_tasks() -> None:
    assert configured(topology(subtopology("0", "t")), t=MAX_TASKS).is_ready
    found = configured(topology(subtopology("0", "t"), subtopology("1", "u")), t=MAX_TASKS, u=1)
    assert found.problem == Problem(
        WRONG, "The topology has 10001 tasks, one for each partition; at most 10000 are assigned."
    )


def test_a_repartition_topic_follows_the_largest_of_all_sources() -> None:
    two_writers = topology(
        subtopology("0", "small", sinks=["r"]),
        subtopology("1", "large", sinks=["r"]),
        subtopology("2", repartition=[internal("r")], sinks=["s"]),
        subtopology("3", repartition=[internal("s")]),
    )
    assert wanted(configured(two_writers, small=1, large=4)) == {"r": 4, "s": 4}
    loop = topology(
        subtopology("0", "small", repartition=[internal("b")], sinks=["a"]),
        subtopology("1", "large", repartition=[internal("a")], sinks=["b"]),
    )
    assert wanted(configured(loop, small=1, large=4)) == {"a": 4, "b": 4}


def test_a_long_chain_of_repartition_topics_is_configured_in_one_pass() -> None:
    # The first subtopology by id is the last of the chain, so one visit of all subtopologies decides one more topic.
    links = [
        subtopology(f"{LONG - number:03}", repartition=[internal(f"r{number - 1}")], sinks=[f"r{number}"])
        for number in range(1, LONG)
    ]
    chain = topology(*links, subtopology("first", "t", sinks=["r0"]))
    began = time.thread_time()
    found = configured(chain, t=3)
    assert time.thread_time() - began < MAX_SECONDS
    assert set(wanted(found).values()) == {3} and len(found.missing) == LONG - 1

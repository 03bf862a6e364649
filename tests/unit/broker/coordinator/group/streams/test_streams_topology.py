"""Streams topologies: what a request may contain, and what is refused before any topic is looked up."""

from __future__ import annotations

import pytest
from tests.support.streams_groups import WORD_COUNT, Topology, internal, subtopology, topology

from oncelog_broker.coordinator.group.streams.streams_topology import (
    MAX_ENTRIES,
    StreamsTopology,
    check_topology,
    named_topics,
    requested,
)
from oncelog_protocol.errors import ErrorCode, KafkaError

INVALID, UNSUPPORTED = ErrorCode.STREAMS_INVALID_TOPOLOGY, ErrorCode.INVALID_REQUEST


def refusal(asked: Topology) -> tuple[ErrorCode, str]:
    with pytest.raises(KafkaError) as refused:
        check_topology(asked)
    return refused.value.code, refused.value.message or ""


def test_topics_of_a_topology() -> None:
    found = requested(WORD_COUNT)
    assert found.sources == {"t": "0", "words-repartition": "1"}
    assert found.required == {"t", "words-repartition", "counts-changelog"}
    assert named_topics(WORD_COUNT) == ["t", "words-repartition", "counts-changelog"]
    assert found.held_bytes > 100


def test_a_topology_is_the_same_after_the_log() -> None:
    found = requested(WORD_COUNT)
    value = found.record("g").value
    assert value is not None
    assert StreamsTopology.of(value) == found
    reordered = topology(*reversed(WORD_COUNT.subtopologies))
    assert requested(reordered) == found, "the order of subtopologies means nothing"
    assert requested(topology(*WORD_COUNT.subtopologies, epoch=1)) != found


def test_the_order_within_copartition_groups_means_nothing() -> None:
    """Kafka Streams creates these lists from hash sets, so their order is arbitrary."""
    one, other = (
        topology(subtopology("0", "t", "u", "v", copartition=groups))
        for groups in ([((0, 1), ()), ((2,), ())], [((2,), ()), ((1, 0), ())])
    )
    assert requested(one) == requested(other)


def test_valid_topologies() -> None:
    check_topology(WORD_COUNT)
    check_topology(topology())
    check_topology(topology(subtopology("0", "t", sinks=["r"]), subtopology("1", "u", repartition=[internal("r", 3)])))


def test_regular_expressions_are_not_supported() -> None:
    code, message = refusal(topology(subtopology("0", "t", regex=["t.*"])))
    assert (code, message) == (UNSUPPORTED, "Regular expressions for source topics are not supported yet.")


def test_what_no_topics_could_satisfy() -> None:
    assert refusal(topology(subtopology("0"))) == (INVALID, "Subtopology 0 has no source topics.")
    assert refusal(topology(subtopology("0", "t"), subtopology("0", "u"))) == (INVALID, "Subtopology 0 is named twice.")
    code, message = refusal(topology(subtopology("0", "t", changelogs=[internal("c", 4)])))
    assert (code, message) == (
        INVALID,
        "Changelog topic c must have an undefined partition count, but it is set to 4.",
    )
    assert refusal(topology(subtopology("0", "t", repartition=[internal("r", -1)])))[0] is INVALID
    assert refusal(topology(subtopology("0", "t", changelogs=[internal("c", 0, -2)])))[0] is INVALID
    assert refusal(topology(epoch=-1))[0] is INVALID
    for copartition in (((1,), ()), ((-1,), ()), ((0,), (0,))):
        code, message = refusal(topology(subtopology("0", "t", copartition=[copartition])))
        assert (code, message) == (INVALID, "A co-partition group of Subtopology 0 names a topic that is not there.")


def test_a_topic_is_read_by_one_subtopology() -> None:
    code, message = refusal(topology(subtopology("0", "t"), subtopology("1", "u", "t")))
    assert code is INVALID and message == "Topic t is a source of two subtopologies."
    two_readers = topology(
        subtopology("0", "t", sinks=["r"]),
        subtopology("1", repartition=[internal("r")]),
        subtopology("2", repartition=[internal("r")]),
    )
    assert refusal(two_readers)[0] is INVALID
    check_topology(topology(subtopology("0", "t", "t")))


def test_partition_counts_that_cannot_be_derived() -> None:
    code, message = refusal(topology(subtopology("0", "t", repartition=[internal("r")])))
    assert code is INVALID and "never used as a sink topic" in message
    loop = topology(
        subtopology("0", repartition=[internal("a")], sinks=["b"]),
        subtopology("1", repartition=[internal("b")], sinks=["a"]),
    )
    code, message = refusal(loop)
    assert code is INVALID and "loops in the topology" in message
    check_topology(
        topology(
            subtopology("0", repartition=[internal("a", 2)], sinks=["b"]),
            subtopology("1", repartition=[internal("b")], sinks=["a"]),
        )
    )


def test_a_topology_may_not_be_larger_than_a_step_can_look_at() -> None:
    names = [f"t{number}" for number in range(MAX_ENTRIES - 1)]
    check_topology(topology(subtopology("0", *names)))
    assert refusal(topology(subtopology("0", *names, "one-more")))[0] is INVALID
    configs = {f"k{number}": "v" for number in range(MAX_ENTRIES)}
    assert refusal(topology(subtopology("0", "t", changelogs=[internal("c", **configs)])))[0] is INVALID
    indexes = [0] * MAX_ENTRIES
    assert refusal(topology(subtopology("0", "t", copartition=[(indexes, ())])))[0] is INVALID

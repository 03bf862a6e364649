"""The client's requests in a fetch session, against a model of the broker's session."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from oncelog.cluster import TopicPartition
from oncelog.consumer.fetch_session import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    MAX_EPOCH,
    NO_SESSION,
    FetchPartition,
    FetchSession,
    LogEnds,
)
from oncelog_protocol.errors import ErrorCode

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


def asked(partition: TopicPartition, offset: int) -> FetchPartition:
    return FetchPartition(partition=partition.partition, fetch_offset=offset, partition_max_bytes=100)


def wants(**offsets: int) -> dict[TopicPartition, FetchPartition]:
    return {TopicPartition(topic, 0): asked(TopicPartition(topic, 0), offset) for topic, offset in offsets.items()}


def test_only_changes_are_sent_once_there_is_a_session() -> None:
    session = FetchSession()
    first = session.request(wants(a=1, b=1))
    assert (first.session_id, first.session_epoch, set(first.to_send)) == (NO_SESSION, INITIAL_EPOCH, {A, B})
    session.answered(77)
    second = session.request(wants(a=2, b=1))
    assert (second.session_id, second.session_epoch, set(second.to_send)) == (77, 1, {A})
    session.answered(77)
    third = session.request(wants(b=1))
    assert (third.session_epoch, dict(third.to_send), list(third.to_forget)) == (2, {}, [A])


def test_a_fetch_without_session_names_every_partition() -> None:
    session = FetchSession()
    for _ in range(2):
        request = session.request(wants(a=1))
        assert (request.session_id, request.session_epoch, set(request.to_send)) == (NO_SESSION, INITIAL_EPOCH, {A})
        session.answered(NO_SESSION)
    assert not session.is_open


def test_a_session_that_the_node_forgot_is_made_anew() -> None:
    session = FetchSession()
    session.request(wants(a=1))
    session.answered(77)
    session.request(wants(a=1))
    session.failed(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    again = session.request(wants(a=1))
    assert (again.session_id, again.session_epoch, set(again.to_send)) == (NO_SESSION, INITIAL_EPOCH, {A})


def test_after_a_failure_the_old_session_is_closed_by_the_new_one() -> None:
    for code in (ErrorCode.INVALID_FETCH_SESSION_EPOCH, ErrorCode.NONE):
        session = FetchSession()
        session.request(wants(a=1))
        session.answered(77)
        session.failed(code)
        again = session.request(wants(a=1))
        assert (again.session_id, again.session_epoch, set(again.to_send)) == (77, INITIAL_EPOCH, {A})


def test_the_epoch_wraps_to_one() -> None:
    session = FetchSession()
    session.request(wants(a=1))
    session.answered(77)
    session._epoch = MAX_EPOCH
    session.answered(77)
    assert session.request(wants(a=1)).session_epoch == 1


def test_closing_names_the_session() -> None:
    session = FetchSession()
    session.request(wants(a=1))
    session.answered(77)
    assert session.is_open
    assert session.closing() == (77, FINAL_EPOCH, {}, ())
    assert not session.is_open


def test_values_of_unchanged_partitions_are_kept_from_earlier_answers() -> None:
    session = FetchSession()
    session.request(wants(a=1, b=1))
    session.answered(77)
    session.ends = {A: LogEnds(9, 9, 0), B: LogEnds(8, 8, 0)}
    session.request(wants(a=1))
    assert set(session.ends) == {A}
    session.failed()
    assert not session.ends


offsets = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 3))


@given(st.lists(st.tuples(offsets, st.sampled_from(["answer", "answer", "refuse", "lose", "forget", "no session"]))))
def test_the_broker_always_knows_the_wanted_partitions(steps: list[tuple[dict[str, int], str]]) -> None:
    session = FetchSession()
    node: dict[TopicPartition, FetchPartition] = {}
    for wanted_offsets, what in steps:
        wanted = wants(**wanted_offsets)
        request = session.request(wanted)
        if request.session_epoch == INITIAL_EPOCH:
            node = dict(request.to_send)
        else:
            node |= request.to_send
            for partition in request.to_forget:
                del node[partition]
        assert node == wanted
        if what == "answer":
            session.answered(77)
        elif what == "no session":
            session.answered(NO_SESSION)
        else:
            session.failed(
                {"refuse": ErrorCode.INVALID_FETCH_SESSION_EPOCH, "forget": ErrorCode.FETCH_SESSION_ID_NOT_FOUND}.get(
                    what, ErrorCode.NONE
                )
            )

"""Incremental fetch sessions (KIP-227): which partitions requests and responses contain."""

from __future__ import annotations

import secrets
from typing import Any

import pytest

from oncelog_broker.runtime.steps import run_steps
from oncelog_broker.security.principal import Principal
from oncelog_broker.server.kept.fetch_sessions import (
    EVICTION_SECONDS,
    FINAL_EPOCH,
    INITIAL_EPOCH,
    MAX_EPOCH,
    MAX_SESSION_ID,
    MAX_SESSION_PARTITIONS,
    FetchPlan,
    FetchSessions,
    Follower,
)
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.fetch import FetchRequest, FetchResponse
from oncelog_protocol.schema import ZERO_UUID

Topic = FetchRequest.FetchTopic
Answer = FetchResponse.FetchableTopicResponse.PartitionData


def request(
    session_id: int = 0,
    epoch: int = INITIAL_EPOCH,
    partitions: dict[int, int] | None = None,
    forgotten: tuple[int, ...] = (),
) -> FetchRequest:
    """Return a Fetch request; `partitions` maps partition indexes of topic "t" to fetch offsets."""
    asked = [
        Topic.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1000)
        for index, offset in (partitions or {}).items()
    ]
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        session_id=session_id,
        session_epoch=epoch,
        topics=[Topic(topic="t", partitions=asked)] if asked else [],
        forgotten_topics_data=[FetchRequest.ForgottenTopic(topic="t", partitions=list(forgotten))] if forgotten else [],
    )


def planned(sessions: FetchSessions, asked: FetchRequest, *, by_id: bool, now: float) -> FetchPlan:
    return run_steps(sessions.plan(asked, by_id=by_id, now=now))


def response_of(plan: FetchPlan, answers: list[Answer]) -> FetchResponse:
    return plan.response(answers)


def answer(plan: FetchPlan, high_watermark: int = 0, **records: bytes) -> FetchResponse:
    """Return a response for every partition of the plan; `p1=b"..."` gives partition 1 these records."""
    return response_of(
        plan,
        [
            Answer(
                partition_index=wanted.request.partition,
                error_code=0,
                high_watermark=high_watermark,
                log_start_offset=0,
                records=records.get(f"p{wanted.request.partition}", b""),
            )
            for wanted in plan.wanted
        ],
    )


def told(response: FetchResponse) -> list[int]:
    return [partition.partition_index for topic in response.responses for partition in topic.partitions]


def asked(plan: FetchPlan) -> dict[int, int]:
    return {wanted.request.partition: wanted.request.fetch_offset for wanted in plan.wanted}


def refused(sessions: FetchSessions, bad: FetchRequest, *, by_id: bool = False) -> ErrorCode:
    with pytest.raises(KafkaError) as error:
        planned(sessions, bad, by_id=by_id, now=0)
    return error.value.code


def established(sessions: FetchSessions, partitions: dict[int, int], now: float = 0) -> int:
    plan = planned(sessions, request(partitions=partitions), by_id=False, now=now)
    return answer(plan).session_id


def test_a_request_without_a_session_is_answered_whole_and_leaves_nothing() -> None:
    sessions = FetchSessions(10)
    response = answer(planned(sessions, request(epoch=FINAL_EPOCH, partitions={0: 5, 1: 7}), by_id=False, now=0))
    assert told(response) == [0, 1]
    assert response.session_id == 0
    assert len(sessions) == 0


def test_a_partition_that_is_named_twice_is_read_once() -> None:
    """A partition that a request names repeatedly is read only once, as in Kafka, because otherwise one request could
    read the same records ten thousand times.
    """
    asked = request(epoch=FINAL_EPOCH, partitions={0: 5, 1: 5})
    asked.topics += request(partitions={0: 7}).topics
    plan = planned(FetchSessions(1), asked, by_id=False, now=0.0)
    assert [(wanted.request.partition, wanted.request.fetch_offset) for wanted in plan.wanted] == [(0, 7), (1, 5)]


def test_the_first_request_of_a_session_is_answered_whole() -> None:
    sessions = FetchSessions(10)
    response = answer(planned(sessions, request(partitions={0: 5, 1: 7}), by_id=False, now=0))
    assert told(response) == [0, 1]
    assert response.session_id > 0
    assert len(sessions) == 1


def test_an_incremental_request_reads_all_partitions_and_tells_what_is_new() -> None:
    sessions = FetchSessions(10)
    session_id = established(sessions, {0: 5, 1: 7, 2: 9})
    plan = planned(sessions, request(session_id, 1), by_id=False, now=0)
    assert asked(plan) == {0: 5, 1: 7, 2: 9}
    response = answer(plan, p1=b"data")
    assert told(response) == [1]
    assert response.session_id == session_id


def test_a_moved_high_watermark_is_returned_once() -> None:
    sessions = FetchSessions(10)
    session_id = established(sessions, {0: 5})
    assert told(answer(planned(sessions, request(session_id, 1), by_id=False, now=0), high_watermark=8)) == [0]
    assert told(answer(planned(sessions, request(session_id, 2), by_id=False, now=0), high_watermark=8)) == []


def test_an_error_and_its_end_are_both_returned() -> None:
    sessions = FetchSessions(10)
    session_id = established(sessions, {0: 5})
    plan = planned(sessions, request(session_id, 1), by_id=False, now=0)
    failed = Answer(partition_index=0, error_code=6, high_watermark=-1, log_start_offset=-1, records=b"")
    assert told(response_of(plan, [failed])) == [0]
    assert told(answer(planned(sessions, request(session_id, 2), by_id=False, now=0))) == [0]


def test_offsets_are_updated_partitions_added_and_forgotten() -> None:
    sessions = FetchSessions(10)
    session_id = established(sessions, {0: 5, 1: 7})
    plan = planned(sessions, request(session_id, 1, {0: 6, 3: 1}, forgotten=(1,)), by_id=False, now=0)
    assert asked(plan) == {0: 6, 3: 1}


def test_a_partition_that_gave_data_goes_behind_the_others() -> None:
    sessions = FetchSessions(10)
    session_id = established(sessions, {0: 0, 1: 0, 2: 0})
    answer(planned(sessions, request(session_id, 1), by_id=False, now=0), p0=b"data")
    assert list(asked(planned(sessions, request(session_id, 2), by_id=False, now=0))) == [1, 2, 0]


def test_an_unknown_session_is_refused() -> None:
    assert refused(FetchSessions(10), request(99, 1)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("epoch", [2, 5, MAX_EPOCH])
def test_a_lost_or_repeated_request_is_noticed(epoch: int) -> None:
    sessions = FetchSessions(10)
    session_id = established(sessions, {0: 0})
    assert refused(sessions, request(session_id, epoch)) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    planned(sessions, request(session_id, 1), by_id=False, now=0)
    assert refused(sessions, request(session_id, 1)) is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_names_and_ids_do_not_mix_in_a_session() -> None:
    sessions = FetchSessions(10)
    session_id = established(sessions, {0: 0})
    assert refused(sessions, request(session_id, 1), by_id=True) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_the_epoch_wraps_to_one() -> None:
    sessions = FetchSessions(10)
    session_id = established(sessions, {0: 0})
    sessions._sessions[session_id].epoch = MAX_EPOCH
    planned(sessions, request(session_id, MAX_EPOCH), by_id=False, now=0)
    planned(sessions, request(session_id, 1), by_id=False, now=0)


def test_a_session_is_closed_by_the_final_epoch_and_replaced_by_the_initial_one() -> None:
    sessions = FetchSessions(10)
    first = established(sessions, {0: 0})
    second = answer(planned(sessions, request(first, INITIAL_EPOCH, {1: 0}), by_id=False, now=0)).session_id
    assert len(sessions) == 1
    assert refused(sessions, request(first, 1)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    response = answer(planned(sessions, request(second, FINAL_EPOCH, {1: 0}), by_id=False, now=0))
    assert response.session_id == 0
    assert len(sessions) == 0


def test_without_a_free_slot_the_client_fetches_without_a_session() -> None:
    sessions = FetchSessions(1)
    established(sessions, {0: 0}, now=0)
    late = planned(sessions, request(partitions={0: 0}), by_id=False, now=EVICTION_SECONDS - 1)
    assert answer(late).session_id == 0


def test_a_session_that_rests_gives_its_slot_away() -> None:
    sessions = FetchSessions(1)
    first = established(sessions, {0: 0}, now=0)
    second = established(sessions, {0: 0}, now=EVICTION_SECONDS)
    assert second > 0
    assert refused(sessions, request(first, 1)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_cache_without_slots_makes_no_sessions() -> None:
    assert established(FetchSessions(0), {0: 0}) == 0


def many(count: int, first: int = 0) -> dict[int, int]:
    return dict.fromkeys(range(first, first + count), 0)


def test_a_session_has_a_bounded_number_of_partitions() -> None:
    sessions = FetchSessions(10)
    assert established(sessions, many(MAX_SESSION_PARTITIONS + 1)) == 0
    session_id = established(sessions, many(MAX_SESSION_PARTITIONS))
    assert refused(sessions, request(session_id, 1, many(1, -1))) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(sessions) == 0
    session_id = established(sessions, many(1))
    assert refused(sessions, request(session_id, 1, many(MAX_SESSION_PARTITIONS + 1))) is (
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    )
    assert len(sessions) == 0


def test_all_sessions_together_have_a_bounded_number_of_partitions() -> None:
    sessions = FetchSessions(10, max_partitions=100)
    first, second = established(sessions, many(60), now=0), established(sessions, many(40), now=10)
    assert established(sessions, many(1), now=10) == 0
    assert refused(sessions, request(second, 1, many(1, 40))) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    grown = planned(sessions, request(first, 1, many(40, 60), forgotten=tuple(range(5))), by_id=False, now=20)
    assert len(grown.wanted) == 95
    assert established(sessions, many(5), now=20) > 0
    assert established(sessions, many(60), now=20 + EVICTION_SECONDS) > 0, "those that rest make room"


def test_a_session_that_grows_makes_those_that_rest_give_way() -> None:
    sessions = FetchSessions(10, max_partitions=100)
    first, second = established(sessions, many(60), now=0), established(sessions, many(40), now=0)
    plan = planned(sessions, request(second, 1, many(50, 40)), by_id=False, now=EVICTION_SECONDS)
    assert len(plan.wanted) == 90
    assert refused(sessions, request(first, 1)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_divergence_is_returned_in_every_response() -> None:
    sessions = FetchSessions(10)
    session_id = established(sessions, {0: 5})
    plan = planned(sessions, request(session_id, 1), by_id=False, now=0)
    diverging = Answer(
        partition_index=0,
        error_code=0,
        high_watermark=0,
        log_start_offset=0,
        diverging_epoch=Answer.EpochEndOffset(epoch=0, end_offset=3),
        records=b"",
    )
    assert told(response_of(plan, [diverging])) == [0]


def test_topics_are_grouped_in_the_answer() -> None:
    sessions = FetchSessions(10)
    response = answer(planned(sessions, request(partitions={0: 0, 1: 0}), by_id=False, now=0))
    assert [(topic.topic, topic.topic_id) for topic in response.responses] == [("t", ZERO_UUID)]


def test_many_partitions_are_planned_and_answered_in_steps() -> None:
    sessions = FetchSessions(1)
    steps = sessions.plan(request(epoch=FINAL_EPOCH, partitions=dict.fromkeys(range(1000), 0)), by_id=False, now=0)
    assert len(list(steps)) == 10
    plan = planned(sessions, request(partitions=dict.fromkeys(range(1000), 0)), by_id=False, now=0)
    told = [Answer(partition_index=wanted.request.partition, error_code=3, high_watermark=-1) for wanted in plan.wanted]
    assert len(list(plan.response_in_steps(told))) == 10
    assert run_steps(plan.response_in_steps(told)) == response_of(plan, told)


def test_a_follower_keeps_its_one_session_whatever_clients_do() -> None:
    sessions = FetchSessions(1)

    def follow(asked: FetchRequest, follower: int = 2) -> FetchPlan:
        return run_steps(sessions.plan(asked, by_id=False, now=0, follower=Follower(follower, 1)))

    first = answer(follow(request(partitions={0: 5}))).session_id
    for _ in range(3):
        answer(planned(sessions, request(partitions={0: 1}), by_id=False, now=1000))
    assert asked(follow(request(first, 1))) == {0: 5}
    with pytest.raises(KafkaError):
        follow(request(first, 2), follower=3)  # the named session belongs to another broker
    second = answer(follow(request(partitions={1: 6}))).session_id
    with pytest.raises(KafkaError):
        follow(request(first, 2))
    assert asked(follow(request(second, 1))) == {1: 6}
    assert len(sessions) == 1, "followers take no room from clients"


def test_e57_only_the_owner_may_use_a_session() -> None:
    """A client that names another client's session learns nothing about the session and does not change it."""
    sessions = FetchSessions(10)
    alice, mallory = Principal("User", "alice"), Principal("User", "mallory")

    def ask(who: Principal, **of_request: Any) -> FetchPlan:
        return run_steps(sessions.plan(request(**of_request), by_id=False, now=0, owner=who))

    made = answer(ask(alice, epoch=INITIAL_EPOCH, partitions={0: 0})).session_id
    for epoch in (1, 2):
        with pytest.raises(KafkaError) as raised:
            ask(mallory, session_id=made, epoch=epoch)
        assert raised.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    with pytest.raises(KafkaError):
        ask(mallory, session_id=made, epoch=1, partitions=dict.fromkeys(range(MAX_SESSION_PARTITIONS + 1), 0))
    ask(mallory, session_id=made, epoch=FINAL_EPOCH)
    ask(mallory, session_id=made, epoch=INITIAL_EPOCH, partitions={1: 0})
    assert len(ask(Principal("User", "alice"), session_id=made, epoch=1).wanted) == 1, "its epoch has not moved"
    ask(alice, session_id=made, epoch=FINAL_EPOCH)
    with pytest.raises(KafkaError):
        ask(alice, session_id=made, epoch=2)


def test_e57_ids_of_sessions_are_no_sequence_that_can_be_continued(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter([5, 5, 6])
    monkeypatch.setattr(secrets, "randbelow", lambda bound: next(drawn) if bound == MAX_SESSION_ID else 1 / 0)
    sessions = FetchSessions(10)
    ids = [
        answer(planned(sessions, request(epoch=INITIAL_EPOCH, partitions={0: 0}), by_id=False, now=0)).session_id
        for _ in range(2)
    ]
    assert ids == [6, 7]

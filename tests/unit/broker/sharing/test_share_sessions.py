"""Share sessions: their epochs, their partitions, and that a session ends with its connection."""

from __future__ import annotations

import pytest

from oncelog_broker.sharing.share_sessions import MAX_EPOCH, MAX_PARTITIONS, SharedTopicPartition, ShareSessions
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.share_fetch import CLOSE_SESSION

ONE, OTHER = object(), object()


def code(sessions: ShareSessions, epoch: int, member: str = "m") -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        sessions.next("g", member, epoch, ONE)
    return raised.value.code


def partitions(*indexes: int) -> list[SharedTopicPartition]:
    return [SharedTopicPartition(b"t" * 16, index) for index in indexes]


def test_each_request_names_the_next_epoch() -> None:
    sessions = ShareSessions(10)
    session = sessions.open("g", "m", ONE)
    assert sessions.next("g", "m", 1, ONE) is session
    assert sessions.next("g", "m", 2, ONE) is session
    assert code(sessions, 2) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert code(sessions, 4) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert sessions.next("g", "m", 3, ONE) is session
    assert code(sessions, 1, "other") is ErrorCode.SHARE_SESSION_NOT_FOUND


def test_after_the_highest_epoch_comes_the_first_one() -> None:
    sessions = ShareSessions(10)
    sessions.open("g", "m", ONE).next_epoch = MAX_EPOCH
    sessions.next("g", "m", MAX_EPOCH, ONE)
    sessions.next("g", "m", 1, ONE)


def test_a_request_that_closes_names_no_epoch_and_the_session_is_gone_afterwards() -> None:
    sessions = ShareSessions(10)
    session = sessions.open("g", "m", ONE)
    assert sessions.next("g", "m", CLOSE_SESSION, ONE) is session
    sessions.close(session)
    assert code(sessions, 1) is ErrorCode.SHARE_SESSION_NOT_FOUND
    sessions.close(session)


def test_q5_a_session_that_was_opened_again_survives_its_older_connection() -> None:
    sessions = ShareSessions(10)
    old = sessions.open("g", "m", ONE)
    new = sessions.open("g", "m", OTHER)
    assert sessions.lose(ONE) == []
    sessions.close(old)
    assert sessions.next("g", "m", 1, OTHER) is new
    assert sessions.lose(OTHER) == [new]
    assert len(sessions) == 0


def test_there_is_a_limit_but_a_member_may_open_its_own_session_again() -> None:
    sessions = ShareSessions(1)
    sessions.open("g", "m", ONE)
    sessions.open("g", "m", ONE)
    with pytest.raises(KafkaError) as raised:
        sessions.open("g", "n", ONE)
    assert raised.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED


def test_partitions_are_added_and_forgotten_and_take_turns() -> None:
    sessions = ShareSessions(1)
    session = sessions.open("g", "m", ONE)
    sessions.change(session, partitions(0, 1, 2))
    sessions.change(session, partitions(1), partitions(0, 7))
    firsts = []
    for epoch in (1, 2, 3):
        firsts.append(session.in_turn()[0].partition)
        sessions.next("g", "m", epoch, ONE)
    assert firsts == [2, 1, 2]
    assert sorted(session.in_turn()) == partitions(1, 2)


def test_a_session_has_only_so_many_partitions() -> None:
    sessions = ShareSessions(1)
    session = sessions.open("g", "m", ONE)
    sessions.change(session, partitions(*range(MAX_PARTITIONS)))
    with pytest.raises(KafkaError) as raised:
        sessions.change(session, partitions(MAX_PARTITIONS))
    assert raised.value.code is ErrorCode.INVALID_REQUEST
    assert len(session.partitions) == MAX_PARTITIONS, "a refused request leaves nothing behind"


def test_all_sessions_together_have_only_so_many_partitions() -> None:
    sessions = ShareSessions(10, max_partitions=5)
    first, second = sessions.open("g", "m", ONE), sessions.open("g", "n", OTHER)
    sessions.change(first, partitions(0, 1, 2))
    sessions.change(second, partitions(0, 1))
    with pytest.raises(KafkaError) as raised:
        sessions.change(second, partitions(2))
    assert raised.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    sessions.change(first, (), partitions(0))
    sessions.change(second, partitions(2))
    sessions.open("g", "m", ONE)
    sessions.lose(OTHER)
    sessions.change(sessions.open("g", "o", ONE), partitions(*range(5)))


def test_a_group_has_sessions_until_its_last_one_is_over() -> None:
    sessions = ShareSessions(10)
    first, second = sessions.open("g", "m", ONE), sessions.open("g", "m", ONE)
    sessions.open("h", "m", OTHER)
    sessions.close(first)
    assert sessions.has_group("g")
    assert (sessions.is_open(first), sessions.is_open(second)) == (False, True)
    sessions.close(second)
    assert (sessions.has_group("g"), sessions.has_group("h")) == (False, True)

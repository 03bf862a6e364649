import pickle

import pytest

from oncelog import errors
from oncelog.cluster import TopicPartition
from oncelog.errors import ErrorCode, KafkaError, RetriableError, error_for


def test_a_code_becomes_the_class_that_says_what_to_do() -> None:
    assert type(error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER)) is errors.StaleMetadata
    assert type(error_for(ErrorCode.TOPIC_ALREADY_EXISTS, "it is there")) is errors.TopicAlreadyExists
    assert type(error_for(ErrorCode.NOT_ENOUGH_REPLICAS)) is RetriableError
    assert type(error_for(ErrorCode.INVALID_CONFIG)) is KafkaError


def test_every_code_agrees_with_its_class_about_retries() -> None:
    for code in ErrorCode:
        assert isinstance(error_for(code), RetriableError) == code.retriable, code


def test_an_unknown_code_keeps_its_number() -> None:
    error = error_for(9999, "news")
    assert error.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "9999" in error.message
    assert "news" in error.message


def test_a_shared_reason_is_given_once() -> None:
    timeout = errors.RequestTimedOut(ErrorCode.REQUEST_TIMED_OUT, "no answer to CreateTopics in time")
    failure = errors.PartialFailure({f"t{n}": timeout for n in range(500)}, {})
    assert failure.message == "t0, t1, t2, t3, t4 and 495 more: no answer to CreateTopics in time (500 items)"
    assert len(failure.errors) == 500


def test_different_reasons_are_listed_one_after_another() -> None:
    failed = {
        "a": error_for(ErrorCode.TOPIC_ALREADY_EXISTS, "a: Topic 'a' already exists."),
        "bad name": error_for(ErrorCode.INVALID_TOPIC_EXCEPTION, "bad name: it has a blank"),
        "b": error_for(ErrorCode.TOPIC_ALREADY_EXISTS, "b: Topic 'b' already exists."),
        TopicPartition("c", 0): error_for(ErrorCode.NOT_CONTROLLER, "c-0: moved"),
    }
    failure = errors.PartialFailure(failed, {})
    assert failure.message == "a, b: Topic '...' already exists. (2 items); bad name: it has a blank; c-0: moved"
    assert [code.name for code, _ in failure.reasons()] == [
        "TOPIC_ALREADY_EXISTS", "INVALID_TOPIC_EXCEPTION", "NOT_CONTROLLER"
    ]  # fmt: skip


def test_the_exported_names_exist() -> None:
    assert [name for name in errors.__all__ if not hasattr(errors, name)] == []


@pytest.mark.parametrize(
    "error",
    [
        error_for(ErrorCode.PRODUCER_FENCED, "another one"),
        errors.ClientClosed("closed"),
        errors.EndNotKnown("goes on"),
        errors.ConfigError("acks=2"),
        errors.PartialFailure({"topic": error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)}, {"other": 1}),
    ],
)
def test_errors_can_be_pickled(error: KafkaError) -> None:
    arrived = pickle.loads(pickle.dumps(error))
    assert type(arrived) is type(error)
    assert (str(arrived), arrived.code, arrived.message) == (str(error), error.code, error.message)
    assert arrived.__dict__.keys() == error.__dict__.keys()

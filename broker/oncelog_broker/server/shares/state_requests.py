"""What the requests of brokers to share coordinators have in common: one result for each share partition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

from oncelog_broker.coordinator.share.share_key import ShareKey
from oncelog_broker.runtime.answers import Answer, all_of, then
from oncelog_broker.runtime.steps import Steps
from oncelog_broker.security.authorizer.rules import Rule
from oncelog_broker.server.shares.services import ShareContext
from oncelog_protocol.errors import ErrorCode, KafkaError

REFUSED: Final = KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
R = TypeVar("R")


class StateRequest(Protocol):
    """A request about the state of share partitions of one group."""

    group_id: str

    @property
    def topics(self) -> Sequence[Any]:
        """Each with `topic_id` and `partitions`, of which each has its number in `partition`."""


Ask = Callable[[ShareKey, Any], Answer[R | KafkaError]]
"""Asks the coordinator about a share partition, with what the request says of it."""
Made = Callable[[int, R | KafkaError], Any]
"""Makes the result of a partition, by its number, for the response."""


def answered(request: StateRequest, rule: Rule, context: ShareContext, ask: Ask[R], made: Made[R]) -> Answer[list[Any]]:
    """The results of all share partitions: for each topic its id and the results of its partitions. Where the rule does
    not allow the request, each has its error."""
    may = context.may_as_broker(rule)
    asked: Answer[list[Answer[R | KafkaError]]] = context.services.slices.run(
        _ask_each(request, ask, may=may), must_finish=True
    )
    results: Answer[list[R | KafkaError]] = then(asked, all_of)
    return then(results, lambda results: _by_topic(request, results, made))


def _ask_each(request: StateRequest, ask: Ask[R], *, may: bool) -> Steps[list[Answer[R | KafkaError]]]:
    answers: list[Answer[R | KafkaError]] = []
    for topic in request.topics:
        for partition in topic.partitions:
            key = ShareKey(request.group_id, topic.topic_id, partition.partition)
            answers.append(ask(key, partition) if may else REFUSED)
            yield None
    return answers


def _by_topic(request: StateRequest, results: Sequence[R | KafkaError], made: Made[R]) -> list[tuple[bytes, list[Any]]]:
    left = iter(results)
    return [
        (topic.topic_id, [made(partition.partition, next(left)) for partition in topic.partitions])
        for topic in request.topics
    ]


def error_fields(result: object) -> dict[str, Any]:
    """The fields `error_code` and `error_message` of a result; none for one without an error."""
    if isinstance(result, KafkaError):
        return {"error_code": result.code, "error_message": result.message}
    return {}

"""Shared code of the handlers that serve brokers' requests to share coordinators; these requests have one result for
each share partition.
"""

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
    """Type of a request about the state of share partitions of one group."""

    group_id: str

    @property
    def topics(self) -> Sequence[Any]:
        """The topics, each with a `topic_id` and `partitions`; each partition has its index in `partition`."""


Ask = Callable[[ShareKey, Any], Answer[R | KafkaError]]
"""Type of a function that calls the share coordinator for a share partition, with the request's data for it."""
Made = Callable[[int, R | KafkaError], Any]
"""Type of a function that builds the result of a partition for the response, from the partition's index and outcome."""


def answered(request: StateRequest, rule: Rule, context: ShareContext, ask: Ask[R], made: Made[R]) -> Answer[list[Any]]:
    """Return the results of all share partitions, grouped by topic: the topic's id with the results of its partitions.
    If the authorization rule refuses the request, each share partition gets the error.
    """
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
    """Return the fields `error_code` and `error_message` of a result; no fields for a result without an error."""
    if isinstance(result, KafkaError):
        return {"error_code": result.code, "error_message": result.message}
    return {}

"""Apply the faults that a test sets for requests: `EndTxn.request` is a fault before an EndTxn request is handled,
`EndTxn.answer` is a fault of the response to an EndTxn request.

`FaultyHandler` wraps a handler only if the process runs with `oncelog serve --fail-control`. A lost request or response
closes the connection, because TCP cannot lose a message between two others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from oncelog.fail_points.controlled import Fault
from oncelog.fail_points.faults import Faults, crash
from oncelog.fail_points.specification import Kind
from oncelog_broker.metadata.model.image import ClusterImage
from oncelog_broker.runtime.answers import Answer, then
from oncelog_broker.server.dispatch.refusals import refusal
from oncelog_broker.server.request.context import AnyContext
from oncelog_protocol.api import ApiKey, request_type
from oncelog_protocol.errors import ErrorCode

NAMED_TRANSACTION: Final = ("transactional_id", "v3_and_below_transactional_id")
NAMED_TOPICS: Final = ("topics", "topic_data", "topic_names", "v3_and_below_topics")
NAMES_NO_TOPICS: Final = frozenset({ApiKey.FETCH})
"""APIs whose faults cannot be limited to a topic, because an incremental Fetch names only partitions that have changed
since the previous request.
"""
GO_ON: Final = object()
"""This return value means that the handler must be called, because no fault replaces its response."""


def api_name(key: ApiKey) -> str:
    """Return Kafka's name of an API, such as EndTxn."""
    return request_type(key).__name__.removesuffix("Request")


class FaultyHandler:
    """Calls the handler of an API, unless a fault applies to the request or to its response."""

    def __init__(self, key: ApiKey, handler: Callable[..., Answer[Any]], faults: Faults) -> None:
        self._handler = handler
        self._faults = faults.controlled
        self._request_point = f"{api_name(key)}.request"
        self._answer_point = f"{api_name(key)}.answer"

    def __call__(self, request: Any, context: AnyContext) -> Answer[Any]:
        image = context.services.image  # read now: the handler may delete a topic that the request names
        struck = self._struck(self._request_point, request, image)
        return then(self._before(struck, request, context), lambda go: self._go(go, request, context, image))

    def _struck(self, point: str, request: Any, image: ClusterImage) -> list[Fault]:
        return list(self._faults.taken(point, is_after=False, about=lambda: named_by(request, image)))

    def _before(self, struck: Iterable[Fault], request: Any, context: AnyContext) -> Answer[Any]:
        """Return the response with which the fault replaces the handler's response; GO_ON means that the handler must
        be called.
        """
        delays: list[Fault] = []
        answer: Any = GO_ON
        for fault in struck:
            action = fault.action
            if action.kind is Kind.CRASH:
                crash()
            elif action.kind is Kind.DELAY:
                delays.append(fault)
            elif action.kind is Kind.REFUSE:
                answer = refusal(context.api_key, context.version, request, ErrorCode[action.error])
            elif action.kind is Kind.DROP:
                context.connection.close("a fault: the request is lost")
                return None
        return self._later(delays, answer) if delays else answer

    def _go(self, answer: Any, request: Any, context: AnyContext, image: ClusterImage) -> Answer[Any]:
        if answer is not GO_ON:
            return answer
        return then(self._handler(request, context), lambda answer: self._after(answer, request, context, image))

    def _after(self, answer: Any, request: Any, context: AnyContext, image: ClusterImage) -> Answer[Any]:
        delays: list[Fault] = []
        for fault in self._struck(self._answer_point, request, image):
            if fault.action.kind is Kind.CRASH:
                crash()
            elif fault.action.kind is Kind.DELAY:
                delays.append(fault)
            elif fault.action.kind is Kind.DROP:
                context.connection.close("a fault: the answer is lost")
                return None
        return self._later(delays, answer) if delays else answer

    def _later(self, delays: Sequence[Fault], answer: Any) -> asyncio.Future[Any]:
        """Wait for the delays of the faults `delays`, one after the other, then return `answer`. If a test removes a
        fault, the delay of this fault ends early.
        """
        loop = asyncio.get_running_loop()
        later: asyncio.Future[Any] = loop.create_future()
        left = iter(delays)

        def wait_on() -> None:
            if later.done():  # stop, because the request was cancelled
                return
            fault = next(left, None)
            if fault is None:
                later.set_result(answer)
                return
            over = loop.create_future()
            timer = loop.call_later(fault.action.delay_ms / 1000, _end, over)
            forget = self._faults.when_taken_back(fault, lambda: loop.call_soon_threadsafe(_end, over))

            def ended(_: asyncio.Future[None]) -> None:
                timer.cancel()
                forget()
                later.remove_done_callback(given_up)
                wait_on()

            def given_up(_: asyncio.Future[Any]) -> None:
                _end(over)

            over.add_done_callback(ended)
            later.add_done_callback(given_up)

        wait_on()
        return later


def _end(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def named_by(request: Any, image: ClusterImage) -> Mapping[str, Collection[str | None]]:
    """Return the names that a request contains, by kind: `transactional_id`, `group_id` and `topic`. A fault may be
    limited to names of these kinds.
    """
    groups, transactions = (list(getattr(request, field, ())) for field in ("groups", "transactions"))
    topics = [
        topic
        for each in (request, *groups, *transactions)
        for field in NAMED_TOPICS
        for topic in getattr(each, field, None) or ()
    ]
    return {
        "transactional_id": [
            *(getattr(request, field, None) for field in NAMED_TRANSACTION),
            *(each.transactional_id for each in transactions),
        ],
        "group_id": [
            getattr(request, "group_id", None),
            *(each if isinstance(each, str) else each.group_id for each in groups),
        ],
        "topic": [_topic_name(topic, image) for topic in topics],
    }


def _topic_name(topic: Any, image: ClusterImage) -> str | None:
    if isinstance(topic, str):
        return topic
    name: str | None = getattr(topic, "name", None) or getattr(topic, "topic", None)
    if name:
        return name
    known = image.topic_by_id(getattr(topic, "topic_id", b""))
    return None if known is None else known.name


def filters_of(key: ApiKey) -> frozenset[str]:
    """Return the kinds of names (`transactional_id`, `group_id`, `topic`) to which a fault of this API may be
    limited."""
    fields = request_type(key).__annotations__.keys()
    found = {"transactional_id": {*NAMED_TRANSACTION, "transactions"}, "group_id": {"group_id", "groups"}}
    if key not in NAMES_NO_TOPICS:
        found["topic"] = set(NAMED_TOPICS)
    return frozenset(name for name, those in found.items() if those & fields)

"""Requests that are to go wrong: what a test has set for `EndTxn.request`, before it is done, or for `EndTxn.answer`.

`FaultyHandler` stands around a handler where the process is armed (`oncelog serve --fail-control`), and nowhere else.
A connection ends where TCP would lose something: neither a request nor an answer goes missing between two others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

from oncelog.fail_points.faults import Faults, crash
from oncelog.fail_points.specification import Action, Kind
from oncelog_broker.metadata.image import ClusterImage
from oncelog_broker.runtime.answers import Answer, then
from oncelog_broker.server.context import RequestContext
from oncelog_broker.server.refusals import refusal
from oncelog_protocol.api import ApiKey, request_type
from oncelog_protocol.errors import ErrorCode

NAMED_TRANSACTION: Final = ("transactional_id", "v3_and_below_transactional_id")
NAMED_TOPICS: Final = ("topics", "topic_data", "topic_names", "v3_and_below_topics")
NAMES_NO_TOPICS: Final = frozenset({ApiKey.FETCH})
"""A Fetch names only what has changed since the one before."""
GO_ON: Final = object()
"""In place of an answer: nothing stands against the request."""


def api_name(key: ApiKey) -> str:
    """As Kafka spells it: EndTxn."""
    return request_type(key).__name__.removesuffix("Request")


class FaultyHandler:
    """As the handler of an API, unless a fault is set for a request or for its answer."""

    def __init__(self, key: ApiKey, handler: Callable[..., Answer[Any]], faults: Faults) -> None:
        self._handler = handler
        self._faults = faults.controlled
        self._request_point = f"{api_name(key)}.request"
        self._answer_point = f"{api_name(key)}.answer"

    def __call__(self, request: Any, context: RequestContext) -> Answer[Any]:
        image = context.services.image  # now: a request may delete the topic that it names
        actions = self._actions(self._request_point, request, image)
        return then(self._before(actions, request, context), lambda go: self._go(go, request, context, image))

    def _actions(self, point: str, request: Any, image: ClusterImage) -> list[Action]:
        return list(self._faults.taken(point, is_after=False, about=lambda: named_by(request, image)))

    def _before(self, actions: Iterable[Action], request: Any, context: RequestContext) -> Answer[Any]:
        """What is answered in place of the handler: GO_ON where that is to work."""
        wait = 0
        answer: Any = GO_ON
        for action in actions:
            if action.kind is Kind.CRASH:
                crash()
            elif action.kind is Kind.DELAY:
                wait += action.delay_ms
            elif action.kind is Kind.REFUSE:
                answer = refusal(context.api_key, context.version, request, ErrorCode[action.error])
            elif action.kind is Kind.DROP:
                context.connection.close("a fault: the request is lost")
                return None
        return self._later(wait, answer) if wait else answer

    def _go(self, answer: Any, request: Any, context: RequestContext, image: ClusterImage) -> Answer[Any]:
        if answer is not GO_ON:
            return answer
        return then(self._handler(request, context), lambda answer: self._after(answer, request, context, image))

    def _after(self, answer: Any, request: Any, context: RequestContext, image: ClusterImage) -> Answer[Any]:
        wait = 0
        for action in self._actions(self._answer_point, request, image):
            if action.kind is Kind.CRASH:
                crash()
            elif action.kind is Kind.DELAY:
                wait += action.delay_ms
            elif action.kind is Kind.DROP:
                context.connection.close("a fault: the answer is lost")
                return None
        return self._later(wait, answer) if wait else answer

    def _later(self, milliseconds: int, answer: Any) -> asyncio.Future[Any]:
        """`answer`, after that time, or when all faults are taken back."""
        loop = asyncio.get_running_loop()
        later: asyncio.Future[Any] = loop.create_future()

        def come() -> None:
            if not later.done():  # nobody waits any more
                later.set_result(answer)

        timer = loop.call_later(milliseconds / 1000, come)
        forget = self._faults.when_cleared(lambda: loop.call_soon_threadsafe(come))

        def ended(_: asyncio.Future[Any]) -> None:
            timer.cancel()
            forget()

        later.add_done_callback(ended)
        return later


def named_by(request: Any, image: ClusterImage) -> Mapping[str, Collection[str | None]]:
    """What a request is about, by the name of the filter."""
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
    """What a fault of this API may be limited to."""
    fields = request_type(key).__annotations__.keys()
    found = {"transactional_id": {*NAMED_TRANSACTION, "transactions"}, "group_id": {"group_id", "groups"}}
    if key not in NAMES_NO_TOPICS:
        found["topic"] = set(NAMED_TOPICS)
    return frozenset(name for name, those in found.items() if those & fields)

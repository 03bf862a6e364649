"""Processes calls for several items; each item succeeds or fails independently of the others."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from oncelog.backoff import backoff_s
from oncelog.config import AdminConfig
from oncelog.errors import (
    ConnectionFailed,
    ErrorCode,
    KafkaError,
    PartialFailure,
    RequestTimedOut,
    error_for,
)
from oncelog.metadata.metadata import Metadata

logger = logging.getLogger(__name__)

A = TypeVar("A")
K = TypeVar("K")
V = TypeVar("V")

Outcomes = tuple[dict[K, V], dict[K, KafkaError]]
"""Results by item, and errors by item."""


async def each_item(
    items: Iterable[K],
    ask: Callable[[list[K]], Awaitable[Outcomes[K, V]]],
    *,
    metadata: Metadata,
    config: AdminConfig,
    timeout_s: float,
) -> dict[K, V]:
    """Process all items; retry the items whose request reached the wrong broker or no broker, until the timeout.

    Raises TypeError for a str, because each letter of the str would be one item, and `delete_topics("abc")` would
    delete three topics.
    """
    if isinstance(items, str):
        raise TypeError(f"a list of names, such as [{items!r}], is needed, not a single name")
    open_ = list(dict.fromkeys(items))
    asked = frozenset(open_)
    results: dict[K, V] = {}
    errors: dict[K, KafkaError] = {}
    rng = random.Random()  # noqa: S311 - jitter, not a secret
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    attempts = 0
    while open_:
        attempts += 1
        try:
            async with asyncio.timeout_at(deadline):
                done, failed = await ask(open_)
        except (ConnectionFailed, RequestTimedOut) as error:
            done, failed = {}, dict.fromkeys(open_, error)
        except TimeoutError:
            done, failed = {}, dict.fromkeys(open_, RequestTimedOut(ErrorCode.REQUEST_TIMED_OUT))
        results.update({item: result for item, result in done.items() if item in asked})
        for item in open_:
            if item not in done and item not in failed:
                failed[item] = answer_lacks(item)
        errors.update({item: error for item, error in failed.items() if item in asked})
        delay_s = backoff_s(attempts, config.retry_backoff_ms, config.retry_backoff_max_ms, rng)
        if loop.time() + delay_s >= deadline:
            break
        open_ = [item for item in open_ if item in failed and _may_be_elsewhere(failed[item])]
        if open_:
            logger.info("%s: retrying after %s", open_[0], failed[open_[0]])
            await asyncio.sleep(delay_s)
            await metadata.try_refresh()
    return settled(results, {item: error for item, error in errors.items() if item not in results})


def _may_be_elsewhere(error: KafkaError) -> bool:
    """Return whether the error means that the broker did not carry out the request, and that a retry at another broker
    or on another connection may succeed.
    """
    return isinstance(error, ConnectionFailed) or error.code is ErrorCode.NOT_CONTROLLER


def the_one(answers: Sequence[A], subject: object) -> A:
    """Return the entry of a response for the single requested item. Raises KafkaError if the response does not contain
    the
    item."""
    if not answers:
        raise answer_lacks(subject)
    return answers[0]


def answer_lacks(subject: object) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{subject}: the broker's response does not contain it")


def sorted_out(answers: Iterable[tuple[K, int, str | None, V]]) -> Outcomes[K, V]:
    """Split (item, error code, error message, result) tuples into results and errors."""
    results: dict[K, V] = {}
    errors: dict[K, KafkaError] = {}
    for item, error_code, message, result in answers:
        if error_code:
            errors[item] = error_for(error_code, f"{item}: {message or ErrorCode.of(error_code).meaning}")
        else:
            results[item] = result
    return results, errors


def settled(results: dict[K, V], errors: dict[K, KafkaError]) -> dict[K, V]:
    """Return the results if there are no errors. If there are errors, raises the error of the only item, or
    PartialFailure for several items.
    """
    if not errors:
        return results
    if len(errors) == 1 and not results:
        raise next(iter(errors.values()))
    raise PartialFailure(errors, results)

"""Asking the leaders of many partitions: grouped by node, asked at the same time, again where the leader has moved."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from oncelog.backoff import backoff_s
from oncelog.cluster import NO_NODE, TopicPartition
from oncelog.config import ClientConfig
from oncelog.errors import ClientClosed, ErrorCode, KafkaError, RequestTimedOut, StaleMetadata
from oncelog.metadata.metadata import Metadata

logger = logging.getLogger(__name__)

V = TypeVar("V")
R = TypeVar("R")

Ask = Callable[[int, dict[TopicPartition, V]], Awaitable[dict[TopicPartition, R | KafkaError]]]
"""(node id, what to ask of each partition) -> the answer or error of each. May raise for all of them."""


async def ask_leaders(
    wanted: Mapping[TopicPartition, V],
    ask: Ask[V, R],
    *,
    metadata: Metadata,
    config: ClientConfig,
    timeout_s: float,
    is_once: bool = False,
) -> tuple[dict[TopicPartition, R], dict[TopicPartition, KafkaError]]:
    """The answers, and the errors that retries did not cure within `timeout_s`; `is_once`: nothing is retried, so that
    one partition without a leader holds up no other. Raises ClientClosed, InvalidTopic."""
    answers: dict[TopicPartition, R] = {}
    errors: dict[TopicPartition, KafkaError] = {}
    open_: dict[TopicPartition, V] = dict(wanted)
    try:
        with metadata.waiting_for({partition.topic for partition in wanted}):
            async with asyncio.timeout(timeout_s):
                await _ask_until_answered(open_, ask, metadata, config, answers, errors, is_once=is_once)
    except TimeoutError:
        for partition in open_:
            last = f": {errors[partition].message}" if partition in errors else ""
            errors[partition] = RequestTimedOut(
                ErrorCode.REQUEST_TIMED_OUT, f"{partition}: no answer within {timeout_s:g} s{last}"
            )
    return answers, {partition: error for partition, error in errors.items() if partition not in answers}


async def _ask_until_answered(
    open_: dict[TopicPartition, V],
    ask: Ask[V, R],
    metadata: Metadata,
    config: ClientConfig,
    answers: dict[TopicPartition, R],
    errors: dict[TopicPartition, KafkaError],
    *,
    is_once: bool,
) -> None:
    """Takes out of `open_` what is answered, or has failed for good."""
    rng = random.Random()  # noqa: S311 - jitter, not a secret
    attempts = 0
    while open_:
        if attempts or any(metadata.cluster.partition(*partition) is None for partition in open_):
            await asyncio.sleep(backoff_s(attempts, config.retry_backoff_ms, config.retry_backoff_max_ms, rng))
            await metadata.try_refresh()
        attempts += 1
        for partition, outcome in (await _ask_once(open_, ask, metadata)).items():
            if partition not in open_:
                continue  # nobody asked for it
            if not isinstance(outcome, KafkaError):
                answers[partition] = outcome
            else:
                errors[partition] = outcome
                if outcome.retriable and not is_once:
                    logger.info("%s: asking again after %s", partition, outcome)
                    continue
            del open_[partition]
        if is_once:
            return


async def _ask_once(
    wanted: dict[TopicPartition, V], ask: Ask[V, R], metadata: Metadata
) -> dict[TopicPartition, R | KafkaError]:
    outcomes: dict[TopicPartition, R | KafkaError] = {}
    by_node: dict[int, dict[TopicPartition, V]] = {}
    for partition, value in wanted.items():
        node_id = metadata.cluster.leader(*partition)
        if node_id == NO_NODE:
            code = ErrorCode.LEADER_NOT_AVAILABLE
            if metadata.cluster.partition(*partition) is None:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            outcomes[partition] = StaleMetadata(code, f"{partition}: {code.meaning}")
        else:
            by_node.setdefault(node_id, {})[partition] = value

    async def ask_node(node_id: int, part: dict[TopicPartition, V]) -> dict[TopicPartition, R | KafkaError]:
        try:
            return await ask(node_id, part)
        except ClientClosed:
            raise
        except KafkaError as error:
            return dict.fromkeys(part, error)

    for answer in await asyncio.gather(*(ask_node(node_id, part) for node_id, part in by_node.items())):
        outcomes.update(answer)
    return outcomes

"""Sends requests to the leaders of many partitions, grouped by node and concurrently; repeats a request if a leader has
moved.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Generic, TypeVar

from oncelog.backoff import backoff_s
from oncelog.cluster import NO_NODE, TopicPartition
from oncelog.config import ClientConfig
from oncelog.errors import ClientClosed, ErrorCode, KafkaError, RequestTimedOut, StaleMetadata
from oncelog.metadata.metadata import Metadata

logger = logging.getLogger(__name__)

V = TypeVar("V")
R = TypeVar("R")

UNANSWERED: Final = StaleMetadata(ErrorCode.LEADER_NOT_AVAILABLE, "the response does not contain the partition")

Ask = Callable[[int, dict[TopicPartition, V]], Awaitable[dict[TopicPartition, R | KafkaError]]]
"""A function that sends a request to one leader. The function gets the node id and the argument of each partition, and
returns the result or the error of each partition. The function may raise one error for all partitions.
"""


async def ask_leaders(
    wanted: Mapping[TopicPartition, V],
    ask: Ask[V, R],
    *,
    metadata: Metadata,
    config: ClientConfig,
    timeout_s: float,
) -> tuple[dict[TopicPartition, R], dict[TopicPartition, KafkaError]]:
    """Return the results, and the errors that remain after retries within `timeout_s`. Raises ClientClosed,
    InvalidTopic.

    Each leader's response is processed when it arrives, and its partitions are then retried if needed, so a hanging
    leader delays only its own partitions (E54).
    """
    asking: _Asking[V, R] = _Asking(wanted, ask, metadata, config)
    try:
        with metadata.waiting_for({partition.topic for partition in wanted}):
            async with asyncio.timeout(timeout_s):
                await asking.run()
    except TimeoutError:
        for partition in asking.open:
            last = f": {asking.errors[partition].message}" if partition in asking.errors else ""
            asking.errors[partition] = RequestTimedOut(
                ErrorCode.REQUEST_TIMED_OUT, f"{partition}: no answer within {timeout_s:g} s{last}"
            )
    answers = asking.answers
    return answers, {partition: error for partition, error in asking.errors.items() if partition not in answers}


class _Asking(Generic[V, R]):
    """The state of one call. `open` contains the partitions without a result or final error, and `_again` those of them
    for which no request is outstanding.
    """

    def __init__(
        self, wanted: Mapping[TopicPartition, V], ask: Ask[V, R], metadata: Metadata, config: ClientConfig
    ) -> None:
        self.open = dict(wanted)
        self.answers: dict[TopicPartition, R] = {}
        self.errors: dict[TopicPartition, KafkaError] = {}
        self._again = set(wanted)
        self._ask = ask
        self._metadata = metadata
        self._config = config
        self._rng = random.Random()  # noqa: S311 - jitter, not a secret

    async def run(self) -> None:
        """Run until no partition is open. Raises ClientClosed."""
        running: set[asyncio.Task[None]] = set()
        rounds = 0
        try:
            while self.open:
                if self._again:
                    if rounds or any(self._metadata.cluster.partition(*partition) is None for partition in self._again):
                        await self._back_off(rounds)
                        await self._metadata.try_refresh()
                    rounds += 1
                    running |= {asyncio.ensure_future(self._ask_node(*part)) for part in self._by_node().items()}
                if not self._again and running:
                    done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                    for task in done:
                        task.result()
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _back_off(self, rounds: int) -> None:
        config = self._config
        await asyncio.sleep(backoff_s(rounds, config.retry_backoff_ms, config.retry_backoff_max_ms, self._rng))

    def _by_node(self) -> dict[int, dict[TopicPartition, V]]:
        """Return node -> its partitions without an outstanding request; a partition without a leader gets an error."""
        by_node: dict[int, dict[TopicPartition, V]] = {}
        cluster = self._metadata.cluster
        again, self._again = self._again, set()
        for partition in [each for each in self.open if each in again]:
            node_id = cluster.leader(*partition)
            if node_id == NO_NODE:
                code = ErrorCode.LEADER_NOT_AVAILABLE
                if cluster.partition(*partition) is None:
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                self._take(partition, StaleMetadata(code, f"{partition}: {code.meaning}"))
            else:
                by_node.setdefault(node_id, {})[partition] = self.open[partition]
        return by_node

    async def _ask_node(self, node_id: int, part: dict[TopicPartition, V]) -> None:
        try:
            outcomes = await self._ask(node_id, part)
        except ClientClosed:
            raise
        except KafkaError as error:
            outcomes = dict.fromkeys(part, error)
        for partition in part:  # partitions that the response does not contain are retried
            self._take(partition, outcomes.get(partition, UNANSWERED))

    def _take(self, partition: TopicPartition, outcome: R | KafkaError) -> None:
        if not isinstance(outcome, KafkaError):
            self.answers[partition] = outcome
        else:
            self.errors[partition] = outcome
            if outcome.retriable:
                logger.info("%s: retrying after %s", partition, outcome)
                self._again.add(partition)
                return
        del self.open[partition]

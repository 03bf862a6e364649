"""The share session with one broker; at most one request is in flight."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from oncelog.config import ShareConsumerConfig
from oncelog.connection.pool import ConnectionPool
from oncelog.errors import ErrorCode, KafkaError, error_for
from oncelog.share.share_request import IdPartition, Said, ShareSession
from oncelog_protocol.messages.share_fetch import ShareFetchResponse

logger = logging.getLogger(__name__)

Outcomes = dict[IdPartition, KafkaError | None]
"""The result of acknowledgements by partition; None means success."""
PartitionData = ShareFetchResponse.ShareFetchableTopicResponse.PartitionData
Fetched = Callable[[IdPartition, PartitionData, ShareFetchResponse], None]


class ShareNode:
    """The share session with one broker; `fetching` is the fetch in flight, None if there is none."""

    def __init__(self, node_id: int, pool: ConnectionPool, config: ShareConsumerConfig, member_id: str) -> None:
        self.node_id = node_id
        self.fetching: asyncio.Task[tuple[Outcomes, KafkaError | None]] | None = None
        self._pool = pool
        self._session = ShareSession(config, member_id)
        self._lock = asyncio.Lock()

    @property
    def is_open(self) -> bool:
        """Whether the session is open, so that acknowledgements can be sent with a fetch."""
        return self._session.is_open

    async def fetch(
        self, wanted: Iterable[IdPartition], take: Callable[[], Said], fetched: Fetched
    ) -> tuple[Outcomes, KafkaError | None]:
        """Acquire records, and send the acknowledgements that `take` returns; `fetched` is called with each partition
        of the response. Returns the outcomes of the acknowledgements, and the error of the request."""
        async with self._lock:
            said = take() if self._session.is_open else {}
            outcomes: Outcomes = {}
            try:
                response = await self._send(self._session.fetch(wanted, said))
            except KafkaError as error:
                return dict.fromkeys(said, error), error
            for topic in response.responses:
                for data in topic.partitions:
                    where = topic.topic_id, data.partition_index
                    if where in said:
                        outcomes[where] = _error(data.acknowledge_error_code, data.acknowledge_error_message)
                    fetched(where, data, response)
            return {where: outcomes.get(where) for where in said}, None

    async def acknowledge(self, said: Said, *, closes: bool = False) -> Outcomes:
        """Send acknowledgements, and return the outcome by partition; an error of the entire response counts for each
        partition.
        """
        async with self._lock:
            if not self._session.is_open:
                lost = error_for(ErrorCode.SHARE_SESSION_NOT_FOUND, "the session with the broker was lost")
                return dict.fromkeys(said, lost)
            try:
                response = await self._send(self._session.acknowledge(said, closes=closes))
            except KafkaError as error:
                return dict.fromkeys(said, error)
            finally:
                if closes:
                    self._session.lost()
            outcomes: Outcomes = dict.fromkeys(said)
            for topic in response.responses:
                for data in topic.partitions:
                    outcomes[topic.topic_id, data.partition_index] = _error(data.error_code, data.error_message)
            return outcomes

    async def _send(self, request: Any) -> Any:
        """Send a request. Raises KafkaError, also for an error of the entire response."""
        try:
            response = await self._pool.send(self.node_id, request)
            if response.error_code:
                raise error_for(response.error_code, response.error_message)
        except BaseException as error:
            # The session is also lost if the request was cancelled or its response lost, because the broker may have
            # raised its session epoch for that request.
            logger.debug("share session with node %d lost: %s", self.node_id, error)
            self._session.lost()
            raise
        self._session.answered()
        return response


def _error(code: int, message: str | None) -> KafkaError | None:
    return error_for(code, message) if code else None


def merged(results: Iterable[Mapping[IdPartition, KafkaError | None]]) -> Outcomes:
    """Merge the outcomes of several requests; if a partition has both an error and a success, the error is kept."""
    found: Outcomes = {}
    for result in results:
        for where, error in result.items():
            found[where] = found.get(where) or error
    return found

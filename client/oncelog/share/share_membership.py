"""A member of a share group: joins, sends heartbeats, and receives its assignment from the coordinator."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from oncelog.config import ShareConsumerConfig
from oncelog.consumer.group.coordinator_connection import CoordinatorConnection
from oncelog.errors import ErrorCode, KafkaError, error_for
from oncelog.metadata.metadata import Metadata
from oncelog.share.share_request import IdPartition
from oncelog_protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

logger = logging.getLogger(__name__)

JOINING_EPOCH: Final = 0
LEAVING_EPOCH: Final = -1
FIRST_INTERVAL_S: Final = 5.0
"""Seconds between heartbeats until the broker sets the interval."""
MOVED: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)
FENCED: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND})
"""Errors after which the member no longer belongs to the group, and joins again with the same id. For a member that has
never joined, GROUP_ID_NOT_FOUND is final, because it means that the group uses another protocol.
"""


class ShareMembership:
    """`assignment` contains the partitions that the member should read; `changed` is called when `assignment` changes
    or `error` is set.
    """

    def __init__(
        self, config: ShareConsumerConfig, metadata: Metadata, member_id: str, changed: Callable[[], None]
    ) -> None:
        self._config = config
        self._connection = CoordinatorConnection(config.group_id, metadata, config)
        self._member_id = member_id
        self._changed = changed
        self._topics: tuple[str, ...] = ()
        self._says_all = True
        self._epoch = JOINING_EPOCH
        self._interval_s = FIRST_INTERVAL_S
        self._is_due = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.assignment: frozenset[IdPartition] = frozenset()
        self.error: KafkaError | None = None
        """The error that ended the membership; the next poll raises it."""

    @property
    def topics(self) -> tuple[str, ...]:
        return self._topics

    def subscribe(self, topics: tuple[str, ...]) -> None:
        """Read these topics from the next heartbeat on, which is sent immediately."""
        self._topics = topics
        self._says_all = True
        self.error = None
        self._is_due.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name=f"share group {self._config.group_id}")

    async def leave(self, timeout_s: float) -> None:
        """Leave the group; if the coordinator does not respond within `timeout_s`, give up without an error."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._epoch != JOINING_EPOCH:
            self._epoch = LEAVING_EPOCH
            try:
                await self._connection.send(self._request(), timeout_s)
            except KafkaError as error:
                logger.info("share group %s: leaving failed: %s", self._config.group_id, error.message)
            self._epoch = JOINING_EPOCH
        self.assignment = frozenset()

    async def close(self) -> None:
        await self._connection.close()

    def _request(self) -> ShareGroupHeartbeatRequest:
        says_all = self._says_all and self._epoch != LEAVING_EPOCH
        return ShareGroupHeartbeatRequest(
            group_id=self._config.group_id,
            member_id=self._member_id,
            member_epoch=self._epoch,
            rack_id=(self._config.client_rack or None) if says_all else None,
            subscribed_topic_names=list(self._topics) if says_all else None,
        )

    async def _run(self) -> None:
        failures = 0
        while True:
            self._is_due.clear()
            try:
                await self._beat()
                failures = 0
            except KafkaError as error:
                self._says_all = True
                if not (error.retriable or error.code in MOVED):
                    logger.error("share group %s: %s", self._config.group_id, error.message)
                    self.error, self.assignment, self._epoch = error, frozenset(), JOINING_EPOCH
                    self._changed()
                    return
                failures += 1
                if error.code in MOVED:
                    self._connection.lost(error.message)
                await self._connection.backoff(failures)
                continue
            try:
                async with asyncio.timeout(self._interval_s):
                    await self._is_due.wait()
            except TimeoutError:
                pass

    async def _beat(self) -> None:
        """Send a heartbeat. Raises KafkaError for errors that the member cannot resolve itself."""
        topics = self._topics
        response = await self._connection.send(self._request())
        code = ErrorCode.of(response.error_code)
        if code in FENCED and self._epoch != JOINING_EPOCH:
            logger.warning("share group %s: rejoining: %s", self._config.group_id, code.meaning)
            self._epoch, self._says_all = JOINING_EPOCH, True
            self._assign(frozenset())
            self._is_due.set()
            return
        if code is not ErrorCode.NONE:
            raise error_for(code, response.error_message)
        self._epoch = response.member_epoch
        self._says_all = topics != self._topics
        if response.heartbeat_interval_ms > 0:
            self._interval_s = response.heartbeat_interval_ms / 1000
        if response.assignment is not None:
            self._assign(
                frozenset(
                    (topic.topic_id, index)
                    for topic in response.assignment.topic_partitions
                    for index in topic.partitions
                )
            )

    def _assign(self, assignment: frozenset[IdPartition]) -> None:
        if assignment != self.assignment:
            self.assignment = assignment
            self._changed()

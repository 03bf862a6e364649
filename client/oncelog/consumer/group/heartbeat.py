"""The heartbeat task of a member, which also checks whether the application polls."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from oncelog.config import ConsumerConfig
from oncelog.consumer.group.coordinator_connection import CoordinatorConnection
from oncelog.consumer.group.membership import Membership, Reaction
from oncelog.errors import ClientClosed, ErrorCode, KafkaError
from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.heartbeat import HeartbeatRequest

logger = logging.getLogger(__name__)


class PollWatch:
    """Checks whether the application polls within max.poll.interval.ms. Pure.

    `progress` returns any value that changes with each poll, so that `async for`, which returns single records, needs
    no extra call per record.
    """

    def __init__(self, max_interval_s: float) -> None:
        self._max_interval_s = max_interval_s
        self._progress: object = None
        self._since = float("-inf")

    def look(self, progress: object, now: float) -> None:
        if progress != self._progress:
            self._progress = progress
            self._since = now

    def is_late(self, now: float) -> bool:
        return now - self._since > self._max_interval_s


class Heartbeat:
    """`progress` returns a value that changes whenever the application takes records, and None during a poll. `changed`
    is called when the next poll has to handle a membership change.
    """

    def __init__(
        self,
        membership: Membership,
        connection: CoordinatorConnection,
        config: ConsumerConfig,
        *,
        progress: Callable[[], object],
        poll_is_late: Callable[[], Awaitable[None]],
        changed: Callable[[], None],
    ) -> None:
        self._membership = membership
        self._connection = connection
        self._config = config
        self._watch = PollWatch(config.max_poll_interval_ms / 1000)
        self._progress = progress
        self._poll_is_late = poll_is_late
        self._changed = changed
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the task, unless it is running."""
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._run())
            self._task.add_done_callback(report_end)

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        loop, failures = asyncio.get_running_loop(), 0
        # Wake up at the deadline of the next poll too, so that a late poll is noticed even if heartbeats are rare.
        interval_s = min(self._config.heartbeat_interval_ms, self._config.max_poll_interval_ms / 2) / 1000
        while True:
            if failures:
                await self._connection.backoff(failures)
            else:
                await asyncio.sleep(interval_s)
            if not self._membership.sends_heartbeats:
                self._watch.look(self._progress(), loop.time())
                continue
            progress = self._progress()
            self._watch.look(loop.time() if progress is None else progress, loop.time())
            try:
                if self._watch.is_late(loop.time()):
                    await self._poll_is_late()
                else:
                    failures = 0 if await self._beat() else failures + 1
            except ClientClosed:
                raise
            except Exception:  # catch every error, because a member without heartbeats is expelled
                logger.exception("group %s: a heartbeat failed, and is sent again", self._config.group_id)
                failures += 1

    async def _beat(self) -> bool:
        """Send one heartbeat. Return False if the heartbeat should be retried soon."""
        sent = self._membership.generation
        request = HeartbeatRequest(
            group_id=self._config.group_id or "",
            generation_id=sent.generation_id,
            member_id=sent.member_id,
            group_instance_id=self._config.group_instance_id,
        )
        try:
            response = await self._connection.send(request, self._config.session_timeout_ms / 1000)
        except ClientClosed:
            raise
        except KafkaError as error:
            logger.info("group %s: heartbeat failed: %s", self._config.group_id, error)
            return False
        code = ErrorCode.of(response.error_code)
        if code is ErrorCode.NONE:
            return True
        reaction = self._membership.react(ApiKey.HEARTBEAT, code, sent)
        logger.info("group %s: heartbeat answered with %s", self._config.group_id, code.name)
        if reaction is Reaction.FIND_COORDINATOR:
            self._connection.lost(code.name)
        if reaction in (Reaction.FIND_COORDINATOR, Reaction.RETRY):
            return False
        self._changed()
        return True


def report_end(task: asyncio.Task[None]) -> None:
    """Log why the heartbeats of a member ended, unless it was closed."""
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, ClientClosed):
        logger.error("heartbeats have ended", exc_info=error)

"""The logs that come to a broker and leave it, a few at a time, in the order in which that was asked for.

Making a log or moving it away waits for the disk several times. So a worker thread does it, and who asked is told on
the event loop, between requests. A topic that is deleted and made again waits for its turn like any other.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeVar

from oncelog_broker.log.checkpoints import TopicPartition
from oncelog_broker.log.directories.log_changes import WantedLog
from oncelog_broker.log.directories.log_manager import LogManager
from oncelog_broker.log.partition_log import PartitionLog
from oncelog_broker.runtime.descriptors import is_descriptor_limit
from oncelog_broker.runtime.tasks import Tasks, in_thread
from oncelog_protocol.errors import KafkaError

logger = logging.getLogger(__name__)

RETRY_SECONDS: Final = 5.0
"""When a log is tried again for which no file descriptor was left."""
LOGS_AT_A_TIME: Final = 64
"""Logs whose change is begun, or told of, before other work gets its turn: two milliseconds of the event loop. Each
time costs a way to the worker thread and back, and a fetch of each follower that is told of more."""


class UnwantedLog(NamedTuple):
    """A log that is to be deleted."""

    key: TopicPartition


Change = TypeVar("Change", WantedLog, UnwantedLog)
Opened = list[tuple[WantedLog, PartitionLog | KafkaError]]


class HostedLogs:
    """Makes and deletes logs for `Replicas`. To be used on the event loop."""

    def __init__(
        self,
        logs: LogManager,
        tasks: Tasks,
        is_wanted: Callable[[WantedLog], bool],
        on_opened: Callable[[Opened], None],
    ) -> None:
        """`on_opened` is told of every log that was asked for: the log, or why it cannot be had. `is_wanted` says
        whether a log still is that was asked for some time ago."""
        self._logs = logs
        self._tasks = tasks
        self._is_wanted = is_wanted
        self._on_opened = on_opened
        self._asked: deque[WantedLog | UnwantedLog] = deque()
        self._pending: Counter[TopicPartition] = Counter()
        self._is_cut = asyncio.Event()
        self._work: asyncio.Task[None] | None = None

    def is_pending(self, key: TopicPartition) -> bool:
        """Whether a change of this log was asked for and is not done: what it is now says nothing."""
        return self._pending[key] > 0

    def open(self, wanted: WantedLog) -> None:
        """Open or make a log, soon."""
        self._ask(wanted)

    def delete(self, key: TopicPartition) -> None:
        """Delete a log, soon; a failure is logged, and the next start sets the log aside."""
        self._ask(UnwantedLog(key))

    def on_truncated(self) -> None:
        """The end of a log is cut, whose deletion may have waited for that."""
        self._is_cut.set()

    def _ask_again(self, later: list[WantedLog]) -> None:
        for wanted in later:
            if self._is_wanted(wanted):
                self._ask(wanted)

    def _ask(self, change: WantedLog | UnwantedLog) -> None:
        self._asked.append(change)
        self._pending[change.key] += 1
        if self._work is None or self._work.done():
            self._work = self._tasks.supervise("make and delete logs", self._work_off)

    async def _work_off(self) -> None:
        while self._asked:
            if isinstance(self._asked[0], WantedLog):
                await self._open_some()
            else:
                await self._delete_some()

    def _take(self, kind: type[Change]) -> list[Change]:
        taken: list[Change] = []
        while self._asked and len(taken) < LOGS_AT_A_TIME and isinstance(change := self._asked[0], kind):
            taken.append(change)
            self._asked.popleft()
        return taken

    async def _open_some(self) -> None:
        wanted = self._take(WantedLog)
        opening = self._logs.begin_opening(wanted)
        try:
            await in_thread(opening.run)
        finally:  # also when the broker stops meanwhile: they must be closed with the others
            results = self._logs.finish_opening(opening)
            self._are_done(wanted)
        opened, later = [], []
        for log, result in zip(wanted, results, strict=True):
            if isinstance(result, KafkaError) and is_descriptor_limit(result.__cause__):
                later.append(log)
            else:
                opened.append((log, result))
        self._on_opened(opened)
        if later:
            logger.error(
                "too many open files, tried again later: raise the limit (ulimit -n)",
                extra={"partition": later[0].name, "others": len(later) - 1, "seconds": RETRY_SECONDS},
            )
            asyncio.get_running_loop().call_later(RETRY_SECONDS, self._ask_again, later)

    async def _delete_some(self) -> None:
        unwanted = self._take(UnwantedLog)
        # Whoever cuts the end of one finds its files by their names, which may soon be those of another log.
        while any(self._logs.is_truncating(log.key) for log in unwanted):
            self._is_cut.clear()
            await self._is_cut.wait()
        moves = self._logs.begin_deletion([log.key for log in unwanted])
        try:
            await in_thread(moves.run)
        finally:
            failed = self._logs.finish_deletion(moves)
            self._are_done(unwanted)
        for (topic, index), error in failed.items():
            logger.error("log not deleted", extra={"partition": f"{topic}-{index}", "reason": error})

    def _are_done(self, changes: Iterable[WantedLog | UnwantedLog]) -> None:
        self._pending -= Counter(change.key for change in changes)

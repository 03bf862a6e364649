"""Opens, creates and deletes partition logs in worker threads, in request order for each data directory.

Creating a log or renaming its directory waits for the disk several times. Each data directory has one worker thread for
these operations; the results are delivered on the event loop between requests. A disk that hangs therefore delays only
the logs of its own directory. If a topic is deleted and created again, its old log is deleted before the new log is
created, even if the new log gets another directory.

A failed deletion is retried periodically, and before the next log with that name is opened.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

from oncelog_broker.log.checkpoints import TopicPartition
from oncelog_broker.log.directories.log_changes import WantedLog
from oncelog_broker.log.directories.log_manager import LogManager
from oncelog_broker.log.partition_log import PartitionLog
from oncelog_broker.runtime.descriptors import is_descriptor_limit
from oncelog_broker.runtime.tasks import Tasks, in_thread
from oncelog_protocol.errors import KafkaError
from oncelog_protocol.light_classes import NamedTuple

logger = logging.getLogger(__name__)

RETRY_SECONDS: Final = 5.0
"""Seconds before a log is opened again after the process ran out of file descriptors, and before the first retry of a
failed deletion.
"""
MAX_DELETION_REST_SECONDS: Final = 60.0
"""Maximum seconds between two attempts to delete a log; the delay doubles up to this value."""
LOGS_AT_A_TIME: Final = 64
"""The changes of this many logs form one group. To start or report a group takes two milliseconds of the event loop;
then other work may run. Groups must not be too small, because each group costs a round trip to the worker thread, and
one more Fetch request from each broker that follows the new partitions.
"""
PLACED_AT_A_TIME: Final = 500
"""Data directories are chosen for this many logs before other work may run."""


class UnwantedLog(NamedTuple):
    """A log whose deletion is queued."""

    key: TopicPartition


Change = TypeVar("Change", WantedLog, UnwantedLog)
Opened = list[tuple[WantedLog, PartitionLog | KafkaError]]


class _Lane:
    """A lane: the queued changes of one data directory."""

    def __init__(self) -> None:
        self.asked: deque[WantedLog | UnwantedLog] = deque()
        self.is_cut = asyncio.Event()
        self.work: asyncio.Task[None] | None = None

    def take(self, kind: type[Change]) -> list[Change]:
        """Remove the next changes from the queue: only changes of the same kind, and at most LOGS_AT_A_TIME."""
        taken: list[Change] = []
        while self.asked and len(taken) < LOGS_AT_A_TIME and isinstance(change := self.asked[0], kind):
            taken.append(change)
            self.asked.popleft()
        return taken


class LogOpener:
    """Opens, creates and deletes logs for `Replicas`. Use this class only on the event loop."""

    def __init__(
        self,
        logs: LogManager,
        tasks: Tasks,
        is_wanted: Callable[[WantedLog], bool],
        on_opened: Callable[[Opened], None],
    ) -> None:
        """`on_opened` is called with each requested log, or with the error that prevented opening the log. `is_wanted`
        returns whether a log that was requested some time ago is still wanted.
        """
        self._logs = logs
        self._tasks = tasks
        self._is_wanted = is_wanted
        self._on_opened = on_opened
        self._unplaced: deque[WantedLog | UnwantedLog] = deque()
        self._placing: asyncio.Task[None] | None = None
        self._lanes = {path: _Lane() for path in logs.data_directories()}
        self._lane_of: dict[TopicPartition, _Lane] = {}
        """The lane (queue of one data directory) of each log with queued changes; further changes of that log go to the
        same lane.
        """
        self._pending: Counter[TopicPartition] = Counter()
        self._undeleted: dict[TopicPartition, float] = {}
        """Maps each log whose deletion failed to the seconds before the next attempt to delete it."""
        self._threads = ThreadPoolExecutor(max(1, len(self._lanes)), "logs")

    def is_pending(self, key: TopicPartition) -> bool:
        """Whether a change of this log is queued or running, so that the log's present state must not be used."""
        return self._pending[key] > 0 or key in self._undeleted

    def open(self, wanted: WantedLog) -> None:
        """Queue a log to be opened or created, after the deletion of an earlier log with the same name."""
        if wanted.key in self._undeleted:
            self._ask(UnwantedLog(wanted.key))
        self._ask(wanted)

    def delete(self, key: TopicPartition) -> None:
        """Queue a log for deletion. A failed deletion is logged and retried. If the process ends before the deletion,
        the next startup treats the log as stray.
        """
        self._ask(UnwantedLog(key))

    def on_truncated(self) -> None:
        """Continue the deletions that waited until a truncation of the log had ended."""
        for lane in self._lanes.values():
            lane.is_cut.set()

    def _ask_again(self, later: list[WantedLog]) -> None:
        for wanted in later:
            if self._is_wanted(wanted):
                self._ask(wanted)

    def _delete_again(self, key: TopicPartition) -> None:
        if key in self._undeleted and not self._pending[key]:
            self._ask(UnwantedLog(key))

    def _ask(self, change: WantedLog | UnwantedLog) -> None:
        self._unplaced.append(change)
        self._pending[change.key] += 1
        if self._placing is None or self._placing.done():
            self._placing = self._tasks.supervise("place logs", self._place_all)

    async def _place_all(self) -> None:
        while self._unplaced:
            place = self._logs.placing()
            for _ in range(min(len(self._unplaced), PLACED_AT_A_TIME)):
                change = self._unplaced.popleft()
                lane = self._lane_of.get(change.key) or self._lanes[self._place_of(change, place)]
                self._lane_of[change.key] = lane
                lane.asked.append(change)
                if lane.work is None or lane.work.done():
                    lane.work = self._tasks.supervise("make and delete logs", partial(self._work_off, lane))
            if self._unplaced:
                await asyncio.sleep(0)

    def _place_of(self, change: WantedLog | UnwantedLog, place: Callable[[TopicPartition], str]) -> str:
        if isinstance(change, WantedLog):
            return place(change.key)
        # A log without a directory needs no deletion, so any lane will do.
        return self._logs.place_of(change.key) or next(iter(self._lanes))

    async def _work_off(self, lane: _Lane) -> None:
        while lane.asked:
            if isinstance(lane.asked[0], WantedLog):
                await self._open_some(lane.take(WantedLog))
            else:
                await self._delete_some(lane.take(UnwantedLog), lane)

    async def _open_some(self, wanted: list[WantedLog]) -> None:
        opening = self._logs.begin_opening(wanted)
        try:
            await in_thread(opening.run, self._threads)
        finally:  # report the logs even during shutdown, so that opened logs are closed together with the other logs
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
                "too many open files, retried later: raise the limit (ulimit -n)",
                extra={"partition": later[0].name, "others": len(later) - 1, "seconds": RETRY_SECONDS},
            )
            asyncio.get_running_loop().call_later(RETRY_SECONDS, self._ask_again, later)

    async def _delete_some(self, unwanted: list[UnwantedLog], lane: _Lane) -> None:
        # Wait for truncations to end: a worker thread that truncates a log opens the log's files by name, and a new log
        # may soon have the same name.
        while any(self._logs.is_truncating(log.key) for log in unwanted):
            lane.is_cut.clear()
            await lane.is_cut.wait()
        moves = self._logs.begin_deletion([log.key for log in unwanted])
        try:
            await in_thread(moves.run, self._threads)
        finally:
            failed = self._logs.finish_deletion(moves)
            self._are_done(unwanted)
        for change in unwanted:
            if change.key not in failed:
                self._undeleted.pop(change.key, None)
        for key, error in failed.items():
            self._rest_undeleted(key, error)

    def _rest_undeleted(self, key: TopicPartition, error: KafkaError) -> None:
        known = self._undeleted.get(key)
        seconds = RETRY_SECONDS if known is None else min(2 * known, MAX_DELETION_REST_SECONDS)
        self._undeleted[key] = seconds
        if known is None:
            logger.error(
                "log not deleted, retried later",
                extra={"partition": f"{key[0]}-{key[1]}", "reason": error, "seconds": seconds},
            )
        asyncio.get_running_loop().call_later(seconds, self._delete_again, key)

    def _are_done(self, changes: Iterable[WantedLog | UnwantedLog]) -> None:
        for change in changes:
            self._pending[change.key] -= 1
            if not self._pending[change.key]:
                del self._pending[change.key]
                self._lane_of.pop(change.key, None)

"""Waits for moving partitions and shows the progress, as a bar on a terminal and as lines elsewhere, for `reassign` and
`brokers`.

The state is read from the cluster, so the command may be interrupted and started again.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Collection, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from oncelog.cli.output import count, tell

if TYPE_CHECKING:
    from oncelog.admin import Admin
    from oncelog.cluster import TopicPartition

POLL_SECONDS: Final = 0.5
"""Seconds between two queries of the progress."""


async def until_arrived(
    admin: Admin, partitions: Collection[TopicPartition], sizes: Mapping[TopicPartition, int] | None = None
) -> None:
    """Wait until none of these partitions is moving, and show the progress, in bytes if `sizes` are known. Raises
    KafkaError."""
    sizes = sizes or {}
    with Progress(len(partitions), sum(sizes.get(each, 0) for each in partitions)) as progress:
        while moving := await admin.list_partition_reassignments(partitions):
            arrived = sum(sizes.get(each, 0) for each in partitions if each not in moving)
            if sizes and progress.is_drawn:
                arrived += await _bytes_under_way(admin, {each: moving[each].adding for each in moving}, sizes)
            progress.show(len(partitions) - len(moving), arrived)
            await asyncio.sleep(POLL_SECONDS)
        progress.show(len(partitions), progress.total_bytes)


async def _bytes_under_way(
    admin: Admin, adding: Mapping[TopicPartition, Collection[int]], sizes: Mapping[TopicPartition, int]
) -> int:
    """Return the bytes that the slowest new replica of each partition has received, summed up; a broker that does not
    report its directories counts as 0.
    """
    from oncelog.admin.log_dirs import LogDirectory
    from oncelog.errors import KafkaError

    try:
        found = await admin.describe_log_dirs({node for nodes in adding.values() for node in nodes})
    except KafkaError:
        return 0
    copied: dict[TopicPartition, list[int]] = {}
    for directories in found.values():
        for directory in directories.values():
            if isinstance(directory, LogDirectory):
                for each, replica in directory.replicas.items():
                    copied.setdefault(each, []).append(replica.size)
    return sum(min(min(copied.get(each, [0])), sizes.get(each, 0)) for each in adding)


class Progress:
    """Shows a bar on a terminal, otherwise a line for each partition that arrives."""

    def __init__(self, partitions: int, total_bytes: int) -> None:
        self.partitions = partitions
        self.total_bytes = total_bytes
        self.is_drawn = sys.stderr.isatty()
        """Whether a bar is drawn; the bytes of arriving replicas advance the bar."""
        self._told = -1
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        if self.is_drawn:
            self._bar = _bar(with_bytes=self.total_bytes > 0)
            self._bar.start()
            self._task = self._bar.add_task("", total=self.total_bytes or self.partitions)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, arrived: int, arrived_bytes: int) -> None:
        """Show how many partitions, and bytes, have arrived."""
        text = f"{arrived} of {count(self.partitions, 'partition')} arrived"
        if self._bar is not None:
            completed = arrived_bytes if self.total_bytes else arrived
            self._bar.update(self._task, completed=completed, description=text)
        elif arrived != self._told and (arrived or self._told >= 0):
            tell(text)
        self._told = arrived


def _bar(*, with_bytes: bool) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, ProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns: list[ProgressColumn] = [TextColumn("{task.description}"), BarColumn()]
    if with_bytes:
        columns += [DownloadColumn(), TimeRemainingColumn()]
    return Bar(*columns, console=Console(stderr=True, highlight=False))

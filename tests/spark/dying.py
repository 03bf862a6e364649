"""Defines `format("dying")`, a version of format("oncelog") for tests: a process that reaches a named point dies there,
or raises an exception, as often as an option says.

The option dieAt names the point:

- `before the rows`: a task dies before its first row.
- `rows sent`: a task dies before it has flushed its rows.
- `rows flushed`: a task dies before it reports its rows.
- `reading`: a task dies when it has read its first Arrow batch.
- `decision`: the commit worker dies just before it writes the decision to commit the batch.
- `decided`: the commit worker dies after it has written the decision to commit, before it ends any transaction.
- `committing`: any process that is about to commit a decided transaction dies, even a process that aborts the batch.
- `one ended`: the commit worker dies after it has ended the first transaction.
- `all ended`: the commit worker dies after it has ended the last transaction.

The option dieHow says how the process dies at the point, or what else happens:

- `kill`: the process kills itself with -9.
- `raise`: the process raises Raised.
- `stand`: the process pauses at the point until another process kills it.
- `driver`: the process kills the JVM whose process id is diePid, and itself.
- `jvm`: the process kills itself and the JVM that has started it, which belongs to the driver or to an executor.
- `executor`: the process kills the JVM whose daemon has started it, and itself.
- `broker`: the process kills the process diePid, and continues.

The file dieFile records how often a process has died or raised there, up to dieTimes (1 by default). diePart is the
task that dies; by
default it is the first task that reaches the point.

Workers import this module by its name, because Spark sends them only names.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from pyspark import TaskContext

from oncelog_pipeline.sink.digest import RowCounter
from oncelog_pipeline.spark.batch_reader import BatchReader
from oncelog_pipeline.spark.data_source import OncelogDataSource
from oncelog_pipeline.spark.older_reader import OlderStreamReader
from oncelog_pipeline.spark.pyspark_api import HAS_READ_LIMITS
from oncelog_pipeline.spark.stream_reader import StreamReader
from oncelog_pipeline.spark.writers import BatchWriter, StreamWriter

OPTIONS = ("dieAt", "dieFile", "dieTimes", "dieHow", "diePid", "diePart")
STANDS_SECONDS = 600


class Raised(Exception):
    """The exception that a process raises at the named point with the option dieHow=raise."""


@dataclass(frozen=True)
class Death:
    at: str = "nowhere"
    file: str = ""
    times: int = 1
    how: str = "kill"
    pid: int = 0
    part: int | None = None

    def strike(self, point: str) -> None:
        """If this point and this task are the chosen ones, die, raise the exception Raised, or pause, as `how` says."""
        if point != self.at or not self._is_meant():
            return
        # A lock protects the append to the file, because two tasks may reach this point simultaneously.
        descriptor = os.open(self.file, os.O_CREAT | os.O_APPEND | os.O_RDWR)
        os.lockf(descriptor, os.F_LOCK, 0)
        done = os.fstat(descriptor).st_size
        if done < self.times:
            os.write(descriptor, b".")
        os.close(descriptor)
        if done >= self.times:
            return
        if self.how == "raise":
            raise Raised(point)
        if self.how == "stand":
            time.sleep(STANDS_SECONDS)
        if self.how in ("driver", "broker"):
            os.kill(self.pid, signal.SIGKILL)
        if self.how == "jvm":
            os.kill(next(each.pid for each in psutil.Process().parents() if each.name() == "java"), signal.SIGKILL)
        if self.how == "executor":
            daemon = psutil.Process().parent()
            os.kill(daemon.ppid(), signal.SIGKILL)
        if self.how != "broker":
            os.kill(os.getpid(), signal.SIGKILL)

    def _is_meant(self) -> bool:
        context = TaskContext.get()
        return self.part is None or (context is not None and context.partitionId() == self.part)


class DyingOwner:
    def __init__(self, owner: Any, death: Death) -> None:
        self._owner, self._death = owner, death

    async def write(self, state: Any) -> None:
        if state.transactions:
            self._death.strike("decision")
        await self._owner.write(state)
        if state.transactions:
            self._death.strike("decided")

    async def close(self) -> None:
        await self._owner.close()


class DyingCluster:
    """The sink's connection to the real cluster; the process dies at the named points of its calls."""

    def __init__(self, cluster: Any, death: Death) -> None:
        self._cluster, self._death = cluster, death

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    async def own(self, query: Any) -> DyingOwner:
        return DyingOwner(await self._cluster.own(query), self._death)

    async def end(self, transactions: Sequence[Any], *, commits: bool) -> list[bool]:
        if not transactions:
            return []
        if commits:
            self._death.strike("committing")
        if commits and self._death.at == "one ended":
            await self._cluster.end(transactions[:1], commits=commits)
            self._death.strike("one ended")
        have_ended: list[bool] = await self._cluster.end(transactions, commits=commits)
        if commits:
            self._death.strike("all ended")
        return have_ended


class DyingWriter:
    death = Death()

    async def cluster(self) -> Any:
        return DyingCluster(await super().cluster(), self.death)  # type: ignore[misc]

    async def send(self, sender: Any, rows: Iterator[Any], task: int, batch: int) -> None:
        # if the batch is a replay, its rows are counted, not sent, so the task does not die here
        if isinstance(sender, RowCounter):
            await super().send(sender, rows, task, batch)  # type: ignore[misc]
            return
        self.death.strike("before the rows")
        await super().send(sender, rows, task, batch)  # type: ignore[misc]
        self.death.strike("rows sent")
        await sender.producer.flush()
        self.death.strike("rows flushed")


class DyingStreamWriter(DyingWriter, StreamWriter):
    pass


class DyingBatchWriter(DyingWriter, BatchWriter):
    pass


class DyingReader:
    death = Death()

    def read(self, partition: Any) -> Iterator[Any]:
        for batch in super().read(partition):  # type: ignore[misc]
            yield batch
            self.death.strike("reading")

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_ends": None}


class DyingStreamReader(DyingReader, StreamReader if HAS_READ_LIMITS else OlderStreamReader):  # type: ignore[misc]
    pass


class DyingBatchReader(DyingReader, BatchReader):
    pass


class DyingDataSource(OncelogDataSource):
    def __init__(self, options: MutableMapping[str, str]) -> None:
        told = {name: options.pop(name) for name in OPTIONS if name in options}
        super().__init__(options)
        part = told.get("diePart")
        self.death = Death(
            told.get("dieAt", "nowhere"),
            told.get("dieFile", ""),
            int(told.get("dieTimes", "1")),
            told.get("dieHow", "kill"),
            int(told.get("diePid", "0")),
            None if part is None else int(part),
        )

    @classmethod
    def name(cls) -> str:
        return "dying"

    def _dying(self, made: Any, kind: type) -> Any:
        other = kind.__new__(kind)
        other.__dict__.update(made.__dict__, death=self.death)
        return other

    def reader(self, schema: Any) -> Any:
        return self._dying(super().reader(schema), DyingBatchReader)

    def streamReader(self, schema: Any) -> Any:
        return self._dying(super().streamReader(schema), DyingStreamReader)

    def writer(self, schema: Any, overwrite: bool) -> Any:
        return self._dying(super().writer(schema, overwrite), DyingBatchWriter)

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        return self._dying(super().streamWriter(schema, overwrite), DyingStreamWriter)


def has_died(file: str | Path) -> int:
    """Return how many deaths of processes the file dieFile records."""
    path = Path(file)
    return path.stat().st_size if path.exists() else 0

"""Runs an entire Spark application, with its driver, in a separate process, so that a test can kill it.

python driver_process.py SPEC       (JSON: the fields of `streams.Stream`, and those of `Application`)
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from own_process import run_file
from streams import Stream


@dataclass(frozen=True)
class Application:
    """`foreach_batch` is the path of a file: the batches are written by `df.write` inside foreachBatch, and the driver
    dies after the first batch, because that batch creates the file. With `is_batch_write` the records are read as a
    table and written by one `df.write` without a writeId; the driver dies as the stream's options say.
    """

    stream: Stream
    master: str = "local[2,3]"
    settings: Mapping[str, str] = field(default_factory=dict)
    foreach_batch: str = ""
    is_batch_write: bool = False


def dies(application: Application) -> None:
    """Run the application and check that it fails."""
    done = run_file(__file__, asdict(application))
    assert done.returncode != 0, done.stdout


def succeeds(application: Application) -> None:
    done = run_file(__file__, asdict(application))
    assert done.returncode == 0, done.stderr[-4000:]


def _main() -> None:
    from spark_session import started

    told = json.loads(sys.argv[1])
    stream = Stream(**told["stream"])
    with started(told["settings"], told["master"]) as spark:
        pid = spark.sparkContext._gateway.proc.pid  # the process id of the JVM, which has replaced the launching shell
        if told["foreach_batch"]:
            _write_in_foreach_batch(spark, stream, Path(told["foreach_batch"]), pid)
        elif told["is_batch_write"]:
            _write_once(spark, stream, pid)
        else:
            writes = dict(stream.writes) | {"diePid": str(pid)}
            Stream(stream.address, stream.source, stream.target, stream.checkpoint, stream.reads, writes).run(spark)


def _write_in_foreach_batch(spark: Any, stream: Stream, file: Path, pid: int) -> None:
    def write(table: Any, number: int) -> None:
        options = {"kafka.bootstrap.servers": stream.address, "topic": stream.target, "writeId": "only"}
        table.select("key", "value").write.format("oncelog").options(**options).mode("append").save()
        if not file.exists():
            file.touch()
            os.kill(pid, signal.SIGKILL)

    reads = {"kafka.bootstrap.servers": stream.address, "subscribe": stream.source, "startingOffsets": "earliest"}
    table = spark.readStream.format("oncelog").options(**reads, **stream.reads).load()
    query = table.writeStream.foreachBatch(write).option("checkpointLocation", stream.checkpoint)
    query.trigger(availableNow=True).start().awaitTermination()


def _write_once(spark: Any, stream: Stream, pid: int) -> None:
    from dying import DyingDataSource

    spark.dataSource.register(DyingDataSource)
    servers = {"kafka.bootstrap.servers": stream.address}
    table = spark.read.format("oncelog").options(**servers, subscribe=stream.source, minPartitions="3").load()
    writes = servers | {"topic": stream.target, "diePid": str(pid)} | dict(stream.writes)
    table.select("key", "value").write.format("dying").options(**writes).mode("append").save()


if __name__ == "__main__":
    _main()

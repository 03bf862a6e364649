"""Runs Spark's own Kafka connector with an oncelog broker in a separate process, because the connector's jars must be
present when the JVM starts.

python connector_process.py SPEC (JSON: the fields of `Work`; prints JSON: the result of each step)
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from own_process import run_file
from streams import again_if_late, produce

ROWS = 500


@dataclass(frozen=True)
class Work:
    """The arguments of the process: address and topics. The topic `filled` has records, some of them aborted; the other
    topics are empty.
    """

    address: str
    jars: Sequence[str]
    filled: str
    written: str
    streamed: str
    handed_over: str
    checkpoints: str


def run(work: Work) -> dict[str, Any]:
    """Run the process, and return the result of each step. Raises AssertionError if the process fails."""
    done = run_file(__file__, asdict(work))
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


class Connector:
    def __init__(self, spark: Any, work: Work) -> None:
        self.spark, self.work = spark, work
        self.servers = {"kafka.bootstrap.servers": work.address}

    def writes_a_table(self) -> None:
        table = self.spark.range(0, ROWS, 1, 3).selectExpr(
            "cast(id % 7 as string) as key",
            "cast(id as string) as value",
            "array(struct('h' as key, cast(cast(id as string) as binary) as value)) as headers",
        )
        options = self.servers | {"topic": self.work.written, "includeHeaders": "true"}
        table.write.format("kafka").options(**options).mode("append").save()

    def reads(self, level: str) -> list[str]:
        """Read all records with this isolation level, and return their values."""
        options = self.servers | {"subscribePattern": f"{self.work.filled}.*", "kafka.isolation.level": level}
        table = self.spark.read.format("kafka").options(**options).option("includeHeaders", "true").load()
        return sorted(row.value for row in table.selectExpr("cast(value as string) as value").collect())

    def streams(self) -> None:
        """Stream from oncelog's source to the connector's sink."""
        table = self._stream("oncelog").selectExpr("key", "value")
        self._until_done(
            table.writeStream.format("kafka").options(**self.servers, topic=self.work.streamed), "streamed"
        )

    def hands_over(self, source: str) -> None:
        """Stream from `source` into oncelog's sink, always with the same checkpoint."""
        table = self._stream(source).selectExpr("key", "value")
        options = self.servers | {"topic": self.work.handed_over}
        self._until_done(table.writeStream.format("oncelog").options(**options), "handed-over")

    def _stream(self, source: str) -> Any:
        options = self.servers | {
            "subscribe": self.work.filled,
            "startingOffsets": "earliest",
            "kafka.isolation.level": "read_committed",
        }
        return self.spark.readStream.format(source).options(**options).load()

    def _until_done(self, writer: Any, name: str) -> None:
        writer = writer.option("checkpointLocation", f"{self.work.checkpoints}/{name}").trigger(availableNow=True)
        again_if_late(lambda: writer.start().awaitTermination())


def _main() -> None:
    from spark_session import started

    work = Work(**json.loads(sys.argv[1]))
    with started({"spark.jars": ",".join(work.jars)}) as spark:
        connector = Connector(spark, work)
        connector.writes_a_table()
        found: dict[str, Any] = {level: connector.reads(level) for level in ("read_committed", "read_uncommitted")}
        connector.streams()
        found["handed over"] = _hand_over(connector)
    print(json.dumps(found))


def _hand_over(connector: Connector) -> str:
    """Alternate between the connector's source and oncelog's source, with new records each time.

    Returns the reason if the connector's stream source requires another version of Spark.
    """
    for turn, source in enumerate(("kafka", "oncelog", "kafka")):
        produce(connector.work.address, connector.work.filled, [b"turn %d" % turn])
        try:
            connector.hands_over(source)
        except Exception as error:
            if "NoSuchMethodError" not in str(error) and "NoClassDefFoundError" not in str(error):
                raise
            return str(error)[:300]
    return ""


if __name__ == "__main__":
    _main()

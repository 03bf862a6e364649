"""A forked process of Spark imports nothing and compiles nothing of its own: the template process has done it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from streams import create, produce, values

PROGRAM = """
import asyncio, sys
import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadAllAvailable
from oncelog_pipeline.spark import template_process

template_process.import_all()
pa.array([b"x"]).to_numpy(zero_copy_only=False)  # imports pandas, if installed
from oncelog_pipeline.options.sink_options import sink_options
from oncelog_pipeline.sink import exactly_once
from oncelog_pipeline.sink.names import Query
from oncelog_pipeline.sink.state import Batch
from oncelog_pipeline.spark.connections import connections
from oncelog_pipeline.spark.data_source import OncelogDataSource
from oncelog_pipeline.spark.row_sender import RowSender
from oncelog_protocol import codec

address, topic, action = sys.argv[1:]
codecs, modules = set(codec._codecs), set(sys.modules)
options = {"kafka.bootstrap.servers": address, "subscribe": topic, "startingOffsets": "earliest"}


def read():
    reader = OncelogDataSource(options).streamReader(None)
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert sum(batch.num_rows for part in reader.partitions(start, end) for batch in reader.read(part)) == 20


async def write():
    cluster = await connections().cluster(sink_options({"kafka.bootstrap.servers": address, "topic": topic}))
    batch = Batch(Query("q"), "run", 0)

    async def rows(producer):
        table = pa.RecordBatch.from_pydict({"key": pa.array(["k", "l"]), "value": pa.array(["v", "w"])})
        await RowSender(producer, topic, 0, 0).send_all(iter([table]))

    await exactly_once.commit(cluster, batch, [await exactly_once.write_task(cluster, batch, 0, 0, 0, rows)])


read() if action == "read" else connections().run(write())
print(*(f"{cls.__name__}:{version}" for cls, version in set(codec._codecs) - codecs))
print(*(set(sys.modules) - modules))
"""

OF_A_NEW_STATE_TOPIC = {
    "CreateTopicsRequest:7",
    "CreateTopicsResponse:7",
    "oncelog_protocol.messages.create_topics",
}
"""The sink creates its state topic once in the life of a cluster."""


@pytest.mark.parametrize("action", ["read", "write"])
def test_a_query_finds_all_modules_and_codecs(address: str, topic: str, action: str) -> None:
    create(address, topic)
    produce(address, topic, values(20))
    program = [sys.executable, "-c", PROGRAM, address, topic, action]
    found = subprocess.run(program, capture_output=True, text=True, timeout=60, check=True)
    assert set(found.stdout.split()) - OF_A_NEW_STATE_TOPIC == set()

"""Options are checked in load() and save(), before any record is read or written."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import BinaryType, StructField, StructType

from oncelog_pipeline.options.reading import OptionError
from oncelog_pipeline.spark.data_source import OncelogDataSource

SERVERS = {"kafka.bootstrap.servers": "a:1"}
VALUE = StructType([StructField("value", BinaryType())])


def refusal(**options: str) -> str:
    with pytest.raises(OptionError) as caught:
        OncelogDataSource(SERVERS | options).schema()
    return str(caught.value)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "exactly one of subscribe"),
        ({"subscribe": "a", "assign": '{"a":[0]}'}, "found subscribe and assign"),
        ({"subscribe": "a", "startingOffsets": "{"}, "startingOffsets"),
        ({"subscribe": "a", "endingOffsets": "earliest"}, "endingOffsets=earliest"),
        ({"subscribe": "a", "kafka.sasl.kerberos.service.name": "kafka"}, "Kerberos (GSSAPI) is not supported"),
        ({"subscribe": "a", "kafka.fetch.max.bytes": "many"}, "whole number"),
    ],
)
def test_a_mistake_is_told_at_load(options: dict[str, str], why: str) -> None:
    assert why in refusal(**options)


@pytest.mark.parametrize(
    "options", [{"endingOffsets": "latest"}, {"startingOffsets": "latest"}, {"startingOffsets": "earliest"}]
)
def test_valid_options_of_a_stream_or_a_batch_pass(options: dict[str, str]) -> None:
    assert "value binary" in OncelogDataSource({**SERVERS, "subscribe": "a", **options}).schema()


def test_a_topic_is_not_overwritten() -> None:
    source = OncelogDataSource({**SERVERS, "topic": "a"})
    with pytest.raises(OptionError, match=r'mode\("append"\) adds'):
        source.writer(VALUE, overwrite=True)
    OncelogDataSource({**SERVERS, "topic": "a", "writeId": "a"}).writer(VALUE, overwrite=False)
    source.streamWriter(VALUE, overwrite=True)  # in output mode complete each batch appends its entire result


def test_planning_a_query_does_not_import_what_only_tasks_need() -> None:
    """Spark starts a Python process for each planning step, and these imports would take 30 ms in each process."""
    program = "import sys, oncelog_pipeline.spark.data_source; print('pyarrow.compute' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "False"

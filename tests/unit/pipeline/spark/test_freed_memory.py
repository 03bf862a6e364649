"""Memory that a writing task frees stays in its worker, for the next Arrow batch."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import BinaryType, StructField, StructType

from oncelog_pipeline.spark.data_source import OncelogDataSource
from oncelog_pipeline.spark.freed_memory import keep_freed_memory
from oncelog_pipeline.spark.identity import UnknownQuery

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc's allocator")

PROGRAM = """
import resource, sys
from oncelog_pipeline.spark.freed_memory import keep_freed_memory

def fill() -> None:
    for _ in range(20):
        held = [b"x" * (1 << 20) for _ in range(8)]
        del held

if sys.argv[1] == "kept":
    assert keep_freed_memory() and keep_freed_memory()
fill()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
fill()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    """Page faults of a process that holds eight buffers of 1 MiB and frees them, again and again."""
    found = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True)
    return int(found.stdout)


def test_buffers_are_allocated_again_without_page_faults() -> None:
    assert faults("kept") < 100 < faults("returned")


def test_a_task_that_writes_keeps_freed_memory() -> None:
    keep_freed_memory.cache_clear()
    source = OncelogDataSource({"kafka.bootstrap.servers": "a:1", "topic": "t"})
    writer = source.streamWriter(StructType([StructField("value", BinaryType())]), overwrite=False)
    with pytest.raises(UnknownQuery):  # as this is no task
        writer.write(iter([]))
    assert keep_freed_memory.cache_info().misses == 1

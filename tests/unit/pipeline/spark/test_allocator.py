"""A process that has called `keep_freed_memory` needs no new pages from the kernel for buffers it has freed before."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

PROGRAM = """
import resource, sys
from oncelog_pipeline.spark.allocator import keep_freed_memory

if sys.argv[1] == "kept":
    keep_freed_memory()

def use():
    return [bytearray(2 << 20) for _ in range(6)]

for _ in range(3):
    use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
PAGES = 10 * 6 * (2 << 20) // 4096
"""The pages of all buffers of the measured rounds."""


def faults(what: str) -> int:
    program = [sys.executable, "-c", PROGRAM, what]
    return int(subprocess.run(program, capture_output=True, text=True, timeout=60, check=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has these parameters")
def test_freed_buffers_are_used_again() -> None:
    assert faults("kept") < PAGES / 20
    assert faults("not kept") > PAGES / 2, "without the parameters the buffers are returned to the system"

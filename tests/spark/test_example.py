"""Tests that the example of docs/spark.md does what the page says."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from examples import spark_exactly_once as example
from streams import again_if_late

REPOSITORY = Path(__file__).parents[2]
RECORDS = 6_000


@pytest.mark.soak
def test_the_stream_of_the_example_runs(spark: Any, address: str, topic: str, checkpoint: str) -> None:
    names = {"source": topic, "target": f"{topic}-out"}
    asyncio.run(example.fill(address, RECORDS, **names))
    again_if_late(lambda: example.squares(spark, address, checkpoint, **names).awaitTermination())
    told = asyncio.run(example.check(address, RECORDS, names["target"]))
    assert told == "6,000 of 6,000 numbers: 0 more than once, 0 missing"


@pytest.mark.soak
@pytest.mark.timeout(1500)
def test_the_example_survives_kill_9_of_its_driver(address: str, tmp_path: Path) -> None:
    """The test kills the driver after the first batch and starts the example again, as the page tells its reader to
    do.
    """

    def command(step: str) -> list[str]:
        options = ["--servers", address, "--records", "20000", "--checkpoint", str(tmp_path / "checkpoint")]
        return [sys.executable, "-m", "examples.spark_exactly_once", step, *options]

    subprocess.run(command("fill"), cwd=REPOSITORY, check=True)
    with subprocess.Popen(
        command("run"), cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        pid = 0
        for line in process.stdout:
            if line.startswith("the driver is process "):
                pid = int(line.split()[4].rstrip(":"))
            if line.startswith("batch "):
                os.kill(pid, signal.SIGKILL)
                break
        process.stdout.read()
    assert process.returncode != 0
    assert (
        "everything is written"
        in subprocess.run(command("run"), cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout
    )
    told = subprocess.run(command("check"), cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout
    assert told == "20,000 of 20,000 numbers: 0 more than once, 0 missing\n"

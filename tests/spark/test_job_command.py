"""Tests `oncelog pipeline` with real processes: a job is killed with -9 and started again; then its topics are audited,
archived and restored.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from spark_session import SETTINGS
from streams import committed, create

from oncelog import Producer

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1500)]

ROWS = 2000
JOB = """
[input]
bootstrap = "{address}"
topics = ["{topic}"]
options.maxOffsetsPerTrigger = 200
[transform]
sql = "SELECT key, upper(CAST(value AS STRING)) AS value FROM input"
[output]
topic = "{topic}-out"
[checkpoint]
location = "checkpoint"
"""


def spark_options() -> list[str]:
    settings = SETTINGS | {"spark.master": "local[2,3]"}
    return [option for name, value in settings.items() for option in ("--spark", f"{name}={value}")]


def oncelog(*arguments: str, code: int = 0) -> str:
    done = subprocess.run([oncelog_path(), "pipeline", *arguments], capture_output=True, text=True, timeout=600)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


def oncelog_path() -> str:
    return str(Path(sys.executable).with_name("oncelog"))


async def fill(address: str, topic: str) -> None:
    async with Producer(address) as producer:
        for number in range(ROWS):
            await producer.send(topic, b"row %d" % number, b"%d" % number, partition=number % 2)


def killed_after(path: Path, batches: int) -> None:
    """Run the job until it has reported this many batches; then kill the process and its JVM immediately."""
    process = subprocess.Popen(
        [oncelog_path(), "pipeline", "run", str(path)], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    for _ in range(batches):
        assert process.stdout.readline()
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_a_job_survives_kill_9(address: str, topic: str, tmp_path: Path) -> None:
    """Whatever the job was doing when it was killed, each row exists once, and the final audit reports no fault."""
    target = f"{topic}-out"
    create(address, topic, target)
    asyncio.run(fill(address, topic))
    path = tmp_path / "job.toml"
    settings = "".join(f'"{name}" = "{value}"\n' for name, value in (SETTINGS | {"spark.master": "local[2,3]"}).items())
    path.write_text(JOB.format(address=address, topic=topic) + "[spark]\n" + settings)
    killed_after(path, 1)
    killed_after(path, 2)
    lines = oncelog("run", str(path), "--available-now").splitlines()
    assert lines[-1].split("\t")[4] == "0", "no lag is left"
    found = Counter(record.value for record in committed(address, target))
    assert found == Counter(b"ROW %d" % number for number in range(ROWS))
    servers = ["-b", address, *spark_options()]
    assert oncelog("audit", topic, target, *servers) == ""
    oncelog("archive", target, "--to", str(tmp_path / "archive"), *servers)
    restored = oncelog("restore", "--from", str(tmp_path / "archive"), "--as", f"{topic}-again", *servers)
    assert restored.split("\t") == [target, "2", str(ROWS), f"{topic}-again\n"]
    again: list[Any] = committed(address, f"{topic}-again")
    assert Counter(record.value for record in again) == found

"""Tests the commands of docs/spark.md that copy the package to executors. The commands use this checkout in place of
the release, and use nothing from the environment of the tests.

The test installs from a package registry, and packs some hundred megabytes, so `make spark-tests` runs it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.find_spark_home import _find_spark_home
from spark_session import SETTINGS
from streams import committed_values, create, produce, values

from oncelog_pipeline.spark.java import set_java_home

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1200)]

REPOSITORY = Path(__file__).parents[2]
PAGE = REPOSITORY / "docs" / "spark.md"
RELEASE = "'oncelog[executor]'"
ROWS = 100
SECONDS = 900

JOB = """
import json, sys
from pyspark.sql import SparkSession

address, source, target, checkpoint = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
(
    spark.readStream.format("oncelog").option("kafka.bootstrap.servers", address)
    .option("subscribe", source).option("startingOffsets", "earliest").load().select("key", "value")
    .writeStream.format("oncelog").option("kafka.bootstrap.servers", address)
    .option("topic", target).option("checkpointLocation", checkpoint)
    .trigger(availableNow=True).start().awaitTermination()
)

def where(_):
    import oncelog_pipeline, pyarrow
    yield sys.prefix, oncelog_pipeline.__file__, pyarrow.__file__

executors = spark.sparkContext.range(2).mapPartitions(where).collect()
print("told", json.dumps({"driver": next(where(None)), "executors": executors}))
spark.stop()
"""


def commands() -> list[str]:
    """Return the commands on the page that create the archive, and submit a job with it."""
    (block,) = (each for each in re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.S) if "venv-pack" in each)
    lines = [line.partition("  #")[0].strip() for line in block.splitlines()]
    assert lines[-1].endswith(" job.py")
    assert sum(RELEASE in line for line in lines) == 1
    return [line.replace(RELEASE, f"-c {REPOSITORY}/constraints.txt '{REPOSITORY}[executor]'") for line in lines]


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """A directory for the archive and its unpacked copies, which is removed after the test because they are large."""
    made = tmp_path / "packaging"
    made.mkdir()
    yield made
    shutil.rmtree(made)


def test_an_archive_is_all_that_executors_need(address: str, topic: str, directory: Path) -> None:
    set_java_home()
    create(address, topic, f"{topic}-out")
    produce(address, topic, values(ROWS))
    (directory / "job.py").write_text(JOB)
    conf = directory / "conf"
    conf.mkdir()
    settings = SETTINGS | {"spark.master": "local-cluster[1,2,512]", "spark.executor.memory": "512m"}
    (conf / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    environment = {name: os.environ[name] for name in ("HOME", "JAVA_HOME") if name in os.environ}
    environment |= {
        "PATH": os.pathsep.join(
            [f"{_find_spark_home()}/bin", str(Path(sys._base_executable).parent), os.environ["PATH"]]
        ),
        "SPARK_HOME": _find_spark_home(),
        "SPARK_CONF_DIR": str(conf),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    *makes, submits = commands()
    for line in makes:
        made = run(line, directory, environment)
        if made.returncode and "pip install" in line:
            pytest.skip(f"nothing can be installed here: {made.stderr[-300:]}")
        assert made.returncode == 0, f"{line}: {made.stderr}"
    done = run(f"{submits} {address} {topic} {topic}-out {directory}/checkpoint", directory, environment)
    assert done.returncode == 0, done.stderr[-4000:]
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("told "))
    told = json.loads(line.removeprefix("told "))
    assert told["driver"][0] == str(directory / "env")
    for place in told["executors"]:
        assert all("/env/" in f"{part}/" and str(directory) not in part for part in place), place
    assert committed_values(address, f"{topic}-out") == Counter(values(ROWS))


def run(script: str, directory: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )

"""The programs of long-running make targets start, so all of their imports exist.

A failing import could otherwise stay unnoticed for weeks.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CALL = re.compile(r"(?:PYTHONPATH=(?P<path>\S+) )?\$\(BIN\)/python (?:-m )?(?P<program>[\w./]+)")
WITHOUT_HELP = {"compose_test", "oncelog_broker.local_cluster.java", "oncelog_broker.local_cluster.zookeeper_jars",
                "oncelog_pipeline.spark.java", "pip", "deploy/verify_unit.py", "deploy/make_dist.py",
                "deploy/make_release.py", "deploy/audit.py", "tests.support.helm",
                "tests.support.prometheus"}  # fmt: skip
"""Programs without arguments; `make test` or `make lint` runs nearly all of them. The programs for helm and Prometheus
may build or fetch for minutes.
"""
WITH_SPARK = {"spark_soak"}
"""Programs whose make targets first install PySpark (`make pipeline`). `make check` runs these tests without PySpark.
"""


def programs() -> dict[str, str]:
    """Return the programs that the Makefile runs, each with its PYTHONPATH."""
    calls = CALL.finditer((ROOT / "Makefile").read_text().replace("\\\n", " "))
    return {call["program"]: call["path"] or "" for call in calls if call["program"] not in WITHOUT_HELP}


def test_all_long_programs_are_found() -> None:
    assert programs().keys() >= {"soak", "kill_matrix", "cluster_matrix", "fuzz", "hostile", "bench/run.py"}


@pytest.mark.parametrize("program", programs())
def test_a_long_program_starts(program: str) -> None:
    if program in WITH_SPARK:
        pytest.importorskip("pyspark")
    command = [program] if program.endswith(".py") else ["-m", program]
    done = subprocess.run(
        [sys.executable, *command, "--help"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": programs()[program]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr

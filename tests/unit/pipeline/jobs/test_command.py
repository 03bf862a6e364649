"""`oncelog pipeline` without its requirements prints one line that says what to do, without a traceback."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from oncelog.cli.group import cli

JOB = """
[input]
bootstrap = "127.0.0.1:1"
topics = ["orders"]
[output]
topic = "bills"
[checkpoint]
location = "checkpoint"
"""
THEIRS = (
    "oncelog_pipeline.jobs.archive.reading",
    "oncelog_pipeline.jobs.archive.writing",
    "oncelog_pipeline.jobs.query",
)
"""Modules of oncelog that import PySpark and may already be loaded."""


def oncelog(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["pipeline", *arguments])


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    path = tmp_path / "job.toml"
    path.write_text(JOB)
    return path


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    class Nothing(MetaPathFinder):
        def find_spec(self, name: str, *_: Any) -> None:
            if name.partition(".")[0] in ("pyspark", "pyarrow"):
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    for name in list(sys.modules):
        if name.partition(".")[0] in ("pyspark", "pyarrow") or name in THEIRS:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Nothing(), *sys.meta_path])


def test_a_file_is_checked_without_spark(job_file: Path, without_spark: None) -> None:
    result = oncelog("run", "--check", str(job_file))
    assert (result.exit_code, result.output) == (0, "job.toml is right\n")


def test_a_wrong_job_file_is_refused(job_file: Path) -> None:
    job_file.write_text(JOB.replace("topics", "topcis"))
    result = oncelog("run", str(job_file))
    assert result.exit_code == 1
    assert result.output.startswith("oncelog: job.toml, line 4: input.topcis is not a key: did you mean 'topics'?")


def test_a_missing_spark_is_reported(job_file: Path, without_spark: None) -> None:
    for arguments in (["run", str(job_file)], ["restore", "--from", "x"], ["archive", "x", "--to", "y"]):
        result = oncelog(*arguments)
        assert result.exit_code == 1, arguments
        assert "is not installed: pip install 'oncelog[pipeline]'" in result.output
        assert "Traceback" not in result.output


def test_the_checkpoint_of_another_query_is_refused(job_file: Path) -> None:
    offsets = job_file.parent / "checkpoint" / "offsets"
    offsets.mkdir(parents=True)
    for batch, topic in ((9, "orders"), (10, "rates")):
        (offsets / str(batch)).write_text(f'v1\n{{}}\n{{"{topic}":{{"0":5}}}}\n')
    result = oncelog("run", str(job_file))
    assert result.exit_code == 1
    assert "is the checkpoint of another query: it has read rates, which this job does not" in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["audit", "orders", "--by", "key"],
        ["audit", "orders", "--sequence", "$.n"],
        ["audit", "orders", "--by", "key", "--sequence", "$.n", "--sequence-header", "n"],
        ["audit"],
        ["archive", "orders"],
        ["restore"],
    ],
)
def test_wrong_usage_is_refused(arguments: list[str]) -> None:
    assert oncelog(*arguments).exit_code == 2

"""A command that makes no progress reports the reason once."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from oncelog.cli import patience
from oncelog.cli.group import cli
from oncelog.cli.patience import PATIENCE_SECONDS, Patience
from oncelog.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.produce import ProduceRequest, ProduceResponse

TOO_FEW = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "1 replicas in sync, min.insync.replicas=2")
MOVED = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "elsewhere")


class Said:
    """Records the reports about logged failures, at times that the test chooses."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.seconds = 0.0
        self.handler = Patience(self.lines.append, lambda: self.seconds)

    def log(self, message: str, *arguments: Any) -> None:
        self.handler.handle(logging.LogRecord("oncelog.x", logging.INFO, "", 0, message, arguments, None))


def test_a_repeated_failure_is_reported_once() -> None:
    said = Said()
    for _ in range(10):
        said.log("%s-%d: sending again after %s", "orders", 0, TOO_FEW)
        said.seconds += PATIENCE_SECONDS / 3
    (line,) = said.lines
    assert line.startswith("still trying: orders-0: sending again after NOT_ENOUGH_REPLICAS")
    assert line.endswith("Are brokers down? (oncelog topics describe TOPIC shows the in-sync replicas)")


def test_a_brief_failure_is_not_reported() -> None:
    said = Said()
    said.log("%s: retrying after %s", "orders-0", MOVED)
    said.seconds += PATIENCE_SECONDS / 2
    said.log("%s: retrying after %s", "orders-0", MOVED)
    said.log("connected to %s", "127.0.0.1:9092")
    said.log("nothing to format")
    assert said.lines == []


def test_each_reason_is_reported() -> None:
    said = Said()
    for _ in range(2):
        said.log("%s", TOO_FEW)
        said.log("%s", MOVED)
        said.seconds += PATIENCE_SECONDS
    assert [line.split("(")[0] for line in said.lines] == [
        "still trying: NOT_ENOUGH_REPLICAS",
        "still trying: NOT_LEADER_OR_FOLLOWER",
    ]


async def test_oncelog_produce_says_that_too_few_replicas_are_in_sync(
    fake_broker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command keeps waiting after the report: when the replicas return, the record is acknowledged."""
    monkeypatch.setattr(patience, "PATIENCE_SECONDS", 0.0)
    codes = [ErrorCode.NOT_ENOUGH_REPLICAS] * 3

    def produced(request: ProduceRequest) -> ProduceResponse:
        if not codes:
            return fake_broker.on_produce(request)
        code = codes.pop()
        return fake_broker.produced(request, lambda name, data: (code, -1))

    fake_broker.handlers[ProduceRequest] = produced
    (tmp_path / "lines").write_text("hi\n")
    command = ["produce", "topic", "-b", fake_broker.address, "--file", str(tmp_path / "lines")]
    done = await asyncio.to_thread(CliRunner().invoke, cli, command)
    assert done.exit_code == 0
    assert done.output.count("oncelog: still trying: topic-0: sending again after NOT_ENOUGH_REPLICAS") == 1
    assert done.output.endswith("1 of 1 record acknowledged\n")
    assert logging.getLogger("oncelog").handlers == []

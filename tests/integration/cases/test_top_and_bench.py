"""Tests `oncelog top`, `bench` and `configs` against a live broker."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from broker_process import BrokerProcess
from click.testing import CliRunner, Result
from raw_client import RawClient
from raw_transactions import RawTransactions

from oncelog.cli.group import cli

COMMAND = str(Path(sys.executable).parent / "oncelog")
TIMEOUT_SECONDS = 60

Oncelog = Callable[..., Result]


@pytest.fixture
def oncelog(broker: BrokerProcess) -> Oncelog:
    """Return a function that runs a command in this process until it ends; `code` is the expected exit code."""

    def run(*arguments: str, code: int = 0) -> Result:
        done = CliRunner().invoke(cli, arguments, env={"ONCELOG_BOOTSTRAP_SERVER": broker.address})
        assert done.exit_code == code, done.stderr
        return done

    return run


def test_consumed_records_equal_produced_ones(oncelog: Oncelog, topic: str) -> None:
    oncelog("topics", "create", topic, "--partitions", "2")
    wrote = json.loads(
        oncelog("bench", "produce", topic, "--records", "500", "--size", "10", "--output", "json").stdout
    )
    assert (wrote["records"], wrote["waits_for"]) == (500, "acknowledged")
    assert sum(bar["count"] for bar in wrote["histogram"]) == 500
    assert wrote["p50_ms"] <= wrote["p99_ms"] <= wrote["max_ms"]
    read = json.loads(oncelog("bench", "consume", topic, "--output", "json").stdout)
    assert read["records"] == 500
    few = oncelog("bench", "consume", topic, "--records", "7").stdout
    assert few.startswith("records\t7\n")


def test_transactions_are_committed_and_some_are_aborted(oncelog: Oncelog, topic: str) -> None:
    oncelog("topics", "create", topic)
    arguments = ("--transactions", "10", "--records", "3", "--aborts", "40")
    done = json.loads(oncelog("bench", "transactions", topic, *arguments, "--output", "json").stdout)
    assert done["transactions"] == 10
    committed = json.loads(oncelog("bench", "consume", topic, "--committed", "--output", "json").stdout)
    assert committed["records"] == 18, "six of ten"
    sent = json.loads(oncelog("bench", "consume", topic, "--output", "json").stdout)
    assert sent["records"] == 30, "what is aborted was written, too"


def test_a_load_that_the_broker_refuses_fails(oncelog: Oncelog, topic: str) -> None:
    oncelog("topics", "create", topic, "--config", "max.message.bytes=1000")
    arguments = ("--records", "10", "--size", "5000")
    assert "MESSAGE_TOO_LARGE" in oncelog("bench", "produce", topic, *arguments, code=1).stderr


def test_top_shows_who_writes_who_lags_and_what_is_open(broker: BrokerProcess, oncelog: Oncelog, topic: str) -> None:
    with RawClient(broker.port) as client:
        client.create_topic(topic)
        producer = RawTransactions(client, f"{topic}-id")
        producer.take_over()
        producer.write(topic)
        told = json.loads(oncelog("top", "--once", "--interval", "0.1", "--output", "json").stdout)
        assert [row["node_id"] for row in told["brokers"]] == [1]
        assert told["out_of_sync"] == []
        assert told["missing"] == {}
        (open_one,) = [each for each in told["transactions"] if each["transactional_id"] == f"{topic}-id"]
        assert open_one["partitions"] == [f"{topic}-0"]
        assert open_one["seconds"] >= 0
        assert producer.end() == 0
    plain = oncelog("top", "--interval", "0.1").stdout.splitlines()
    assert plain[0].startswith("brokers\t1\t127.0.0.1:")
    assert not any(f"{topic}-id" in line for line in plain)


def test_top_is_drawn_on_a_terminal_until_it_is_interrupted(broker: BrokerProcess) -> None:
    terminal, its_end = pty.openpty()
    environment = {**os.environ, "ONCELOG_BOOTSTRAP_SERVER": broker.address, "TERM": "xterm", "COLUMNS": "120"}
    process = subprocess.Popen(
        [COMMAND, "top", "--interval", "0.2"],
        stdout=its_end, stderr=subprocess.PIPE, env=environment,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    os.close(its_end)
    try:
        shown, deadline = b"", time.monotonic() + TIMEOUT_SECONDS
        while shown.count(b"records/s") < 2 and time.monotonic() < deadline:
            if select.select([terminal], [], [], 1.0)[0]:
                shown += os.read(terminal, 65536)
        assert b"1 brokers" in shown
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT_SECONDS) in (130, -signal.SIGINT)
    finally:
        process.kill()
        process.communicate()
        os.close(terminal)


def test_settings_are_set_shown_and_deleted(oncelog: Oncelog, topic: str) -> None:
    oncelog("topics", "create", topic)
    whose = ("--topic", topic)
    keys = ("retention.ms", "cleanup.policy")
    oncelog("configs", "set", "retention.ms=1000", "cleanup.policy=compact", *whose)
    oncelog("configs", "set", "retention.ms=5", *whose, "--check")
    shown = oncelog("configs", "describe", *keys, *whose).stdout.splitlines()
    assert shown == [
        f"topic {topic}\tcleanup.policy\tcompact\ttopic\tno",
        f"topic {topic}\tretention.ms\t1000\ttopic\tno",
    ]
    oncelog("configs", "delete", "retention.ms", *whose)
    assert "retention.ms" not in oncelog("configs", "describe", *whose).stdout
    assert "key: retention.ms" in oncelog("configs", "describe", "--all", *whose, "--output", "yaml").stdout
    assert "INVALID_CONFIG" in oncelog("configs", "set", "retention.ms=soon", *whose, code=1).stderr
    assert "log.dirs" in oncelog("configs", "describe", "--broker", "1").stdout

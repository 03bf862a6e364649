"""Tests the reasons for which `oncelog serve` refuses to start: the exit code is 1, and one line says what to do,
without a traceback.
"""

import socket
import subprocess
import sys
from pathlib import Path

import pytest
from broker_process import BrokerProcess

FREE_PORT = "listeners=PLAINTEXT://127.0.0.1:0"


def refusal(data: Path, *settings: str) -> str:
    """Start a broker that refuses, and return its message after `oncelog: cannot start: `."""
    command = [str(Path(sys.executable).parent / "oncelog"), "serve", "--data", str(data)]
    for setting in settings:
        command += ["--set", setting]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    start, _, reason = done.stderr.rstrip("\n").partition("oncelog: cannot start: ")
    assert start == ""
    assert "\n" not in reason
    return reason


def test_a_port_in_use_is_reported(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        reason = refusal(tmp_path / "data", f"listeners=PLAINTEXT://127.0.0.1:{port}")
    assert reason == (
        f"cannot listen on 127.0.0.1:{port}: address already in use. Is another broker using that port?"
        " Set `listeners` to another port (0 takes any free one)."
    )


def test_a_missing_address_is_reported(tmp_path):
    assert "Check '256.1.1.1' in `listeners`." in refusal(tmp_path / "data", "listeners=PLAINTEXT://256.1.1.1:0")


def test_a_file_in_place_of_the_data_directory_is_reported(tmp_path):
    (tmp_path / "data").touch()
    reason = refusal(tmp_path / "data", FREE_PORT)
    assert reason.endswith("data cannot be created: File exists. Choose another directory with --data or log.dirs.")


@pytest.mark.usefixtures("in_a_file")
def test_the_directory_of_another_broker_is_refused(tmp_path):
    broker = BrokerProcess(tmp_path / "data").start()
    try:
        assert "is locked by another process: stop the broker" in refusal(tmp_path / "data", FREE_PORT)
    finally:
        broker.stop()
    assert "belongs to broker 1, this is broker 2: set node.id=1" in refusal(tmp_path / "data", FREE_PORT, "node.id=2")


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("num.partitons=1", "Unknown configuration num.partitons: did you mean num.partitions? (from --set)"),
        ("num.partitions=x", "Invalid value 'x' for configuration num.partitions: expected a 32-bit integer, at least"),
        ("listeners=foo", "listeners: 'foo' is not an address: expected NAME://host:port"),
    ],
)
def test_a_wrong_setting_is_reported(tmp_path, setting, reason):
    assert refusal(tmp_path / "data", setting).startswith(reason)
